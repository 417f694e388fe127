"""What authentication and authorization cost a request. Run with ``pytest bench/test_auth.py --benchmark-enable``."""

import pytest

from kas.auth.attributes import Attributes
from kas.auth.authn.bearer import BearerToken
from kas.auth.authn.chain import Bundle, Verifier
from kas.auth.authn.requestheader import RequestHeader
from kas.auth.authn.tokenfile import admin_token
from kas.auth.authn.union import Authenticators, TokenUnion
from kas.auth.authn.x509 import Certificates, ClientCertificate, Peer
from kas.auth.authz.modes import build
from kas.auth.authz.rbac import RbacIndex
from kas.auth.user import UserInfo
from kas.registry import bootstrap
from tests import pki

NOW = "2024-01-02T03:04:05Z"


@pytest.fixture(scope="module")
def index():
    """Bootstrap RBAC and a namespace with a thousand bindings, one of them jane's."""
    index = RbacIndex()
    for e in bootstrap.system_objects(NOW):
        if e.group == "rbac.authorization.k8s.io":
            index.put(e.resource, e.obj)
    rules = [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps"]}]
    index.put("roles", {"metadata": {"name": "r", "namespace": "ns"}, "rules": rules})
    for i in range(1000):
        subjects = [{"kind": "User", "name": "jane" if i == 500 else f"u{i}"}]
        ref = {"kind": "Role", "name": "r"}
        index.put("rolebindings", {"metadata": {"name": f"b{i}", "namespace": "ns"}, "roleRef": ref, "subjects": subjects})
    return index


def test_bearer_hit(benchmark):
    chain = Authenticators([BearerToken(TokenUnion([admin_token("t" * 32)]), ttl_s=3600)])
    get = {"authorization": "Bearer " + "t" * 32}.get
    assert benchmark(chain.authenticate, get).name == "admin"


def test_anonymous(benchmark):
    assert benchmark(Authenticators([]).authenticate, {}.get).name == "system:anonymous"


def test_client_certificate_hit(benchmark, tmp_path):
    """As in every request of a connection that has shown one: the verdict is known, and asked for."""
    authority = pki.authority("ca")
    shown = pki.issue([("CN", "jane"), ("O", "dev")], authority)
    authority.write(tmp_path, "ca")
    proxies = pki.authority("proxies")
    proxies.write(tmp_path, "proxies")
    members = [
        RequestHeader(Verifier(Bundle(str(tmp_path / "proxies.crt"))), ["X-Remote-User"]),
        ClientCertificate(Verifier(Bundle(str(tmp_path / "ca.crt")))),
    ]
    chain, certificates = Authenticators(members), Certificates(shown.ders)

    def ask():
        return chain.authenticate({}.get, Peer(certificates))

    assert benchmark(ask).name == "jane"


def test_decision_hit(benchmark, index):
    authorizer = build(["RBAC"], rbac=index)
    jane = UserInfo("jane", ("dev", "system:authenticated"))
    a = Attributes(jane, "get", "ns", "", "v1", "configmaps", "", "c")
    assert benchmark(authorizer.authorize, a)[0] == 1


def test_decision_after_a_change(benchmark, index):
    jane = UserInfo("jane", ("dev", "system:authenticated"))
    a = Attributes(jane, "get", "ns", "", "v1", "configmaps", "", "c")

    def decide():
        index._changed()
        return index.authorize(a)

    assert benchmark(decide)[0] == 1


def test_initial_objects(benchmark):
    assert len(benchmark(bootstrap.initial, NOW, "10.0.0.1", ["10.0.0.0/24"], ["127.0.0.1"], 6443)) > 180

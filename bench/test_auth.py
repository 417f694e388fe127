"""Measures what authentication and authorization add to a request. Run with ``pytest bench/test_auth.py --benchmark-enable``."""

from time import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from kas.auth import jws
from kas.auth.attributes import Attributes
from kas.auth.authn.bearer import BearerToken
from kas.auth.authn.chain import Bundle, Verifier
from kas.auth.authn.oidc.authenticator import JWTAuthenticator, JWTAuthenticators, Metrics
from kas.auth.authn.oidc.configuration import Issuer
from kas.auth.authn.oidc.tokens import Verifier as OIDCVerifier
from kas.auth.authn.oidc.validation import compiled_authenticator
from kas.auth.authn.requestheader import RequestHeader
from kas.auth.authn.serviceaccount import ServiceAccountTokens
from kas.auth.authn.tokenfile import admin_token
from kas.auth.authn.union import Authenticators, TokenUnion
from kas.auth.authn.x509 import Certificates, ClientCertificate, Peer
from kas.auth.authz.modes import build
from kas.auth.authz.rbac import RbacIndex
from kas.auth.tokens import Signer, bound_claims
from kas.auth.tokens import Verifier as TokenVerifier
from kas.auth.user import UserInfo
from kas.observe.metrics import Registry
from kas.registry import bootstrap
from tests import pki

NOW = "2024-01-02T03:04:05Z"
ISSUER = "https://issuer.example.com"


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


class Shown:
    """The keys of an issuer, as if they had been fetched."""

    def __init__(self, *keys) -> None:
        self._keys = keys

    def payload(self, token, allowed):
        return jws.verified(token, self._keys, allowed)


def oidc_token(ttl_s: float):
    """Authenticators that trust an issuer, and the headers of a request with a token of it (RS256, ten groups)."""
    private = rsa.generate_private_key(65537, 2048)
    mapper, _ = compiled_authenticator(
        {"issuer": {"url": ISSUER, "audiences": ["c"]}, "claimMappings": {
            "username": {"claim": "sub", "prefix": "u:"}, "groups": {"expression": "claims.groups.map(g, 'g:' + g)"},
        }}, "", frozenset(),
    )  # fmt: skip
    one = JWTAuthenticator(Issuer(ISSUER, "", "", ("c",), ("RS256",), mapper), Metrics(Registry()))
    one.provider.verifier = OIDCVerifier(ISSUER, ["c"], ("RS256",), Shown(jws.key(private.public_key(), "k")))
    jwts = JWTAuthenticators(Registry())
    jwts.use({ISSUER: one})
    claims = {"iss": ISSUER, "aud": "c", "sub": "jane", "exp": int(time()) + 36000, "groups": [f"team-{i}" for i in range(10)]}
    token = jwt.encode(claims, private, "RS256", {"kid": "k"})
    return Authenticators([BearerToken(TokenUnion([admin_token("t"), jwts]), ttl_s=ttl_s)]), {"authorization": f"Bearer {token}"}


def test_oidc_token_hit(benchmark):
    """Known from an earlier request; to be compared with ``test_anonymous``."""
    chain, headers = oidc_token(3600)
    assert benchmark(chain.authenticate, headers.get).name == "u:jane"


def test_oidc_token_verified(benchmark):
    """The first request with a token: its signature is checked, and its claims become a user."""
    chain, headers = oidc_token(0)
    assert benchmark(chain.authenticate, headers.get).name == "u:jane"


def service_account_token(ttl_s: float):
    """As ``oidc_token``, of a service account (ES256, bound to a pod)."""
    meta = {"name": "sa", "namespace": "ns", "uid": "u"}
    objects = {"serviceaccounts": {"metadata": meta}, "pods": {"metadata": {**meta, "name": "p"}}}
    key = pki.generate_key()
    claims = bound_claims(ISSUER, objects["serviceaccounts"], [ISSUER], int(time()), 36000, pod=objects["pods"])
    tokens = ServiceAccountTokens(TokenVerifier([key], [ISSUER]), [ISSUER], lambda resource, namespace, name: objects.get(resource))
    headers = {"authorization": f"Bearer {Signer(key, ISSUER).sign(claims)}"}
    return Authenticators([BearerToken(TokenUnion([admin_token("t"), tokens]), ttl_s=ttl_s)]), headers


def test_service_account_token_hit(benchmark):
    chain, headers = service_account_token(3600)
    assert benchmark(chain.authenticate, headers.get).name == "system:serviceaccount:ns:sa"


def test_service_account_token_verified(benchmark):
    chain, headers = service_account_token(0)
    assert benchmark(chain.authenticate, headers.get).name == "system:serviceaccount:ns:sa"


def test_client_certificate_hit(benchmark, tmp_path):
    """As for every request of a connection with a client certificate: the result is cached."""
    authority = pki.authority("ca")
    shown = pki.issue([("CN", "jane"), ("O", "dev")], authority)
    authority.write(tmp_path, "ca")
    proxies = pki.authority("proxies")
    proxies.write(tmp_path, "proxies")
    members: list[Any] = [
        RequestHeader(Verifier(Bundle(str(tmp_path / "proxies.crt"))), ["X-Remote-User"]),
        ClientCertificate(Verifier(Bundle(str(tmp_path / "ca.crt")))),
    ]
    chain, certificates = Authenticators(members), Certificates(shown.ders)

    def ask():
        return chain.authenticate(lambda name: None, Peer(certificates))

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
        index._changed("ns")
        return index.authorize(a)

    assert benchmark(decide)[0] == 1


def test_initial_objects(benchmark):
    assert len(benchmark(bootstrap.initial, NOW, "10.0.0.1", ["10.0.0.0/24"], ["127.0.0.1"], 6443)) > 180

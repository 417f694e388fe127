"""Flags whose value is passed to a component with tests of its own: the component gets the value."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import jwt
import pytest

from kas.auth.attributes import ALLOW, Attributes
from kas.auth.authn import AuthenticationError
from kas.auth.authn.oidc.configuration import load
from kas.auth.authn.oidc.mapping import user_of
from kas.auth.tokens import Signer
from kas.auth.user import UserInfo
from kas.client.services import ResolveError
from kas.config.options import Options, complete, read
from kas.replicator import cluster, values_of
from kas.request.http import Request
from tests.pki import generate_key
from tests.server.whole import World


@pytest.fixture
def world(tmp_path) -> Iterator[Any]:
    """``world(**flags)`` returns a whole server in this process."""
    made: list[World] = []

    def make(**flags: Any) -> World:
        made.append(World(tmp_path / str(len(made)), **flags))
        return made[-1]

    yield make
    for w in made:
        w.close()


def test_health_and_readiness_have_separate_timeouts(world):
    w, limits = world(etcd_healthcheck_timeout=1.5, etcd_readycheck_timeout=0.5), []
    w.server.checks._remote = [lambda limit_s: limits.append(limit_s) or ""]
    for path in ("/healthz/etcd", "/livez/etcd", "/readyz/etcd", "/readyz/etcd-readiness"):
        assert w.ask(path)[0] == 200
    assert limits == [1.5, 1.5, 1.5, 0.5]


@pytest.mark.parametrize(("routing", "says"), [(False, ""), (True, 'no endpoints available for service "svc"')])
def test_aggregated_servers_are_reached_at_endpoints(routing, says, tmp_path):
    async def go() -> None:
        w = World(tmp_path, loop=asyncio.get_running_loop(), enable_aggregator_routing=routing)
        body = json.dumps({"metadata": {"name": "svc"}, "spec": {"ports": [{"port": 443}]}}).encode()
        headers = [(b"authorization", f"Bearer {w.token}".encode()), (b"content-type", b"application/json")]
        made = await w.server.chain(Request("POST", "/api/v1/namespaces/default/services", "", headers, body))
        assert made.status == 201
        try:
            address = w.server.services.resolve("default", "svc", 443)
            assert not says and address == (json.loads(made.body)["spec"]["clusterIP"], 443)
        except ResolveError as e:
            assert str(e) == says
        w.close()

    asyncio.run(go())


def test_pod_tokens_are_extended_only_if_configured(world):
    assert world(service_account_extend_token_expiration=False).server._issuer().extend_expiration is False
    assert world().server._issuer().extend_expiration is True


def test_audiences_are_the_issuers_unless_named(world):
    assert world(api_audiences=["a", "b"]).server._issuer().audiences == ["a", "b"]
    assert world(service_account_issuer=["https://i"]).server._issuer().audiences == ["https://i"]


def test_a_watch_without_a_timeout_ends(kas_server, connect):
    client = connect(kas_server("--min-request-timeout=1", "--controllers=none"))
    url = f"{client.server.url}/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=0"
    with client.session.get(url, stream=True, timeout=60) as r:
        assert r.status_code == 200 and [*r.iter_lines()] == []


@pytest.mark.parametrize(("most", "forgets"), [(1, True), (1 << 30, False)])
def test_the_history_is_bounded_by_its_size(world, most, forgets):
    w = world(history_max_size=most)
    assert (w.runner._compact_to(0) > 0) is forgets


def test_etcd_client_options(tmp_path):
    """The other flags reach a server on etcd in ``tests/server/test_etcd.py``."""
    flags = ["--storage-backend=etcd3", "--etcd-servers=http://a:1,http://b:2", "--lease-reuse-duration-seconds=7"]
    options, errors = read([*flags, f"--data-dir={tmp_path}"])
    assert errors == []
    config = cluster(complete(options))
    assert (config.servers, config.lease_reuse_s) == (("http://a:1", "http://b:2"), 7)


@pytest.mark.parametrize(("flags", "begins"), [([], b"k8s\0"), (["--storage-media-type=application/json"], b"{")])
def test_the_format_of_values_in_etcd(tmp_path, flags, begins):
    options, errors = read(["--storage-backend=etcd3", "--etcd-servers=http://a:1", f"--data-dir={tmp_path}", *flags])
    assert errors == [] and options.warnings() == []
    values = values_of(complete(options))(None)
    key, given = "/registry/configmaps/ns/a", b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"ns"}}'
    assert values.encode(key, values.decode(key, given)).startswith(begins)


def test_empty_values_mean_the_default_as_in_kube_apiserver(tmp_path):
    names = ("advertise-address", "bind-address", "service-cluster-ip-range", "storage-backend", "tls-min-version")
    options, errors = read([f"--data-dir={tmp_path}", *(f"--{name}=" for name in names)])
    assert errors == []
    default = Options()
    assert [getattr(options, name.replace("-", "_")) for name in names] == [getattr(default, name.replace("-", "_")) for name in names]
    assert complete(options).tls_min == complete(default).tls_min == "tls1.2"
    assert read(["--bind-address=::1", "--bind-address="])[0].bind_address == "::1"


def test_claims_from_flags(tmp_path):
    ask = ["--oidc-issuer-url=https://x", "--oidc-client-id=c", "--oidc-username-claim=name", "--oidc-required-claim=tenant=a"]
    options, errors = read([*ask, "--oidc-required-claim=site=b"])
    assert errors == []
    (issuer,) = load(options).issuers
    claims = {"iss": "https://x", "aud": "c", "sub": "s", "name": "jane", "tenant": "a", "site": "b"}
    assert user_of(claims, issuer.mapper).name == "https://x#jane"
    for wrong in ({"tenant": "other"}, {"site": "other"}):
        with pytest.raises(AuthenticationError):
            user_of(claims | wrong, issuer.mapper)


def test_the_policy_of_abac_is_read(world, tmp_path):
    policy = {"user": "bob", "namespace": "ns", "resource": "pods", "apiGroup": ""}
    line = json.dumps({"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": policy})
    (tmp_path / "policy").write_text(line + "\n")
    w = world(authorization_mode=["ABAC"], authorization_policy_file=str(tmp_path / "policy"))

    def allowed(user: str) -> bool:
        return w.server.authorizer.authorize(Attributes(UserInfo(user), "get", "ns", "", "v1", "pods", "", "p"))[0] == ALLOW

    assert allowed("bob") and not allowed("eve")


def answer(world: World, request: Request) -> Any:
    """Returns the server's answer through all of its filters."""

    async def go() -> Any:
        found = world.server.chain(request)
        return await found if hasattr(found, "__await__") else found

    return asyncio.run(go())


def test_strict_transport_directives_are_sent(world):
    def sent(w: World) -> list[bytes]:
        return [value for name, value in answer(w, Request("GET", "/version", "", [])).headers if name == b"strict-transport-security"]

    assert sent(world(strict_transport_security_directives=["max-age=9", "preload"])) == [b"max-age=9; preload"]
    assert sent(world()) == []


def test_the_lifetime_of_events_follows_its_flag(world):
    assert world(event_ttl=77.0).server.registries.of("", "events").lease_s == 77
    assert world().server.registries.of("", "configmaps").lease_s == 0


def test_the_cache_time_of_token_reviews_follows_its_flag(world, tmp_path):
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "w", "user": "u"}}],
        "clusters": [{"name": "w", "cluster": {"server": "https://127.0.0.1:1/"}}], "users": [{"name": "u", "user": {}}],
    }  # fmt: skip
    (tmp_path / "kc").write_text(json.dumps(config))
    w = world(authentication_token_webhook_config_file=str(tmp_path / "kc"), authentication_token_webhook_cache_ttl=7.0)
    assert [hook._ttl for hook in w.server.external.members] == [7.0]


def test_tokens_are_signed_with_the_configured_key(world, tmp_path):
    path = tmp_path / "sa.key"
    path.write_bytes(generate_key())
    w = world(service_account_signing_key_file=str(path), service_account_issuer=["https://x"])
    keys = json.loads(w.ask("/openid/v1/jwks")[1])["keys"]
    own = jwt.get_unverified_header(Signer(path.read_bytes(), "https://x").sign({}))
    assert [key["kid"] for key in keys] == [own["kid"]]


@pytest.mark.parametrize(("modes", "status"), [(["RBAC"], 403), (["RBAC", "AlwaysAllow"], 401)])
def test_anonymous_users_are_not_allowed_everything(modes, status, world):
    answer = world(authorization_mode=modes).server.chain(Request("GET", "/api/v1/namespaces", "", []))
    assert answer.status == status


@pytest.mark.parametrize(("workers", "most"), [(3, 3), (-1, 1), (0, 1), ((1 << 63) - 1, 9)])
def test_the_concurrency_of_deletecollection_follows_its_flag(workers, most, tmp_path):
    """Upstream uses one worker if the flag is smaller."""
    under_way, seen, all_there = set[str](), list[int](), asyncio.Event()

    async def one(req: Request, served: Any, rec: Any, options: Any) -> None:
        under_way.add(rec)
        seen.append(len(under_way))
        if len(under_way) >= most:
            all_there.set()
        await all_there.wait()  # beginning them all may take several loop iterations
        await asyncio.sleep(0)
        under_way.discard(rec)

    async def go() -> None:
        w = World(tmp_path, loop=asyncio.get_running_loop(), delete_collection_workers=workers)
        try:
            deleter = w.server.rest.deleter
            deleter._one = one
            await deleter._each(None, None, [f"c{i}" for i in range(9)], {})
        finally:
            w.close()

    asyncio.run(go())
    assert max(seen) == most and len(seen) == 9

"""Every cache has a limit in bytes, is in the list, in docs/architecture.md and at /metrics, and stays within its limit."""

from __future__ import annotations

import importlib
import pkgutil
import re
import tracemalloc
from hashlib import sha256
from pathlib import Path
from time import monotonic

import pytest

import kas
from kas._fastpath import keyed_digest
from kas.aggregator.idle import MOST_OF_ALL
from kas.aggregator.transport import MOST_CONTEXTS
from kas.auth.attributes import Attributes
from kas.auth.authn.bearer import BearerToken
from kas.auth.authn.tokenwebhook import TokenWebhook
from kas.auth.authn.union import Authenticators
from kas.auth.authn.x509 import ClientCertificate
from kas.auth.authz.rbac import LONGEST, RbacIndex
from kas.auth.user import UserInfo
from kas.cel.admission import environment
from kas.cel.expressions import compile_expression
from kas.client.hooks import MAX_CLIENTS
from kas.client.http import CONNECTION_BYTES, CONTEXT_BYTES
from kas.client.pool import MAX_IDLE
from kas.endpoints.options import list_options, write_options
from kas.endpoints.respond import media
from kas.filters.authentication import REMEMBERED_S, authentication
from kas.kinds.core.pod.defaults import image_pull_policy
from kas.kinds.core.resources import amount
from kas.meta import age, cached, quantity, regex, selectors
from kas.observe import caches
from kas.observe.metrics import Registry as Metrics
from kas.patch.fieldmanager import manager_name
from kas.request.http import Request
from kas.request.negotiation import negotiate
from kas.request.requestinfo import Query

ROOT = Path(__file__).parents[2]
LONG = 1 << 20


def load_everything() -> None:
    for module in pkgutil.walk_packages(kas.__path__, "kas."):
        if module.name.split(".")[1] not in ("testing", "__main__"):
            importlib.import_module(module.name)


def rows() -> dict[str, caches.Row]:
    return {row.name: row for row in caches.rows()}


def wide(i: int, length: int) -> str:
    """Returns different texts of the characters that take the most memory."""
    return f"{i}" + "\U0001f600" * (length - len(str(i)))


def refused(call, *args) -> None:
    try:
        call(*args)
    except (ValueError, Exception) as e:
        assert not isinstance(e, (MemoryError, AssertionError)), e


def _media(text: str) -> None:
    req = Request("GET", "/", "", [(b"accept", b"application/json"), (b"user-agent", text.encode("utf-8")[:1000])])
    media(req)


ONE_TEXT = {
    **{f"name_checks_{name}": getattr(cached, function) for name, function in (
        ("dns_label", "dns_label"), ("dns_subdomain", "dns_subdomain"), ("qualified_name", "qualified_name"),
        ("label_value", "label_value"), ("port_name", "port_name"), ("environment_variable", "env_name"),
        ("config_map_key", "config_map_key"),
    )},
    "image_pull_policies": image_pull_policy,
    "manager_names": lambda text: manager_name("", text),
    "field_selectors": lambda text: selectors.parse_field_selector(f"a={text}"),
    "media_types": negotiate,
    "answer_forms": _media,
    "list_options": lambda text: list_options(Query(f"fieldSelector=a={text}")),
    "write_options": lambda text: write_options(Query(f"fieldManager={text}"), "CreateOptions"),
    "cel_types": lambda text: compile_expression(f"'{text}' == ''", environment(False, False), "x") if len(text) < LONG else None,
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(ONE_TEXT))
def test_a_cache_filled_with_hostile_texts_stays_within_its_limit(name):
    call = ONE_TEXT[name]
    refused(call, "warm")
    row = rows()[name]
    # Texts of about the maximum length, more of them than fit, within the time of a test.
    length = {"answer_forms": 200, "write_options": 400, "media_types": 900, "field_selectors": 250}.get(name, 120)
    count = 400 if name == "cel_types" else min(5000, 3 * row.budget // (400 + 4 * length))
    tracemalloc.start()
    try:
        for i in range(count):
            refused(call, wide(i, length))
        refused(call, wide(0, LONG))
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    after = rows()[name]
    assert 0 < after.size <= after.budget
    assert held <= after.budget + LONG, "what is kept is what is told, and a long text is not kept"


@pytest.mark.parametrize(("name", "call", "texts"), [
    ("quantities", quantity.cached, (f"{i}.{'1' * 20}" for i in range(5000))),
    ("quantity_amounts", amount, (f"{i}e900" for i in range(9000))),
    ("times", age.parse_time, (f"2024-01-02T03:04:05.{i:06d}Z" for i in range(5000))),
    ("label_selectors", selectors.parse_label_selector, (",".join(f"a{i}-{j}" for j in range(40)) for i in range(600))),
    ("patterns", lambda text: regex.compiled(text).search("ab" * 50), (f"a{{{i % 900 + 1}}}|[a-z]{{10,20}}b{i}" for i in range(400))),
])  # fmt: skip
def test_a_cache_of_parsed_texts_stays_within_its_limit(name, call, texts):
    for text in texts:
        call(text)
    row = rows()[name]
    assert 0 < row.size <= row.budget


def test_long_quantities_are_parsed_again():
    quantity.cached("1")
    before = rows()["quantities"].size
    quantity.cached("1" * 900)
    assert rows()["quantities"].size == before


def ask(index: RbacIndex, user: UserInfo, path: str = "", namespace: str = "", resource: str = "") -> None:
    if path:
        index.authorize(Attributes(user, "get", resource_request=False, path=path))
    else:
        index.authorize(Attributes(user, "get", namespace=namespace, resource=resource, api_version="v1"))


def test_rbac_decisions_are_bounded_in_bytes():
    index = RbacIndex()
    user = UserInfo("mallory", ("devs",))
    for i in range(12_000):
        ask(index, user, path="/" + wide(i, 900))
        ask(index, user, namespace=wide(i, 400), resource=wide(i, 400))
    for i in range(2000):
        ask(index, UserInfo(f"u{i}", tuple(f"{i}{'g' * 100}{j}" for j in range(50))), path="/x")
    row = rows()["rbac_decisions"]
    assert 0 < row.size <= row.budget


def test_long_paths_are_decided_and_not_cached():
    index = RbacIndex()
    index.put("clusterroles", {"metadata": {"name": "r"}, "rules": [{"verbs": ["get"], "nonResourceURLs": ["/a*"]}]})
    role = {"kind": "ClusterRole", "name": "r"}
    index.put("clusterrolebindings", {"metadata": {"name": "b"}, "roleRef": role, "subjects": [{"kind": "User", "name": "jane"}]})
    user = UserInfo("jane")
    for _ in range(2):
        assert index.authorize(Attributes(user, "get", resource_request=False, path="/a" + "b" * LONGEST))[0] == 1
    assert not index.matcher(user).paths
    assert index.authorize(Attributes(user, "get", resource_request=False, path="/ab"))[0] == 1
    assert len(index.matcher(user).paths) == 1


def test_credentials_are_bounded_in_bytes():
    class Tokens:
        def authenticate_token(self, token: str) -> UserInfo:
            return UserInfo("jane", ("g" * 1000,))

    bearer = BearerToken(Tokens())
    for i in range(3000):
        headers = {"authorization": f"Bearer {i}" + "x" * 15_000}
        assert bearer.authenticate(headers.get) is not None
        assert bearer._cache.size <= bearer._cache.budget
    certificates = ClientCertificate(None)
    for i in range(2000):
        certificates._known.put(f"{i}", UserInfo("u" * 4000), 18_000)
    assert 0 < certificates._known.size <= certificates._known.budget


def test_the_documented_list_is_complete():
    """One row for each cache, with its budget."""
    load_everything()
    # Created with the server.
    keep = RbacIndex(), BearerToken(None), ClientCertificate(None), TokenWebhook(None, "v1", (), 60.0)
    text = (ROOT / "docs" / "architecture.md").read_text()
    told = {m[1]: m[2] for m in re.finditer(r"^\| `([a-z_]+)` \| ([0-9.]+ [KM]iB) \|", text, re.MULTILINE)}
    assert keep
    here = rows()
    made_with_the_server = {
        "authorization_headers": 16 << 20, "authorization_reviews": 16 << 20, "image_reviews": 4 << 20,
        "impersonations": 4 << 20,
        "audit_policy": 4 << 20,
        "counted_keys": 256 << 10, "data_encryption_keys": 4 << 20, "flow_control_flows": 8 << 20, "flow_control_counts": 1 << 20,
        "aggregator_connections": MOST_OF_ALL * CONNECTION_BYTES,
        "aggregator_tls": MOST_CONTEXTS * CONTEXT_BYTES, "webhook_clients": MAX_CLIENTS * (CONTEXT_BYTES + MAX_IDLE * CONNECTION_BYTES),
        "shown_certificates": 4 << 20,
    }  # fmt: skip
    budgets = {name: row.budget for name, row in here.items()} | made_with_the_server
    # Others of these may exist.
    one = {"bearer_tokens": 16 << 20, "client_certificates": 16 << 20, "token_reviews": 16 << 20, "rbac_decisions": 32 << 20}
    assert told == {name: shown(one.get(name, budget)) for name, budget in budgets.items()}


def shown(budget: int) -> str:
    return f"{budget / (1 << 20):.1f} MiB" if budget >= 1 << 20 else f"{budget / 1024:.0f} KiB"


class Said:
    def authenticate_token(self, token: str) -> UserInfo:
        return UserInfo("jane")


def test_entries_with_a_lifetime_are_removed_at_its_end():
    cache = caches.Expiring("test", "tokens", 1 << 20, 1000)
    cache.put(b"one", ("user", 10.0), 3)
    first = cache.size
    cache.put(b"two", ("user", 20.0), 500)
    cache.put(b"two", ("user", 21.0), 500)
    cache.sweep(10.0)
    assert list(cache.entries) == [b"two"] and cache.size > first
    cache.sweep(21.0)
    assert cache.entries == {} and cache.size == 0


def test_no_token_stays_in_memory_longer_than_it_is_valid(monkeypatch):
    """The caches of the bearer authenticator and the filter hold digests, which are removed with the sweep."""
    token = "a-token-nobody-else-has"
    bearer = BearerToken(Said())
    bearer.authenticate({"authorization": f"Bearer {token}"}.get)
    assert bearer.remembered(f"Bearer {token}").name == "jane" and token not in str(bearer._cache.entries)
    passing = authentication(lambda: Authenticators([bearer]), Metrics(), lambda forget: None)
    req = Request("GET", "/version", "", [(b"authorization", f"Bearer {token}".encode())])
    passing.before(req)
    header = f"Bearer {token}".encode()
    held = [c for c in caches._expiring if {sha256(header).digest(), keyed_digest(header)} & set(c.entries)]
    assert len(held) == 2 and not [c for c in caches._expiring if token in str(list(c.entries))]
    now = monotonic()
    monkeypatch.setattr(caches, "monotonic", lambda: now + REMEMBERED_S)
    caches.sweep()
    assert [(c.entries, c.size) for c in held] == [({}, 0)] * 2

"""The authentication filter: who is authenticated, what is cached, and which headers it removes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from time import monotonic
from types import SimpleNamespace

import pytest

from kas._fastpath import CredentialLookup, Timer, keyed_digest
from kas.auth.authn import AuthenticationError, Found
from kas.auth.authn.bearer import BearerToken
from kas.auth.authn.tokenfile import admin_token
from kas.auth.authn.union import Authenticators
from kas.auth.authn.websocket import WebSocketToken
from kas.auth.user import ANONYMOUS_USER, UserInfo
from kas.config import features
from kas.filters import authentication as filters
from kas.filters.authentication import REMEMBERED_S, Remembered, authentication
from kas.meta.errors import ApiError
from kas.observe.caches import Expiring
from kas.observe.logs import MOST
from kas.observe.metrics import Registry
from tests.filters.requests import request

JANE = UserInfo("jane", ("dev",))
NODE = UserInfo("system:node:a", ("system:nodes",))


class Says:
    """An authenticator with one answer, given later with ``later``, by the Authorization header alone or not; ``asked`` counts its calls.
    """

    def __init__(self, answer: UserInfo | Exception | None, later: bool = False, by_header: bool = True) -> None:
        self.answer, self.later, self.by_header, self.asked = answer, later, by_header, 0

    def authenticate(self, get, peer=None, path="", found=None):
        self.asked += 1
        if found is not None:
            found.by_header = self.by_header
        return self.wait() if self.later else self.now()

    def now(self):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def wait(self):
        await asyncio.sleep(0)
        return self.now()


class Gate:
    """The filter with an authenticator: ``forget()`` is a revocation, ``metrics`` has its counters."""

    def __init__(self, says: Says, vouching=((), ())) -> None:
        self.metrics, forgets = Registry(), []
        self.filter = authentication(lambda: says, self.metrics, forgets.append, vouching)
        (self.forget,) = forgets

    def run(self, req):
        waiting = self.filter.before(req)
        if waiting is not None:
            asyncio.run(self.until(waiting))
        return req

    async def until(self, waiting):
        return await waiting

    def counted(self, result: str) -> bool:
        return f'authentication_attempts{{result="{result}"}} 1' in self.metrics.expose().decode()


def bearer(token: str = "good", **headers: str):
    return request(authorization=f"Bearer {token}", **headers)


@pytest.mark.parametrize("later", [False, True])
def test_the_credential_of_an_authenticated_request_is_removed(later):
    gate = Gate(Says(JANE, later))
    req = gate.run(bearer())
    assert req.user is JANE and req.get("authorization") is None and gate.counted("success")


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(("answer", "counted"), [(None, "failure"), (AuthenticationError("expired"), "error")])
def test_other_requests_are_401(answer, counted, later):
    gate = Gate(Says(answer, later))
    with pytest.raises(ApiError) as e:
        gate.run(bearer())
    assert e.value.code == 401 and gate.counted(counted)


@pytest.mark.parametrize("later", [False, True])
def test_success_is_cached_for_a_while_and_until_a_revocation(later):
    says = Says(JANE, later)
    gate = Gate(says)
    first = gate.run(bearer())
    for started, asked in ((first.started, 1), (first.started + REMEMBERED_S - 1, 1), (first.started + REMEMBERED_S + 1, 2)):
        req = bearer()
        req.started = started
        gate.run(req)
        assert (req.user, says.asked, req.get("authorization")) == (JANE, asked, None)
    gate.forget()
    gate.run(bearer())
    assert says.asked == 3


def test_nested_caches_expire_together(monkeypatch):
    """A token is checked again after ten seconds, although filter and authenticator both cache it for ten."""
    now = [100.0]
    monkeypatch.setattr(filters, "monotonic", lambda: now[0])

    class Tokens(Says):
        def authenticate_token(self, token):
            now[0] += 0.5  # which takes long
            return self.authenticate(None)

    tokens = Tokens(JANE)
    authenticator = BearerToken(tokens, clock=lambda: now[0])
    gate = Gate(Authenticators([authenticator]))

    def ask(at: float) -> int:
        now[0] = at
        req = bearer()
        req.started = at
        gate.run(req)
        return tokens.asked

    assert [ask(100.0), ask(100.0 + REMEMBERED_S + 0.4), ask(100.0 + REMEMBERED_S + 0.6)] == [1, 1, 2]


def test_the_cache_holds_no_credential():
    says = Says(JANE)
    gate = Gate(says)
    for _ in range(2):
        gate.run(bearer("very-secret"))
    assert says.asked == 1
    keys = [key for c in gc.get_objects() if isinstance(c, Expiring) for key, value in c.entries.items() if value[0] is JANE]
    assert keys and not [key for key in keys if b"secret" in key]


def test_a_failure_is_not_cached():
    says = Says(None)
    gate = Gate(says)
    for _ in range(2):
        with pytest.raises(ApiError):
            gate.run(bearer())
    assert says.asked == 2


def test_a_client_certificate_is_checked_each_time():
    says = Says(NODE)
    gate = Gate(says)
    for _ in range(2):
        req = bearer()
        req.peer = SimpleNamespace(certificates=(b"der",))
        gate.run(req)
    assert says.asked == 2


def test_identity_headers_of_proxies_are_always_removed():
    names, prefixes = (b"x-remote-user",), (b"x-remote-extra-",)
    gate = Gate(Says(JANE), (names, prefixes))
    for _ in range(2):  # authenticated, and cached
        req = gate.run(bearer(x_remote_user="root", x_remote_extra_scope="all", x_other="stays"))
        assert (req.get("x-remote-user"), req.get("x-remote-extra-scope"), req.get("x-other")) == (None, None, "stays")


def test_the_read_only_port_does_not_authenticate():
    says = Says(None)
    req = bearer()
    req.read_only_port = True
    assert Gate(says).run(req).user is ANONYMOUS_USER and says.asked == 0


def test_users_are_counted_by_class_and_not_by_name():
    for name, label in (
        ("jane", "other"), ("system:node:a", "other"), ("system:made-up", "other"), ("jane@example.com", "email_id"), ("admin", "admin"),
        ("kubelet", "kubelet"), ("system:serviceaccount:kube-system:default",) * 2, ("system:serviceaccount:x:default", "other"),
    ):  # fmt: skip
        gate = Gate(Says(UserInfo(name)))
        gate.run(bearer())
        assert f'authenticated_user_requests{{username="{label}"}} 1' in gate.metrics.expose().decode()


def test_extra_space_before_a_token_is_warned_about():
    for says in (JANE, None, AuthenticationError("bad")):  # also if authentication fails
        req = request(authorization="Bearer  good")
        with contextlib.suppress(ApiError):
            Gate(Says(says)).run(req)
        assert any("extra space" in text for text in req.warnings)


def test_a_waiting_authenticators_success_is_cached_unless_revoked_meanwhile():
    async def go():
        gate, asked, forget = asyncio.Event(), [], []

        class Asks:
            def authenticate(self, get, peer=None, path="", found=None):
                asked.append(get("authorization"))
                found.by_header = True

                async def wait():
                    await gate.wait()
                    return JANE

                return wait()

        f = authentication(lambda: Asks(), Registry(), forget.append)

        async def one(revoke: bool) -> None:
            req = request(authorization="Bearer x")
            pending = f.before(req)
            if pending is None:
                return
            task = asyncio.ensure_future(pending)
            await asyncio.sleep(0)
            if revoke:
                forget[0]()
            gate.set()
            await task
            assert req.user is JANE and not req.has_header(b"authorization")

        await one(revoke=True)
        await one(revoke=False)
        assert len(asked) == 2
        await one(revoke=False)
        assert len(asked) == 2

    asyncio.run(go())


@pytest.mark.parametrize("says", [None, AuthenticationError("no")])
def test_recent_refusals_are_remembered(monkeypatch, says):
    """Both unknown credentials and errors; authenticated requests change nothing."""
    now = [100.0]
    monkeypatch.setattr(filters, "monotonic", lambda: now[0])
    remembered = Remembered()

    class Says:
        def authenticate(self, get, peer=None, path="", found=None):
            if get("authorization") == "Bearer good":
                return JANE
            if says is not None:
                raise says
            return None

    f = authentication(Says, Registry(), lambda _: None, remembered=remembered)
    f.before(request(authorization="Bearer good"))
    assert remembered.all_known()
    with pytest.raises(ApiError):
        f.before(request(authorization="Bearer bad"))
    assert not remembered.all_known()
    f.before(request(authorization="Bearer good"))
    assert not remembered.all_known()
    now[0] += 1.5
    assert remembered.all_known()


def test_the_cache_can_be_queried(monkeypatch):
    """For ten seconds, and until a revocation; credentials longer than all cached ones are not hashed."""
    now = [100.0]
    monkeypatch.setattr(filters, "monotonic", lambda: now[0])
    remembered, forget = Remembered(), []

    class Says:
        def authenticate(self, get, peer=None, path="", found=None):
            found.by_header = get("authorization") == "Bearer good"
            return JANE

    f = authentication(Says, Registry(), forget.append, remembered=remembered)
    good, other = b"Bearer good", b"Bearer other"
    assert not remembered.has(good)
    f.before(request(authorization="Bearer good"))
    f.before(request(authorization="Bearer other"))
    assert remembered.whose(good) is JANE and remembered.whose(other) is None
    assert remembered.has(good) and not remembered.has(other) and not remembered.has(b"Bearer bad!")
    now[0] += REMEMBERED_S
    assert not remembered.has(good)
    f.before(request(authorization="Bearer good"))
    assert remembered.has(good)
    forget[0]()
    assert not remembered.has(good)
    monkeypatch.setattr(filters, "keyed_digest", None)
    assert not remembered.has(b"Bearer " + b"a" * 12_000)


@pytest.mark.parametrize(("size", "hex_"), [
    (0, "a3817f04ba25a8e66df67214c7550293"), (1, "da87c1d86b99af44347659119b22fc45"), (2, "8177228da4a45dc7fca38bdef60affe4"),
])  # fmt: skip
def test_the_digest_is_siphash_of_128_bits(size, hex_):
    """The first of the reference implementation's vectors."""
    assert keyed_digest(bytes(range(size)), bytes(range(16))).hex() == hex_


def test_a_digest_depends_on_every_byte_and_on_the_key():
    texts = [bytes(n) for n in range(40)] + [bytes([0] * i + [1] + [0] * (39 - i)) for i in range(40)]
    found = {keyed_digest(text) for text in texts}
    assert len(found) == len(texts) and {len(x) for x in found} == {16}
    assert keyed_digest(b"x") == keyed_digest(b"x") != keyed_digest(b"x", bytes(16))
    with pytest.raises(ValueError, match="sixteen"):
        keyed_digest(b"x", b"short")


@pytest.mark.parametrize("later", [False, True])
def test_only_users_found_by_the_header_are_cached_by_it(later):
    """Another credential may be used beside an irrelevant header, and the next client with that header is another user."""
    says = Says(JANE, later, by_header=False)
    gate = Gate(says)
    for asked in (1, 2):
        assert gate.run(request(authorization="Basic guest")).user == JANE and says.asked == asked


def test_an_irrelevant_header_does_not_give_another_clients_identity():
    """With a token in the subprotocols; and a client that may be anonymous on some paths may not be on others."""
    bearer = BearerToken(admin_token("t"))
    gate = Gate(Authenticators([bearer, WebSocketToken(bearer)], anonymous_paths=["/livez"]))
    said = "base64url.bearer.authorization.k8s.io.dA,x"
    for authorization in ("Basic guest", "Bearer bad", "Bearer "):
        sent = {"authorization": authorization, "upgrade": "websocket", "connection": "Upgrade", "sec_websocket_protocol": said}
        assert gate.run(request(**sent)).user.name == "admin"
        with pytest.raises(ApiError):
            gate.run(request(authorization=authorization))
    assert gate.run(request(path="/livez", authorization="Basic guest")).user is ANONYMOUS_USER
    with pytest.raises(ApiError):
        gate.run(request(authorization="Basic guest"))
    assert gate.run(request(authorization="Bearer t")).user.name == "admin"
    assert gate.filter.before(request(authorization="Bearer t")) is None


def test_every_authenticator_of_a_union_reports_how_it_found_the_user():
    class Later(Says):
        def authenticate(self, get, peer=None):
            return self.wait()

    async def go(*members):
        found = Found()
        user = Authenticators(members).authenticate(lambda name: "Bearer t", None, "", found)
        assert (user if isinstance(user, UserInfo) else await user).name in ("jane", "admin")
        return found.by_header

    one, two = BearerToken(admin_token("t")), BearerToken(admin_token("t"))
    for members, by_header in (
        ((Later(JANE, by_header=True),), True), ((Later(JANE, by_header=False),), False), ((Later(None), one), True),
        ((Later(AuthenticationError("no")), Later(JANE, by_header=False)), False), ((Later(JANE, by_header=False), two), False),
        ((one,), True), ((two,), True), ((Later(None), two), True),
    ):  # fmt: skip
        assert asyncio.run(go(*members)) is by_header


def test_a_credential_longer_than_any_valid_one_is_not_looked_up():
    """Hashing it is most of the cost of refusing 12 kB."""
    gate = Gate(Says(JANE))
    gate.run(bearer("good"))
    recall = CredentialLookup({keyed_digest(b"Bearer good"): (JANE, float("inf"), ("other",), True)}, {}, *(Timer(Registry().histogram(
        "h", "", ("a",), (1.0,)), (b,)) for b in "xy"))  # fmt: skip
    recall.longest = len(b"Bearer good") - 1
    assert not recall.known(bearer("good"))
    recall.longest += 1
    assert recall.known(bearer("good"))


def test_of_thousands_of_refusals_a_hundred_are_logged(caplog, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(filters, "monotonic", lambda: now[0])
    gate = Gate(Says(AuthenticationError("no")))

    def refused():
        with pytest.raises(ApiError):
            gate.run(bearer("evil"))

    for _ in range(1000):
        refused()
    assert len(caplog.messages) == MOST
    now[0] += 1
    refused()
    assert caplog.messages[MOST:] == [f"{1000 - MOST} more requests could not be authenticated", caplog.messages[0]]
    assert 'authentication_attempts{result="error"} 1001' in gate.metrics.expose().decode()


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("answer", [None, AuthenticationError("expired"), ANONYMOUS_USER, UserInfo("x", ("system:unauthenticated",)), JANE])
def test_only_authenticated_clients_keep_an_http2_connection(answer, later):
    def left(version: str, front: bool = True, ago: float = 0.0) -> list[bool]:
        req, asked = request(), []
        req.http_version, req.started = version, monotonic() - ago
        if front:
            req.peer = SimpleNamespace(certificates=None, leave=lambda must: asked.append(must))
        with contextlib.suppress(ApiError):
            Gate(Says(answer, later)).run(req)
        return asked

    assert left("2") == ([] if answer is JANE else [True])
    assert left("1.1") == [] == left("2", front=False)
    assert left("2", ago=filters.PROMPT_S) == ([] if answer is JANE else [False])  # may have been sent before its client was told
    with features.DEFAULT.overridden(UnauthenticatedHTTP2DOSMitigation=False):
        assert left("2") == []


class ByCertificate:
    """With certificates, a proxy's headers count if ``by_proxy``, otherwise the certificate's own user."""

    def __init__(self, by_proxy: bool) -> None:
        self.by_certificate, self.by_proxy = not by_proxy, by_proxy

    def authenticate(self, get, peer=None):
        return UserInfo(get("x-remote-user") or "front", ("dev",)) if peer is not None else None


@pytest.mark.parametrize("by_proxy", [False, True])
def test_users_authenticated_by_certificates_are_known_for_a_moment(by_proxy, monkeypatch):
    now, forgets, known = [100.0], [], Remembered()
    monkeypatch.setattr(filters, "monotonic", lambda: now[0])
    authenticators = Authenticators([ByCertificate(by_proxy), BearerToken(admin_token("good"))])
    gate = authentication(lambda: authenticators, Registry(), forgets.append, remembered=known)

    def ask(key: bytes | None = b"key", **headers: str) -> str:
        req = request(**headers)
        certificates = None if key is None else SimpleNamespace(key=key)
        req.peer = SimpleNamespace(certificates=certificates, leave=lambda must: None)
        assert gate.before(req) is None
        return req.user.name

    assert ask(x_remote_user="ann") == "ann" and ask(None) == ANONYMOUS_USER.name and ask(None, authorization="Bearer good") == "admin"
    name = "ann" if by_proxy else ""
    assert known.shown(b"key", name) == "ann" and known.shown(b"other", name) is None and known.shown(b"key", "bob") is None
    assert len(known._shown.entries) == 1
    now[0] += REMEMBERED_S - 1
    assert known.shown(b"key", name) == "ann"
    now[0] += 1
    assert known.shown(b"key", name) is None
    ask(x_remote_user="ann")
    forgets[0]()
    assert known.shown(b"key", name) is None

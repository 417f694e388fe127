"""The audit filter: which requests have an event, its place in the chain, and requests that cannot be recorded."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import orjson
import pytest

from kas.audit.auditor import Auditor
from kas.audit.backend import AuditError, Union
from kas.audit.policy import load
from kas.endpoints.proxy import handed_on
from kas.filters.audit import audit
from kas.meta.errors import forbidden
from kas.observe import latencies
from kas.observe.metrics import Registry
from kas.request.http import Request, Response
from tests.filters.requests import request
from tests.filters.serving import Harness, answer, head, listening, until


class Backend:
    """Keeps entries, once ``gate`` is open if there is one; refuses them if ``fails``."""

    name = "test"

    def __init__(self, fails: bool = False, gate: asyncio.Event | None = None) -> None:
        self.entries: list[dict[str, Any]] = []
        self.fails, self.gate, self.now = fails, gate, 0

    def process(self, entries):
        if self.fails:
            raise AuditError("the disk is full")
        if self.gate is not None:
            return self._later(entries)
        self.entries += [orjson.loads(e.text) for e in entries]
        return None

    async def _later(self, entries) -> None:
        self.now += 1
        try:
            await self.gate.wait()
        finally:
            self.now -= 1
        self.entries += [orjson.loads(e.text) for e in entries]

    async def close(self) -> None:
        pass


def auditor(backend: Backend, strict: bool = False, **rule: Any) -> Auditor:
    metrics = Registry()
    union = Union(metrics.counter("errors", "", ("plugin",)))
    union.backends.append((backend, strict))
    rules = [{"level": "Metadata", **rule}] if rule else [{"level": "Metadata"}]
    return Auditor(load({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}), union, metrics)


def test_a_request_has_an_event_if_the_policy_says_so():
    backend = Backend()
    f = audit(auditor(backend, verbs=["delete"]))
    req = request("GET", "/api/v1/namespaces/a/pods/b")
    assert f.before(req) is None and req.audit is None
    req = request("DELETE", "/api/v1/namespaces/a/pods/b")
    assert f.before(req) is None and req.audit is not None
    assert [e["stage"] for e in backend.entries] == ["RequestReceived"]


def test_the_event_has_the_user_and_the_impersonated_one():
    backend = Backend()
    h = Harness(auditor=auditor(backend))
    names = h.chain.names
    assert names.index("authentication") < names.index("audit") < names.index("impersonation")
    assert h.chain(Request("GET", "/api/v1/pods", "", [(b"impersonate-user", b"bob")])).status == 200
    event = backend.entries[-1]
    assert event["stage"] == "ResponseComplete" and event["responseStatus"]["code"] == 200
    assert (event["user"]["username"], event["impersonatedUser"]["username"]) == ("jane", "bob")
    assert event["annotations"]["authorization.k8s.io/decision"] == "allow"


def test_a_request_that_a_strict_backend_cannot_record_fails():
    h = Harness(auditor=auditor(Backend(fails=True), strict=True))
    resp = h.chain(Request("GET", "/api/v1/pods", "", []))
    assert (resp.status, resp.body) == (500, b'Internal Server Error: "/api/v1/pods": failed to store audit event\n')
    assert h.seen == [] and h.nothing_held()
    h = Harness(auditor=auditor(Backend(fails=True)))
    assert h.chain(Request("GET", "/api/v1/pods", "", [])).status == 200


@pytest.mark.parametrize("level", ["Metadata", "Request", "RequestResponse"])
@pytest.mark.parametrize("how", ["answered", "refused", "panicked", "waited", "left"])
def test_recorded_requests_leave_no_cycle(level, how):
    """A request and its event refer to one another, with the bodies: 240 of 2 MB were 1 GB until the garbage collector ran."""

    async def go() -> None:
        h = Harness("authorizer" if how in ("waited", "left", "refused") else "", auditor=auditor(Backend(), level=level))
        if how == "panicked":
            h.chain._endpoint = lambda req: 1 / 0
        req = Request("GET", "/api/v1/pods", "", [])
        resp = h.chain(req)
        assert req.audit is not None or how in ("answered", "panicked")
        if not isinstance(resp, Response):
            waiting = asyncio.ensure_future(resp)
            await h.began.wait()
            if how == "left":
                waiting.cancel()
            h.fails = forbidden("", "pods", "", "no") if how == "refused" else None
            h.gate.set()
            with contextlib.suppress(asyncio.CancelledError):
                assert (await waiting).status == (403 if how == "refused" else 200)
        else:
            assert resp.status == (500 if how == "panicked" else 200)
        assert req.audit is None

    asyncio.run(asyncio.wait_for(go(), 60))


def test_a_disconnect_while_a_backend_waits_leaves_nothing(tmp_path):
    async def go() -> None:
        gate = asyncio.Event()
        backend = Backend(gate=gate)
        h = Harness(auditor=auditor(backend))
        async with listening(h.chain, tmp_path) as connect:
            _, writer = await connect()
            writer.write(head())
            await until(lambda: backend.now == 1)
            writer.close()
            await until(h.nothing_held)
            assert h.seen == []
            reader, writer = await connect()
            writer.write(head())
            await until(lambda: backend.now >= 1 and len(h.waiting.serving) == 1)
            gate.set()
            assert await answer(reader) == (200, b"done")
            await until(h.nothing_held)
            writer.close()

    asyncio.run(go())


def test_a_truncated_list_is_recorded_without_its_answer():
    body = orjson.dumps({"kind": "List", "items": []})
    for end, shown in ((None, {"kind": "List", "items": []}), (ConnectionError(), None), (asyncio.CancelledError(), None)):

        async def stream(write: Any, end: BaseException | None = end) -> None:
            await write(body[:-1])
            if end is not None:
                raise end
            await write(body[-1:])

        async def take(piece: bytes) -> None:
            pass

        backend = Backend()
        h = Harness(auditor=auditor(backend, level="RequestResponse"))
        h.chain._endpoint = lambda req, stream=stream: Response(200, [(b"content-type", b"application/json")], stream=stream)
        resp = h.chain(Request("GET", "/api/v1/pods", "", []))
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            asyncio.run(resp.stream(take))
        event = backend.entries[-1]
        assert (event["stage"], event["responseStatus"]["code"], event.get("responseObject")) == ("ResponseComplete", 200, shown)


@pytest.mark.parametrize("path", ["/api/v1/namespaces/a/pods/b", "/api/v1/namespaces/a/pods/b/log"])
def test_a_panic_is_recorded_at_its_own_stage(path):
    """Also of a long-running request whose answer has not started. The exception's text is not recorded."""

    def bug(req: Request) -> Response:
        raise KeyError("a secret")

    backend = Backend()
    h = Harness(auditor=auditor(backend, level="RequestResponse"))
    h.chain._endpoint = bug
    assert h.chain(Request("GET", path, "", [])).status == 500
    assert [e["stage"] for e in backend.entries] == ["RequestReceived", "Panic"]
    message = "APIServer panic'd: KeyError"
    told = {"metadata": {}, "status": "Failure", "message": message, "reason": "InternalError", "code": 500}
    assert backend.entries[-1]["responseStatus"] == told and "responseObject" not in backend.entries[-1]


def test_proxied_answers_are_not_recorded():
    answer = Response(403, [(b"content-type", b"application/json")], b'{"kind":"Status"\n{"kind":"Event"}')

    def endpoint(req: Request) -> Response:
        handed_on(req)
        return answer

    backend = Backend()
    h = Harness(auditor=auditor(backend, level="RequestResponse"))
    h.chain._endpoint = endpoint
    assert h.chain(Request("GET", "/api/v1/pods", "", [])) is answer
    assert backend.entries[-1]["responseStatus"] == {"metadata": {}, "code": 403} and "responseObject" not in backend.entries[-1]


@pytest.mark.parametrize("status", [200, 404])
def test_a_failed_handshake_is_answered_once_it_is_recorded(tmp_path, status):
    upgrade = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")

    async def go() -> None:
        gate = asyncio.Event()
        gate.set()
        h = Harness(auditor=auditor(Backend(gate=gate)))
        h.chain._endpoint = lambda req: Response(status, [], b"done")
        async with listening(h.chain, tmp_path) as connect:
            reader, writer = await connect()
            writer.write(head("GET", "/api/v1/namespaces/a/configmaps/b", *upgrade))
            assert await answer(reader) == (status, b"done")
            await until(h.nothing_held)
            writer.close()

    asyncio.run(go())


def test_a_disconnect_at_the_end_does_not_lose_the_event(tmp_path):
    async def go() -> None:
        gate = asyncio.Event()
        gate.set()
        backend = Backend(gate=gate)
        h = Harness(wait="filter", auditor=auditor(backend))
        async with listening(h.chain, tmp_path) as connect:
            _, writer = await connect()
            writer.write(head())
            await h.began.wait()
            gate.clear()
            h.gate.set()
            await until(lambda: backend.now == 1)
            writer.close()
            await until(h.nothing_held)
            gate.set()
            await until(lambda: [e["stage"] for e in backend.entries] == ["RequestReceived", "ResponseComplete"])

    asyncio.run(go())


def test_a_slow_request_has_latency_annotations():
    """Names and format are those of ``AuditAnnotationsFromLatencyTrackers``; durations of zero, and fast requests, have none."""
    backend = Backend()
    h = Harness(auditor=auditor(backend))

    def endpoint(req: Request) -> Response:
        req.audit.took |= {"etcd": 0.2, "mutating-webhook": 0.0}
        return Response(200, [], b"done")

    h.chain._endpoint = endpoint
    for late in (-60.0, 600.0):  # whatever the machine does meanwhile
        req = Request("GET", "/api/v1/pods", "", [(b"impersonate-user", b"bob")])
        req.started -= late
        h.chain(req)
    fast, slow = ({k.removeprefix("apiserver.latency.k8s.io/"): v for k, v in e["annotations"].items() if "latency" in k}
                  for e in backend.entries if e["stage"] == "ResponseComplete")  # fmt: skip
    assert fast == {}
    assert set(slow) == {"authentication", "authorization", "impersonation", "etcd", "total"}
    assert slow["etcd"] == "200ms" and slow["total"].startswith("10m")


def test_store_and_stream_latency_belong_to_their_request():
    class Store:
        def read(self) -> str:
            return "read"

        def commit(self) -> asyncio.Future[str]:
            asyncio.get_running_loop().call_soon((done := asyncio.get_running_loop().create_future()).set_result, "done")
            return done

        async def ask(self) -> str:
            return await self.commit()

    async def go() -> None:
        store = Store()
        latencies.observe(store, "read", "commit", "ask")
        latencies.CURRENT.set(None)
        assert store.read() == "read" and await store.commit() == await store.ask() == "done"
        took: latencies.Took = {}
        for call in (store.read, store.commit, store.ask):
            latencies.CURRENT.set(took)
            before = took.get("etcd", 0.0)
            found = call()
            assert (found if call is store.read else await found) in ("read", "done")
            await asyncio.sleep(0)
            assert took["etcd"] > before

        async def stream(write: Any) -> None:
            await write(b"{}")

        async def take(piece: bytes) -> None:
            pass

        backend = Backend()
        h = Harness(auditor=auditor(backend))
        h.chain._endpoint = lambda req: Response(200, [], stream=stream)
        req = Request("GET", "/api/v1/pods", "", [])
        req.started -= 0.6
        await h.chain(req).stream(take)
        assert {"apiserver.latency.k8s.io/serialize-response-object", "apiserver.latency.k8s.io/response-write"} <= set(
            backend.entries[-1]["annotations"]
        )

    asyncio.run(go())

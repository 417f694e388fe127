"""Each filter at its job."""

from __future__ import annotations

import re

import pytest

from kas.api.errors import ApiError
from kas.auth.user import UserInfo
from kas.edge.http import Request, Response
from kas.filters import audit_id, cors, deadline, goaway, response_headers, shutdown_retry, tracing
from kas.filters.max_in_flight import max_in_flight
from kas.filters.mux_complete import mux_complete
from kas.filters.rate_limit import TokenBucket, read_only
from kas.filters.request_info import request_info
from kas.filters.wait_group import WaitGroup
from kas.observe.metrics import Registry


def request(method: str = "GET", path: str = "/api/v1/pods", query: str = "", **headers: str) -> Request:
    sent = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
    req = Request(method, path, query, sent)
    request_info().before(req)
    req.user = UserInfo("jane", ("system:authenticated",))
    return req


def header(resp: Response, name: bytes) -> list[bytes]:
    return [v for k, v in resp.headers if k == name]


def test_audit_id_is_made_or_taken():
    f = audit_id.audit_id()
    req, resp = request(), Response(200, [])
    f.before(req)
    f.after(req, resp)
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", header(resp, b"audit-id")[0].decode())
    req = request(audit_id="mine" * 30)
    f.before(req)
    assert req.audit_id == ("mine" * 30)[:64]


def test_not_complete_is_503_with_retry_after_but_health_answers():
    f = mux_complete(lambda: False)
    with pytest.raises(ApiError) as e:
        f.before(request())
    assert e.value.code == 503 and e.value.headers == {"retry-after": "1"}
    assert f.before(request(path="/readyz")) is None


@pytest.mark.parametrize(
    ("path", "query", "long_running"),
    [
        ("/api/v1/pods", "watch=true", True), ("/api/v1/pods", "", False), ("/api/v1/namespaces/a/pods/b/log", "", True),
        ("/api/v1/namespaces/a/pods/b/exec", "", True), ("/api/v1/watch/pods", "", True), ("/debug/pprof/profile", "", True),
        ("/healthz", "", False),
    ],
)  # fmt: skip
def test_long_running(path, query, long_running):
    assert request(path=path, query=query).long_running is long_running


def test_late_arrivals_get_429():
    f = shutdown_retry.shutdown_retry(lambda: True)
    with pytest.raises(ApiError) as e:
        f.before(request())
    assert e.value.code == 429 and e.value.headers["retry-after"] == "5"
    assert f.before(request(path="/livez")) is None


def test_warnings_are_quoted_deduplicated_and_bounded():
    f = response_headers.warnings()
    req, resp = request(), Response(200, [])
    req.warn('say "hi" \\ there')
    req.warn('say "hi" \\ there')
    f.after(req, resp)
    assert header(resp, b"warning") == [b'299 - "say \\"hi\\" \\\\ there"']
    req, resp = request(), Response(200, [])
    for i in range(100):
        req.warn(f"{i}" + "x" * 500)
    f.after(req, resp)
    # Eight are told as they are; with the ninth all are cut, and more come until 4096 characters are told.
    assert header(resp, b"warning") == [b'299 - "%d%s"' % (i, b"x" * (256 - len(str(i)))) for i in range(16)]
    req, resp = request(), Response(200, [])
    for text in ("a\tb", "caf\u00e9", "x" * 5000):
        req.warn(text)
    f.after(req, resp)
    assert header(resp, b"warning") == [b'299 - "caf\xc3\xa9"', b'299 - "%s"' % (b"x" * 256)]


def test_cache_control_is_not_overwritten():
    f = response_headers.cache_control()
    resp = Response(200, [(b"cache-control", b"public")])
    f.after(request(), resp)
    assert header(resp, b"cache-control") == [b"public"]


def test_hsts():
    resp = Response(200, [])
    response_headers.hsts(["max-age=31536000", "includeSubDomains"]).after(request(), resp)
    assert header(resp, b"strict-transport-security") == [b"max-age=31536000; includeSubDomains"]
    assert response_headers.hsts([]).after is None


def test_traceparent_that_is_none_is_dropped():
    good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    req = request(traceparent=good)
    tracing.tracing().before(req)
    assert req.header(b"traceparent") == good
    req = request(traceparent="00-zz-1-1")
    tracing.tracing().before(req)
    assert req.header(b"traceparent") == ""


def test_goaway_always_and_never():
    resp = Response(200, [])
    goaway.goaway(1.0).after(request(), resp)
    assert header(resp, b"connection") == [b"close"]
    assert goaway.goaway(0).after is None


@pytest.mark.parametrize(("query", "limit"), [("", 60), ("timeout=5s", 5), ("timeout=1m30s", 60), ("timeout=0s", 60), ("timeout=0", 60),
     ("timeout=-5s", 60), ("timeout=%2B5s", 5), ("timeout=.5s", 0.5), ("timeout=1m.5s500ms", 60), ("timeout=2s500ms", 2.5)])  # fmt: skip
def test_deadline(query, limit):
    req = request(query=query)
    deadline.deadline(60).before(req)
    assert abs(req.deadline - req.started - limit) < 0.001


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("5", 'missing unit in duration "5"'),
        ("1h1", 'missing unit in duration "1h1"'),
        ("x", 'invalid duration "x"'),
        ("-", 'invalid duration "-"'),
        (".s", 'invalid duration ".s"'),
        ("5x", 'unknown unit "x" in duration "5x"'),
        ("1e3s", 'unknown unit "e" in duration "1e3s"'),
        ("99999999999h", 'invalid duration "99999999999h"'),
    ],
)
def test_bad_timeout_is_400(bad, why):
    """In the words of Go's ParseDuration."""
    with pytest.raises(ApiError) as e:
        deadline.deadline(60).before(request(query=f"timeout={bad}"))
    assert (e.value.code, e.value.message) == (400, f"invalid timeout specified in the request URL - time: {why}")


def test_cors_answers_a_preflight_of_an_allowed_origin_only():
    f = cors.cors([r"//example\.com(:\d+)?$"])
    req = request("OPTIONS", origin="https://example.com", access_control_request_method="PUT")
    resp = f.before(req)
    f.after(req, resp)
    assert resp.status == 204 and header(resp, b"access-control-allow-origin") == [b"https://example.com"]
    req = request("OPTIONS", origin="https://example.com.evil.org", access_control_request_method="PUT")
    assert f.before(req) is None
    resp = Response(200, [])
    f.after(req, resp)
    assert not resp.headers
    assert cors.cors([]).before is None


@pytest.mark.parametrize(
    ("method", "sent", "answered"),
    [
        ("OPTIONS", {"origin": "https://example.com"}, True),  # upstream asks for no more
        ("OPTIONS", {"access_control_request_method": "PUT"}, False),  # not from a page
        ("GET", {"origin": "https://example.com", "access_control_request_method": "PUT"}, False),
        ("OPTIONS", {"origin": "https://example.com:8443", "access_control_request_method": "PUT"}, True),
        ("OPTIONS", {"origin": "http://notexample.com", "access_control_request_method": "PUT"}, False),
    ],
)
def test_cors_answers_nothing_but_preflights(method, sent, answered):
    f = cors.cors([r"^https://a\.test$", r"//example\.com(:\d+)?$"])
    assert (f.before(request(method, **sent)) is not None) is answered


def test_cors_marks_answers_to_an_allowed_origin():
    f = cors.cors([r"//example\.com$"])
    resp = Response(403, [])
    f.after(request(origin="https://example.com"), resp)
    assert header(resp, b"access-control-allow-origin") == [b"https://example.com"] and header(resp, b"vary") == [b"Origin"]
    assert header(resp, b"access-control-allow-credentials") == [b"true"]
    resp = Response(200, [])
    f.after(request(), resp)
    assert not resp.headers


class Memory:
    """The shared counters of one process."""

    def __init__(self) -> None:
        self.n = {False: 0, True: 0}

    def enter(self, mutating: bool) -> int:
        self.n[mutating] += 1
        return self.n[mutating]

    def leave(self, mutating: bool) -> None:
        self.n[mutating] -= 1


def test_max_in_flight_counts_reads_and_writes_apart():
    memory, registry = Memory(), Registry()
    f = max_in_flight(memory, 2, 1, registry)
    reads = [request() for _ in range(3)]
    f.before(reads[0])
    f.before(reads[1])
    with pytest.raises(ApiError) as e:
        f.before(reads[2])
    assert e.value.code == 429 and e.value.details == {"retryAfterSeconds": 1}
    f.before(request("POST", "/api/v1/namespaces/a/pods"))
    with pytest.raises(ApiError):
        f.before(request("POST", "/api/v1/namespaces/a/pods"))
    f.release(reads[0])
    f.before(reads[2])
    assert memory.n == {False: 2, True: 1}


def test_max_in_flight_lets_watches_masters_and_no_limit_through():
    memory = Memory()
    f = max_in_flight(memory, 1, 1, Registry())
    f.before(request())
    watch = request(query="watch=true")
    f.before(watch)
    f.release(watch)
    master = request()
    master.user = UserInfo("admin", ("system:masters",))
    f.before(master)
    f.release(master)
    assert memory.n[False] == 1
    unlimited = max_in_flight(Memory(), 0, 0, Registry())
    for _ in range(50):
        unlimited.before(request())


def test_refused_requests_are_not_counted_out():
    memory = Memory()
    f = max_in_flight(memory, 1, 1, Registry())
    kept, refused = request(), request()
    f.before(kept)
    with pytest.raises(ApiError):
        f.before(refused)
    f.release(refused)
    assert memory.n[False] == 1


def test_token_bucket():
    now = [0.0]
    bucket = TokenBucket(2, 3, lambda: now[0])
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    now[0] = 0.5
    assert bucket.take() and not bucket.take()
    now[0] = 100
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]


def test_read_only_port_reads_and_shows_no_secrets():
    f = read_only(TokenBucket(1000, 1000, lambda: 0.0))
    assert f.before(request()) is None
    with pytest.raises(ApiError) as e:
        f.before(request("POST", "/api/v1/namespaces/a/pods"))
    assert e.value.code == 405
    with pytest.raises(ApiError) as e:
        f.before(request(path="/api/v1/namespaces/a/secrets/b"))
    assert e.value.code == 403


def test_wait_group_knows_who_is_being_served():
    import asyncio

    group = WaitGroup()
    f = group.filter()
    req, watch = request(), request(query="watch=1")
    f.before(req)
    f.before(watch)
    assert len(group.serving) == 1

    async def run() -> tuple[bool, bool]:
        first = await group.wait(0.01)
        asyncio.get_running_loop().call_later(0.01, f.release, req)
        return first, await group.wait(5)

    assert asyncio.run(run()) == (False, True)

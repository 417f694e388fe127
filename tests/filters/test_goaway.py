"""Now and then a client is sent elsewhere."""

from __future__ import annotations

from kas.filters.goaway import goaway, send_away
from kas.request.http import Response
from tests.filters.requests import header, request


def test_goaway_always_and_never():
    resp = Response(200, [])
    goaway(1.0).after(request(), resp)
    assert header(resp, b"connection") == [b"close"]
    assert goaway(0).after is None


def test_over_http2_the_connection_is_asked():
    class Front:
        certificates, asked = None, 0

        def leave(self) -> None:
            self.asked += 1

    req, resp = request(), Response(200, [])
    req.http_version, req.peer = "2", Front()
    goaway(1.0).after(req, resp)
    assert (req.peer.asked, resp.headers) == (1, [])
    req.long_running = True
    goaway(1.0).after(req, resp)
    assert req.peer.asked == 1
    req.peer, req.long_running = None, False
    goaway(1.0).after(req, resp)
    assert resp.headers == []


def test_who_is_answered_while_the_server_ends_is_sent_away():
    from kas.filters.handler import Chain, Filter

    chain = Chain(
        [Filter("nothing")], lambda req: Response(200, []), lambda req, e: Response(e.code, []), lambda e: None,
        None, None,  # type: ignore[arg-type]  # nothing waits
    )  # fmt: skip
    assert header(chain(request()), b"connection") == []
    chain.also(send_away)
    assert header(chain(request()), b"connection") == [b"close"]

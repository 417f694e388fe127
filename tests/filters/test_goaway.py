"""Some clients are sent to another server now and then."""

from __future__ import annotations

from kas.edge.budget import too_slow
from kas.filters.goaway import goaway, send_away
from kas.request.http import Response
from tests.filters.requests import header, request


class Front:
    certificates, asked = None, 0

    def leave(self, must: bool = False) -> None:
        self.asked += 1


def over(version: str, long_running: bool = False):
    req = request()
    req.http_version, req.peer, req.long_running = version, Front(), long_running
    return req


def test_only_http2_connections_get_goaway():
    """Upstream checks ``r.Proto``; a running watch continues."""
    away, resp = goaway(1.0), Response(200, [])
    for version, long_running, asked in (("1.1", False, 0), ("1.1", True, 0), ("2", False, 1), ("2", True, 1)):
        req = over(version, long_running)
        away.after(req, resp)
        assert (req.peer.asked, resp.headers) == (asked, [])
    away.after(request(), resp)  # no balancer in front of the server
    assert resp.headers == [] and goaway(0).after is None


def test_clients_answered_during_shutdown_get_goaway():
    from kas.filters.handler import Chain, Filter

    chain = Chain(
        [Filter("nothing")], lambda req: Response(200, []), lambda req, e: Response(e.code, []), lambda e: None,
        None, None,  # type: ignore[arg-type]  # nothing waits
    )  # fmt: skip
    assert header(chain(request()), b"connection") == []
    chain.also(send_away)
    assert header(chain(request()), b"connection") == [b"close"]
    refused = too_slow(multiplexed=False)
    resp = Response(refused.code, [(k.encode(), v.encode()) for k, v in refused.headers.items()])
    send_away(request(), resp)
    assert header(resp, b"connection") == [b"close"]  # reported by the refusal, and once
    for version, long_running, asked in (("2", False, 1), ("2", True, 0)):
        req = over(version, long_running)
        assert header(chain(req), b"connection") == [] and req.peer.asked == asked

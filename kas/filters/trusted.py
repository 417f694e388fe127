"""The user of the insecure port: every request from this machine is the server's own (system:masters).

A browser on this machine sends requests for whatever page it shows: a page may send a POST without a Content-Type to
any address, and one whose name is made to resolve to 127.0.0.1 may read the responses, too. The Host header must
therefore name this machine as localhost or by a loopback address, and a request must not come from another site's
page, unless CORS allows that site (as ``kubectl proxy`` has ``--accept-hosts``).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from kas.auth.user import LOOPBACK_USER
from kas.filters.handler import Filter
from kas.request.http import Request, Response

_HERE = frozenset(("same-origin", "none"))  # of Sec-Fetch-Site: a page of this server, or the user of the browser
_NOT_CALLED = "the insecure port is asked as localhost or by a loopback address"
_ELSEWHERE = "the insecure port answers no pages of other sites"


def trusted(allowed_origins: Sequence[str] = ()) -> Filter:
    """Sets the loopback user and drops the Authorization header; 403 for a request that a foreign page may have
    caused. ``allowed_origins`` are the patterns of ``--cors-allowed-origins``."""
    patterns = []
    if allowed_origins:
        from kas.meta import regex  # with Unicode's classes

        patterns = [regex.compiled(p) for p in allowed_origins]

    last = ""  # the last Host header that was found valid

    def before(req: Request) -> Response | None:
        nonlocal last
        host, origin = req.header(b"host"), req.header(b"origin")
        if host != last:
            if host and not _is_loopback(host):
                return _refused(_NOT_CALLED)
            last = host
        if origin:
            if origin.partition("://")[2] != host and not any(p.search(origin) for p in patterns):
                return _refused(_ELSEWHERE)
        elif req.header(b"sec-fetch-site") not in _HERE and req.raw_header(b"sec-fetch-site"):
            return _refused(_ELSEWHERE)
        req.user = LOOPBACK_USER
        req.drop_header(b"authorization")
        return None

    return Filter("trusted", before)


def _is_loopback(host: str) -> bool:
    """Whether a Host header, with or without a port, names a loopback address."""
    name = host[1 : host.find("]")] if host.startswith("[") else host.partition(":")[0]
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _refused(why: str) -> Response:
    return Response(403, [(b"content-type", b"text/plain; charset=utf-8")], f"403 Forbidden: {why}\n".encode())

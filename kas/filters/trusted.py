"""Who asks on the insecure port: everybody is the server itself (system:masters), who asks from this machine and for nobody else.

A browser on this machine works for whatever page it shows: a page may send a POST without a Content-Type to any address, and one whose
name is made to mean 127.0.0.1 may read the answers, too. So who is asked must be called as this machine calls itself, and a request must
not come from another site's page, unless CORS allows that one (as ``kubectl proxy`` has ``--accept-hosts``).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from kas.auth.user import LOOPBACK_USER
from kas.filters.handler import Filter
from kas.request.http import Request, Response

_HERE = frozenset(("same-origin", "none"))  # of Sec-Fetch-Site: a page of this server's, or the person themselves
_NOT_CALLED = "the insecure port is asked as localhost or by a loopback address"
_ELSEWHERE = "the insecure port answers no pages of other sites"


def trusted(allowed_origins: Sequence[str] = ()) -> Filter:
    """Every request is the loopback user's; its Authorization header is dropped. 403 for one that a browser may have been talked into;
    ``allowed_origins`` are the patterns of ``--cors-allowed-origins``."""
    patterns = []
    if allowed_origins:
        from kas.meta import regex  # with the classes of Unicode

        patterns = [regex.compiled(p) for p in allowed_origins]

    last = ""  # who was asked for last, and may be

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
    """Of a Host header, with a port or without."""
    name = host[1 : host.find("]")] if host.startswith("[") else host.partition(":")[0]
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _refused(why: str) -> Response:
    return Response(403, [(b"content-type", b"text/plain; charset=utf-8")], f"403 Forbidden: {why}\n".encode())

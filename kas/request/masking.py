"""How logs and error texts show what a client chose: query strings, ids."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote_plus

from kas.request.http import Request

MASK = "***"
SHOWN_ID = 64  # characters of a request's id in a log line (upstream's ``GetAuditIDTruncated``)
SHOWN = 4096  # characters of what a client chose, in a line that is logged at any verbosity
PATH_SAFE = "$&+,/:;=@"  # what url.URL.EscapedPath leaves alone in a path, besides letters, digits and -_.~
_WELL_ESCAPED = re.compile(r"[A-Za-z0-9_.~$&+,/:;=@!'()*\[\]%-]*")  # and how a client may have escaped one
# A parameter with one of these names, or with one of these parts in its name, is a credential or can be turned into one
# (OAuth's code).
NAMES = frozenset({"apikey", "api_key", "auth", "authorization", "bearer", "code", "jwt", "key", "pwd", "sig"})
PARTS = ("assertion", "credential", "passwd", "password", "secret", "signature", "token")


def masked(query: str) -> str:
    """``query`` with ``***`` for the values of parameters that carry credentials (``access_token``, ``token``, ``code``, ...)."""
    if "=" not in query:
        return query
    return "&".join(map(_pair, query.split("&")))


def _pair(text: str) -> str:
    name, equals, _ = text.partition("=")
    plain = unquote_plus(name).lower()
    secret = plain in NAMES or any(part in plain for part in PARTS)
    return f"{name}={MASK}" if equals and secret else text


def shortened(text: str) -> str:
    """The beginning of a long text, with its length."""
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text)} characters)"


def shown_target(path: str, query: str) -> str:
    """Path and query of a request, with credentials masked."""
    return f"{path}?{masked(query)}" if query else path


def request_uri(req: Request) -> str:
    """``URL.RequestURI`` of a request, with credentials masked. It is escaped as the client escaped it, so that a
    character of a name does not appear as a question mark, slash or line break."""
    raw = req.raw_path
    return shown_target(raw if _WELL_ESCAPED.fullmatch(raw) else quote(req.path, safe=PATH_SAFE), req.query)

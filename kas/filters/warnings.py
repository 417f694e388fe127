"""The warnings collected on the way, as headers of the answer."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kas.filters.handler import Filter
from kas.request.http import Request, Response

MAX_WARNINGS = 4 * 1024  # characters of all warnings together, as upstream truncates
MAX_CUT = 256  # of each from there on
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def warnings() -> Filter:
    """``Warning: 299 - "text"`` headers (RFC 7234; net.NewWarningHeader)."""

    def after(req: Request, resp: Response) -> None:
        if not req.warnings or any(h[0] == b"warning" for h in resp.headers):
            return
        for text in _shown(req.warnings):
            resp.headers.append((b"warning", b'299 - "' + _quote(text) + b'"'))

    return Filter("warnings", None, after)


def _shown(texts: Iterable[str]) -> list[str]:
    """What of the warnings is told: all of them while they are few; from the one on with which they are too many each is cut, and
    those after it only come while there is room. Control characters cannot be told at all."""
    out: list[str] = []
    seen: list[str] = []
    written, cutting = 0, False
    for text in texts:
        if cutting and written >= MAX_WARNINGS:
            break
        seen.append(text)
        if cutting:
            text = text[:MAX_CUT]
        if not text.isprintable() and _CONTROL.search(text):  # what can be printed has none, and a million characters are found so at once
            continue
        if not cutting and written + len(text) > MAX_WARNINGS:
            cutting = True
            out = [t[:MAX_CUT] for t in seen if not _CONTROL.search(t[:MAX_CUT])]
            written = sum(map(len, out))
            continue
        written += len(text)
        out.append(text)
    return out


def _quote(text: str) -> bytes:
    return text.replace("\\", "\\\\").replace('"', '\\"').encode("utf-8", "replace")

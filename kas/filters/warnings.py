"""The warnings collected for a request, as headers of the response."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kas.filters.handler import Filter
from kas.request.http import Request, Response

MAX_WARNINGS = 4 * 1024  # characters of all warnings together, as in upstream
MAX_CUT = 256  # characters of each one, once all together are too long
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
    """The warnings that are sent: all of them while they are short. From the warning with which they become too
    long, each is truncated, and the following ones are only sent while there is room. A warning with control
    characters cannot be sent."""
    out: list[str] = []
    seen: list[str] = []
    written, cutting = 0, False
    for text in texts:
        if cutting and written >= MAX_WARNINGS:
            break
        seen.append(text)
        if cutting:
            text = text[:MAX_CUT]
        # a printable text has none, and a million characters are checked that way at once
        if not text.isprintable() and _CONTROL.search(text):
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

"""How long a request may take: ``--request-timeout``, or less when ``?timeout=`` says so. Long-running ones are exempt."""

from __future__ import annotations

import re

from kas.api.errors import ApiError, bad_request, timeout
from kas.api.field import go_quote
from kas.edge.http import Request
from kas.filters.chain import Filter

_PART = re.compile(r"(\d*)(\.\d*)?([^0-9.]*)", re.ASCII)
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST_S = (1 << 63) / 1e9


def duration(text: str) -> float:
    """``time.ParseDuration`` in seconds. Raises ValueError with Go's words."""
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0.0
    total, invalid = 0.0, ValueError(f"time: invalid duration {go_quote(text)}")
    if not rest:
        raise invalid
    while rest:
        part = _PART.match(rest)
        assert part is not None  # it matches anything
        whole, fraction, unit = part[1], (part[2] or "")[1:], part[3]
        if not whole and not fraction:
            raise invalid
        if not unit:
            raise ValueError(f"time: missing unit in duration {go_quote(text)}")
        if unit not in _SECONDS:
            raise ValueError(f"time: unknown unit {go_quote(unit)} in duration {go_quote(text)}")
        total += float(f"{whole or 0}.{fraction or 0}") * _SECONDS[unit]
        if total >= _LONGEST_S:
            raise invalid
        rest = rest[part.end() :]
    return -total if text.startswith("-") else total


def deadline(request_timeout_s: float) -> Filter:
    def before(req: Request) -> None:
        if req.long_running:
            return
        limit = request_timeout_s
        if "timeout" in req.query:
            given = req.params.get("timeout")
            if given:
                try:
                    asked = duration(given)
                except ValueError as e:
                    raise bad_request(f"invalid timeout specified in the request URL - {e}") from None
                if asked > 0:
                    limit = min(limit, asked)
        req.deadline = req.started + limit

    return Filter("deadline", before)


def timed_out() -> ApiError:
    """504: the answer when the deadline passes first."""
    return timeout("request did not complete within the allotted timeout")

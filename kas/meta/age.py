"""Times as people read them: apimachinery's ``duration.HumanDuration`` and the "time since" of the printers."""

from __future__ import annotations

from datetime import UTC, datetime

from kas.meta import scalars
from kas.observe.caches import remembered

UNKNOWN = "<unknown>"
ZERO_TIME = "0001-01-01T00:00:00Z"
# Go's time.Duration is 64 bits of nanoseconds; differences beyond it saturate.
_MAX_S = (2**63 - 1) / 1e9


def parse_time(text: str | None) -> float | None:
    """Seconds since the epoch of an RFC 3339 time, None when unset or Go's zero time."""
    return None if not text or text == ZERO_TIME else _parsed(text)


# Objects made together share their times.
@remembered("times", "times that tables show", 4096, 64)
def _parsed(text: str) -> float | None:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:  # years that Python's dates do not reach
        seconds, nanos = scalars.parse_time(text)
        return seconds + nanos / 1e9
    return when.timestamp() if when.tzinfo else when.replace(tzinfo=UTC).timestamp()


def human_duration(seconds: float) -> str:
    """Round a duration to two or three significant digits; the closer, the more precise."""
    if not -_MAX_S < seconds < _MAX_S:
        seconds = _MAX_S if seconds > 0 else -_MAX_S
    s = int(seconds)
    if s < -1:
        return "<invalid>"
    if seconds < 0:
        return "0s"
    if s < 120:
        return f"{s}s"
    m = s // 60
    if m < 10:
        return f"{m}m{s % 60}s" if s % 60 else f"{m}m"
    if m < 180:
        return f"{m}m"
    h = m // 60
    if h < 8:
        return f"{h}h{m % 60}m" if m % 60 else f"{h}h"
    if h < 48:
        return f"{h}h"
    d = h // 24
    if h < 192:
        return f"{d}d{h % 24}h" if h % 24 else f"{d}d"
    if h < 24 * 365 * 2:
        return f"{d}d"
    if h < 24 * 365 * 8:
        return f"{d // 365}y{d % 365}d" if d % 365 else f"{d // 365}y"
    return f"{d // 365}y"


def since(text: str | None, now: float) -> str:
    """The age of a time, ``<unknown>`` when it is unset."""
    when = parse_time(text)
    return UNKNOWN if when is None else human_duration(now - when)


def age(obj: dict, now: float) -> str:
    """The age of an object by its creation timestamp."""
    when = parse_time(obj["metadata"].get("creationTimestamp"))
    return UNKNOWN if when is None else human_duration(now - when)

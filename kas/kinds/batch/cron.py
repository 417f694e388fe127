"""Cron schedules as CronJobs take them: robfig/cron v3's ``ParseStandard``, with its error texts.

Only validity is decided here; when a job runs is its controller's business.
"""

from __future__ import annotations

import re

from kas.meta.field import go_quote
from kas.meta.scalars import decimal, parse_duration
from kas.types.scheme import DecodeError

_MONTHS = {n: i for i, n in enumerate(("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1)}
_DAYS = {n: i for i, n in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
# Lowest and highest value and the names of each field: minute, hour, day of month, month, day of week.
_FIELDS: tuple[tuple[int, int, dict[str, int]], ...] = ((0, 59, {}), (0, 23, {}), (1, 31, {}), (1, 12, _MONTHS), (0, 6, _DAYS))
_WHOLE = re.compile(r"[+-]?[0-9]+")
_DESCRIPTORS = frozenset({"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"})


class ScheduleError(ValueError):
    """The schedule cannot be parsed; str() is upstream's message."""


def _number(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise ScheduleError(f"failed to parse int from {text}: strconv.Atoi: parsing {go_quote(text)}: invalid syntax")
    number = decimal(text)
    if not -(1 << 63) <= number < 1 << 63:
        raise ScheduleError(f"failed to parse int from {text}: strconv.Atoi: parsing {go_quote(text)}: value out of range")
    if number < 0:
        raise ScheduleError(f"negative number ({number}) not allowed: {text}")
    return number


def _value(text: str, names: dict[str, int]) -> int:
    named = names.get(text.lower())
    return _number(text) if named is None else named


def _range(text: str, low: int, high: int, names: dict[str, int]) -> None:
    steps = text.split("/")
    bounds = steps[0].split("-")
    if bounds[0] in ("*", "?"):
        start, end = low, high
    else:
        start = _value(bounds[0], names)
        if len(bounds) > 2:
            raise ScheduleError(f"too many hyphens: {text}")
        end = _value(bounds[1], names) if len(bounds) == 2 else start
    step = 1
    if len(steps) == 2:
        step = _number(steps[1])
        if len(bounds) == 1:
            end = high
    elif len(steps) > 2:
        raise ScheduleError(f"too many slashes: {text}")
    if start < low:
        raise ScheduleError(f"beginning of range ({start}) below minimum ({low}): {text}")
    if end > high:
        raise ScheduleError(f"end of range ({end}) above maximum ({high}): {text}")
    if start > end:
        raise ScheduleError(f"beginning of range ({start}) beyond end of range ({end}): {text}")
    if step == 0:
        raise ScheduleError(f"step of range should be a positive number: {text}")


def check(schedule: str) -> None:
    """Raise ScheduleError unless ``schedule`` has five fields or is a descriptor like ``@daily`` or ``@every 5m``."""
    if not schedule:
        raise ScheduleError("empty spec string")
    spec = schedule
    if spec.startswith(("TZ=", "CRON_TZ=")):
        end = spec.find(" ")
        if end < 0:
            # The parser slices its text at a missing space; the server recovers from that panic.
            raise ScheduleError("invalid schedule format: runtime error: slice bounds out of range [:-1]")
        zone = spec[spec.find("=") + 1 : end]
        message = zone_error(zone)
        if message:
            raise ScheduleError(f"provided bad location {zone}: {message}")
        spec = spec[end:].strip()
    if spec.startswith("@"):
        if spec.startswith("@every "):
            duration = spec[len("@every ") :]
            try:
                parse_duration(duration)
            except DecodeError as err:
                raise ScheduleError(f"failed to parse duration {spec}: {err}") from err
        elif spec not in _DESCRIPTORS:
            raise ScheduleError(f"unrecognized descriptor: {spec}")
        return
    fields = spec.split()
    if len(fields) != len(_FIELDS):
        raise ScheduleError(f"expected exactly {len(_FIELDS)} fields, found {len(fields)}: [{' '.join(fields)}]")
    for text, (low, high, names) in zip(fields, _FIELDS, strict=True):
        for part in filter(None, dict.fromkeys(text.split(","))):
            _range(part, low, high, names)


def zone_error(name: str) -> str:
    """Return the error of Go's ``time.LoadLocation`` for an unknown time zone ``name``; "" for a known one."""
    import zoneinfo

    if name in ("", "UTC", "Local"):
        return ""
    if ".." in name or name[0] in "/\\":
        return "time: invalid location name"
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return f"unknown time zone {name}"
    return ""

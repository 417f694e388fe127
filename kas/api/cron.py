"""Cron schedules as CronJobs take them: robfig/cron v3's ``ParseStandard``, with its error texts.

Only validity is decided here; when a job runs is its controller's business.
"""

from __future__ import annotations

import re

_MONTHS = {n: i for i, n in enumerate(("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1)}
_DAYS = {n: i for i, n in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
# Lowest and highest value and the names of each field: minute, hour, day of month, month, day of week.
_FIELDS: tuple[tuple[int, int, dict[str, int]], ...] = ((0, 59, {}), (0, 23, {}), (1, 31, {}), (1, 12, _MONTHS), (0, 6, _DAYS))
_DESCRIPTORS = frozenset({"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"})
_DURATION = re.compile(r"[-+]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+|[-+]?0")
_ZONE = re.compile(r"[A-Za-z0-9._+-]+(/[A-Za-z0-9._+-]+)*")


class ScheduleError(ValueError):
    """The schedule cannot be parsed; str() is upstream's message."""


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _number(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise ScheduleError(f"failed to parse int from {text}: strconv.Atoi: parsing {_quote(text)}: invalid syntax")
    number = int(text)
    if not -(1 << 63) <= number < 1 << 63:
        raise ScheduleError(f"failed to parse int from {text}: strconv.Atoi: parsing {_quote(text)}: value out of range")
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
        zone = spec[spec.find("=") + 1 : end if end >= 0 else len(spec)]
        if zone and not known_zone(zone):
            raise ScheduleError(f"provided bad location {zone}: unknown time zone {zone}")
        spec = spec[end:].strip() if end >= 0 else ""
    if spec.startswith("@"):
        if spec.startswith("@every "):
            duration = spec[len("@every ") :]
            if not _DURATION.fullmatch(duration):
                raise ScheduleError(f"failed to parse duration {spec}: time: invalid duration {_quote(duration)}")
        elif spec not in _DESCRIPTORS:
            raise ScheduleError(f"unrecognized descriptor: {spec}")
        return
    fields = spec.split()
    if len(fields) != len(_FIELDS):
        raise ScheduleError(f"expected exactly {len(_FIELDS)} fields, found {len(fields)}: [{' '.join(fields)}]")
    for text, (low, high, names) in zip(fields, _FIELDS, strict=True):
        for part in filter(None, text.split(",")):
            _range(part, low, high, names)


def known_zone(name: str) -> bool:
    """Whether the time zone database has ``name``."""
    import zoneinfo

    if not _ZONE.fullmatch(name) or ".." in name:
        return False
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True

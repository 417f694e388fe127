"""How many seats each level has: nominally, and after borrowing (apiserver's ``apf_controller.go`` and ``conc_alloc.go``)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kas.meta.records import NamedTuple

Obj = dict[str, Any]

MOST_OF_LEVEL = 0.15  # the part of a level's seats that one request may take
SMOOTHING = 0.977  # weight of the old demand every ten seconds: half of it is forgotten after five minutes
LEAST_TARGET = 0.001


class Nominal(NamedTuple):
    """The seats of a level according to its configuration."""

    nominal: int
    lower: int
    upper: int
    max_seats: int  # of one request; 0 if the level sets no limit


class Demand(NamedTuple):
    """The seats that a level wanted in the last period; ``smoothed`` includes the periods before."""

    average: float = 0.0
    deviation: float = 0.0
    highest: float = 0.0
    smoothed: float = 0.0

    def next(self, average: float, deviation: float, highest: float) -> Demand:
        """The demand after another period."""
        envelope = average + deviation
        return Demand(average, deviation, highest, max(envelope, SMOOTHING * self.smoothed + (1 - SMOOTHING) * envelope))


def queuing(spec: Obj) -> tuple[int, int, int] | None:
    """(queues, hand size, maximum queue length) of a level's spec; None if it rejects what it has no seats for."""
    response = (spec.get("limited") or {}).get("limitResponse") or {}
    if spec.get("type") != "Limited" or response.get("type") != "Queue":
        return None
    q = response.get("queuing") or {}
    return q.get("queues") or 64, q.get("handSize") or 8, q.get("queueLengthLimit") or 50


def shares(spec: Obj) -> int:
    """The concurrency shares that a level's spec asks for."""
    return _number(_part(spec), "nominalConcurrencyShares", 0 if spec.get("type") == "Exempt" else 30)


def nominal(spec: Obj, total: int, server_limit: int) -> Nominal:
    """The seats of a level, of ``server_limit`` for all levels, which together have ``total`` shares."""
    part = _part(spec)
    seats = math.ceil(server_limit * shares(spec) / total) if total else 0
    borrowing = part.get("borrowingLimitPercent")
    upper = seats + (server_limit if borrowing is None else _round(seats * borrowing / 100))
    q = queuing(spec)
    most = max(1, min(math.ceil(seats * MOST_OF_LEVEL), seats // q[1])) if q else 0
    return Nominal(seats, seats - _round(seats * _number(part, "lendablePercent", 0) / 100), upper, most)


def initial(n: Nominal) -> int:
    """The seats of a new level: half of what it may lend is lent."""
    return n.nominal - (n.nominal - n.lower) // 2


def borrowed(
    levels: Mapping[str, Nominal], exempt: set[str], demands: Mapping[str, Demand]
) -> tuple[dict[str, int], dict[str, float], float]:
    """(seats of each level for the next period, the targets that they were computed from, the fraction of its target
    that each level got)."""
    remaining = sum(n.nominal for n in levels.values())
    out: dict[str, int] = {}
    least: dict[str, int] = {}
    for name, n in levels.items():
        highest = _round(demands[name].highest)
        if name in exempt:
            out[name] = max(n.lower, highest)
            remaining -= out[name]
        else:
            least[name] = max(n.lower, min(n.nominal, highest))
    targets = {name: max(float(low), demands[name].smoothed) for name, low in least.items()}
    lower = sum(levels[name].lower for name in least)
    fraction = 0.0
    if remaining <= lower:
        out |= {name: levels[name].lower for name in least}
    elif remaining <= sum(least.values()):
        part = (remaining - lower) / (sum(least.values()) - lower)
        out |= {name: levels[name].lower + _round((low - levels[name].lower) * part) for name, low in least.items()}
    else:
        found, fraction = allocate(remaining, [(low, levels[name].upper, targets[name]) for name, low in least.items()])
        out |= {name: _round(seats) for name, seats in zip(least, found, strict=True)}
    return out, targets, fraction


def allocate(required: float, items: Sequence[tuple[float, float, float]]) -> tuple[list[float], float]:
    """Distributes ``required`` seats to items (lower bound, upper bound, target): each gets the same fraction of its
    target, within its bounds. Returns the seats and that fraction. If the bounds leave no choice, every item gets
    its lower or upper bound. O(n log n)."""
    bounded = [(low, max(high, low), max(target, LEAST_TARGET)) for low, high, target in items]
    if required <= sum(low for low, _, _ in bounded):
        return [float(low) for low, _, _ in bounded], 0.0
    # From fraction 0 upwards, an item begins to grow at low/target, by its target, and ends at high/target.
    steps = sorted([(low / t, t) for low, _, t in bounded] + [(high / t, -t) for _, high, t in bounded])
    seats, slope, at = sum(float(low) for low, _, _ in bounded), 0.0, 0.0
    for fraction, change in steps:
        if slope > 0 and seats + slope * (fraction - at) >= required:
            at += (required - seats) / slope
            break
        seats, at = seats + slope * (fraction - at), fraction
        slope += change
    return [min(max(at * target, low), high) for low, high, target in bounded], at


def _part(spec: Obj) -> Obj:
    return spec.get("exempt" if spec.get("type") == "Exempt" else "limited") or {}


def _number(part: Obj, key: str, default: int) -> int:
    found = part.get(key)
    return default if found is None else int(found)


def _round(value: float) -> int:
    """Go's ``math.Round``: halves away from zero."""
    return math.floor(value + 0.5)

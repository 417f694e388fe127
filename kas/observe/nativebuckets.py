"""Native histograms: bucket bounds are powers of 2**(1/8), as chosen by Prometheus' library for a growth factor of 1.1.

With the feature gate NativeHistograms, a histogram counts in its declared bounds and in these together, so that both forms can be derived
from one row and observers need not care. Upstream: ``histogram.go`` of Prometheus' library, with the options of ``component-base``.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cache

from kas.config import features
from kas.meta.records import NamedTuple

SCHEMA, MOST = 3, 160  # bounds are powers of 2**(1 / 2**SCHEMA); with more non-empty buckets than MOST the schema is lowered
ZERO = 2.0**-128  # values up to this are counted in the zero bucket
BELOW, ABOVE = 16, 4  # a row covers values down to its first bound / BELOW and up to its last bound * ABOVE; others are counted at its ends
GAP = 2  # the most empty buckets within a span
_STEPS = 1 << SCHEMA


def bound(key: int) -> float:
    """The upper bound of the bucket with index ``key``."""
    return math.ldexp(2.0 ** ((key % _STEPS) / _STEPS), key // _STEPS)


def key_of(value: float) -> int:
    """The index of the bucket of a positive value."""
    key = round(math.log2(value) * _STEPS)
    while bound(key) < value:
        key += 1
    while bound(key - 1) >= value:
        key -= 1
    return key


@cache
def finer(declared: tuple[float, ...]) -> tuple[float, ...]:
    """The declared bounds and the native ones in their range, ascending."""
    above = [b for b in declared if b > ZERO]
    if not above:
        return declared
    keys = range(key_of(above[0] / BELOW), key_of(above[-1] * ABOVE) + 1)
    return tuple(sorted({ZERO, *declared, *map(bound, keys)}))


def bounds_of(declared: tuple[float, ...]) -> tuple[float, ...]:
    """The bounds that a histogram counts in. Call it only after the feature gates are set."""
    return finer(declared) if features.DEFAULT.enabled("NativeHistograms") else declared


def folded(row: Sequence[float], bounds: Sequence[float], into: Sequence[float]) -> list[float]:
    """Converts ``row``, which has a count per bound in ``bounds`` and one above them, to the bounds ``into``, a subset of ``bounds``."""
    out = [0.0] * (len(into) + 1)
    for at, count in enumerate(row):
        if count:
            out[bisect_left(into, bounds[at]) if at < len(bounds) else len(into)] += count
    return out


class Native(NamedTuple):
    """The sparse form of a row. Adjacent buckets form a span (distance from the previous span, length); ``deltas`` hold the difference of
    each bucket's count from the previous bucket's.
    """

    schema: int
    zero: int
    spans: list[tuple[int, int]]
    deltas: list[int]


def native(row: Sequence[float], bounds: Sequence[float]) -> Native:
    """The native form of a row with the bounds of ``finer``; the row's last two items are the count above the bounds and the sum."""
    zero, counts = 0, dict[int, int]()
    for at, count in enumerate(row[:-1]):
        if not count:
            continue
        if at < len(bounds) and bounds[at] <= ZERO:
            zero += int(count)
            continue
        key = key_of(bounds[at]) if at < len(bounds) else key_of(bounds[-1]) + 1
        counts[key] = counts.get(key, 0) + int(count)
    schema = SCHEMA
    while len(counts) > MOST:
        schema -= 1
        counts = _halved(counts)
    return Native(schema, zero, *_spans(sorted(counts.items())))


def _halved(counts: dict[int, int]) -> dict[int, int]:
    """Merges pairs of adjacent buckets."""
    out: dict[int, int] = {}
    for key, count in counts.items():
        out[(key + 1) // 2] = out.get((key + 1) // 2, 0) + count
    return out


def _spans(counts: Iterable[tuple[int, int]]) -> tuple[list[tuple[int, int]], list[int]]:
    spans, deltas = list[tuple[int, int]](), list[int]()
    upcoming = before = 0
    for key, count in counts:
        gap = key - upcoming
        if not spans or gap > GAP:
            spans.append((gap, 0))
            gap = 0
        for has in (*[0] * gap, count):
            deltas.append(has - before)
            before = has
        spans[-1] = spans[-1][0], spans[-1][1] + gap + 1
        upcoming = key + 1
    return spans, deltas

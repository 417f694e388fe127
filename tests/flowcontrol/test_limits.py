"""The seats of levels, and the Retry-After of refused requests."""

from __future__ import annotations

import random
from time import monotonic

import pytest

from kas.flowcontrol import limits
from kas.flowcontrol.dropped import Dropped
from kas.flowcontrol.limits import Demand, Nominal, allocate, borrowed


def level(shares: int | None, lendable: int | None = None, borrowing: int | None = None, hand: int = 6, kind: str = "Limited") -> dict:
    part = {"nominalConcurrencyShares": shares, "lendablePercent": lendable, "borrowingLimitPercent": borrowing}
    part = {k: v for k, v in part.items() if v is not None}
    if kind == "Exempt":
        return {"type": kind, "exempt": part}
    queuing = {"queues": 64, "handSize": hand, "queueLengthLimit": 50}
    return {"type": kind, "limited": {**part, "limitResponse": {"type": "Queue", "queuing": queuing} if hand else {"type": "Reject"}}}


def test_shares_are_fractions_of_the_servers_seats():
    assert [limits.shares(spec) for spec in (level(30), level(None), level(None, kind="Exempt"), {})] == [30, 30, 0, 30]
    assert limits.nominal(level(30, 33), 100, 600) == Nominal(180, 121, 780, 27)
    assert limits.nominal(level(70, 0, 50), 100, 600) == Nominal(420, 420, 630, 63)
    assert limits.nominal(level(0, 0, kind="Exempt"), 100, 600) == Nominal(0, 0, 600, 0)
    assert limits.nominal(level(1, hand=8), 246, 12).max_seats == 1
    assert limits.nominal(level(None, hand=0), 30, 7) == Nominal(7, 7, 14, 0)
    assert limits.initial(Nominal(100, 10, 700, 6)) == 55


def test_demand_falls_slowly_and_rises_at_once():
    d = Demand().next(10, 2, 20)
    assert d.smoothed == 12
    later = d.next(0, 0, 0)
    assert later.smoothed == pytest.approx(12 * 0.977) and later.highest == 0


def test_seats_are_lent_within_the_bounds():
    levels = {"busy": Nominal(100, 50, 700, 10), "idle": Nominal(100, 50, 700, 10), "proud": Nominal(100, 100, 100, 10)}
    demands = {"busy": Demand(300, 0, 300, 300.0), "idle": Demand(), "proud": Demand()}
    seats, targets, fraction = borrowed(levels, set(), demands)
    assert seats == {"busy": 150, "idle": 50, "proud": 100} and targets["busy"] == 300 and fraction > 0
    seats, _, _ = borrowed(levels, {"proud"}, {**demands, "proud": Demand(0, 0, 260)})
    assert seats == {"busy": 50, "idle": 50, "proud": 260}  # exempt levels take what they need; others keep what they do not lend


def test_an_allocation_adds_up_and_is_fair():
    rng = random.Random(3)
    for _ in range(300):
        items = [(low, low + rng.randrange(200), rng.random() * 100) for low in (rng.randrange(50) for _ in range(rng.randrange(1, 9)))]
        least, most = sum(i[0] for i in items), sum(i[1] for i in items)
        required = rng.uniform(least, most)
        found, fraction = allocate(required, items)
        assert sum(found) == pytest.approx(required)
        for seats, (low, high, target) in zip(found, items, strict=True):
            assert low <= seats <= high and (seats in (low, high) or seats == pytest.approx(fraction * max(target, 0.001)))
    assert allocate(1, [(5, 10, 5)])[0] == [5] and allocate(100, [(5, 10, 5)])[0] == [10]


def test_many_refusals_increase_retry_after():
    seconds = iter([*(s for s in range(100, 200) for _ in range(50)), *range(300, 900, 20)])
    d = Dropped(lambda: next(seconds) + 0.5)
    for _ in range(5000):
        d.note()
    assert d.retry_after_s == 32
    for _ in range(30):
        d.note()
    assert d.retry_after_s < 10


def test_refusals_are_counted_by_a_monotonic_clock():
    assert Dropped().clock is monotonic

"""Limits on the memory of bodies, and on how slowly they may arrive."""

from __future__ import annotations

import asyncio
import math

import pytest

from kas.auth.user import MASTERS, UserInfo
from kas.edge import budget
from kas.edge.body import Bounds, Inlet
from kas.edge.budget import FREE_BYTES, Budget
from kas.meta.errors import ApiError

ALICE, BOB, ADMIN = UserInfo("alice"), UserInfo("bob"), UserInfo("admin", [MASTERS])


def refused(b: Budget, user: UserInfo, size: int) -> bool:
    try:
        b.take(user, size)
    except ApiError as e:
        assert e.code == 429 and e.headers == {"retry-after": "1"}
        return True
    return False


def test_each_user_and_all_users_together_are_bounded():
    b = Budget(worker_bytes=100, user_bytes=60)
    b.take(ALICE, 60)
    assert refused(b, ALICE, 1) and b.held == 60
    b.take(BOB, 40)
    assert refused(b, BOB, 1)
    b.give_back(ALICE, 60)
    b.take(BOB, 20)
    b.give_back(BOB, 60)
    assert b.held == 0 and not b.by_user


def test_administrators_have_a_bounded_share_of_their_own():
    b = Budget(worker_bytes=100, user_bytes=60)
    b.take(ALICE, 60)
    b.take(BOB, 40)
    b.take(ADMIN, 90)
    assert refused(b, ADMIN, 11) and refused(b, UserInfo("other", [MASTERS]), 11)
    b.give_back(ALICE, 60)
    b.take(BOB, 20)  # an administrator's bodies do not count for others
    assert b.held == 150 and b.by_user == {"admin": 90, "bob": 60}
    b.give_back(ADMIN, 90)
    b.take(ADMIN, 1000, first=True)
    assert refused(b, ADMIN, 1)


def test_a_first_body_of_any_size_is_accepted_if_there_is_space():
    b = Budget(worker_bytes=100, user_bytes=60)
    b.take(ALICE, 90, first=True)
    with pytest.raises(ApiError):
        b.take(ALICE, 1, first=True)
    b.take(BOB, 10, first=True)
    with pytest.raises(ApiError):
        b.take(UserInfo("carol"), 1, first=True)
    b.give_back(ALICE, 90)
    b.give_back(BOB, 10)
    b.take(BOB, 1000, first=True)


class Pieces:
    """``receive`` of a client that sends ``sizes`` and then nothing more; None ends the body."""

    def __init__(self, *sizes: int | None) -> None:
        self.sizes = list(sizes)

    async def __call__(self):
        if not self.sizes:
            await asyncio.Event().wait()
        size = self.sizes.pop(0)
        return {"type": "http.request", "body": b"x" * (size or 0), "more_body": size is not None}


def read(bounds: Bounds, pieces: Pieces, length: int = -1) -> tuple[Inlet, bytes | int]:
    """Returns the inlet, and the body or the status of the refusal."""

    async def go():
        inlet = Inlet(pieces, length, bounds=bounds)
        try:
            return inlet, await inlet.read(ALICE)
        except ApiError as e:
            return inlet, e.code

    return asyncio.run(go())


def test_small_bodies_are_not_counted_and_large_ones_until_the_request_ends():
    bounds = Bounds()
    inlet, body = read(bounds, Pieces(FREE_BYTES, None))
    assert len(body) == FREE_BYTES and bounds.budget.held == 0
    inlet, body = read(bounds, Pieces(FREE_BYTES, 10, None))
    assert len(body) == FREE_BYTES + 10 == bounds.budget.held
    inlet.close()
    inlet.close()
    assert bounds.budget.held == 0


@pytest.mark.parametrize("pieces", [(400_000, None), (200_000, 200_000, None)])
def test_beyond_the_budget_a_body_is_429_and_nothing_stays_counted(pieces):
    bounds = Bounds()
    bounds.budget = Budget(user_bytes=300_000)
    inlet, status = read(bounds, Pieces(*pieces))
    assert status == 429
    inlet.close()
    assert bounds.budget.held == 0


@pytest.mark.parametrize("pace", [math.inf, 1e-3], ids=["too slow", "stalled"])
@pytest.mark.parametrize("pieces", [(), (1,), (100_000, 1)])
def test_a_body_that_stalls_is_408_and_the_connection_ends(pieces, pace, monkeypatch):
    monkeypatch.setattr(budget, "PATIENCE_S", 0.1)
    monkeypatch.setattr(budget, "BYTES_PER_S", pace)
    monkeypatch.setattr(budget.Pace, "LOOK_S", 0.01)
    bounds = Bounds()
    inlet, status = read(bounds, Pieces(*pieces), 200_000)
    assert status == 408 and inlet.ended
    assert budget.too_slow(False).headers == {"connection": "close"} and budget.too_slow(True).headers is None


def test_a_body_that_keeps_the_minimum_rate_is_read(monkeypatch):
    monkeypatch.setattr(budget, "PATIENCE_S", 60.0)
    monkeypatch.setattr(budget, "BYTES_PER_S", 1e-3)
    monkeypatch.setattr(budget.Pace, "LOOK_S", 0.01)

    class Slowly(Pieces):
        async def __call__(self):
            await asyncio.sleep(0.05)
            return await super().__call__()

    assert read(Bounds(), Slowly(1, 1, 1, None))[1] == b"xxx"


def test_other_cancellations_are_passed_on():
    async def go():
        task = asyncio.ensure_future(Inlet(Pieces(), bounds=Bounds(), length=5).read(ALICE))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())

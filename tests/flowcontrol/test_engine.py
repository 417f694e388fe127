"""Seats and queues of a level, in one worker and in several."""

from __future__ import annotations

import collections
import random

import pytest

from kas._fastpath import Request
from kas.flowcontrol._engine import LENGTH_BUCKETS, Board
from tests.flowcontrol.levels import Worker, workers

QUEUES = (64, 6, 50)


def test_as_many_run_as_there_are_seats_and_the_rest_waits():
    (w,) = workers(1, 3, QUEUES)
    asked = [w.ask("u") for _ in range(5)]
    assert [outcome for _, outcome in asked] == [None, None, None, "waits", "waits"]
    assert w.level.totals()[:4] == (3, 3, 2, 2)
    w.end(asked[0][0])
    # Two of its queues have waiting requests: one of these runs now.
    assert sum(req.ticket.future.result is True for req, _ in asked[3:]) == 1
    assert w.level.totals()[:4] == (3, 3, 1, 1)


def test_a_level_without_queues_refuses():
    (w,) = workers(1, 2, None)
    asked = [w.ask("u") for _ in range(3)]
    assert [outcome for _, outcome in asked] == [None, None, "refused"]
    assert w.stats.rejected == {"concurrency-limit": 1}
    w.end(asked[0][0])
    assert w.ask("u")[1] is None


def test_a_full_queue_refuses():
    (w,) = workers(1, 1, (1, 1, 2))
    assert [w.ask("u")[1] for _ in range(4)] == [None, "waits", "waits", "refused"]
    assert w.stats.rejected == {"queue-full": 1}
    assert w.stats.queue_lengths()[-1] == 1 + 2 and len(w.stats.queue_lengths()) == len(LENGTH_BUCKETS) + 2


def test_a_request_that_leaves_its_queue_is_forgotten():
    (w,) = workers(1, 1, QUEUES)
    running, _ = w.ask("u")
    waiting, _ = w.ask("u")
    assert waiting.ticket.cancel("time-out") and not waiting.ticket.cancel("time-out")
    w.gate.left_queue(waiting.ticket, False)
    w.end(waiting)
    w.end(running)
    assert w.level.idle and w.level.dump() == [] and w.level.totals() == (0, 0, 0, 0, 0)
    assert w.stats.rejected == {"time-out": 1} and w.stats.wait(False)[-1] > 0
    assert (w.gate.reading, w.gate.queued_reads) == (0, 0)


def test_a_flood_does_not_delay_others():
    """Of fifty requests of one user and then one of another, the other's is served in the first round."""
    (w,) = workers(1, 1, QUEUES)
    running, _ = w.ask("flood")
    flood = [w.ask("flood")[0] for _ in range(50)]
    quiet, outcome = w.ask("quiet")
    assert outcome == "waits"
    served = 0
    while quiet.ticket.future.result is None:
        w.end(running)
        running = next(r for r in [*flood, quiet] if r.ticket is not None and r.ticket.state == 2)
        served += 1
    assert served <= 7  # each of the flood's six queues once


def test_flows_share_seats_evenly_under_load():
    (w,) = workers(1, 4, (128, 6, 50))
    users = [f"user-{i}" for i in range(4)]
    waiting = {u: [w.ask(u)[0] for _ in range(200 if u == "user-0" else 60)] for u in users}
    every = [r for requests in waiting.values() for r in requests if r.ticket is not None]
    served: collections.Counter[str] = collections.Counter()
    while sum(served.values()) < 120:
        for r in [r for r in every if r.ticket is not None and r.ticket.state == 2]:
            served[r.user.name] += 1
            w.end(r)
    # A fair share is thirty; which queues flows share is random.
    assert min(served.values()) >= 10 and served["user-0"] <= 45, served


def test_a_request_wider_than_the_level_runs_alone():
    (w,) = workers(1, 3, QUEUES, cost=10)
    first, outcome = w.ask("u")
    assert outcome is None and w.level.totals()[0] == 10
    second, outcome = w.ask("u")
    assert outcome == "waits"
    w.end(first)
    assert second.ticket.future.result is True


def test_seats_of_a_write_are_held_until_its_watchers_are_served():
    (w,) = workers(1, 9, QUEUES)
    w.cost = (1, 3, 0.015)
    req, outcome = w.ask("u")
    assert outcome is None and w.level.totals()[0] == 3
    w.end(req)
    ((seconds, (queue, seats)),) = w.timers
    assert (seconds, seats) == (0.015, 3) and w.level.totals()[0] == 3
    w.level.give_back(queue, seats)
    assert w.level.idle and w.level.dump() == []


def test_a_request_that_ends_at_once_takes_no_seat():
    """As long as no request waits, and none has to because of it: a seat is held while a request runs."""
    (w,) = workers(1, 1, QUEUES)
    for _ in range(60):
        req, outcome = w.ask("u")
        assert outcome is None
        w.end(req)
    assert w.level.idle and w.level.dump() == []


def test_whether_several_users_send_requests():
    (w,) = workers(1, 9, QUEUES)
    for _ in range(3):
        w.end(w.ask("a")[0])
        assert not w.gate.shared
    w.end(w.ask("b")[0])
    assert w.gate.shared
    w.end(w.ask("b")[0])
    assert w.gate.shared  # for a while


def several(count: int, seats: int) -> list[Worker]:
    return workers(count, seats, QUEUES)


def test_seats_belong_to_all_workers_together():
    one, two = several(2, 3)
    asked = [w.ask("u") for w in (one, two, one, two)]
    assert [outcome for _, outcome in asked] == [None, None, None, "waits"]
    assert one.level.totals() == two.level.totals() and one.level.totals()[:3] == (3, 3, 1)
    one.end(asked[0][0])
    assert one.all_woken == [1]  # a request waiting in another worker is notified
    two.level.dispatch()
    assert asked[3][0].ticket.future.result is True


def test_a_worker_with_its_share_leaves_seats_to_a_waiting_one():
    one, two = several(2, 4)
    running = [one.ask("flood")[0] for _ in range(4)]
    more = [one.ask("flood")[0] for _ in range(20)]
    quiet, outcome = two.ask("quiet")
    assert outcome == "waits"
    one.end(running[0])
    assert not any(r.ticket.future.result for r in more)
    assert 1 in one.all_woken
    two.level.dispatch()
    assert quiet.ticket.future.result is True
    one.end(running[1])
    assert sum(r.ticket.future.result is True for r in more) == 1


@pytest.mark.parametrize("seed", range(5))
def test_the_limit_holds_and_all_are_served_in_random_histories(seed):
    """Requests of four users start and end at random in three workers; none waits for ever."""
    rng = random.Random(seed)
    all_workers = several(3, 5)
    live: list[tuple[Worker, Request]] = []
    come = ended = 0
    for step in range(3000):
        w = rng.choice(all_workers)
        if step < 1500 and rng.random() < 0.5:
            w.cost = (rng.choice((1, 1, 1, 3)), 0, 0.0)
            req, outcome = w.ask(f"u{rng.randrange(4)}")
            if outcome != "refused":
                live.append((w, req))
                come += 1
        else:
            runs = [(x, r) for x, r in live if r.ticket.state == 2]
            if runs:
                x, r = rng.choice(runs)
                live.remove((x, r))
                x.end(r)
                ended += 1
            rng.choice(all_workers).level.dispatch()
        assert w.level.totals()[0] <= 5
    for _ in range(20 * come):
        if not live:
            break
        for w in all_workers:
            w.level.dispatch()
        for w, r in [(w, r) for w, r in live if r.ticket.state == 2]:
            live.remove((w, r))
            w.end(r)
            ended += 1
    assert ended == come and all_workers[0].level.totals() == (0, 0, 0, 0, 0)


def test_the_share_of_a_dead_worker_is_taken_back():
    one, two = several(2, 2)
    for _ in range(2):
        assert two.ask("u")[1] is None
    waiting, outcome = one.ask("u")
    assert outcome == "waits"
    one.memory.reap(1)
    one.level.dispatch()
    assert waiting.ticket.future.result is True


def test_rows_of_the_shared_table_are_reused():
    (w,) = workers(1, 1, None)
    board = w.board
    rows = [board.claim(1000 + i) for i in range(127)]
    assert len(set(rows)) == 127 and board.claim(5) == -1
    assert board.claim(1000) == rows[0]
    w.level.close()
    assert board.claim(5) >= 0


def test_a_shared_table_that_is_too_small_is_refused():
    with pytest.raises(ValueError, match="too small"):
        Board(memoryview(bytearray(8)), [memoryview(bytearray(1 << 14))], 0)

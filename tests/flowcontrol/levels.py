"""Levels of one or several workers with shared seats, and requests to them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from kas._fastpath import parse
from kas.auth.user import UserInfo
from kas.flowcontrol._engine import Board, Flow, Gate, Level, Stats, Ticket
from kas.flowcontrol.classification import deal, flow_hash
from kas.request.http import Request, Response
from kas.request.requestinfo import Query
from kas.store.shared import Shared


class Future:
    """The future of a waiting request."""

    def __init__(self) -> None:
        self.result: bool | None = None

    def done(self) -> bool:
        return self.result is not None

    def set_result(self, value: bool) -> None:
        self.result = value


class Worker:
    """A level as one worker sees it."""

    def __init__(self, board: Board, seats: int, queuing: tuple[int, int, int] | None, woken: Callable[[int], None], cost: int = 1) -> None:
        self.board, self.woken, self.cost = board, woken, (cost, 0, 0.0)
        row = board.claim(int.from_bytes(hashlib.sha256(b"level").digest()[:8], "little"))
        self.level = Level(board, row, "level", False, queuing, self)
        self.level.nominal = self.level.limit = seats
        self.timers: list[tuple[float, tuple[Any, ...]]] = []
        self.stats = Stats("schema", "level")
        self.all_woken: list[int] = []
        self.memory: Any = None
        self.gate = Gate(self.flow, lambda req, flow: self.cost, self.waits, self.refuse)

    def later(self, seconds: float, level: Level, queue: Any, seats: int) -> None:
        self.timers.append((seconds, (queue, seats)))

    def wake(self, worker: int) -> None:
        self.woken(worker)

    def flow(self, req: Request) -> Flow:
        hand = deal(flow_hash("schema", req.user.name), self.level.queues, self.level.hand_size) if self.level.queued else ()
        return Flow(self.level, self.stats, req.user.name, hand, [(b"x-level", b"level")])

    def waits(self, ticket: Ticket) -> str:
        ticket.future = Future()  # type: ignore[assignment]
        return "waits"

    def refuse(self, ticket: Ticket) -> str:
        return "refused"

    def ask(self, user: str, path: str = "/api/v1/namespaces/a/pods") -> tuple[Request, str | None]:
        """A request, and its result: None while it runs."""
        req = Request("GET", path, "", [])
        req.params, req.info, req.user = Query(""), parse("GET", path), UserInfo(user)
        return req, self.gate.begin(req)

    def end(self, req: Request) -> None:
        self.gate.after(req, Response(200, []))
        self.gate.release(req)


def workers(count: int, seats: int, queuing: tuple[int, int, int] | None, cost: int = 1) -> list[Worker]:
    shared = [Shared.private()] if count == 1 else _shared(count)
    tables = [shared[0].memory.table(i) for i in range(count)]
    woken: list[int] = []
    out = [Worker(Board(s.memory.common(), tables, i), seats, queuing, woken.append, cost) for i, s in enumerate(shared)]
    for worker, s in zip(out, shared, strict=True):
        worker.all_woken, worker.memory = woken, s.memory
    return out


def _shared(count: int) -> list[Shared]:
    first = Shared.create(count)
    return [first, *(Shared.attach(first.spec, i) for i in range(1, count))]

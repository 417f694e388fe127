"""The engine of flow control as Python sees it. The functions' docstrings have their guarantees, ``_engine.pxd`` the design."""

from asyncio import Future
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from kas.request.http import Request, Response

DURATION_BUCKETS: tuple[float, ...]
SEAT_BUCKETS: tuple[int, ...]
LENGTH_BUCKETS: tuple[int, ...]

class Hooks(Protocol):
    def later(self, seconds: float, level: Level, queue: Queue | None, seats: int) -> None: ...
    def wake(self, worker: int) -> None: ...

class Board:
    workers: int
    index: int
    def __init__(self, common: memoryview, tables: Sequence[memoryview], index: int) -> None: ...
    def claim(self, key: int) -> int: ...

class Stats:
    schema: str
    level: str
    dispatched: int
    executing: int
    seats: int
    waiting: int
    wanted: int
    rejected: dict[str, int]
    def __init__(self, schema: str, level: str) -> None: ...
    def execution(self, watch: bool) -> list[float]: ...
    def wait(self, executed: bool) -> list[float]: ...
    def work(self) -> list[float]: ...
    def queue_lengths(self) -> list[float]: ...
    def reject(self, reason: str) -> None: ...

class Queue:
    index: int

class Flow:
    level: Level
    stats: Stats
    schema: str
    distinguisher: str
    hand: tuple[int, ...]
    headers: list[tuple[bytes, bytes]]
    def __init__(
        self, level: Level, stats: Stats, distinguisher: str, hand: tuple[int, ...], headers: list[tuple[bytes, bytes]]
    ) -> None: ...

class Ticket:
    flow: Flow
    request: Request | None
    initial: int
    final: int
    latency: float
    arrived: float
    began: float
    state: int
    mutating: bool
    future: Future[bool]
    def end(self) -> None: ...
    def cancel(self, reason: str) -> bool: ...

# index, next dispatch R, seats in use, sums of initial seats, of most seats and of work, those that run, those that wait
QueueDump = tuple[int, float, int, int, int, float, list[Ticket], list[Ticket]]

class Level:
    name: str
    exempt: bool
    queued: bool
    quiescing: bool
    queues: int
    hand_size: int
    length_limit: int
    nominal: int
    max_seats: int
    limit: int
    def __init__(
        self, board: Board, row: int, name: str, exempt: bool, queuing: tuple[int, int, int] | None, hooks: Hooks
    ) -> None: ...
    def configure(self, queuing: tuple[int, int, int] | None) -> None: ...
    @property
    def is_set(self) -> bool: ...
    @property
    def idle(self) -> bool: ...
    @property
    def waits(self) -> bool: ...
    def close(self) -> None: ...
    def totals(self) -> tuple[int, int, int, int, int]: ...
    def publish_demand(self) -> None: ...
    def total_demand(self) -> tuple[float, float, float]: ...
    def give_back(self, q: Queue | None, seats: int) -> None: ...
    def tell(self) -> None: ...
    def dispatch(self) -> None: ...
    def dump(self) -> list[QueueDump]: ...

class Gate:
    epoch: object
    watched: Collection[Any]
    reading: int
    writing: int
    queued_reads: int
    queued_writes: int
    def __init__(
        self,
        classify: Callable[[Request], Flow],
        estimate: Callable[[Request, Flow], tuple[int, int, float]],
        waits: Callable[[Ticket], Any],
        refused: Callable[[Ticket], Any],
    ) -> None: ...
    @property
    def shared(self) -> bool: ...
    def begin(self, req: Request, /) -> Any: ...
    def left_queue(self, t: Ticket, runs: bool) -> None: ...
    def after(self, req: Request, resp: Response, /) -> None: ...
    def release(self, req: Request, /) -> None: ...

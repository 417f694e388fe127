"""What Python sees of the usual way of a question to a webhook; the promises stand at the functions, the design in ``_exchange.pxd``."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

class Wire:
    head: Any
    plain: bool
    generation: int
    _transport: asyncio.Transport | None
    _tls: Any
    _sealed: ssl.MemoryBIO
    _sealing: ssl.MemoryBIO
    _got: bytearray
    _ended: bool
    _answer: asyncio.Future[bytes] | None
    _limit: int
    _chunks: Any
    _informational: int
    _looked: int
    _known: Any
    _framing: Any
    def __init__(self, none: Any, nothing: Any, tls: Any, sealed: ssl.MemoryBIO | None, sealing: ssl.MemoryBIO | None) -> None: ...
    def knows(self, known: Any, raw: bytes, length: int | None, plain: bool) -> None: ...
    def post(self, head: bytes, body: bytes, limit: int) -> asyncio.Future[bytes]: ...
    @property
    def quiet(self) -> bool: ...
    def data_received(self, data: bytes) -> None: ...

class Kept:
    generation: int
    _idle: list[tuple[float, Any]]
    _timer: asyncio.TimerHandle | None
    _closed: bool
    def __init__(self, room: int, clock: Callable[[], float]) -> None: ...
    def take(self) -> Any: ...
    def keep(self, connection: Wire, generation: int) -> None: ...
    def outdate(self) -> None: ...

class Shares:
    def __init__(self, room: int) -> None: ...
    def running(self, backend: Hashable) -> int: ...
    def take(self, backend: Hashable) -> bool: ...
    def give(self, backend: Hashable) -> None: ...

class Ends: ...

class Asker:
    _shares: Shares
    _backend: Hashable
    _pool: Any
    _last: Any
    _fixed: bool
    def __init__(self, shares: Shares, backend: Hashable, ends: Ends, most: int) -> None: ...
    def begin(self, body: bytes, timeout_s: float, left_s: float) -> Awaitable[bytes] | None: ...
    def rest(self, connection: Wire, good: bool) -> None: ...

"""Types of the compiled path of a call to etcd. The functions document their guarantees, ``_wire.pxd`` the design."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from kas.store.etcd.rpc.hpack import Decoder, Headers
from kas.store.etcd.rpc.status import RpcError

STREAM_WINDOW: int
WINDOW: int

class Broken(Exception):
    code: int
    text: str
    def __init__(self, code: int, text: str) -> None: ...

class Stream:
    _block: bytes
    _left: bytes
    _ended: bool
    _headers: Headers | None
    _buffer: bytearray | None
    _id: int
    _window: int
    _got: int
    most: int
    single: bool
    over: bool
    error: RpcError | None
    messages: list[bytes]
    ended: Callable[[Stream], None] | None
    waiter: Any
    def __init__(self, block: bytes, left: bytes, last: bool, single: bool, ended: Callable[[Stream], None] | None) -> None: ...
    @property
    def unsent(self) -> bool: ...

class Wire:
    _out: list[bytes]
    _rest: bytes
    _decoder: Decoder
    _streams: dict[int, Stream]
    _waiting: deque[Stream]
    _blocked: dict[Stream, None]
    _next: int
    _taken: int
    _got: int
    _room: int
    _stream_room: int
    _most: int
    _block: tuple[int, int, bytearray, int] | None
    ready: bool
    closed: bool
    leaving: str
    heard: int
    held: list[bytes]
    def __init__(self, greeting: bytes, decoder: Decoder, handlers: tuple[Any, ...]) -> None: ...
    def take(self) -> bytes: ...
    def begin(self, block: bytes, message: bytes, last: bool, single: bool, ended: Callable[[Stream], None] | None) -> Stream: ...
    def feed(self, data: bytes) -> None: ...
    def _start(self, stream: Stream) -> None: ...
    def _pump(self, stream: Stream) -> None: ...
    def _over(self, stream: Stream, error: RpcError | None) -> None: ...
    def _of(self, number: int) -> Stream | None: ...
    def _said(self, number: int, flags: int, block: bytes) -> None: ...

class PutIf:
    def __init__(self, key: bytes, value: bytes, expected: int | None, lease: int) -> None: ...
    def SerializeToString(self) -> bytes: ...

class Undecoded(ValueError): ...

class Change:
    key: bytes
    value: bytes
    mod_revision: int
    put: bool

class Watched:
    events: list[Change]
    revision: int
    cluster_id: int
    watch_id: int
    compact_revision: int
    created: bool
    canceled: bool
    fragment: bool
    cancel_reason: str

def watched(message: bytes) -> Watched: ...

def succeeded_at(stream: Stream) -> int: ...

class Calls:
    _loop: asyncio.AbstractEventLoop
    _http2: Wire
    _transport: asyncio.Transport
    _flushing: bool
    _alive: asyncio.TimerHandle | None
    _latest: asyncio.TimerHandle | None
    _answering: asyncio.TimerHandle | None
    _greeting: bool
    def __init__(self, loop: asyncio.AbstractEventLoop, http2: Wire) -> None: ...
    def _flush(self) -> None: ...
    def data_received(self, data: bytes) -> None: ...
    def begin(self, block: bytes, message: bytes, within_s: float, on_end: Callable[[Stream], None] | None = None) -> Stream: ...

class Question:
    _client: Any
    _within_s: float
    _connection: Calls | None
    _block: bytes
    _turn: int
    _metadata: Any
    def __init__(self, client: Any, message: bytes, within_s: float) -> None: ...
    def ask(self, on_end: Callable[[Stream], object]) -> bool: ...
    def revision(self, stream: Stream) -> int: ...

def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes: ...

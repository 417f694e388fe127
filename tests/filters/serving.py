"""The whole handler chain behind a real listener, with parts that a test makes wait."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kas.audit.auditor import Auditor
from kas.auth.attributes import ALLOW
from kas.auth.user import UserInfo
from kas.config.options import Options
from kas.edge.asgi import App
from kas.edge.listener import Listener
from kas.filters.chain import Port, handler_chain, parts
from kas.filters.deadline import timed_out
from kas.filters.handler import Chain, Filter
from kas.filters.wait_group import WaitGroup
from kas.meta.deadlines import Deadlines
from kas.meta.errors import ApiError
from kas.observe.metrics import Registry
from kas.request.http import Request, Response, Result, with_body
from kas.types.scheme import Scheme

JANE = UserInfo("jane", ("system:authenticated",))


class Counts:
    """The shared counters of requests in flight."""

    def __init__(self) -> None:
        self.now, self.most = 0, 0

    def enter(self, mutating: bool) -> int:
        self.now += 1
        self.most = max(self.most, self.now)
        return self.now

    def leave(self, mutating: bool) -> None:
        self.now -= 1


class Harness:
    """A waiting part waits for ``gate``, and sets ``began``; ``wait`` names the part: filter, authenticator or authorizer. ``seen`` has
    the bodies that the endpoint got, ``cancelled`` counts cancellations of the waiting part. The read-only port needs a ``run_dir``."""

    def __init__(
        self, wait: str = "", request_timeout_s: float = 60.0, port: Port = "secure", auditor: Auditor | None = None,
        last: Filter | None = None, run_dir: Path = Path("/nowhere"),
    ) -> None:  # fmt: skip
        self.gate, self.began = asyncio.Event(), asyncio.Event()
        self.wait, self.seen, self.cancelled = wait, [], 0
        self.fails: Exception | None = None
        self.metrics, self.in_flight, self.waiting = Registry(), Counts(), WaitGroup()
        settings = Options({"request-timeout": request_timeout_s})
        state = SimpleNamespace(started=True, not_accepting=False)
        shared = parts(
            settings, self.metrics, Scheme(), state, self.waiting, self.in_flight, lambda: self, lambda forget: None, self, lambda: None,
            auditor, run_dir,
        )  # fmt: skip
        filters = handler_chain(port, settings, self.metrics, shared)
        if wait == "filter":
            filters.append(Filter("waits", self.before))
        filters += (last,) if last is not None else ()
        self.chain = Chain(filters, self.endpoint, self.refuse, lambda e: None, Deadlines(), lambda req: self.refuse(req, timed_out()))
        self.tasks: list[asyncio.Task[Any] | None] = []

    async def blocked(self, value: Any) -> Any:
        self.began.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.fails is not None:
            raise self.fails
        return value

    def authenticate(self, get: Any, peer: Any = None, path: str = "", found: Any = None) -> Any:
        return self.blocked(JANE) if self.wait == "authenticator" else JANE

    def authorize(self, a: Any) -> Any:
        return self.blocked((ALLOW, "", "")) if self.wait == "authorizer" else (ALLOW, "", "")

    def before(self, req: Request) -> Awaitable[None]:
        return self.blocked(None)

    def endpoint(self, req: Request) -> Result:
        def answer(req: Request) -> Response:
            self.seen.append(req.body)
            return Response(200, [], b"done")

        return with_body(req, answer)

    @staticmethod
    def refuse(req: Request, e: ApiError) -> Response:
        return Response(e.code, [], e.message.encode())

    def nothing_held(self) -> bool:
        return not self.waiting.serving and self.in_flight.now == 0


@contextlib.asynccontextmanager
async def listening(handler: Callable[[Request], Result], tmp_path: Any) -> AsyncIterator[Callable[[], Any]]:
    """Serves ``handler`` on a socket of its own; yields a function that opens a connection (reader, writer)."""
    path = str(tmp_path / "s")
    listener = Listener(App(handler), "", 0, uds=path)
    listener.start(1)
    try:
        yield lambda: asyncio.open_unix_connection(path)
    finally:
        listener.stop()
        await listener.stopped


async def until(true: Callable[[], bool]) -> None:
    """Polls every few milliseconds; TimeoutError after 60 s."""
    for _ in range(6000):
        if true():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError


def head(method: str = "GET", path: str = "/api/v1/namespaces/a/configmaps/b", *lines: str) -> bytes:
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: x", *lines, "", "")).encode()


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Reads the next answer on a connection: (status, body)."""
    async with asyncio.timeout(60):
        top = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.partition(b":")[2]) for line in top.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        return int(top.split(b" ")[1]), await reader.readexactly(length)

"""Many watchers in one thread. An event costs its decryption and one look-up, so that a run of minutes can check a million of them.

A watcher's events are kept line by line as they came: equal lines are parsed once for all watchers.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re
import ssl
from collections.abc import Callable
from typing import cast
from urllib.parse import urlsplit

from kas.testing.server import KasServer
from tests.robustness import watch_model as model
from tests.robustness.watch_model import Event, Session

STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
CONNECT_S = 20.0
LATE_S = 20.0  # seconds after its expected end at which a stream is closed


class Expired(Exception):
    """The server no longer has the history with which the watch would begin."""


@functools.lru_cache(1 << 15)
def read(line: bytes) -> Event:
    """Parses one line of a stream; raises Expired, ValueError for an incomplete line, AssertionError for another error."""
    raw = json.loads(line)
    if raw["type"] == "ERROR":
        assert raw["object"]["code"] == 410, raw
        raise Expired
    return model.event_of(raw)


class Stream(asyncio.Protocol):
    """A connection for one watch after the other. It is closed when it is cut or gets an answer that it does not understand."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._took: Callable[[Event], None] = lambda event: None
        self._done: asyncio.Future[None] | None = None
        self._raw, self._line, self._left, self._head = bytearray(), b"", 0, True

    @property
    def closed(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end(ConnectionError("cut"))

    def close(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:  # not at once: TLS may be in the middle of what it has read
            asyncio.get_running_loop().call_soon(transport.abort)

    async def watch(self, head: bytes, took: Callable[[Event], None], within_s: float) -> None:
        """Sends a request and passes each event to ``took``. Raises Expired; ConnectionError when the stream was cut or refused."""
        if self._transport is None:
            raise ConnectionError("closed")
        self._took, self._done = took, asyncio.get_running_loop().create_future()
        self._raw, self._line, self._head = bytearray(), b"", True
        self._transport.write(head)
        try:
            async with asyncio.timeout(within_s):
                await self._done
        except TimeoutError as e:
            raise ConnectionError("it did not end") from e
        finally:
            if not self._done.done() or self._done.cancelled() or self._done.exception() is not None:
                self.close()

    def _end(self, error: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            if error is None:
                self._done.set_result(None)
            else:
                self._done.set_exception(error)

    def data_received(self, data: bytes) -> None:
        if self._transport is None:  # it is about to be closed
            return
        self._raw += data
        try:
            if self._head and not self._begun():
                return
            self._chunks()
        except (Expired, ValueError, AssertionError, ConnectionError) as e:
            self._end(ConnectionError(str(e)) if isinstance(e, ValueError) else e)
            self.close()

    def _begun(self) -> bool:
        """Whether the head has arrived; removes it then."""
        end = self._raw.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = bytes(self._raw[: end + 2]).lower()
        status = STATUS.match(bytes(self._raw[:end]))
        if status is None or status[1] != b"200" or b"\r\ntransfer-encoding: chunked\r\n" not in head:
            raise ConnectionError(f"refused: {head!r}")
        del self._raw[: end + 4]
        self._head = False
        return True

    def _chunks(self) -> None:
        """Takes complete chunks, and of these complete lines."""
        raw, at = self._raw, 0
        while (end := raw.find(b"\r\n", at)) >= 0:
            size = int(raw[at:end], 16)
            if len(raw) < end + 4 + size:
                break
            at = end + 4 + size
            if not size:
                self._end(ValueError("half a line") if self._line else None)
                break
            *lines, self._line = (self._line + raw[end + 2 : at - 2]).split(b"\n")
            for line in lines:
                self._took(read(bytes(line)))
        del raw[:at]


class Watcher:
    """One client's connections, at most one to each server."""

    def __init__(self) -> None:
        self._streams: dict[str, Stream] = {}

    async def session(self, server: KasServer, path: str, s: Session, seconds: int) -> bool:
        """Watches until the stream ends or is cut; returns False when the revision has expired."""
        url = server.url
        try:
            stream = self._streams.get(url)
            if stream is None or stream.closed:
                async with asyncio.timeout(CONNECT_S):  # wait_for() of Python 3.11 may forget that it was cancelled
                    stream = self._streams[url] = await connected(url, server.ca)
            head = (
                f"GET {path}&watch=1&allowWatchBookmarks=1&resourceVersion={s.after}&timeoutSeconds={seconds} HTTP/1.1\r\n"
                f"Host: {urlsplit(url).netloc}\r\nAuthorization: Bearer {server.token}\r\n\r\n"
            )
            await stream.watch(head.encode(), s.events.append, seconds + LATE_S)
        except Expired:
            return False
        except (OSError, TimeoutError):  # of a connection, and of TLS
            await asyncio.sleep(0.1)
        return True

    def close(self) -> None:
        for stream in self._streams.values():
            stream.close()


@functools.cache
def _trusting(ca: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca)


async def connected(url: str, ca: str) -> Stream:
    to = urlsplit(url)
    _, stream = await asyncio.get_running_loop().create_connection(Stream, to.hostname, to.port, ssl=_trusting(ca))
    return stream


async def until(stopped: Callable[[], bool], tasks: list[asyncio.Task[None]]) -> None:
    """Runs them until it is time to stop, and ends them. Raises the error of any of them."""
    try:
        while not stopped():
            done, _ = await asyncio.wait(tasks, timeout=0.1, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

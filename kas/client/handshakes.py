"""TLS handshakes with untrusted peers.

A peer may present up to 100 KB of certificates, and OpenSSL verifies signatures with their keys however costly they
are (70 keys of 3,072 bits with exponents as long: 0.6 s), even if verification is off. A step that may take longer
than usual therefore runs in a thread, without the GIL. Other steps take a third of a millisecond each, and a kubelet
that answers 400 connections at once would block the event loop for all of them, so a loop iteration takes
only as many as fit into a ``TimeSlice``.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol, SSLProtocolState
from collections.abc import Callable
from typing import Any

from kas.meta.offload import POOL
from kas.meta.waiting import LoopThrottle

# Of the peer's handshake messages, in however many pieces: all certificates are verified when the last one has arrived.
# Those of a usual chain have 2 to 3 KB; three of the costly ones, which fit in, take 20 ms.
USUAL_BYTES = 4 << 10
# Received data that is held encrypted for a reader that takes nothing, and when reading resumes. Both are above the
# size of a TLS record, which cannot be decrypted before it is complete.
HELD_BYTES = 32 << 10, 20 << 10
# Data for a peer that reads nothing, beyond what the connection below holds, when a writer has to wait: as much as on a connection
# without TLS. asyncio's 512 KiB made each port-forward to such a peer cost a MiB.
UNSENT_BYTES = 64 << 10


def handshake_step(tls: Any) -> ssl.SSLError | None:
    """Runs a step of a handshake. Returns None if it was the last one, SSLWantReadError if there is another, or the error."""
    try:
        tls.do_handshake()
    except ssl.SSLError as e:
        return e.with_traceback(None)
    return None


_loop_throttle = LoopThrottle()


def goes_on(heard: int) -> bool:
    """Whether the next step can run now: it is no longer than usual, having ``heard`` bytes, and this turn has time for it."""
    return heard <= USUAL_BYTES and not (heard and _loop_throttle.throttle.exhausted)


async def step(tls: Any, heard: int) -> ssl.SSLError | None:
    """Runs ``handshake_step`` for a step that cannot run now."""
    if heard > USUAL_BYTES:
        return await POOL.run(handshake_step, tls)
    if (throttle := _loop_throttle.throttle).exhausted:  # in another turn by now
        await throttle.wait()
    return handshake_step(tls)


class Secured(SSLProtocol):
    """asyncio's TLS protocol for a client, with long handshake steps outside the event loop. Nothing is read from the peer meanwhile.

    It also bounds the time for a peer that renews its keys all the time, with 27 bytes and 20 to 60 µs for each: the
    megabytes that were queued in the kernel while the client read nothing would be processed in one turn. A turn
    takes at most ``max_size`` of data that arrives as fast as it is read.
    """

    max_size = 16 << 10
    _transport: asyncio.Transport | None
    _incoming: ssl.MemoryBIO
    _sslobj: ssl.SSLObject
    _state: SSLProtocolState
    _process_outgoing: Callable[[], None]
    _ssl_reading_paused: bool
    _set_read_buffer_limits: Callable[[int, int], None]
    _set_write_buffer_limits: Callable[[int], None]
    _handshake_task: asyncio.Task[None] | None = None  # the event loop itself keeps no reference
    _heard = 0  # bytes of the handshake so far

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._set_read_buffer_limits(*HELD_BYTES)
        self._set_write_buffer_limits(UNSENT_BYTES)

    def buffer_updated(self, nbytes: int) -> None:
        """asyncio's: ``nbytes`` were read."""
        super().buffer_updated(nbytes)
        if nbytes == self.max_size and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if self._transport is None or self._transport.is_closing() or self._ssl_reading_paused or self._handshake_task is not None:
            return
        self._transport.resume_reading()

    def _do_handshake(self) -> None:
        self._heard += self._incoming.pending
        if self._transport is None or goes_on(self._heard):
            self._handshake_stepped(handshake_step(self._sslobj))
            return
        self._transport.pause_reading()
        self._handshake_task = self._loop.create_task(self._handshake_later())

    async def _handshake_later(self) -> None:
        error = await step(self._sslobj, self._heard)
        self._handshake_task = None
        if self._state is not SSLProtocolState.DO_HANDSHAKE or self._transport is None:
            return  # it was closed meanwhile
        self._transport.resume_reading()
        self._handshake_stepped(error)

    def _handshake_stepped(self, error: ssl.SSLError | None) -> None:
        if isinstance(error, (ssl.SSLWantReadError, ssl.SSLSyscallError)):
            self._process_outgoing()
        else:
            self._on_handshake_complete(error)

"""Handshakes of TLS with peers that may show what they like.

Up to 100 KB of certificates, whose keys OpenSSL verifies with however costly they are (70 of 3,072 bits with exponents as long: 0.6 s),
also where nobody is believed or refused by them. What is longer than usual is gone through beside the loop, without the interpreter's
lock. What is not takes a third of a millisecond, and a kubelet that answers 400 connections at once would hold the loop for all of them: as
many go on in a turn as a ``TimeSlice`` is long.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol, SSLProtocolState
from collections.abc import Callable
from typing import Any

from kas.meta.offload import POOL
from kas.meta.waiting import LoopThrottle

# Of what a peer says until it is known, in however many pieces: all certificates are verified when the last one has come. Those of a usual
# chain have 2 to 3 KB, and three of the costly ones that fit in take 20 ms.
USUAL_BYTES = 4 << 10
# What is held for who takes nothing, sealed, and when more is read: both are above a record, which nobody could take before it is whole.
HELD_BYTES = 32 << 10, 20 << 10


def shake(tls: Any) -> ssl.SSLError | None:
    """A step of a handshake: None when it was the last, SSLWantReadError while there is another."""
    try:
        tls.do_handshake()
    except ssl.SSLError as e:
        return e.with_traceback(None)
    return None


_gate = LoopThrottle()


def goes_on(heard: int) -> bool:
    """Whether the next step is made now: it is no longer than usual, of ``heard`` bytes, and this turn has time for it."""
    return heard <= USUAL_BYTES and not (heard and _gate.throttle.exhausted)


async def step(tls: Any, heard: int) -> ssl.SSLError | None:
    """``shake``, of what does not go on now."""
    if heard > USUAL_BYTES:
        return await POOL.run(shake, tls)
    if (throttle := _gate.throttle).exhausted:  # by now another turn
        await throttle.wait()
    return shake(tls)


class Secured(SSLProtocol):
    """asyncio's TLS of a client, whose loop does not wait for long steps. Nothing is read from the peer meanwhile.

    Nor for a peer that renews its keys all the time, 27 bytes and 20 to 60 µs each: what lay in the kernel while the client took nothing,
    MBs of it, was gone through in one turn. Of what comes as fast as it is read, a turn takes ``max_size``."""

    max_size = 16 << 10
    _transport: asyncio.Transport | None
    _incoming: ssl.MemoryBIO
    _sslobj: ssl.SSLObject
    _state: SSLProtocolState
    _process_outgoing: Callable[[], None]
    _ssl_reading_paused: bool
    _set_read_buffer_limits: Callable[[int, int], None]
    _shaking: asyncio.Task[None] | None = None  # the loop itself does not keep it
    _heard = 0  # bytes of the handshake so far

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._set_read_buffer_limits(*HELD_BYTES)

    def buffer_updated(self, nbytes: int) -> None:
        """asyncio's: so much was read."""
        super().buffer_updated(nbytes)
        if nbytes == self.max_size and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing() and not self._ssl_reading_paused and self._shaking is None:
            self._transport.resume_reading()

    def _do_handshake(self) -> None:
        self._heard += self._incoming.pending
        if self._transport is None or goes_on(self._heard):
            self._shaken(shake(self._sslobj))
            return
        self._transport.pause_reading()
        self._shaking = self._loop.create_task(self._shake_later())

    async def _shake_later(self) -> None:
        error = await step(self._sslobj, self._heard)
        self._shaking = None
        if self._state is not SSLProtocolState.DO_HANDSHAKE or self._transport is None:
            return  # it was given up
        self._transport.resume_reading()
        self._shaken(error)

    def _shaken(self, error: ssl.SSLError | None) -> None:
        if isinstance(error, (ssl.SSLWantReadError, ssl.SSLSyscallError)):
            self._process_outgoing()
        else:
            self._on_handshake_complete(error)

"""Keys for data: how values are sealed with one, and those that plug-ins have opened."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future

from kas.encryption.ciphers import AESGCM, TOO_SHORT, SealError
from kas.encryption.kms.messages import AES_GCM_KEY, DEKSource
from kas.encryption.union import Opener
from kas.meta.threads import Threads
from kas.observe import caches

SEED_BYTES, INFO_BYTES = 32, 32
CACHE_BYTES = 4 << 20
# The loop waits so long for a plug-in that is asked for a key nobody has asked for before, and so does who is in a hurry, but neither while
# the plug-in owes an answer for longer; others wait for its whole timeout.
LOOP_WAIT_S = 1.0
# A plug-in that could not open a key is not asked for the same one again for so long.
REFUSED_S = 1.0
THREADS = 16
# Keys that somebody opens before a request reads (``opening``) are there for so long at least, however few are remembered.
AHEAD_S, AHEAD_MOST = 60.0, 8192


class _This(threading.local):
    """``ahead``: this thread opens values before somebody else reads them. ``hurries``: see ``hurry``."""

    ahead = hurries = False


_this = _This()


def hurry() -> None:
    """From now on this thread waits for plug-ins no longer than the loop does: much else waits for it, and what it cannot open is opened
    later by who reads it."""
    _this.hurries = True


@contextlib.contextmanager
def opening() -> Iterator[None]:
    """In this thread: what is opened stays opened for ``AHEAD_S``, also where a plug-in's ``cachesize`` is smaller. Waits as long as a
    plug-in may take, so not for the loop's thread."""
    _this.ahead = True
    try:
        yield
    finally:
        _this.ahead = False


class HKDFSealer:
    """AES-GCM with a key of its own for each value, expanded from a seed: a nonce of 44 bytes in effect (``aes.extendedNonceGCM``)."""

    def __init__(self, seed: bytes) -> None:
        if len(seed) < SEED_BYTES:
            raise SealError(f"invalid seed length {len(seed)} used for key generation")
        self._seed = seed

    def _cipher(self, info: bytes) -> AESGCM:
        return AESGCM(hmac.digest(self._seed, info + b"\x01", "sha256"))  # HKDF-Expand, whose first block is all that is wanted

    def seal(self, plain: bytes, key: bytes) -> bytes:
        """What the key was expanded with, then nonce, text and tag."""
        info = os.urandom(INFO_BYTES)
        return info + self._cipher(info).seal(plain, key)

    def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
        """The text. Raises SealError."""
        if len(sealed) < INFO_BYTES:
            raise SealError(TOO_SHORT)
        return self._cipher(sealed[:INFO_BYTES]).open(sealed[INFO_BYTES:], key)


def sealer(source: DEKSource, key: bytes) -> Opener:
    """What seals with an opened key, as its source says. Raises SealError."""
    if source.type != AES_GCM_KEY:
        return HKDFSealer(key)
    if len(key) not in (16, 24, 32):
        raise SealError(f"crypto/aes: invalid key size {len(key)}")
    return AESGCM(key)


class Opened:
    """The keys that a plug-in has opened. ``ask(source, timeout_s)`` asks it: the key, or SealError; 0 is its own timeout. ``made`` is what
    seals with one, ``said`` what errors begin with, ``most`` how many are remembered, if that is said. ``kept(count)`` is called when
    there is another one remembered."""

    def __init__(
        self, ask: Callable[[DEKSource, float], bytes], made: Callable[[DEKSource, bytes], Opener] = sealer,
        said: str = "failed to decrypt DEK, error: ", most: int | None = None, kept: Callable[[int], None] = lambda count: None,
    ) -> None:  # fmt: skip
        self._ask, self._made, self._said, self._most, self._told = ask, made, said, most, kept
        self._kept: caches.Cache[bytes, Opener] = caches.Cache(
            "data_encryption_keys", "keys that KMS plug-ins have opened", CACHE_BYTES, 1024
        )
        self._lock = threading.Lock()
        self._asked: dict[bytes, Future[Opener]] = {}
        self._late: Future[Opener] | None = None  # what the plug-in was asked, and the loop has not waited for any longer
        self._opened_ahead: dict[bytes, tuple[float, Opener]] = {}  # the oldest first
        self._refused: dict[bytes, tuple[float, SealError]] = {}
        self._threads = Threads(THREADS, "kas-kms")

    def put(self, source: DEKSource, opened: Opener) -> None:
        """Remembers a key that was made here."""
        with self._lock:
            self._keep(source.digest(), opened)

    def _keep(self, digest: bytes, opened: Opener) -> None:
        if self._most is not None and len(self._kept.entries) >= self._most:
            self._kept.clear()
        if self._most != 0:
            self._kept.put(digest, opened, 32)
            self._told(len(self._kept.entries))

    def has(self, source: DEKSource) -> bool:
        """Whether the key is known."""
        return source.digest() in self._kept.entries

    def get(self, source: DEKSource) -> Opener:
        """The sealer of a source, asked for when it is not known. Waits for the plug-in, on the loop's thread and where one hurries for
        ``LOOP_WAIT_S`` only, and not at all while an earlier answer is owed; whoever wants the same key waits for the same answer. Raises
        SealError."""
        found = self._get(source.digest(), source)
        if _this.ahead:
            self._keep_ahead(source.digest(), found)
        return found

    def _known(self, digest: bytes) -> Opener | None:
        found = self._kept.entries.get(digest)
        if found is None and (ahead := self._opened_ahead.get(digest)) is not None:
            return ahead[1]
        return found

    def _keep_ahead(self, digest: bytes, opened: Opener) -> None:
        now = time.monotonic()
        with self._lock:
            self._opened_ahead.pop(digest, None)
            self._opened_ahead[digest] = now + AHEAD_S, opened
            while (oldest := next(iter(self._opened_ahead))) != digest and (
                self._opened_ahead[oldest][0] < now or len(self._opened_ahead) > AHEAD_MOST
            ):
                del self._opened_ahead[oldest]

    def _get(self, digest: bytes, source: DEKSource) -> Opener:
        found = self._known(digest)
        if found is not None:
            return found
        hurries = _this.hurries or on_loop()
        if hurries and self._late is not None and not self._late.done():
            raise self._unanswered()
        with self._lock:
            found = self._known(digest)
            if found is not None:  # it came in the meantime
                return found
            refused = self._refused.get(digest)
            if refused is not None:
                if time.monotonic() < refused[0]:
                    raise SealError(str(refused[1]))
                del self._refused[digest]
            asked = self._asked.get(digest)
            if asked is None:
                asked = self._asked[digest] = self._threads.submit(self._open, source, digest)
        try:
            return asked.result(LOOP_WAIT_S if hurries else None)
        except TimeoutError:
            self._late = asked
            raise self._unanswered() from None

    def _unanswered(self) -> SealError:
        return SealError(f"{self._said}the plug-in has not answered yet")

    def _open(self, source: DEKSource, digest: bytes) -> Opener:
        """In a thread: asks, and remembers how it ended."""
        try:
            opened = self._made(source, self._ask(source, 0.0))
        except Exception as e:  # whatever it is, somebody waits for it
            error = SealError(f"{self._said}{e}")
            with self._lock:
                if len(self._refused) >= 1024:
                    self._refused.clear()
                self._refused[digest] = time.monotonic() + REFUSED_S, error
                self._asked.pop(digest, None)
            raise error from None
        with self._lock:
            self._keep(digest, opened)
            self._asked.pop(digest, None)
        return opened

    def close(self) -> None:
        """Asks no more."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def on_loop() -> bool:
    """Whether this is a loop's thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True

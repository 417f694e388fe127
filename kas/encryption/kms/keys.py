"""Data keys: sealing values with a key, and the cache of keys that plug-ins have opened."""

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
# How long the loop, or a hurrying thread, waits for a plug-in that opens an unknown key; it does not wait at all while an
# earlier answer is overdue. Other threads wait for the plug-in's whole timeout.
LOOP_WAIT_S = 1.0
# How long a plug-in is not asked again for a key that it could not open.
REFUSED_S = 1.0
THREADS = 16
# Keys opened in advance of a request (``opening``) are cached for at least this long, even if the cache is small.
AHEAD_S, AHEAD_MOST = 60.0, 8192


class _This(threading.local):
    """``ahead``: this thread opens values before they are read. ``hurries``: see ``use_short_timeouts``."""

    ahead = hurries = False


_this = _This()


def use_short_timeouts() -> None:
    """From now on this thread waits for plug-ins no longer than the loop does: other work waits for it, and values that it
    cannot open are opened later by their readers."""
    _this.hurries = True


@contextlib.contextmanager
def opening() -> Iterator[None]:
    """Within this context, in this thread, opened keys are cached for at least ``AHEAD_S``, even if a plug-in's ``cachesize``
    is smaller. Waits as long as a plug-in may take, so not for the loop's thread."""
    _this.ahead = True
    try:
        yield
    finally:
        _this.ahead = False


class HKDFSealer:
    """AES-GCM with a separate key for each value, expanded from a seed: in effect a nonce of 44 bytes
    (``aes.extendedNonceGCM``)."""

    def __init__(self, seed: bytes) -> None:
        if len(seed) < SEED_BYTES:
            raise SealError(f"invalid seed length {len(seed)} used for key generation")
        self._seed = seed

    def _cipher(self, info: bytes) -> AESGCM:
        return AESGCM(hmac.digest(self._seed, info + b"\x01", "sha256"))  # HKDF-Expand, of which only the first block is needed

    def seal(self, plain: bytes, key: bytes) -> bytes:
        """Returns the info that the key was expanded with, then nonce, ciphertext and tag."""
        info = os.urandom(INFO_BYTES)
        return info + self._cipher(info).seal(plain, key)

    def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
        """Returns the plaintext. Raises SealError."""
        if len(sealed) < INFO_BYTES:
            raise SealError(TOO_SHORT)
        return self._cipher(sealed[:INFO_BYTES]).open(sealed[INFO_BYTES:], key)


def sealer(source: DEKSource, key: bytes) -> Opener:
    """Returns the sealer for an opened key, of the type that its source names. Raises SealError."""
    if source.type != AES_GCM_KEY:
        return HKDFSealer(key)
    if len(key) not in (16, 24, 32):
        raise SealError(f"crypto/aes: invalid key size {len(key)}")
    return AESGCM(key)


class Opened:
    """The cache of keys that a plug-in has opened. ``ask(source, timeout_s)`` makes the plug-in open one: returns the key, or
    raises SealError; a timeout of 0 is its own. ``made`` creates the sealer for a key, ``said`` is the beginning of errors,
    ``most`` the size of the cache, if limited. ``kept(count)`` is called when a key is added."""

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
        self._late: Future[Opener] | None = None  # a request to the plug-in for which the loop has stopped waiting
        self._opened_ahead: dict[bytes, tuple[float, Opener]] = {}  # the oldest first
        self._refused: dict[bytes, tuple[float, SealError]] = {}
        self._threads = Threads(THREADS, "kas-kms")

    def put(self, source: DEKSource, opened: Opener) -> None:
        """Adds a key that was created here."""
        with self._lock:
            self._keep(source.digest(), opened)

    def _keep(self, digest: bytes, opened: Opener) -> None:
        if self._most is not None and len(self._kept.entries) >= self._most:
            self._kept.clear()
        if self._most != 0:
            self._kept.put(digest, opened, 32)
            self._told(len(self._kept.entries))

    def has(self, source: DEKSource) -> bool:
        """Returns whether the key is cached."""
        return source.digest() in self._kept.entries

    def get(self, source: DEKSource) -> Opener:
        """Returns the sealer of a source, which the plug-in opens if it is not cached. On the loop's thread, and in a
        hurrying one, waits for the plug-in for ``LOOP_WAIT_S`` only, and not at all while an earlier answer is overdue;
        callers for the same key share one request. Raises SealError."""
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
            if found is not None:  # it was added in the meantime
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
        """In a thread: asks the plug-in, and records the outcome."""
        try:
            opened = self._made(source, self._ask(source, 0.0))
        except Exception as e:  # of any kind: a caller waits for it
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
        """Stops using the plug-in."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def on_loop() -> bool:
    """Returns whether this is the thread of an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True

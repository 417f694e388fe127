"""The provider of a KMS v1 plug-in (deprecated, ``--feature-gates=KMSv1=true``): a separate key for each value, which the
plug-in encrypts.

A value consists of the length of the encrypted key (two bytes, big-endian), the encrypted key, and the AES-GCM ciphertext;
servers before Kubernetes 1.25 used AES-CBC, which is read, too. Each write calls the plug-in, and so does each read of a key
that is not cached: so the store seals in threads, and values that a request needs are opened in threads before they are read
(``waits``). Sealing or opening on the loop all the same waits no longer than ``LOOP_WAIT_S``, and not at all while an answer
of the plug-in is overdue. Upstream: ``envelope/envelope.go`` and ``envelope/grpc_service.go``.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future

from kas.auth.attributes import aggregate
from kas.encryption.ciphers import AESCBC, AESGCM, SealError
from kas.encryption.kms.client import KMSClient
from kas.encryption.kms.keys import LOOP_WAIT_S, THREADS, Opened, on_loop
from kas.encryption.kms.messages import DEKSource, read_plaintext, read_status
from kas.encryption.union import Opener
from kas.meta.protowire import put_bytes, put_text
from kas.meta.threads import Threads
from kas.observe import counted

SERVICE, VERSION = "v1beta1.KeyManagementService", "v1beta1"
KEY_BYTES = 32
LENGTH_BYTES, LENGTH_MAX = 2, (1 << 16) - 1


class Base:
    """The cipher of a value's own key."""

    def __init__(self, key: bytes) -> None:
        if len(key) not in (16, 24, 32):
            raise SealError(f"crypto/aes: invalid key size {len(key)}")
        self._gcm, self._cbc = AESGCM(key), AESCBC(key)

    def seal(self, plain: bytes, key: bytes) -> bytes:
        """Seals with AES-GCM."""
        return self._gcm.seal(plain, key)

    def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
        """Returns the plaintext; stale if it was sealed with AES-CBC. Raises SealError."""
        try:
            return self._gcm.open(sealed, key)
        except SealError as e:
            first = e
        try:
            return self._cbc.open(sealed, key)[0], True
        except SealError as e:
            raise SealError(aggregate([str(first), str(e)])) from None


class KMSv1:
    """Seals and opens. ``cache_size`` is the number of cached keys, none if it is negative."""

    waits = True

    def __init__(self, name: str, client: KMSClient, cache_size: int) -> None:
        self._name, self._client = name, client
        self.opened = Opened(self._decrypt, lambda source, key: Base(key), "", max(cache_size, 0))
        self._threads = Threads(THREADS, "kas-kms")
        self._late: Future[bytes] | None = None
        self._known = threading.Lock()
        self._version_checked = False
        self._problem = "the plug-in has not been asked yet"

    # --- values

    def seal(self, plain: bytes, key: bytes) -> bytes:
        """Returns the value sealed with a new key. Raises SealError if the plug-in does not encrypt that key."""
        own = counted.data_key(KEY_BYTES)
        sealed = self._encrypted(own)
        if len(sealed) > LENGTH_MAX:
            raise SealError(f"the encrypted DEK is {len(sealed)} bytes, which exceeds the max size of {LENGTH_MAX}")
        base: Opener = Base(own)
        self.opened.put(DEKSource(sealed, ""), base)
        return len(sealed).to_bytes(LENGTH_BYTES, "big") + sealed + base.seal(plain, key)

    def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
        """Returns the plaintext. Raises SealError."""
        end = LENGTH_BYTES + int.from_bytes(sealed[:LENGTH_BYTES], "big")
        if len(sealed) < max(end, LENGTH_BYTES):
            raise SealError("invalid data encountered by envelope transformer: failed to read uint16 length prefixed data")
        return self.opened.get(DEKSource(sealed[LENGTH_BYTES:end], "")).open(sealed[end:], key)

    def _encrypted(self, own: bytes) -> bytes:
        if not on_loop():
            return self._encrypt(own)
        if self._late is not None and not self._late.done():
            raise SealError("the plug-in has not answered yet")
        asked = self._threads.submit(self._encrypt, own)
        try:
            return asked.result(LOOP_WAIT_S)
        except TimeoutError:
            self._late = asked
            raise SealError("the plug-in has not answered yet") from None

    def _encrypt(self, own: bytes) -> bytes:
        return self._asked("Encrypt", own)

    def _decrypt(self, source: DEKSource, timeout_s: float) -> bytes:
        return self._asked("Decrypt", source.sealed, timeout_s)

    def _asked(self, method: str, data: bytes, timeout_s: float = 0.0) -> bytes:
        self._check_version()
        answer = self._client.call(method, put_text(1, VERSION) + put_bytes(2, data), timeout_s)
        try:
            return read_plaintext(answer)
        except ValueError as e:
            raise SealError(f"rpc error: code = Internal desc = grpc: failed to unmarshal the received message: {e}") from None

    def _check_version(self) -> None:
        with self._known:
            if self._version_checked:
                return
            try:
                found = read_status(self._client.call("Version", put_text(1, VERSION))).version
            except (SealError, ValueError) as e:
                raise SealError(f"failed get version from remote KMS provider: {e}") from None
            if found != VERSION:
                raise SealError(f"KMS provider api version {found} is not supported, only {VERSION} is supported now")
            self._version_checked = True

    # --- the plug-in

    def check(self) -> str:
        """Lets the plug-in encrypt and decrypt a sample; returns why it could not, or "". Blocks."""
        section = "encrypt"
        try:
            sealed = self._encrypt(b"ping")
            section = "decrypt"
            self._asked("Decrypt", sealed)
        except Exception as e:  # of any kind: periodic checks must not end, and report a healthy plug-in
            self._problem = str(e) if isinstance(e, SealError) else f"failed to ask the KMS plug-in: {type(e).__name__}: {e}"
            return f"failed to perform {section} section of the healthz check for KMS Provider {self._name}, error: {self._problem}"
        self._problem = ""
        return ""

    @property
    def problem(self) -> str:
        """The error of the last check, without the section, as upstream answers from its cache."""
        return self._problem

    def close(self) -> None:
        """Stops using the plug-in."""
        self.opened.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()

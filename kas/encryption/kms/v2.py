"""The provider of a KMS v2 plug-in: one seed for many writes, encrypted by the plug-in; checks its health and its key's id.

``check`` is called periodically, in a thread. The plug-in reports the key that it uses; if that has changed, a new seed is
created and used for writes. A seed that the plug-in has not confirmed for three minutes is no longer used for writes, because
the key may be gone. Upstream: ``encryptionconfig/config.go`` (``kmsv2PluginProbe``) and ``envelope/kmsv2/envelope.go``.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable

from kas.auth.attributes import aggregate
from kas.encryption.ciphers import SealError
from kas.encryption.kms.client import KMSClient
from kas.encryption.kms.keys import SEED_BYTES, HKDFSealer, Opened
from kas.encryption.kms.messages import (
    DEKSource,
    Status,
    decrypt_request,
    encrypt_request,
    key_id_problem,
    read_encrypt_response,
    read_plaintext,
    read_status,
    read_stored,
    stored,
)
from kas.encryption.observed import FROM, TO, Observed, key_id_hash
from kas.encryption.union import Opener, Rotates
from kas.meta.field import go_quote
from kas.meta.records import NamedTuple
from kas.observe import counted

SERVICE = "v2.KeyManagementService"
WRITE_MAX_S = 180.0  # kmsv2PluginWriteDEKSourceMaxTTL
# Time for the other workers to open a new seed's key: they look for it every second.
SPREAD_S = 2.5


class State(NamedTuple):
    """The seed for writes until ``until``, in seconds of the monotonic clock."""

    sealer: Opener
    source: DEKSource
    until: float


class KMSv2(Rotates):
    """Seals and opens; ``tell(source)`` is called with each new encrypted seed before it is used, for the other workers."""

    def __init__(
        self, client: KMSClient, tell: Callable[[DEKSource], None] = lambda source: None, spread_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic, name: str = "", observed: Observed | None = None,
    ) -> None:  # fmt: skip
        self._client, self._tell, self._spread_s, self._clock = client, tell, spread_s, clock
        self._name, self._observed = name, observed or Observed()
        self._state: State | None = None
        self._version = ""  # from the first answer
        self._lock = threading.Lock()  # one check at a time
        self._problem = "the plug-in has not been asked yet"
        self.opened = Opened(self._decrypt, kept=lambda count: self._observed.sources_kept(name, count))

    # --- values

    def seal(self, plain: bytes, key: bytes) -> bytes:
        """Returns an EncryptedObject. Raises SealError if the plug-in has not confirmed its key for too long."""
        state = self._current()
        if self._clock() > state.until:
            raise SealError(f"encrypted DEK source with keyID hash {go_quote(key_id_hash(state.source.key_id))} expired")
        sealed = state.sealer.seal(plain, key)
        self._observed.key_used(self._name, TO, state.source.key_id)
        return stored(sealed, state.source)

    def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
        """Returns the plaintext; stale if it was sealed with another key of the plug-in than the current one."""
        data, source = read_stored(sealed)
        state = self._state
        opener = state.sealer if state is not None and source == state.source else self.opened.get(source)
        self._observed.key_used(self._name, FROM, source.key_id)
        plain, _ = opener.open(data, key)
        return plain, not self.writes_with(source.key())

    def key_of(self, sealed: bytes) -> bytes:
        """Returns the id of the plug-in's key and the way values are sealed with it. Raises SealError."""
        return read_stored(sealed)[1].key()

    def writes_with(self, key: bytes) -> bool:
        """Returns whether the plug-in reported that key last."""
        state = self._state
        return state is None or state.source.key() == key

    def _current(self) -> State:
        if self._state is None:
            raise SealError("got unexpected nil transformer")
        return self._state

    def _decrypt(self, source: DEKSource, timeout_s: float) -> bytes:
        answer = self._client.call("Decrypt", decrypt_request(source, str(uuid.uuid4())), timeout_s)
        try:
            return read_plaintext(answer)
        except ValueError as e:
            raise SealError(f"rpc error: code = Internal desc = grpc: failed to unmarshal the received message: {e}") from None

    # --- the plug-in

    def check(self) -> str:
        """Checks the plug-in; returns why it cannot be used, or "". Blocks."""
        with self._lock:
            section = f"failed to perform status section of the healthz check for KMS Provider {self._name}, error: "
            try:
                status = self._status()
                section = ""
                self._confirm(status)
            except Exception as e:  # of any kind: periodic checks must not end, and report a healthy plug-in
                self._problem = str(e) if isinstance(e, SealError) else f"failed to ask the KMS plug-in: {type(e).__name__}: {e}"
                return section + self._problem
            self._problem = ""
            return ""

    @property
    def problem(self) -> str:
        """The error of the last check, without the section, as upstream answers from its cache."""
        return self._problem

    def _status(self) -> Status:
        answer = self._client.call("Status", b"")
        try:
            return read_status(answer)
        except ValueError as e:
            raise SealError(f"rpc error: code = Internal desc = grpc: failed to unmarshal the received message: {e}") from None

    def _confirm(self, status: Status) -> None:
        wrong = []
        if status.healthz != "ok":
            wrong.append(f"got unexpected healthz status: {status.healthz}")
        if status.version not in ("v2", "v2beta1"):
            wrong.append(f"expected KMSv2 API version v2, got {status.version}")
        elif status.version != (self._version or status.version):
            change = f"initial status response version {self._version}, got {status.version}"
            wrong.append(f"KMSv2 API version should not change after the {change}")
        else:
            self._version = status.version
        if why := key_id_problem(status.key_id):
            self._observed.key_refused(self._name, "too_long" if status.key_id else "empty")
            wrong.append(f"got invalid KMSv2 KeyID hash {go_quote(key_id_hash(status.key_id))}: {why}")
        else:
            self._observed.key_said(self._name, status.key_id)
            try:
                self._hold(status.key_id)  # the key may be used for writes, whatever the plug-in's health
            except SealError as e:
                wrong.append(str(e))
        if wrong:
            raise SealError(f"kmsv2 Provider {self._name} is not healthy, error: {aggregate(wrong)}")

    def _hold(self, key_id: str) -> None:
        """Uses a seed of that key for writes from now on. Raises SealError if there is none."""
        asked = self._clock()
        state = self._state
        if state is not None and state.source.key_id == key_id:
            self._state = state._replace(until=asked + WRITE_MAX_S)
        else:
            self._rotate(key_id, asked)

    def _rotate(self, key_id: str, asked: float) -> None:
        """Creates a new seed, encrypted by the plug-in with the key that it reports."""
        seed = counted.data_key(SEED_BYTES)
        answer = self._client.call("Encrypt", encrypt_request(seed, str(uuid.uuid4())))
        try:
            source = read_encrypt_response(answer)
        except ValueError as e:
            raise SealError(f"rpc error: code = Internal desc = grpc: failed to unmarshal the received message: {e}") from None
        source.check()
        if source.key_id != key_id:
            got, wanted = key_id_hash(source.key_id), key_id_hash(key_id)
            raise SealError(f"failed to encrypt DEK source: got unexpected keyID hash {go_quote(got)}, expected {go_quote(wanted)}")
        made = HKDFSealer(seed)
        self.opened.put(source, made)
        self._tell(source)
        if self._state is not None and self._spread_s:
            time.sleep(self._spread_s)
        self._state = State(made, source, asked + WRITE_MAX_S)

    def close(self) -> None:
        """Stops using the plug-in."""
        self.opened.close()
        self._client.close()

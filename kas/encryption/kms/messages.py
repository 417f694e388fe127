"""Messages to and from a KMS plug-in, and the stored form of its answers: those of ``k8s.io/kms/apis/v2`` and of
``kmsv2/apis/v2``."""

from __future__ import annotations

import hashlib

from kas.auth.attributes import aggregate
from kas.encryption.ciphers import SealError
from kas.meta import protowire
from kas.meta.names import fully_qualified_domain_name
from kas.meta.protowire import BYTES, VARINT, put_bytes, put_int, put_text
from kas.meta.records import NamedTuple

AES_GCM_KEY, HKDF_SEED = 0, 1
KEY_ID_MAX = DEK_SOURCE_MAX = 1024
ANNOTATIONS_MAX = 32 * 1024


class DEKSource(NamedTuple):
    """A data key as encrypted by the plug-in, with everything needed to decrypt it. ``type`` says how values are sealed with it."""

    sealed: bytes
    key_id: str
    annotations: tuple[tuple[str, bytes], ...] = ()
    type: int = HKDF_SEED

    def digest(self) -> bytes:
        """The key in caches."""
        return hashlib.sha256(self.fields()).digest()

    def key(self) -> bytes:
        """The plug-in's key, and how values are sealed: values with another one are stale."""
        return b"%d:" % self.type + self.key_id.encode()

    def fields(self) -> bytes:
        """Returns its part of the stored message."""
        notes = b"".join(put_bytes(4, put_text(1, k) + put_bytes(2, v)) for k, v in sorted(self.annotations))
        return put_text(2, self.key_id) + put_bytes(3, self.sealed) + notes + put_int(5, self.type)

    def check(self) -> None:
        """Raises SealError for an invalid answer of a plug-in (``ValidateEncryptedObject``)."""
        if self.type not in (AES_GCM_KEY, HKDF_SEED):
            raise SealError(f"unknown encryptedDEKSourceType: {self.type}")
        if not self.sealed:
            raise SealError("failed to validate encrypted DEK source: encrypted DEK source is empty")
        if len(self.sealed) > DEK_SOURCE_MAX:
            why = f"encrypted DEK source is {len(self.sealed)} bytes, which exceeds the max size of {DEK_SOURCE_MAX}"
            raise SealError(f"failed to validate encrypted DEK source: {why}")
        why = key_id_problem(self.key_id)
        if why:
            raise SealError(f"failed to validate key id: {why}")
        wrong = [str(e) for name, _ in self.annotations for e in fully_qualified_domain_name("annotations", name)]
        size = sum(len(k.encode()) + len(v) for k, v in self.annotations)
        if size > ANNOTATIONS_MAX:
            wrong.append(f"total size of annotations is {size}, which exceeds the max size of {ANNOTATIONS_MAX}")
        if wrong:
            raise SealError(f"failed to validate annotations: {aggregate(wrong)}")


def key_id_problem(key_id: str) -> str:
    """Returns what is wrong with a key's id, or ""."""
    size = len(key_id.encode())
    if not size:
        return "keyID is empty"
    return f"keyID is {size} bytes, which exceeds the max size of {KEY_ID_MAX}" if size > KEY_ID_MAX else ""


def stored(data: bytes, source: DEKSource) -> bytes:
    """Returns an EncryptedObject: the stored value after the prefix."""
    return put_bytes(1, data) + source.fields()


def read_stored(message: bytes) -> tuple[bytes, DEKSource]:
    """Returns (sealed data, its data key) of an EncryptedObject. Raises SealError."""
    try:
        data, source = _source(message, data=1, key_id=2, sealed=3, notes=4, type_=5)
    except ValueError as e:
        raise SealError(str(e)) from None
    if not data:
        raise SealError("encrypted data is empty")
    source.check()
    return data, source


def _source(message: bytes, *, data: int, key_id: int, sealed: int, notes: int, type_: int) -> tuple[bytes, DEKSource]:
    found = {data: b"", key_id: b"", sealed: b""}
    annotations: dict[str, bytes] = {}
    kind = AES_GCM_KEY
    for number, wire, value in protowire.fields(message):
        if number == notes and wire == BYTES and isinstance(value, bytes):
            entry = {n: v for n, _, v in protowire.fields(value)}
            text = entry.get(2, b"")
            annotations[protowire.text(entry.get(1, b""))] = text if isinstance(text, bytes) else b""
        elif number in found and wire == BYTES and isinstance(value, bytes):
            found[number] = value
        elif number == type_ and wire == VARINT and isinstance(value, int):
            kind = value
    return found[data], DEKSource(found[sealed], protowire.text(found[key_id]), tuple(sorted(annotations.items())), kind)


# --- messages of the plug-in


class Status(NamedTuple):
    """StatusResponse."""

    version: str
    healthz: str
    key_id: str


def read_status(message: bytes) -> Status:
    """Parses a StatusResponse. Raises ValueError for an invalid one."""
    found = {n: protowire.text(v) for n, wire, v in protowire.fields(message) if n in (1, 2, 3) and wire == BYTES}
    return Status(found.get(1, ""), found.get(2, ""), found.get(3, ""))


def encrypt_request(plain: bytes, uid: str) -> bytes:
    """EncryptRequest."""
    return put_bytes(1, plain) + put_text(2, uid)


def read_encrypt_response(message: bytes) -> DEKSource:
    """Returns the encrypted seed of an EncryptResponse. Raises ValueError."""
    return _source(message, data=-1, key_id=2, sealed=1, notes=3, type_=-1)[1]._replace(type=HKDF_SEED)


def decrypt_request(source: DEKSource, uid: str) -> bytes:
    """DecryptRequest."""
    notes = b"".join(put_bytes(4, put_text(1, k) + put_bytes(2, v)) for k, v in source.annotations)
    return put_bytes(1, source.sealed) + put_text(2, uid) + put_text(3, source.key_id) + notes


def read_plaintext(message: bytes) -> bytes:
    """Returns field 1 of a DecryptResponse. Raises ValueError."""
    found = b""
    for number, wire, value in protowire.fields(message):
        if number == 1 and wire == BYTES and isinstance(value, bytes):
            found = value
    return found

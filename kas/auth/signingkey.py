"""The key that signs service-account tokens, made where there is none.

A first start makes it in a process that signs nothing: it loads no more than writing a key takes.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

KEY_BYTES = 4 << 10  # more than a new key takes


def ensure_signing_key(path: Path) -> bytes:
    """The PEM of the key that signs service-account tokens (RS256, which every client library verifies), made when it is not there: of
    several processes that make it at once the first one's counts. Takes some tenths of a second then. Raises ``OSError``, and leaves
    nothing then."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = path.with_name(f"{path.name}.{os.urandom(4).hex()}")
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(fd, "wb", buffering=0) as f:  # what could not be written is not tried once more by closing
                os.posix_fallocate(fd, 0, KEY_BYTES)  # a full disk costs whoever asks no key
                f.truncate(f.write(_new_key()))
                os.fsync(fd)
            with contextlib.suppress(FileExistsError):
                os.link(new, path)
        finally:
            os.unlink(new)
    return path.read_bytes()


def _new_key() -> bytes:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 2048)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())

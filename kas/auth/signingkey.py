"""Creation of the key that signs service-account tokens.

On a first start the key is created in a process that signs nothing, so this module imports only what writing a key needs.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

KEY_BYTES = 4 << 10  # larger than a new key's file


def ensure_signing_key(path: Path) -> bytes:
    """Return the PEM of the key that signs service-account tokens, creating it if the file is missing.

    The key is RSA, for RS256, which every client library verifies. If several processes create it at once, the first one wins. Creation
    takes some tenths of a second. Raises ``OSError`` and leaves no partial file then.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = path.with_name(f"{path.name}.{os.urandom(4).hex()}")
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(fd, "wb", buffering=0) as f:  # unbuffered: closing does not retry a failed write
                os.posix_fallocate(fd, 0, KEY_BYTES)  # fail on a full disk before generating the key
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

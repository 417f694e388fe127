"""The key that signs service-account tokens, made where there is none.

A first start makes it in a process that signs nothing: it loads no more than writing a key takes.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def ensure_signing_key(path: Path) -> bytes:
    """The PEM of the key that signs service-account tokens (RS256, which every client library verifies), made when it is not there: of
    several processes that make it at once the first one's counts. Takes some tenths of a second then. Raises ``OSError``."""
    if not path.exists():
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import rsa

        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        key = rsa.generate_private_key(65537, 2048)
        pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        new = path.with_name(f"{path.name}.{os.urandom(4).hex()}")
        try:
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as f:
                f.write(pem)
                f.flush()
                os.fsync(f.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(new, path)
        finally:
            new.unlink(missing_ok=True)
    return path.read_bytes()

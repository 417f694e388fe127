"""A transformer for tests: AES-GCM with a named key, as an encryption configuration would have."""

from __future__ import annotations

import os

from cryptography.hazmat.primitives.ciphers.aead import AESGCM


class AESGCMTransformer:
    """Encrypts with the first key, decrypts with any of them."""

    plain, waits, refuses_plain = False, False, ""

    def __init__(self, **keys: bytes) -> None:
        self.keys = {name.encode(): AESGCM(key) for name, key in keys.items()}

    def seal(self, plain: bytes, key: bytes) -> bytes:
        name, cipher = next(iter(self.keys.items()))
        nonce = os.urandom(12)
        return b"test:" + name + b":" + nonce + cipher.encrypt(nonce, plain, key)

    def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
        _, name, rest = sealed.split(b":", 2)
        return self.keys[name].decrypt(rest[:12], rest[12:], key), name != next(iter(self.keys))


ONE = AESGCMTransformer(one=b"1" * 32)

"""The providers whose keys are in the configuration: aescbc, aesgcm, secretbox, and identity
(``apiserver/pkg/storage/value/encrypt``).

Each seals a value for a key of the store and opens it; ``open`` raises ``SealError`` in upstream's words. The prefix of the
sealed bytes is added elsewhere (``union.py``).
"""

from __future__ import annotations

import os

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM as _AESGCM
from cryptography.hazmat.primitives.poly1305 import Poly1305

from kas.encryption._salsa import xsalsa20

BLOCK = 16
GCM_NONCE = 12
BOX_NONCE, BOX_TAG = 24, 16
# The beginning of every sealed value, of all providers.
SEALED = b"k8s:enc:"
TOO_SHORT = "the stored data was shorter than the required size"


class SealError(ValueError):
    """Why a value cannot be sealed, or a sealed one not be opened."""


class Identity:
    """Values in plain form."""

    def seal(self, plain: bytes, key: bytes) -> bytes:
        """Returns ``plain``."""
        return plain

    def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
        """Returns the value, which must not be one that another provider sealed."""
        if sealed.startswith(SEALED):
            raise SealError("identity transformer tried to read encrypted data")
        return sealed, False


class AESCBC:
    """AES in CBC mode with PKCS #7 padding. Neither the value nor its key in the store is authenticated."""

    def __init__(self, key: bytes) -> None:
        self._algorithm = algorithms.AES(key)

    def seal(self, plain: bytes, key: bytes) -> bytes:
        """Returns the initialization vector and the padded ciphertext."""
        iv, pad = os.urandom(BLOCK), BLOCK - len(plain) % BLOCK
        cipher = Cipher(self._algorithm, modes.CBC(iv)).encryptor()
        return iv + cipher.update(plain + bytes((pad,)) * pad) + cipher.finalize()

    def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
        """Returns the plaintext without its padding."""
        if len(sealed) < BLOCK:
            raise SealError(TOO_SHORT)
        if len(sealed) % BLOCK:
            raise SealError("the stored data is not a multiple of the block size")
        cipher = Cipher(self._algorithm, modes.CBC(sealed[:BLOCK])).decryptor()
        text = cipher.update(sealed[BLOCK:]) + cipher.finalize()
        pad = text[-1] if text else 0
        if not pad or pad > len(text):
            raise SealError("invalid PKCS7 data (empty or not padded)")
        if text[-pad:] != bytes((pad,)) * pad:
            raise SealError("invalid padding on input")
        return text[:-pad], False


class AESGCM:
    """AES in Galois/counter mode; the key of the store is authenticated with the value."""

    def __init__(self, key: bytes) -> None:
        self._aead = _AESGCM(key)

    def seal(self, plain: bytes, key: bytes) -> bytes:
        """Returns nonce, ciphertext and tag."""
        nonce = os.urandom(GCM_NONCE)
        return nonce + self._aead.encrypt(nonce, plain, key)

    def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
        """Returns the plaintext, if value and key are those that were sealed."""
        if len(sealed) < GCM_NONCE:
            raise SealError(TOO_SHORT)
        try:
            return self._aead.decrypt(sealed[:GCM_NONCE], sealed[GCM_NONCE:], key), False
        except InvalidTag:
            raise SealError("cipher: message authentication failed") from None


class Secretbox:
    """NaCl's secretbox, XSalsa20 and Poly1305. The value is authenticated, the key of the store is not."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def seal(self, plain: bytes, key: bytes) -> bytes:
        """Returns nonce, tag and ciphertext."""
        nonce = os.urandom(BOX_NONCE)
        stream = xsalsa20(self._key, nonce, bytes(32) + plain)
        return nonce + Poly1305.generate_tag(stream[:32], stream[32:]) + stream[32:]

    def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
        """Returns the plaintext, if the value is one that was sealed."""
        if len(sealed) < BOX_NONCE + BOX_TAG:
            raise SealError(TOO_SHORT)
        nonce, tag, text = sealed[:BOX_NONCE], sealed[BOX_NONCE : BOX_NONCE + BOX_TAG], sealed[BOX_NONCE + BOX_TAG :]
        # The first 32 bytes of the stream are the key of the tag.
        once = xsalsa20(self._key, nonce, bytes(32))
        try:
            Poly1305.verify_tag(once, text, tag)
        except InvalidSignature:
            raise SealError("output array was not large enough for encryption") from None
        return xsalsa20(self._key, nonce, bytes(32) + text)[32:], False

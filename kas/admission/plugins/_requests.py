"""Parsing of certificate requests for the plug-ins that inspect them (upstream's ``certificates.ParseCSR``)."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from kas.meta.offload import LARGE, POOL
from kas.meta.pem import pem_blocks, unreadable
from kas.meta.waiting import awaited

if TYPE_CHECKING:
    from cryptography.x509 import Name


async def subject(request: str) -> Name:
    """Return the subject of a certificate request in base64 of PEM.

    A large request is parsed in the thread pool: 30,000 names take 130 ms. Raises ``ValueError`` for an invalid request.
    """
    return await awaited(POOL.run(_subject, request)) if len(request) >= LARGE else _subject(request)


def _subject(request: str) -> Name:
    from cryptography import x509

    try:
        block = next(pem_blocks(base64.b64decode(request)), None)
    except binascii.Error as e:
        raise ValueError(str(e)) from None
    if block is None or block.kind != "CERTIFICATE REQUEST":
        raise ValueError("PEM block type must be CERTIFICATE REQUEST")
    try:
        return x509.load_der_x509_csr(block.der).subject
    except unreadable() as e:
        raise ValueError(str(e)) from None

"""Removal of alternative names that ``cryptography`` cannot parse and Go's ``crypto/x509`` ignores: x400Address and ediPartyName (RFC
5280 4.2.1.6)."""

from __future__ import annotations

from kas.meta.der import element, member, members

_SEQUENCE, _OID, _EXTENSIONS, _OCTETS = 0x30, 0x06, 0xA3, 0x04
_ALTERNATIVE_NAMES = frozenset(((_OID, bytes.fromhex("551d11")), (_OID, bytes.fromhex("551d12"))))  # subject's, issuer's
_UNREAD = frozenset((3, 5))  # tag numbers of the two kinds, in the context class


def without_unread(der: bytes) -> bytes:
    """Return the certificate without these names, for reading only: its signature no longer matches. Raises ValueError if ``der`` is not
    a certificate."""
    parts = members(member(der, _SEQUENCE), 3)
    if not parts or parts[0][0] != _SEQUENCE:
        raise ValueError("no certificate")
    fields = members(parts[0][1], len(der))
    changed = b"".join(element(tag, _extensions(content) if tag == _EXTENSIONS else content) for tag, content in fields)
    return element(_SEQUENCE, element(_SEQUENCE, changed) + b"".join(element(tag, content) for tag, content in parts[1:]))


def _extensions(content: bytes) -> bytes:
    own = member(content, _SEQUENCE)
    return element(_SEQUENCE, b"".join(element(tag, _extension(content)) for tag, content in members(own, len(own))))


def _extension(content: bytes) -> bytes:
    parts = members(content, 3)
    if not parts or parts[0] not in _ALTERNATIVE_NAMES or parts[-1][0] != _OCTETS:
        return content
    names = member(parts[-1][1], _SEQUENCE)
    kept = [one for one in members(names, len(names)) if one[0] >> 6 != 2 or one[0] & 0x1F not in _UNREAD]
    value = element(_SEQUENCE, b"".join(element(*one) for one in kept))
    return b"".join(element(*one) for one in (*parts[:-1], (_OCTETS, value)))

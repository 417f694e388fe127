"""Creates certificates for tests on demand."""

from __future__ import annotations

import datetime
import ipaddress
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

OIDS = {
    "CN": x509.NameOID.COMMON_NAME, "O": x509.NameOID.ORGANIZATION_NAME, "OU": x509.NameOID.ORGANIZATIONAL_UNIT_NAME,
    "UID": x509.ObjectIdentifier("1.3.6.1.4.1.57683.2"), "LDAPUID": x509.NameOID.USER_ID,
}  # fmt: skip
USAGES = {
    "client": x509.ExtendedKeyUsageOID.CLIENT_AUTH, "server": x509.ExtendedKeyUsageOID.SERVER_AUTH,
    "any": x509.ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE, "code": x509.ExtendedKeyUsageOID.CODE_SIGNING,
}  # fmt: skip
PEM = serialization.Encoding.PEM
Subject = Sequence[tuple[str, str] | Sequence[str]]


class Issued:
    """A certificate and its key; ``chain`` are intermediates to show with it."""

    def __init__(self, cert: x509.Certificate, key, chain: Sequence[Issued] = ()) -> None:
        self.cert, self.key, self.chain = cert, key, tuple(chain)

    @property
    def der(self) -> bytes:
        return self.cert.public_bytes(serialization.Encoding.DER)

    @property
    def ders(self) -> list[bytes]:
        return [self.der, *(c.der for c in self.chain)]

    @property
    def pem(self) -> bytes:
        return b"".join(c.cert.public_bytes(PEM) for c in (self, *self.chain))

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())

    def write(self, directory: Path, name: str) -> tuple[str, str]:
        """Writes ``name.crt`` and ``name.key`` into a directory, each atomically; returns their paths."""
        out = []
        for suffix, data in (("key", self.key_pem), ("crt", self.pem)):
            path = directory / f"{name}.{suffix}"
            path.with_suffix(".new").write_bytes(data)
            path.with_suffix(".new").rename(path)
            out.append(str(path))
        return out[1], out[0]


def issue(
    subject: Subject, by: Issued | None = None, *, ca: bool | None = None, usages: Iterable[str] = ("client",), begins_s: float = -3600,
    ends_s: float = 86400, path_length: int | None = None, dns: Sequence[str] = (), uris: Sequence[str] = (), ips: Sequence[str] = (),
    emails: Sequence[str] = (), permitted: Sequence[x509.GeneralName] = (), excluded: Sequence[x509.GeneralName] = (), key=None,
    chain: Sequence[Issued] = (), extra: Sequence[tuple[x509.ExtensionType, bool]] = (),
) -> Issued:  # fmt: skip
    """Issues a certificate signed ``by`` a CA, or self-signed. ``ca=True`` makes a CA; ``usages`` () omits the extension. Times are
    seconds from now."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(OIDS[k], v) for k, v in subject])
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    b = x509.CertificateBuilder(name if by is None else by.cert.subject, name, key.public_key(), x509.random_serial_number())
    b = b.not_valid_before(now + datetime.timedelta(seconds=begins_s)).not_valid_after(now + datetime.timedelta(seconds=ends_s))
    if ca is not None:
        b = b.add_extension(x509.BasicConstraints(ca, path_length), True)
    if ca:
        b = b.add_extension(x509.KeyUsage(False, False, False, False, False, True, True, False, False), True)
        usages = ()
    usages = list(usages)
    if usages:
        b = b.add_extension(x509.ExtendedKeyUsage([USAGES[u] for u in usages]), False)
    if permitted or excluded:
        b = b.add_extension(x509.NameConstraints(list(permitted) or None, list(excluded) or None), True)
    b = b.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
    if by is not None:  # as Go's and openssl's CAs do; clients with Python 3.13 require it
        b = b.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(by.key.public_key()), False)
    names = [*map(x509.DNSName, dns), *map(x509.UniformResourceIdentifier, uris), *map(x509.RFC822Name, emails)]
    names += [x509.IPAddress(ipaddress.ip_address(ip)) for ip in ips]
    if names:
        b = b.add_extension(x509.SubjectAlternativeName(names), False)
    for extension, critical in extra:
        b = b.add_extension(extension, critical)
    signer = key if by is None else by.key
    return Issued(b.sign(signer, None if isinstance(signer, ed25519.Ed25519PrivateKey) else hashes.SHA256()), key, chain)


def unreadable(by: Issued | None = None, key=None) -> dict[str, bytes]:
    """Returns certificates (DER) with a key that ``cryptography`` refuses with other errors than ValueError, by what is wrong with them."""
    def number(last: int) -> x509.ObjectIdentifier:
        return x509.ObjectIdentifier(f"1.2.3.4.{last}")

    plain = issue([("CN", "jane"), ("UID", "\0odd")], by, key=key).der
    two = issue([("CN", "jane")], by, key=key, extra=[(x509.UnrecognizedExtension(number(n), b"\5\0"), False) for n in (5, 6)]).der
    x400 = x509.UnrecognizedExtension(x509.ObjectIdentifier("2.5.29.30"), bytes.fromhex("3008a0063004a3020500"))  # a constraint
    return {
        "version": plain.replace(b"\xa0\3\2\1\2", b"\xa0\3\2\1\3", 1), "bits": plain.replace(b"\x0c\4\0odd", b"\3\4\0odd"),
        "twice": two.replace(b"\6\4\x2a\3\4\6", b"\6\4\x2a\3\4\5"), "name": issue([("CN", "jane")], by, key=key, extra=[(x400, True)]).der,
    }


def weakly_signed(by: Issued, dns: str) -> Issued:
    """Returns a server's certificate that claims a SHA-1 signature, which is not verified; ``by`` has an RSA key."""
    made = issue([("CN", dns)], by, dns=[dns], usages=("server",))
    sha256, sha1 = (bytes.fromhex("2a864886f70d0101") + bytes([last]) for last in (11, 5))
    return Issued(x509.load_der_x509_certificate(made.der.replace(sha256, sha1)), made.key)


def authority(name: str, by: Issued | None = None, **more) -> Issued:
    """Returns a CA."""
    return issue([("CN", name)], by, ca=True, **more)


def generate_key() -> bytes:
    """Returns a new private key as PEM. ECDSA P-256 takes some 100 µs, RSA tenths of seconds."""
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def rsa_key(exponent: int) -> rsa.RSAPrivateKey:
    """Returns a key of 2,048 bits with that exponent, a prime; libraries only make 3 and 65537."""
    made = rsa.generate_private_key(65537, 2048).private_numbers()
    p, q = made.p, made.q
    d = pow(exponent, -1, (p - 1) * (q - 1))
    public = rsa.RSAPublicNumbers(exponent, p * q)
    return rsa.RSAPrivateNumbers(p, q, d, d % (p - 1), d % (q - 1), pow(q, -1, p), public).private_key()


def short_rsa_key(bits: int) -> rsa.RSAPrivateKey:
    """Returns a key of this many bits; libraries make none below 1,024."""
    digits = random.Random(bits)

    def prime(size: int) -> int:
        while True:
            n = digits.getrandbits(size) | 1 | 3 << size - 2
            if n % 65537 != 1 and all(pow(a, n - 1, n) == 1 for a in (2, 3, 5, 7)):
                return n

    p, q = prime(bits // 2), prime(bits - bits // 2)
    d = pow(65537, -1, (p - 1) * (q - 1))
    public = rsa.RSAPublicNumbers(65537, p * q)
    return rsa.RSAPrivateNumbers(p, q, d, d % (p - 1), d % (q - 1), pow(q, -1, p), public).private_key()

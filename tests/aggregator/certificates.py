"""CAs and certificates for a test, as PEM files."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates; ``file`` is its own."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory, self._key, self._serial = directory, ec.generate_private_key(ec.SECP256R1()), 1
        self._name = _named(name)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        self._certificate = self._signed(self._name, self._key.public_key(), [(x509.BasicConstraints(True, None), True), (usage, True)])
        self.file = directory / f"{name}.crt"
        self.file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    @property
    def pem(self) -> bytes:
        return self.file.read_bytes()

    def issue(self, name: str, hosts: list[str] | None = None, files: str = "") -> tuple[str, str]:
        """Returns (certificate file, key file) for ``name`` and ``hosts``."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = []
        for host in hosts or ():
            try:
                names.append(x509.IPAddress(ipaddress.ip_address(host)))
            except ValueError:
                names.append(x509.DNSName(host))
        certificate = self._signed(_named(name), key.public_key(), [(x509.SubjectAlternativeName(names), False)] if names else [])
        paths = self._directory / f"{files or name}.crt", self._directory / f"{files or name}.key"
        paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        paths[1].write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )
        return str(paths[0]), str(paths[1])

    def _signed(self, subject: x509.Name, public_key, extensions) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        self._serial += 1
        builder = (
            x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(public_key).serial_number(self._serial)
            .not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + datetime.timedelta(days=1))
        )  # fmt: skip
        # Clients with Python 3.13 require the identifiers.
        whose = x509.SubjectKeyIdentifier.from_public_key(public_key)
        by = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        for extension, critical in (*extensions, (whose, False), (by, False)):
            builder = builder.add_extension(extension, critical)
        return builder.sign(self._key, hashes.SHA256())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

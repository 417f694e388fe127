"""The certificates that the server writes itself: the same bytes that a library makes of what they say."""

from __future__ import annotations

import datetime
import ipaddress
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kas.edge import issuing
from kas.edge.issuing import Authority

SINCE, UNTIL = 1_700_000_000, 1_800_000_000
NAMES, IPS = ["localhost", "*.example.com", "kubernetes.default.svc.cluster.local"], ["127.0.0.1", "::1", "10.96.0.1"]


def read(der: bytes) -> x509.Certificate:
    return x509.load_der_x509_certificate(der)


def built(cert: x509.Certificate, by: Any, extensions: list[tuple[x509.ExtensionType, bool]], since: int, until: int) -> x509.Certificate:
    """What the library makes with the same names, number and key."""
    builder = x509.CertificateBuilder().subject_name(cert.subject).issuer_name(cert.issuer).public_key(cert.public_key())
    builder = builder.serial_number(cert.serial_number)
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    times = (datetime.datetime.fromtimestamp(t, datetime.UTC) for t in (since, until))
    return builder.not_valid_before(next(times)).not_valid_after(next(times)).sign(by, hashes.SHA256())


def usage(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(True, False, True, False, False, signs, signs, False, False)


def name(**texts: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(getattr(NameOID, k), v) for k, v in texts.items()])


def authorities() -> dict[str, Authority]:
    own = issuing.authority("kas-ca@1", SINCE, UNTIL)[1]
    others = {"rsa": rsa.generate_private_key(65537, 2048), "p384": ec.generate_private_key(ec.SECP384R1())}
    return {"own": own, **{kind: Authority(own.name, own.key_id, key) for kind, key in others.items()}}


@pytest.mark.parametrize("until", [UNTIL, 2524607999, 2524608000, 4_000_000_000])  # as UTCTime until the end of 2049
def test_an_authority(until: int) -> None:
    der, own = issuing.authority("kas-ca@1", SINCE, until)
    cert = read(der)
    assert cert.subject == cert.issuer == name(COMMON_NAME="kas-ca@1") and cert.subject.public_bytes() == own.name
    cert.verify_directly_issued_by(cert)
    extensions = [(x509.BasicConstraints(True, None), True), (usage(True), True), (x509.SubjectKeyIdentifier(own.key_id), False)]
    assert built(cert, own.key, extensions, SINCE, until).tbs_certificate_bytes == cert.tbs_certificate_bytes
    assert issuing.authority("kas-ca@1", SINCE, until)[1].key_id != own.key_id


@pytest.mark.parametrize("kind", ["own", "rsa", "p384"])
def test_a_servers_certificate(kind: str) -> None:
    by = authorities()[kind]
    subject = issuing.subject((issuing.ORGANIZATION, "Jürgen & Söhne " * 20), (issuing.COMMON_NAME, "kube-apiserver"))
    der, key = issuing.certificate(by, subject, issuing.SERVER_AUTH, SINCE, UNTIL, NAMES, IPS)
    cert = read(der)
    assert cert.subject == name(ORGANIZATION_NAME="Jürgen & Söhne " * 20, COMMON_NAME="kube-apiserver")
    assert cert.issuer == name(COMMON_NAME="kas-ca@1") and cert.public_key() == key.public_key()
    signed = by.key.public_key(), cert.signature, cert.tbs_certificate_bytes
    if kind == "rsa":
        signed[0].verify(*signed[1:], cert.signature_algorithm_parameters, hashes.SHA256())
    else:
        signed[0].verify(*signed[1:], ec.ECDSA(hashes.SHA256()))
    alt = [*map(x509.DNSName, NAMES), *(x509.IPAddress(ipaddress.ip_address(ip)) for ip in IPS)]
    extensions: list[tuple[x509.ExtensionType, bool]] = [
        (x509.SubjectAlternativeName(alt), False), (x509.BasicConstraints(False, None), True), (usage(False), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False), (x509.AuthorityKeyIdentifier(by.key_id, None, None), False),
    ]  # fmt: skip
    assert built(cert, by.key, extensions, SINCE, UNTIL).tbs_certificate_bytes == cert.tbs_certificate_bytes


def test_a_clients_certificate_of_an_authority_without_an_identifier() -> None:
    by = authorities()["own"]._replace(key_id=b"")
    cert = read(issuing.certificate(by, issuing.subject((issuing.COMMON_NAME, "admin")), issuing.CLIENT_AUTH, SINCE, UNTIL)[0])
    extensions: list[tuple[x509.ExtensionType, bool]] = [
        (x509.BasicConstraints(False, None), True), (usage(False), True), (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), False)
    ]  # fmt: skip
    assert built(cert, by.key, extensions, SINCE, UNTIL).tbs_certificate_bytes == cert.tbs_certificate_bytes


def test_another_kind_of_authority_signs_nothing() -> None:
    by = Authority(b"0\0", b"", ed25519.Ed25519PrivateKey.generate())
    with pytest.raises(ValueError, match="neither of RSA nor of an elliptic curve"):
        issuing.certificate(by, b"0\0", issuing.CLIENT_AUTH, SINCE, UNTIL)


def test_pem_as_the_library_writes_it() -> None:
    der, own = issuing.authority("kas-ca@1", SINCE, UNTIL)
    assert issuing.pem("CERTIFICATE", der) == read(der).public_bytes(serialization.Encoding.PEM)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    for key in [own.key, *(ec.derive_private_key(n, ec.SECP256R1()) for n in (1, 2**200))]:
        assert issuing.key_pem(key) == key.private_bytes(*form)


def test_numbers_are_positive_and_differ() -> None:
    by = authorities()["own"]
    made = [read(issuing.certificate(by, by.name, issuing.CLIENT_AUTH, SINCE, UNTIL)[0]).serial_number for _ in range(20)]
    assert len(set(made)) == 20 and all(n.bit_length() == 127 for n in made)


def test_a_first_start_loads_nothing_that_reads_certificates(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from kas.edge import certs
certs.ensure(Path({str(tmp_path)!r}), ["localhost"], ["127.0.0.1"])
print(*(m for m in ("cryptography.x509", "cryptography.hazmat.primitives.serialization", "logging", "datetime") if m in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == [] and (tmp_path / "apiserver.crt").exists()

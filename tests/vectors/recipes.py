"""Files of recorded setups: texts as they are, and certificates made by their recipes."""

from __future__ import annotations

import datetime
import functools
import ipaddress
import json
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NAMES = {"CN": NameOID.COMMON_NAME, "O": NameOID.ORGANIZATION_NAME}
USAGES = {"server": ExtendedKeyUsageOID.SERVER_AUTH, "client": ExtendedKeyUsageOID.CLIENT_AUTH}
FROM = datetime.datetime(2024, 1, 1)
UNTIL = datetime.datetime(2124, 1, 1)


def write(directory: Path, files: dict[str, Any]) -> None:
    """Writes the files into ``directory``, which replaces ``${dir}`` in texts; the key of ``a.crt`` is in ``a.key``."""
    for name, recipe in files.items():
        path = directory / name
        if isinstance(recipe, str):
            path.write_text(recipe.replace("${dir}", str(directory)))
            continue
        issuer = files[recipe["by"]] if "by" in recipe else recipe
        certificate, key = made(json.dumps(recipe), json.dumps(issuer))
        path.write_bytes(certificate)
        path.with_suffix(".key").write_bytes(key)


@functools.cache
def made(recipe: str, issuer: str) -> tuple[bytes, bytes]:
    """(certificate, key) in PEM, from a recipe and its issuer's recipe, both as JSON."""
    said, by = json.loads(recipe), json.loads(issuer)
    key, subject = key_of(recipe), name(said)
    builder = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(name(by)).public_key(key.public_key()).not_valid_before(FROM)
        .not_valid_after(UNTIL).serial_number(x509.random_serial_number())
        .add_extension(x509.BasicConstraints("ca" in said, None), True)
    )  # fmt: skip
    others = [*map(x509.DNSName, said.get("dns", ())), *(x509.IPAddress(ipaddress.ip_address(a)) for a in said.get("ip", ()))]
    if others:
        builder = builder.add_extension(x509.SubjectAlternativeName(others), False)
    if "eku" in said:
        builder = builder.add_extension(x509.ExtendedKeyUsage([USAGES[u] for u in said["eku"]]), False)
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return builder.sign(key_of(issuer), hashes.SHA256()).public_bytes(pem), private


@functools.cache
def key_of(recipe: str) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def name(recipe: dict[str, Any]) -> x509.Name:
    return x509.Name([x509.NameAttribute(NAMES[kind], value) for kind, value in recipe.get("ca") or recipe["cert"]])

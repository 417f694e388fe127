"""The server's own certificates: which are kept, which are renewed, and what a kill leaves."""

from __future__ import annotations

import datetime
import ssl
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from kas.edge import certs
from kas.edge.certpaths import CertPaths, as_noted, paths_in
from kas.edge.certs import RENEW_BEFORE, ensure, ensure_client

NAMES, IPS = ["localhost", "kubernetes"], ["127.0.0.1", "::1"]


def made(path: Path) -> CertPaths:
    """Returns the certificates of a directory that a server can serve: key and certificate fit, and the CA issued them."""
    paths = ensure(path, NAMES, IPS)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(paths.cert, paths.key)
    ca, cert = (x509.load_pem_x509_certificate(p.read_bytes()) for p in (paths.ca_cert, paths.cert))
    cert.verify_directly_issued_by(ca)
    return paths


def contents(*paths: Path) -> list[bytes]:
    return [p.read_bytes() for p in paths]


def test_valid_certificates_are_kept(tmp_path: Path) -> None:
    paths = made(tmp_path / "pki")
    before = contents(*paths)
    assert contents(*made(tmp_path / "pki")) == before
    assert [stat.S_IMODE(p.stat().st_mode) for p in (paths.ca_key, paths.key)] == [0o600, 0o600]


def test_another_name_gets_another_certificate_of_the_same_ca(tmp_path: Path) -> None:
    paths = made(tmp_path)
    ca, cert = contents(paths.ca_cert, paths.cert)
    ensure(tmp_path, [*NAMES, "api.example.com"], IPS)
    assert paths.ca_cert.read_bytes() == ca and paths.cert.read_bytes() != cert


def test_a_certificate_that_names_no_host_is_replaced(tmp_path: Path) -> None:
    paths = made(tmp_path)
    ca, key = x509.load_pem_x509_certificate(paths.ca_cert.read_bytes()), certs.private_key(paths.ca_key.read_bytes())
    served = x509.load_pem_x509_certificate(paths.cert.read_bytes())
    builder = x509.CertificateBuilder(ca.subject, served.subject, served.public_key(), 7)
    builder = builder.not_valid_before(served.not_valid_before_utc).not_valid_after(served.not_valid_after_utc)
    paths.cert.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    made(tmp_path)
    found = x509.load_pem_x509_certificate(paths.cert.read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName)
    assert set(NAMES) <= set(names)


def test_certificates_about_to_expire_are_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as m:
        m.setattr(certs, "CERT_LIFE", datetime.timedelta(days=29))
        paths = made(tmp_path)
    ca, cert = contents(paths.ca_cert, paths.cert)
    made(tmp_path)
    assert paths.ca_cert.read_bytes() == ca and paths.cert.read_bytes() != cert


class Ahead(datetime.datetime):
    """A clock in 2040."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Ahead:
        return cls(2040, 1, 1, tzinfo=tz)


def test_certificates_made_with_a_clock_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The certificate is renewed; a CA that clients trust is not, but is reported."""
    paths = made(tmp_path / "a")
    with monkeypatch.context() as m:
        m.setattr(certs.datetime, "datetime", Ahead)
        there = made(tmp_path / "b")
    ca, cert = contents(there.ca_cert, there.cert)
    made(tmp_path / "b")
    assert contents(there.ca_cert, there.cert) == [ca, cert]
    assert f"{there.ca_cert} is not valid before 2039-12-31" in caplog.text
    caplog.clear()
    with monkeypatch.context() as m:
        m.setattr(certs, "_lasts", lambda *_: False)
        m.setattr(certs, "_builder", lambda *args, _was=certs._builder: _was(*args[:3], Ahead(2030, 1, 1, tzinfo=datetime.UTC), args[4]))
        made(tmp_path / "a")
    ca, cert = contents(paths.ca_cert, paths.cert)
    made(tmp_path / "a")
    assert paths.ca_cert.read_bytes() == ca and paths.cert.read_bytes() != cert and not caplog.text


def _killed_after(writes: int, monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    class KilledError(Exception):
        pass

    write, left = certs.write_whole, [writes]

    def count(*args: object) -> None:
        if not left[0]:
            raise KilledError
        left[0] -= 1
        write(*args)  # type: ignore[arg-type]

    with monkeypatch.context() as m:
        m.setattr(certs, "write_whole", count)
        with pytest.raises(KilledError):
            work()


@pytest.mark.parametrize("writes", range(4))
def test_killed_while_everything_is_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    _killed_after(writes, monkeypatch, lambda: made(tmp_path))
    made(tmp_path)


@pytest.mark.parametrize("writes", range(4))
def test_killed_while_the_ca_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    with monkeypatch.context() as m:
        m.setattr(certs, "CA_LIFE", datetime.timedelta(days=29))
        made(tmp_path)
    monkeypatch.setattr(certs, "_forget", lambda paths: None)  # as if killed before it, too
    _killed_after(writes, monkeypatch, lambda: made(tmp_path))
    made(tmp_path)


def test_killed_while_a_name_is_added_that_is_then_not_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path)
    _killed_after(1, monkeypatch, lambda: ensure(tmp_path, [*NAMES, "api.example.com"], IPS))
    made(tmp_path)


def test_the_administrators_certificate_follows_the_ca(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path)
    first = ensure_client(tmp_path, "admin", "system:masters")
    assert ensure_client(tmp_path, "admin", "system:masters") == first
    (tmp_path / "ca.key").unlink()
    made(tmp_path)
    second = ensure_client(tmp_path, "admin", "system:masters")
    assert second != first
    (tmp_path / "admin.key").write_bytes(first[1])  # as if killed in between
    third = ensure_client(tmp_path, "admin", "system:masters")
    assert third[0] != second[0] and third[1] != first[1]


def test_a_pair_in_the_certificate_directory(tmp_path: Path) -> None:
    """As --cert-dir asks: the pair is created there, followed by its CA, and renewed as in the usual place."""
    pair = tmp_path / "certs" / "apiserver.crt", tmp_path / "certs" / "apiserver.key"
    paths = ensure(tmp_path / "pki", NAMES, IPS, pair)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*pair)
    assert (paths.cert, paths.key) == pair and not (tmp_path / "pki" / "apiserver.crt").exists()
    ca, (cert, behind) = paths.ca_cert.read_bytes(), x509.load_pem_x509_certificates(pair[0].read_bytes())
    assert behind == x509.load_pem_x509_certificate(ca)
    cert.verify_directly_issued_by(behind)
    before = contents(*pair)
    ensure(tmp_path / "pki", NAMES, IPS, pair)
    assert contents(*pair) == before
    ensure(tmp_path / "pki", [*NAMES, "api.example.com"], IPS, pair)
    assert contents(*pair) != before and paths.ca_cert.read_bytes() == ca


def test_a_ca_of_another_program(tmp_path: Path) -> None:
    """Its key may be RSA, and its certificate need not identify its key."""
    key, now = rsa.generate_private_key(65537, 2048), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "theirs")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 7, now, now + datetime.timedelta(days=99))
    ca = builder.add_extension(x509.BasicConstraints(True, None), True).sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    (tmp_path / "ca.crt").write_bytes(b"a text before it\n" + ca)
    (tmp_path / "ca.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    paths = made(tmp_path)
    assert contents(paths.ca_cert) == [b"a text before it\n" + ca]
    before = contents(paths.cert, paths.key)
    assert contents(*made(tmp_path)[2:]) == before


def test_a_pair_of_another_program_is_left_alone(tmp_path: Path) -> None:
    pair = made(tmp_path / "theirs")
    before = contents(pair.cert, pair.key)
    ensure(tmp_path / "pki", ["another.example.com"], IPS, (pair.cert, pair.key))
    assert contents(pair.cert, pair.key) == before


def test_recorded_files_count_as_checked_until_one_changes_or_expires(tmp_path: Path) -> None:
    assert not as_noted(paths_in(tmp_path), NAMES, IPS, 0.0)
    paths = made(tmp_path)
    cert = x509.load_pem_x509_certificate(paths.cert.read_bytes())
    now, end = cert.not_valid_before_utc.timestamp() + 1, (cert.not_valid_after_utc - RENEW_BEFORE).timestamp()
    assert as_noted(paths, NAMES[::-1], IPS, now) and as_noted(paths, NAMES, IPS, end - 1)
    assert not as_noted(paths, NAMES, IPS, end) and not as_noted(paths, NAMES, IPS, now - 2)
    assert not as_noted(paths, [*NAMES, "api.example.com"], IPS, now) and not as_noted(paths, NAMES, IPS[:1], now)
    for path in paths:
        text = path.read_bytes()
        path.unlink()
        assert not as_noted(paths, NAMES, IPS, now), path
        path.write_bytes(text)
        assert not as_noted(paths, NAMES, IPS, now), path
        ensure(tmp_path, NAMES, IPS)
        assert as_noted(paths, NAMES, IPS, now), path


@pytest.mark.parametrize("noted", [b"", b"[]", b"null", b"{", b'{"since": 0, "until": 1e18}', b'{"since": "", "until": ""}', b"\xff"])
def test_an_unreadable_record_is_ignored(tmp_path: Path, noted: bytes) -> None:
    paths = made(tmp_path)
    (tmp_path / "checked.json").write_bytes(noted)
    assert not as_noted(paths, NAMES, IPS, 1e9)

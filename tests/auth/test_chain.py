"""Verification of client certificates with Go's rules."""

from __future__ import annotations

import datetime
import os
import ssl
from ipaddress import ip_network

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from kas.auth.authn import AuthenticationError
from kas.auth.authn.chain import LOOK_EVERY_S, Bundle, Verifier
from kas.auth.authn.x509 import Certificates
from tests import pki

CA = pki.authority("ca")
NOW = datetime.datetime.now(datetime.UTC).timestamp()


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def verifier(tmp_path, *authorities: pki.Issued, at: float = NOW) -> tuple[Verifier, Clock, Clock]:
    """Returns a verifier with fake clocks for the file and for certificates."""
    (tmp_path / "ca.crt").write_bytes(b"".join(a.pem for a in authorities))
    looks, time = Clock(0.0), Clock(at)
    return Verifier(Bundle(str(tmp_path / "ca.crt"), clock=looks), clock=time), looks, time


def why(verifier: Verifier, shown: pki.Issued) -> str:
    """Returns the error; "" for a valid certificate."""
    try:
        verifier.check(Certificates(shown.ders))
    except AuthenticationError as e:
        return str(e)
    return ""


MIDDLE = pki.authority("middle", CA)
NARROW = pki.authority("narrow", CA, path_length=0)
BELOW_NARROW = pki.authority("below narrow", NARROW)
LATE = pki.authority("late", CA, begins_s=-7200, ends_s=-3600)
NAMED = pki.authority("named", CA, permitted=[x509.DNSName("example.com")], excluded=[x509.DNSName("bad.example.com")])
OTHER = pki.authority("ca")  # the same name, another key
WEAK = pki.issue([("CN", "not an authority")], CA)
JANE = [("CN", "jane")]
SHA1_CA = """\
-----BEGIN CERTIFICATE-----
MIIBcTCCARegAwIBAgIUJYc3asUjxyulIN279SPComnQcacwCgYIKoZIzj0EAwIw
DTELMAkGA1UEAwwCY2EwIBcNMjYxMTIyMTEzNjE5WhgPMjEyNjEwMjkxMTM2MTla
MA0xCzAJBgNVBAMMAmNhMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEaWhPW065
PUAjWEFURRbbrO0qan9yb/YTugQzB6VwZHKYoXM2rLOS+2wxMq3f5TaW66QYO+44
rxWJrCPHUbGzWqNTMFEwHQYDVR0OBBYEFC2hDq0VLihzpOJcZtfeUIteoQNkMB8G
A1UdIwQYMBaAFC2hDq0VLihzpOJcZtfeUIteoQNkMA8GA1UdEwEB/wQFMAMBAf8w
CgYIKoZIzj0EAwIDSAAwRQIhAPVurwgqJ19zocVxoJvdjRTLyA2KTIlV95MS3+Ct
68CMAiBxNn3WK5dpHnsJ8OyqcXqoKiJUld6NS844cZcPMjl3Aw==
-----END CERTIFICATE-----
"""
SHA1_CLIENT = """\
-----BEGIN CERTIFICATE-----
MIIBFjCBvgIUWr8ikG6lFjOHgmlhJ9W1ao63MrMwCQYHKoZIzj0EATANMQswCQYD
VQQDDAJjYTAgFw0yNjExMjIxMTM2MjBaGA8yMTI2MTAyOTExMzYyMFowDzENMAsG
A1UEAwwEamFuZTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABHK30fcPixH2aCx4
tdK7tj5CBfWi4QPUMf9rGJcw0IO/qa8gXK6qRdzaoCD8BrMvz7jdJflN5/TEMQqZ
6mwwumkwCQYHKoZIzj0EAQNIADBFAiEAwErryFN2FXvn/gtsRiqDzDU7iHSJ4suH
MdAIK8dLpAkCIB+BHmvWAv5ZaC66slz0rcFqdOjlAUZW4vn1VA1jMuZf
-----END CERTIFICATE-----
"""


@pytest.mark.parametrize("shown", [
    pki.issue(JANE, CA), pki.issue(JANE, CA, usages=()), pki.issue(JANE, CA, usages=("any",)),
    pki.issue(JANE, CA, usages=("server", "client")),
    pki.issue(JANE, CA, ca=True), pki.issue(JANE, CA, key=ed25519.Ed25519PrivateKey.generate()),
    pki.issue(JANE, MIDDLE, chain=[MIDDLE]), pki.issue(JANE, NARROW, chain=[NARROW]),
    pki.issue(JANE, MIDDLE, chain=[OTHER, LATE, MIDDLE]),  # unused certificates do no harm
    pki.issue(JANE, NAMED, chain=[NAMED], dns=["a.example.com"]), pki.issue(JANE, NAMED, chain=[NAMED]),
    pki.issue(JANE, NAMED, chain=[NAMED], uris=["spiffe://elsewhere/x"]),
    CA,
])  # fmt: skip
def test_good(tmp_path, shown):
    assert not why(verifier(tmp_path, CA)[0], shown)


@pytest.mark.parametrize(("shown", "reason"), [
    (pki.issue(JANE, begins_s=-60), "unknown authority"),
    (pki.issue(JANE, OTHER), "unknown authority"),
    (pki.issue(JANE, MIDDLE), "unknown authority"),
    (pki.issue(JANE, CA, ends_s=-60), "expired or is not yet valid"),
    (pki.issue(JANE, CA, begins_s=3600, ends_s=7200), "expired or is not yet valid"),
    (pki.issue(JANE, CA, usages=("server",)), "incompatible key usage"),
    (pki.issue(JANE, CA, usages=("code",)), "incompatible key usage"),
    (pki.issue(JANE, LATE, chain=[LATE]), "expired or is not yet valid"),
    (pki.issue(JANE, BELOW_NARROW, chain=[BELOW_NARROW, NARROW]), "too many intermediates"),
    (pki.issue(JANE, WEAK, chain=[WEAK]), "cannot sign"),
    (pki.issue(JANE, NAMED, chain=[NAMED], dns=["a.example.org"]), "not authorized to sign for this name: a.example.org"),
    (pki.issue(JANE, NAMED, chain=[NAMED], dns=["x.bad.example.com"]), "not authorized to sign for this name: x.bad.example.com"),
    (pki.issue(JANE, CA, extra=[(x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\0"), True)]), "unhandled critical"),
])  # fmt: skip
def test_bad(tmp_path, shown, reason):
    assert reason in why(verifier(tmp_path, CA)[0], shown)


def alternative(names: str, critical: bool = False, of: str = "17") -> pki.Issued:
    """Returns a client certificate with alternative names, its own or its issuer's ("18"), in DER."""
    extension = x509.UnrecognizedExtension(x509.ObjectIdentifier(f"2.5.29.{of}"), bytes.fromhex(names))
    return pki.issue(JANE, CA, extra=[(extension, critical)])


X400, EDI, DNS, OTHER_NAME = "a3020500", "a504a1020500", "8203612e62", "a00a06032a0304a0030c0161"


@pytest.mark.parametrize("names", [
    f"3004{X400}", f"3006{EDI}", f"300f{X400}{DNS}{EDI}", f"300c{OTHER_NAME}", f"3005{DNS}", "3000",
])  # fmt: skip
def test_alternative_names_of_other_kinds_are_ignored(tmp_path, names):
    """A critical extension with no known kind is not understood, as in Go."""
    check = verifier(tmp_path, CA)[0]
    assert not why(check, alternative(names))
    assert ("unhandled critical" in why(check, alternative(names, critical=True))) == (DNS not in names)
    assert not why(check, alternative(names, of="18"))


def test_names_beside_ignored_ones_are_checked_against_constraints(tmp_path):
    extension = x509.UnrecognizedExtension(x509.ObjectIdentifier("2.5.29.17"), bytes.fromhex(f"3009{X400}{DNS}"))
    shown = pki.issue(JANE, NAMED, chain=[NAMED], extra=[(extension, False)])
    assert "not authorized to sign for this name: a.b" in why(verifier(tmp_path, CA)[0], shown)


def test_an_unreadable_certificate_is_refused(tmp_path):
    check = verifier(tmp_path, CA)[0].check
    with pytest.raises(AuthenticationError):
        check(Certificates([b"\x30\x03\x02\x01\x01"]))
    with pytest.raises(AuthenticationError):
        check(Certificates([pki.issue(JANE, CA).der, b"nothing"]))


@pytest.mark.parametrize("odd", ["version", "bits", "twice", "name"])
def test_an_unreadable_part_is_refused_whichever_it_is(tmp_path, odd):
    check, der = verifier(tmp_path, CA)[0].check, pki.unreadable(CA)[odd]
    for shown in ([der], [pki.issue(JANE, CA).der, der]):
        with pytest.raises(AuthenticationError):
            check(Certificates(shown))
    assert Certificates([der]).ends >= 0  # its error before it is verified


@pytest.mark.parametrize("odd", ["version", "bits", "twice", "name"])
def test_a_bundle_with_an_unreadable_certificate_is_refused(tmp_path, odd):
    check, looks, _ = verifier(tmp_path, CA)
    block = ssl.DER_cert_to_PEM_cert(pki.unreadable()[odd])
    (tmp_path / "ca.crt").write_text(block)
    looks.now = LOOK_EVERY_S
    check.check(Certificates([pki.issue(JANE, CA).der]))  # unchanged
    with pytest.raises(ValueError):
        Bundle(str(tmp_path / "ca.crt"))


@pytest.mark.parametrize(("constraint", "names", "good"), [
    (x509.RFC822Name("jane@example.com"), {"emails": ["jane@example.com"]}, True),
    (x509.RFC822Name("jane@example.com"), {"emails": ["joe@example.com"]}, False),
    (x509.RFC822Name("example.com"), {"emails": ["joe@example.com"]}, True),
    (x509.UniformResourceIdentifier("example.com"), {"uris": ["https://a.example.com/x"]}, True),
    (x509.UniformResourceIdentifier("example.com"), {"uris": ["https://example.org/x"]}, False),
    (x509.UniformResourceIdentifier("example.com"), {"uris": ["urn:no:host"]}, False),
    (x509.UniformResourceIdentifier(".example.com"), {"uris": ["https://example.com/x"]}, False),
    (x509.IPAddress(ip_network("10.0.0.0/8")), {"ips": ["10.1.2.3"]}, True),
    (x509.IPAddress(ip_network("10.0.0.0/8")), {"ips": ["11.1.2.3"]}, False),
    (x509.IPAddress(ip_network("10.0.0.0/8")), {"ips": ["::1"]}, False),
    (x509.DNSName("example.com"), {"dns": ["notexample.com"]}, False),
    (x509.DNSName("example.com"), {"dns": ["EXAMPLE.com"]}, True),
    (x509.DirectoryName(x509.Name([])), {}, False),  # an unknown critical kind
])  # fmt: skip
def test_name_constraints(tmp_path, constraint, names, good):
    between = pki.authority("between", CA, permitted=[constraint])
    assert (not why(verifier(tmp_path, CA)[0], pki.issue(JANE, between, chain=[between], **names))) is good


def test_a_roots_constraints_apply_to_its_clients(tmp_path):
    root = pki.authority("root", permitted=[x509.DNSName("example.com")])
    check = verifier(tmp_path, root)[0]
    assert not why(check, pki.issue(JANE, root, dns=["example.com"]))
    assert "not authorized" in why(check, pki.issue(JANE, root, dns=["example.org"]))


def test_a_weak_signature_is_refused(tmp_path):
    """Made for a hundred years with ``openssl x509 -req -sha1``: the library that makes the others no longer signs with SHA-1."""
    root, shown = (pki.Issued(x509.load_pem_x509_certificate(pem.encode()), None) for pem in (SHA1_CA, SHA1_CLIENT))
    assert "insecure algorithm" in why(verifier(tmp_path, root)[0], shown)


def test_a_cached_certificate_expires(tmp_path):
    check, _, clock = verifier(tmp_path, CA)
    shown = pki.issue(JANE, CA, ends_s=3600)
    assert not why(check, shown)
    clock.now += 7200
    assert "expired" in why(check, shown)


def test_a_cached_certificate_becomes_valid(tmp_path):
    check, _, clock = verifier(tmp_path, CA)
    shown = pki.issue(JANE, CA, begins_s=3600)
    assert "not yet valid" in why(check, shown)
    clock.now += 7200
    assert not why(check, shown)


def test_verdicts_are_dropped_when_the_clock_is_set_back(tmp_path):
    check, _, clock = verifier(tmp_path, CA)
    today = clock.now
    shown, later = pki.issue(JANE, CA, ends_s=3600), pki.issue(JANE, CA, begins_s=3600)
    clock.now += 7200
    assert "expired" in why(check, shown) and not why(check, later)
    clock.now = today
    assert not why(check, shown) and "not yet valid" in why(check, later)


def test_a_changed_ca_file_is_read_again(tmp_path):
    check, looks, _ = verifier(tmp_path, CA)
    old, new = pki.issue(JANE, CA), pki.issue(JANE, OTHER)
    assert not why(check, old) and why(check, new)
    path = tmp_path / "ca.crt"
    path.write_bytes(OTHER.pem)
    os.utime(path, ns=(1, 1))
    looks.now += LOOK_EVERY_S
    assert not why(check, new) and "unknown authority" in why(check, old)
    path.write_bytes(b"nothing")
    looks.now += LOOK_EVERY_S
    assert not why(check, new)  # the valid part remains
    path.unlink()
    looks.now += LOOK_EVERY_S
    assert not why(check, new)
    path.write_bytes(CA.pem + OTHER.pem)
    looks.now += LOOK_EVERY_S
    assert not why(check, new) and not why(check, old)


def test_a_bundle_without_certificates_is_refused(tmp_path):
    (tmp_path / "x").write_text("nothing")
    with pytest.raises(ValueError, match="does not contain any valid"):
        Bundle(str(tmp_path / "x"))
    with pytest.raises(OSError):
        Bundle(str(tmp_path / "y"))


def test_the_number_of_checked_signatures_is_bounded(tmp_path, monkeypatch):
    """Intermediates with one name may all have signed one another: with the costliest keys a hundred signatures held the loop for 80 ms,
    and every connection may show others."""
    from kas.auth.authn import chain

    key = pki.authority("loop").key
    loops = [pki.authority("loop", pki.Issued(pki.authority("loop", key=key).cert, key), key=key) for _ in range(14)]
    verified = []
    real = x509.Certificate.verify_directly_issued_by

    class Counting:
        """A certificate that counts how often its signature was checked."""

        def __init__(self, read: x509.Certificate) -> None:
            self._read = read

        def __getattr__(self, name: str):
            return getattr(self._read, name)

        def verify_directly_issued_by(self, parent) -> None:
            verified.append(1)
            real(self._read, parent._read)

    made = chain._Certificate.__init__
    monkeypatch.setattr(chain._Certificate, "__init__", lambda self, read, der: made(self, Counting(read), der))
    assert "attempts limit reached" in why(verifier(tmp_path, CA)[0], pki.issue(JANE, loops[0], chain=loops))
    assert len(verified) <= chain.MAX_SHOWN_SIGNATURES


def test_short_keys_are_refused(tmp_path):
    """Whoever factors one could impersonate any user."""
    short = pki.authority("short", CA, key=pki.short_rsa_key(1023))
    assert "algorithm unimplemented" in why(verifier(tmp_path, CA)[0], pki.issue(JANE, short, chain=[short]))
    enough = pki.authority("enough", CA, key=pki.short_rsa_key(1024))
    assert not why(verifier(tmp_path, CA)[0], pki.issue(JANE, enough, chain=[enough]))


@pytest.mark.parametrize("key", [pki.rsa_key(4294967311), ec.generate_private_key(ec.BrainpoolP512R1())], ids=["exponent", "curve"])
def test_costly_keys_are_refused(tmp_path, key):
    """Twelve of 3,072 bits with an exponent as long held the loop for 675 ms."""
    costly = pki.authority("costly", CA, key=key)
    assert "algorithm unimplemented" in why(verifier(tmp_path, CA)[0], pki.issue(JANE, costly, chain=[costly]))
    usual = pki.authority("usual", CA, key=pki.rsa_key(65537))
    assert not why(verifier(tmp_path, CA)[0], pki.issue(JANE, usual, chain=[usual]))


def test_a_pipe_in_the_place_of_the_bundle_leaves_the_last_in_use(tmp_path):
    authority = pki.authority("ca")
    verifying, looks, _ = verifier(tmp_path, authority)
    (tmp_path / "ca.crt").unlink()
    os.mkfifo(tmp_path / "ca.crt")
    looks.now += 60
    assert not why(verifying, pki.issue([("CN", "bob")], authority))

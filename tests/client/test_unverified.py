"""Errors of certificates and failed handshakes: recorded from kube-apiserver's webhook client, built with Go 1.27."""

from __future__ import annotations

import ssl

import pytest

from kas.client.alerts import tls_text
from kas.client.http import INSECURE_SHA1, MISSING_SAN
from kas.client.unverified import unverified
from kas.meta.tls import trust_as_go
from tests import pki

CA = pki.authority("hook-ca")
SAME_NAME = pki.authority("hook-ca")
SERVER = {"usages": ("server",)}
HOOK = [("CN", "hook")]
GOOD = {"dns": ["localhost"], "ips": ["127.0.0.1"], **SERVER}


def refused(tmp_path, shown: pki.Issued, host: str, trusted: pki.Issued):
    """Returns the error of a client that trusts one CA, for a server with this certificate."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.set_ciphers("DEFAULT:@SECLEVEL=0")  # otherwise it would refuse to serve it
    serving.load_cert_chain(*shown.write(tmp_path, "server"))
    asking = trust_as_go(ssl.create_default_context(cadata=trusted.pem.decode()))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asking.wrap_bio(to_client, to_server, server_hostname=host)
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server):
        with pytest.raises(ssl.SSLWantReadError):
            side.do_handshake()
    with pytest.raises(ssl.SSLCertVerificationError) as e:
        client.do_handshake()
    return unverified(e.value, shown.ders, host, asking.get_ca_certs(binary_form=True))


HINT = ('certificate signed by unknown authority (possibly because of "x509: ECDSA verification failure" while trying to verify candidate '
        'authority certificate "hook-ca")')  # fmt: skip


@pytest.mark.parametrize(("made", "host", "trusted", "says"), [
    (pki.issue(HOOK, CA, ips=["10.0.0.1", "10.0.0.2"], dns=["a.example"], **SERVER), "127.0.0.1", CA,
     "certificate is valid for 10.0.0.1, 10.0.0.2, not 127.0.0.1"),
    (pki.issue(HOOK, CA, dns=["a.example", "*.b.example"], **SERVER), "localhost", CA,
     "certificate is valid for a.example, *.b.example, not localhost"),
    (pki.issue(HOOK, CA, dns=["a.example"], **SERVER), "127.0.0.1", CA,
     "cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs"),
    (pki.issue([("CN", "localhost")], CA, **SERVER), "localhost", CA,
     "certificate relies on legacy Common Name field, use SANs instead"),
    (pki.issue([("CN", "127.0.0.1")], CA, **SERVER), "127.0.0.1", CA,
     "certificate relies on legacy Common Name field, use SANs instead"),
    (pki.issue([("O", "x")], CA, **SERVER), "localhost", CA, "certificate is not valid for any names, but wanted to match localhost"),
    (pki.issue(HOOK, CA, dns=[f"h{n}.example" for n in range(100)], **SERVER), "localhost", CA,
     "certificate is valid for 100 names, but none matched localhost"),
    (pki.issue(HOOK, CA, dns=["localhost"], usages=("client",)), "localhost", CA, "certificate specifies an incompatible key usage"),
    (pki.issue(HOOK, **GOOD), "localhost", CA, "certificate signed by unknown authority"),
    (pki.issue(HOOK, pki.authority("other-ca"), **GOOD), "localhost", CA, "certificate signed by unknown authority"),
    (pki.issue(HOOK, SAME_NAME, **GOOD), "localhost", CA, HINT),
    # The first error is reported: the signature does not matter while the name is wrong.
    (pki.issue(HOOK, SAME_NAME, dns=["a.example"], usages=("client",)), "localhost", CA,
     "certificate is valid for a.example, not localhost"),
], ids=range(12))  # fmt: skip
def test_errors_of_certificates(tmp_path, made, host, trusted, says):
    found = refused(tmp_path, made, host, trusted)
    assert str(found) == f"tls: failed to verify certificate: x509: {says}"
    assert found.outdated == (MISSING_SAN if "legacy" in says else None)


@pytest.mark.parametrize(("times", "than", "bound"), [
    ({"ends_s": -10}, "after", "not_valid_after_utc"), ({"begins_s": 3600}, "before", "not_valid_before_utc"),
])  # fmt: skip
def test_validity_is_checked_first(tmp_path, times, than, bound):
    made = pki.issue(HOOK, CA, dns=["a.example"], **SERVER, **times)
    found = str(refused(tmp_path, made, "localhost", CA))
    until = getattr(made.cert, bound).strftime("%Y-%m-%dT%H:%M:%SZ")
    begin, _, end = found.partition(f" is {than} ")
    assert begin.startswith("tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 20")
    assert end == until


def test_an_expired_ca(tmp_path):
    old = pki.authority("old-ca", ends_s=-10)
    found = str(refused(tmp_path, pki.issue(HOOK, old, **GOOD), "localhost", old))
    assert 'unknown authority (possibly because of "x509: certificate has expired or is not yet valid: current time 20' in found
    assert found.endswith(' while trying to verify candidate authority certificate "old-ca")')


def test_an_outdated_signature_algorithm(tmp_path):
    ca = pki.authority("rsa-ca", key=pki.rsa_key(65537))
    found = refused(tmp_path, pki.weakly_signed(ca, "localhost"), "localhost", ca)
    assert str(found).endswith('(possibly because of "x509: cannot verify signature: insecure algorithm SHA1-RSA" while trying to verify '
                               'candidate authority certificate "rsa-ca")')  # fmt: skip
    assert found.outdated == INSECURE_SHA1


def test_an_unreadable_certificate_has_openssls_error():
    error = ssl.SSLCertVerificationError(1, "no")
    error.verify_code, error.verify_message = 20, "unable to get local issuer certificate"
    assert str(unverified(error, [b"no certificate"], "a", [])).endswith("x509: certificate signed by unknown authority")
    error.verify_code = 24
    assert str(unverified(error, [], "a", [])).endswith("x509: unable to get local issuer certificate")


@pytest.mark.parametrize(("reason", "says"), [
    ("WRONG_VERSION_NUMBER", "tls: first record does not look like a TLS handshake"),
    ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "remote error: tls: certificate required"),
    ("SSLV3_ALERT_HANDSHAKE_FAILURE", "remote error: tls: handshake failure"),
    ("TLSV1_ALERT_PROTOCOL_VERSION", "remote error: tls: protocol version not supported"),
    ("TLSV1_UNRECOGNIZED_NAME", "remote error: tls: unrecognized name"), ("SOMETHING_ELSE", "remote error: tls: SOMETHING_ELSE"),
])  # fmt: skip
def test_other_errors(reason, says):
    error = ssl.SSLError(1, "x")
    error.reason = reason
    assert tls_text(error) == says


def test_metrics_of_outdated_certificates_have_upstreams_names():
    assert (MISSING_SAN.id, INSECURE_SHA1.id) == ("missing-san", "insecure-sha1")

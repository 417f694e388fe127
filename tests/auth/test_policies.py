"""Certificate policies of a chain, as Go checks them since 1.24 (RFC 5280 6.1, RFC 9618)."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509

from kas.auth.authn import AuthenticationError
from kas.auth.authn.chain import Bundle, Verifier
from kas.auth.authn.policies import ANY, MAPPINGS
from kas.auth.authn.x509 import Certificates
from kas.meta.der import element
from tests import pki

NOW = datetime.datetime.now(datetime.UTC).timestamp()
P, Q, R = "1.2.3.1", "2.999.70000", "1.2.3.3"


def issued(*oids):
    return x509.CertificatePolicies([x509.PolicyInformation(x509.ObjectIdentifier(oid), None) for oid in oids]), False


def needed(after=0):
    return x509.PolicyConstraints(after, None), True


def unmapped(after=0):
    return x509.PolicyConstraints(None, after), True


def no_any(after=0):
    return x509.InhibitAnyPolicy(after), True


def oid(dotted):
    first, second, *rest = map(int, dotted.split("."))
    out = b""
    for number in (40 * first + second, *rest):
        digits = [number & 0x7F]
        while number := number >> 7:
            digits.append(number & 0x7F | 0x80)
        out += bytes(reversed(digits))
    return element(6, out)


def mapped(*pairs):
    value = element(0x30, b"".join(element(0x30, oid(a) + oid(b)) for a, b in pairs))
    return x509.UnrecognizedExtension(MAPPINGS, value), True


def why(tmp_path, *says):
    """Returns the error of a client certificate whose CAs have these policies, the root first, the client last."""
    above = None
    for i, extensions in enumerate(says[:-1]):
        made = pki.authority(f"ca{i}", above, extra=extensions)
        made.chain = () if above is None or i == 0 else (above, *above.chain)
        above = made
        if i == 0:
            (tmp_path / "ca.crt").write_bytes(made.pem)
    client = pki.issue([("CN", "jane")], above, extra=says[-1])
    shown, at = [client.der], above
    while at.chain:
        shown.append(at.der)
        at = at.chain[0]
    try:
        Verifier(Bundle(str(tmp_path / "ca.crt")), clock=lambda: NOW).check(Certificates(shown))
    except AuthenticationError as e:
        return str(e)
    return ""


@pytest.mark.parametrize("says", [
    ([], [issued(P)]),
    ([], [issued(P)], [issued(Q)]),  # none is required
    ([needed(), issued(P)], [], []),  # the root's policies do not count
    ([], [issued(P), needed()], [issued(P)]),
    ([], [issued(P, Q), needed()], [issued(R, Q)]),
    ([], [issued(ANY), needed()], [issued(P)]),
    ([], [issued(P), needed()], [issued(ANY)]),
    ([], [issued(P), needed(), mapped((P, Q), (P, R))], [issued(Q)]),
    ([], [issued(ANY), needed(), mapped((P, Q))], [issued(Q)]),
    ([], [issued(P), needed(), mapped((P, Q))], [issued(Q)], [issued(Q)]),
    ([], [issued(P), needed(2)], []),  # there are not two more certificates
    ([], [issued(ANY), no_any(), needed()], [issued(P)]),
])  # fmt: skip
def test_good(tmp_path, says):
    assert not why(tmp_path, *says)


@pytest.mark.parametrize("says", [
    ([], [needed()], []),
    ([], [needed(1)], []),  # the count continues at the client
    ([], [issued(P), needed()], []),
    ([], [issued(P), needed()], [issued(Q)]),
    ([], [issued(P), needed()], [issued(P)], [issued(Q)]),
    ([], [issued(P), needed(1)], [issued(Q)], [issued(P)]),
    ([], [], [needed()]),  # the client's own extension
    ([], [issued(P), needed(), mapped((P, Q))], [issued(P)]),
    ([], [issued(P), needed(), mapped((P, ANY))], [issued(P)]),
    ([], [issued(P), unmapped()], [issued(P), needed(), mapped((P, Q))], [issued(Q)]),
    ([], [issued(P), no_any(), needed()], [issued(ANY)]),
])  # fmt: skip
def test_bad(tmp_path, says):
    assert why(tmp_path, *says).endswith("failed: x509: no valid chains built: 1 chains with invalid policies")


@pytest.mark.parametrize("value", ["", "3003020105", "30053003060180", "30073005060103060100", "300530030601"])
def test_invalid_mappings(tmp_path, value):
    extension = x509.UnrecognizedExtension(MAPPINGS, bytes.fromhex(value)), False
    found = why(tmp_path, [], [extension], [])
    assert found and "policies" not in found

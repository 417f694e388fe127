"""CertificateSigningRequest: who may set what through which path; name and content of ClusterTrustBundle."""

from __future__ import annotations

import asyncio
import base64
import datetime
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from kas.admission.plugins import _requests
from kas.controllers.signing import request_of
from kas.kinds.certificates.pem import certificate_problem, request_problem, trust_bundle
from kas.meta.pem import authorities_problem, bundle_problem
from kas.registry.strategy import Context, strategy_of
from tests import pki
from tests.kinds.written import FORBIDDEN, INVALID, NOW, REQUIRED, UNSUPPORTED, Kind, changed

CSR = Kind("certificates.k8s.io/v1/certificatesigningrequests")
KEY = ec.generate_private_key(ec.SECP256R1())
SUBJECT = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "jane")])
SIGNER = "example.com/clients"


def _pem(thing) -> str:
    return base64.b64encode(thing.public_bytes(serialization.Encoding.PEM)).decode()


REQUEST = _pem(x509.CertificateSigningRequestBuilder().subject_name(SUBJECT).sign(KEY, hashes.SHA256()))
START = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
CERTIFICATE = _pem(
    x509.CertificateBuilder()
    .subject_name(SUBJECT).issuer_name(SUBJECT).public_key(KEY.public_key()).serial_number(7)
    .not_valid_before(START).not_valid_after(START + datetime.timedelta(days=1))
    .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    .sign(KEY, hashes.SHA256())
)  # fmt: skip
GOOD = {"spec": {"request": REQUEST, "signerName": SIGNER, "usages": ["client auth"]}}


def test_the_requester_is_the_user_whatever_the_body_says():
    spec = CSR.create(changed(GOOD, "spec.username", "root") | {"status": {"certificate": CERTIFICATE}})
    assert spec["spec"]["username"] == "jane"
    assert spec["spec"]["groups"] == ["devs", "system:authenticated"]
    assert "certificate" not in spec.get("status", {})


@pytest.mark.parametrize(
    ("path", "value", "want"),
    [
        ("spec.request", base64.b64encode(b"no pem").decode(), ("spec.request", INVALID)),
        ("spec.usages", [], ("spec.usages", REQUIRED)),
        ("spec.usages", ["flying"], ("spec.usages[0]", UNSUPPORTED)),
        ("spec.signerName", "nodomain", ("spec.signerName", INVALID)),
        ("spec.expirationSeconds", 599, ("spec.expirationSeconds", INVALID)),
    ],
)
def test_a_bad_request_is_refused(path, value, want):
    assert want in CSR.refusals(changed(GOOD, path, value))


def odd(what: str) -> bytes:
    """A request (DER) with an unknown version or curve, or with a name that is not text."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "\0odd")])
    der = x509.CertificateSigningRequestBuilder().subject_name(name).sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER)
    if what == "curve":
        return der.replace(bytes.fromhex("2a8648ce3d030107"), bytes.fromhex("2a8648ce3d03017f"))
    return der.replace(b"\2\1\0", b"\2\1\5", 1) if what == "version" else der.replace(b"\x0c\4\0odd", b"\3\4\0odd")


@pytest.mark.parametrize("what", ["version", "bits", "curve"])
def test_an_unreadable_request_is_refused(what):
    pem = f"-----BEGIN CERTIFICATE REQUEST-----\n{base64.b64encode(odd(what)).decode()}\n-----END CERTIFICATE REQUEST-----\n".encode()
    assert ("spec.request", INVALID) in CSR.refusals(changed(GOOD, "spec.request", base64.b64encode(pem).decode()))
    with pytest.raises(ValueError):
        request_of(pem)
    if what == "curve":
        return  # its owner can be read
    with pytest.raises(ValueError):
        asyncio.run(_requests.subject(base64.b64encode(pem).decode()))


@pytest.mark.parametrize("what", ["version", "bits", "twice", "name"])
def test_unreadable_certificates_are_refused(what):
    pem = ssl.DER_cert_to_PEM_cert(pki.unreadable()[what])
    for of in (bundle_problem, authorities_problem, certificate_problem):
        if what == "version":  # the others are checked less strictly there
            assert of(pem.encode())
    assert trust_bundle(pem, "spec.trustBundle")


def test_a_key_that_is_not_on_its_curve_is_refused():
    own = pki.authority("odd")
    der = own.der
    point = own.cert.public_key().public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
    assert der.count(point) == 1
    for ending, refused in ((point, False), (point[:-1] + bytes([point[-1] ^ 1]), True)):
        pem = ssl.DER_cert_to_PEM_cert(der.replace(point, ending)).encode()
        assert bool(bundle_problem(pem)) == bool(authorities_problem(pem)) == refused


def test_approval_stamps_the_condition_and_keeps_the_rest():
    old = CSR.create(GOOD)
    approved = {"type": "Approved", "status": "True", "reason": "Fine"}
    new = changed(changed(old, "status.conditions", [approved]), "spec.signerName", "example.com/other")
    got = CSR.update(new, old, "approval")
    assert got["spec"]["signerName"] == SIGNER
    assert got["status"]["conditions"] == [approved | {"lastUpdateTime": NOW, "lastTransitionTime": NOW}]


def test_an_unchanged_condition_keeps_its_transition_time():
    then = "2023-01-02T03:04:05Z"
    was = {"type": "Slow", "status": "True", "lastUpdateTime": then, "lastTransitionTime": then}
    old = changed(CSR.create(GOOD), "status.conditions", [was])
    said = [{"type": "Slow", "status": "True", "reason": "Later"}, {"type": "Lost", "status": "True", "reason": "New"}]
    got = CSR.update(changed(old, "status.conditions", said), old, "status")["status"]["conditions"]
    assert [(c["lastUpdateTime"], c["lastTransitionTime"]) for c in got] == [(NOW, then), (NOW, NOW)]


def test_only_approval_adds_or_removes_a_decision():
    old = CSR.create(GOOD)
    denied = changed(old, "status.conditions", [{"type": "Denied", "status": "True", "lastUpdateTime": NOW}])
    assert ("status.conditions", FORBIDDEN) in CSR.refusals(denied, old, "status")
    assert ("status.conditions", FORBIDDEN) in CSR.refusals(old, denied, "approval")


def test_a_decision_is_final():
    old = changed(CSR.create(GOOD), "status.conditions", [{"type": "Approved", "status": "True", "lastUpdateTime": NOW}])
    both = changed(old, "status.conditions", [*old["status"]["conditions"], {"type": "Denied", "status": "True"}])
    text = 'Invalid value: "Denied": Approved and Denied conditions are mutually exclusive'
    assert CSR.messages(both, old, "approval") == [("status.conditions", text)]


def test_a_changed_decision_is_reported_with_a_diff():
    approved = {"type": "Approved", "status": "True", "reason": "Fine", "lastUpdateTime": NOW, "lastTransitionTime": NOW}
    old = changed(CSR.create(GOOD), "status.conditions", [approved])
    new = changed(old, "status.conditions.0.reason", "Better")
    lines = ['   "Type": "Approved",', '   "Status": "True",', '-  "Reason": "Fine",', '+  "Reason": "Better",', '   "Message": "",']
    # a status write keeps the stored decision and a plain update ignores the status, so the rule is called directly
    assert CSR.update(new, old, "status")["status"]["conditions"] == [approved]
    found = [str(e) for e in strategy_of(CSR.resource).validate_update(Context(), new, old) if e.field == "status.conditions"]
    assert len(found) == 1
    assert 'updates may not modify a condition of type "Approved"\n@@ ' in found[0]
    assert "\n".join(lines) in found[0]


def test_the_certificate_is_set_once_through_status():
    old = CSR.create(GOOD)
    issued = CSR.update(changed(old, "status.certificate", CERTIFICATE), old, "status")
    assert issued["status"]["certificate"] == CERTIFICATE
    replaced = changed(issued, "status.certificate", base64.b64encode(b"-----BEGIN X-----").decode())
    assert "status.certificate" in {path for path, _ in CSR.refusals(replaced, issued, "status")}
    # approval cannot issue
    assert "certificate" not in CSR.update(changed(old, "status.certificate", CERTIFICATE), old, "approval").get("status", {})


def test_the_spec_cannot_be_changed_by_a_plain_update():
    old = CSR.create(GOOD)
    assert CSR.update(changed(old, "spec.usages", ["server auth"]), old)["spec"]["usages"] == ["client auth"]


BUNDLES = Kind("certificates.k8s.io/v1beta1/clustertrustbundles")
PEM = base64.b64decode(CERTIFICATE).decode()


def test_a_bundle_of_a_signer_has_a_name_with_its_prefix():
    assert BUNDLES.create({"metadata": {"name": "example.com:clients:one"}, "spec": {"signerName": SIGNER, "trustBundle": PEM}})
    refused = BUNDLES.refusals({"metadata": {"name": "one"}, "spec": {"signerName": SIGNER, "trustBundle": PEM}})
    assert ("metadata.name", INVALID) in refused


@pytest.mark.parametrize("text", ["", "garbage", PEM + PEM, PEM.replace("CERTIFICATE", "OTHER")])
def test_a_bundle_has_distinct_certificates(text):
    refused = BUNDLES.refusals({"metadata": {"name": "one"}, "spec": {"trustBundle": text}})
    assert [path for path, _ in refused] == ["spec.trustBundle"]


def test_the_size_of_a_bundle_is_bounded():
    refused = BUNDLES.messages({"metadata": {"name": "one"}, "spec": {"trustBundle": "x" * (1 << 20) + "x"}})
    assert refused == [("spec.trustBundle", "Too long: may not be more than 1048576 bytes")]


def test_the_signer_of_a_bundle_is_immutable():
    old = BUNDLES.create({"metadata": {"name": "one"}, "spec": {"trustBundle": PEM}})
    assert ("spec.signerName", INVALID) in BUNDLES.refusals(changed(old, "spec.signerName", SIGNER), old)


TAGS = (
    "{optional:false explicit:false application:false private:false defaultValue:<nil> tag:<nil> stringType:0 timeType:0 set:false "
    "omitEmpty:false}"
)


@pytest.mark.parametrize(
    ("der", "why"),
    [
        (b"a", "syntax error: truncated tag or length"),
        (b"hello", f"structure error: tags don't match (16 vs {{class:1 tag:8 length:101 isCompound:true}}) {TAGS} certificateRequest @2"),
        (b"0\x05\x02\x01", "syntax error: data truncated"),
        (b"0\x80", "syntax error: indefinite length found (not DER)"),
        (b"0\x82\x00\x01", "structure error: superfluous leading zeros in length"),
        (b"0\x81\x05", "structure error: non-minimal length"),
        (b"0\x82\x01", "syntax error: truncated tag or length"),
        (b"0\x00", "syntax error: sequence truncated"),
        (b"0\x03\x02\x01\x05",
         f"structure error: tags don't match (16 vs {{class:0 tag:2 length:1 isCompound:false}}) {TAGS} tbsCertificateRequest @2"),
        (b"0\x0b0\x030\x01\x020\x010\x03\x01\x00", "structure error: malformed certificate request"),
    ],
)  # fmt: skip
def test_a_request_that_is_not_der(der, why):
    body = base64.b64encode(der).decode()
    pem = f"-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n"
    assert request_problem(pem.encode()) == f"asn1: {why}"


REQUESTS = Kind("certificates.k8s.io/v1beta1/podcertificaterequests")
POD_UID = "pod-uid"
DER = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _stub(key=KEY) -> str:
    return _b64(x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256()).public_bytes(DER[0]))


def _pod_request(**spec):
    of = {"podName": "p", "podUID": POD_UID, "serviceAccountName": "s", "serviceAccountUID": "u", "nodeName": "n", "nodeUID": "v"}
    return {"spec": {"signerName": SIGNER, **of, **spec}}


STUBBED = _pod_request(stubPKCS10Request=_stub())
PROOF = _b64(KEY.sign(POD_UID.encode(), ec.ECDSA(hashes.SHA256())))
PROVEN = {"pkixPublicKey": _b64(KEY.public_key().public_bytes(*DER)), "proofOfPossession": PROOF}
ONE_OF = ("spec", "Invalid value: exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set")


@pytest.mark.parametrize("spec", [STUBBED["spec"], _pod_request(**PROVEN)["spec"]])
def test_a_pod_certificate_needs_a_request_or_a_key_with_its_proof(spec):
    assert REQUESTS.create({"spec": spec})["spec"]["maxExpirationSeconds"] == 86400


def _broken_stub() -> str:
    der = bytearray(base64.b64decode(_stub()))
    der[-1] ^= 1
    return _b64(bytes(der))


SMALL = _stub(rsa.generate_private_key(65537, 2048))


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({}, ONE_OF),
        (PROVEN | {"stubPKCS10Request": _stub()}, ONE_OF),
        ({"pkixPublicKey": PROVEN["pkixPublicKey"]}, ONE_OF),
        ({"stubPKCS10Request": "AAAA"}, ("spec.stubPKCS10Request", 'Invalid value: "AAAA": must be a valid PKCS#10 CSR')),
        ({"stubPKCS10Request": _b64(bytes(10241))}, ("spec.stubPKCS10Request", "Too long: may not be more than 10240 bytes")),
        (
            {"stubPKCS10Request": SMALL},
            ("spec.stubPKCS10Request", 'Invalid value: "2048-bit modulus": RSA keys must have modulus size 3072 or 4096'),
        ),
        (
            PROVEN | {"podUID": "another"},
            ("spec.proofOfPossession", "Invalid value: could not verify proof-of-possession signature"),
        ),
    ],
)
def test_invalid_proofs_of_possession(spec, want):
    assert want in REQUESTS.messages(_pod_request(**spec))


def test_a_stub_request_is_signed_by_its_own_key():
    ((path, text),) = REQUESTS.messages(_pod_request(stubPKCS10Request=_broken_stub()))
    assert path == "spec.stubPKCS10Request" and "could not verify the signature" in text


ISSUED_AT = datetime.datetime.fromisoformat(NOW)


def _leaf(key=KEY, names=("a.example.com",)) -> str:
    builder = x509.CertificateBuilder().subject_name(SUBJECT).issuer_name(SUBJECT).public_key(key.public_key()).serial_number(7)
    builder = builder.not_valid_before(ISSUED_AT).not_valid_after(ISSUED_AT + datetime.timedelta(hours=2))
    alternatives = [x509.RFC822Name(n) if "@" in n else x509.DNSName(n) for n in names]
    made = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False).sign(KEY, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM).decode()


def _issued(chain: str):
    condition = {"type": "Issued", "status": "True", "reason": "Done", "message": "", "lastTransitionTime": NOW}
    times = {"notBefore": NOW, "beginRefreshAt": "2024-01-02T04:04:05Z", "notAfter": "2024-01-02T05:04:05Z"}
    stored = REQUESTS.create(STUBBED)
    return stored | {"status": {"conditions": [condition], "certificateChain": chain, **times}}, stored


def test_an_issued_certificate_has_the_stubs_key():
    assert REQUESTS.update(*_issued(_leaf()), "status")["status"]["certificateChain"]
    other = REQUESTS.messages(*_issued(_leaf(ec.generate_private_key(ec.SECP256R1()))), "status")
    assert [text.rpartition(": ")[2] for _, text in other] == ["leaf certificate was not issued to the requested public key"]


@pytest.mark.parametrize(
    ("chain", "want"),
    [
        (_leaf(names=("a..b",)), "leaf certificate's DNSName should not contain '..'"),
        (_leaf(names=(".a",)), "leaf certificate's DNSName should not start or end with '.'"),
        (_leaf(names=("",)), "leaf certificate should not contain empty DNSName"),
        (_leaf(names=("a b@c",)), "leaf certificate should not contain invalid EmailAddress"),
        (_leaf(names=(".a@c",)), "leaf certificate should not contain invalid EmailAddress"),
        (_leaf() + _leaf().replace("CERTIFICATE", "X"), "issued certificate chain must consist entirely of CERTFICATE PEM blocks"),
        ("none", "issued certificate chain must contain at least one certificate"),
    ],
)
def test_a_chain_is_validated_completely(chain, want):
    assert [text.rpartition(": ")[2] for _, text in REQUESTS.messages(*_issued(chain), "status")] == [want]


def test_a_pod_certificate_decision_without_a_time_gets_the_time_of_the_write():
    stored = REQUESTS.create(STUBBED)
    denied = {"type": "Denied", "status": "True", "reason": "No", "message": ""}
    got = REQUESTS.update(changed(stored, "status.conditions", [denied]), stored, "status")
    assert got["status"]["conditions"] == [denied | {"lastTransitionTime": NOW}]


def test_a_status_write_keeps_the_stored_pod_certificate_decision():
    denied = {"type": "Denied", "status": "True", "reason": "No", "message": "", "lastTransitionTime": "2024-01-01T00:00:00Z"}
    stored = changed(REQUESTS.create(STUBBED), "status.conditions", [denied])
    other = {"type": "Denied", "status": "True", "reason": "Other", "message": "changed", "lastTransitionTime": NOW}
    got = REQUESTS.update(changed(stored, "status.conditions", [other]), stored, "status")
    assert got["status"]["conditions"] == [denied]
    failed = changed(stored, "status.conditions", [other | {"type": "Failed"}])
    text = "Invalid value: immutable after PodCertificateRequest is issued, denied, or failed"
    assert REQUESTS.messages(failed, stored, "status") == [("status", text)]

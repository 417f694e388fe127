"""Strategy of PodCertificateRequest (upstream ``pkg/registry/certificates/podcertificaterequest``)."""

from __future__ import annotations

import datetime
from typing import Any

from kas.kinds.certificates.decisions import kept_conditions, stamp_transitions
from kas.kinds.certificates.pem import decode_bytes, der_request_problem, stub_key
from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.kinds.core.signers import is_kubernetes_signer, signer_name, user_annotations
from kas.meta import field, names
from kas.meta.checks import conditions, dns_subdomain, immutable, unsupported
from kas.meta.equality import semantic_equal
from kas.meta.field import OMIT_VALUE, FieldError
from kas.meta.mailaddress import is_address
from kas.meta.pem import pem_blocks, unreadable
from kas.meta.publickeys import public_key, public_key_of
from kas.registry.printing.cells import labels, part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.gostruct import render
from kas.types.scheme import builtin_type

MIN_EXPIRATION_S = 3600
MAX_EXPIRATION_S = 91 * 24 * 3600
KUBERNETES_MAX_EXPIRATION_S = 24 * 3600
MAX_BYTES = 10 * 1024
MAX_CHAIN_BYTES = 100 * 1024
MAX_UID = 128
TERMINAL = ("Issued", "Denied", "Failed")
KEY_PATH, PROOF_PATH, STUB_PATH = "spec.pkixPublicKey", "spec.proofOfPossession", "spec.stubPKCS10Request"
CHAIN_PATH = "status.certificateChain"
CLOCK_SKEW = datetime.timedelta(minutes=5)
REFRESH_MARGIN = datetime.timedelta(minutes=10)


@strategy_for("certificates.k8s.io", "podcertificaterequests")
class PodCertificateRequestStrategy(Strategy):
    """Requests with an immutable spec and a status that is decided once."""

    costly = True  # parses certificates, and imports the parser

    def prepare_for_create(self, ctx: Context, obj: Obj) -> None:
        """Drop the status: a new request is undecided."""
        super().prepare_for_create(ctx, obj)
        obj.pop("status", None)

    def prepare_for_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Carry over the status."""
        super().prepare_for_update(ctx, obj, old)
        self.carry_over(obj, old, ("status",))

    def prepare_for_status_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Carry over metadata, spec and a stored decision; fill in missing times of transition."""
        self.carry_over(obj, old, ("metadata", "spec"))
        stored = (old.get("status") or {}).get("conditions") or []
        items = kept_conditions((obj.get("status") or {}).get("conditions") or [], stored, TERMINAL)
        if items:
            stamp_transitions(items, stored, ctx.now)
            obj["status"] = {**obj["status"], "conditions": items}

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidatePodCertificateRequestCreate``: signer, identities, lifetime in seconds, key and proof of possession."""
        errs = object_meta(obj["metadata"], True, names.dns_subdomain)
        spec = obj.get("spec") or {}
        signer = spec.get("signerName") or ""
        errs += signer_name(signer, "spec.signerName")
        errs += user_annotations(spec.get("unverifiedUserAnnotations"), "spec.unverifiedUserAnnotations")
        for name, uid in (("podName", "podUID"), ("serviceAccountName", "serviceAccountUID"), ("nodeName", "nodeUID")):
            errs += dns_subdomain(spec.get(name) or "", f"spec.{name}")
            value = spec.get(uid) or ""
            if not value:
                errs.append(field.invalid(f"spec.{uid}", value, "must not be empty"))
            if names.byte_length(value) > MAX_UID:
                errs.append(field.too_long(f"spec.{uid}", MAX_UID))
        seconds = spec.get("maxExpirationSeconds")
        if seconds is None:
            return [*errs, field.required("spec.maxExpirationSeconds", "must be set")]
        most = KUBERNETES_MAX_EXPIRATION_S if is_kubernetes_signer(signer) else MAX_EXPIRATION_S
        if not MIN_EXPIRATION_S <= seconds <= most:
            errs.append(field.invalid("spec.maxExpirationSeconds", seconds, f"must be in the range [{MIN_EXPIRATION_S}, {most}]"))
        return errs + _proof(spec)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidatePodCertificateRequestUpdate``: the spec may not change."""
        shown = render("certificates.v1beta1.PodCertificateRequestSpec", obj.get("spec"))
        return object_meta_update(obj["metadata"], old["metadata"]) + immutable(
            obj.get("spec"), old.get("spec"), "spec", shown, builtin_type("certificates.v1beta1.PodCertificateRequestSpec")
        )

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidatePodCertificateRequestStatusUpdate``: a single change to issued, denied or failed; the chain fits the spec."""
        errs = object_meta_update(obj["metadata"], old["metadata"])
        if errs:
            return errs
        of = builtin_type("certificates.v1beta1.PodCertificateRequestStatus")
        status, before = obj.get("status") or {}, old.get("status") or {}
        errs = _terminal_conditions(status.get("conditions") or []) + conditions(status.get("conditions"), "status.conditions")
        if errs:
            return errs
        if _terminal(before):
            text = "immutable after PodCertificateRequest is issued, denied, or failed"
            return [] if semantic_equal(status, before, of) else [field.invalid("status", OMIT_VALUE, text)]
        state = _terminal(status)
        if state in ("Denied", "Failed"):
            text = "non-condition status fields must be empty when denying or failing the PodCertificateRequest"
            rest = {k: v for k, v in status.items() if k != "conditions" and v}
            return [field.invalid("status", OMIT_VALUE, text)] if rest else []
        if state == "Issued":
            return _issued(ctx, obj.get("spec") or {}, status)
        text = 'status is immutable unless transitioning to "Issued", "Denied", or "Failed"'
        return [] if semantic_equal(status, before, of) else [field.invalid("status", OMIT_VALUE, text)]


def _terminal(status: dict[str, Any]) -> str:
    return next((c["type"] for c in status.get("conditions") or () if c.get("type") in TERMINAL and c.get("status") == "True"), "")


def _terminal_conditions(items: list[dict[str, Any]]) -> list[FieldError]:
    errs: list[FieldError] = []
    count = 0
    for i, condition in enumerate(items):
        path, kind = f"status.conditions.[{i}]", condition.get("type") or ""
        if kind not in TERMINAL:
            errs.append(unsupported(f"{path}.type", kind, TERMINAL))
            continue
        count += 1
        if count > 1:
            text = 'There may be at most one condition with type "Issued", "Denied", or "Failed"'
            errs.append(field.invalid(f"{path}.type", kind, text))
        if condition.get("status") != "True":
            errs.append(unsupported(f"{path}.status", condition.get("status") or "", ("True",)))
    return errs


def _proof(spec: dict[str, Any]) -> list[FieldError]:
    """Check that the requester has the private key of a permitted type: it signed a certificate request (the stub), or the pod's UID."""
    stub, key_bytes, proof = (decode_bytes(spec.get(name)) for name in ("stubPKCS10Request", "pkixPublicKey", "proofOfPossession"))
    for path, value in ((STUB_PATH, stub), (KEY_PATH, key_bytes), (PROOF_PATH, proof)):
        if len(value) > MAX_BYTES:
            return [field.too_long(path, MAX_BYTES)]
    if bool(stub) == bool(key_bytes) or bool(key_bytes) != bool(proof):
        text = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set"
        return [field.invalid("spec", OMIT_VALUE, text)]
    return _stub_proof(spec, stub) if stub else _uid_proof(spec, key_bytes, proof)


def _stub_proof(spec: dict[str, Any], stub: bytes) -> list[FieldError]:
    """Check a DER certificate request, which must be signed with its own key."""
    problem = der_request_problem(stub)
    if problem is None:
        return [field.invalid(STUB_PATH, spec["stubPKCS10Request"], "must be a valid PKCS#10 CSR")]
    errs = _permitted(stub_key(stub), STUB_PATH, spec["stubPKCS10Request"])
    if not errs and problem:
        errs = [field.invalid(STUB_PATH, OMIT_VALUE, f"could not verify the signature of the PKCS#10 CSR: {problem}")]
    return errs


def _permitted(key: Any, path: str, shown: Any) -> list[FieldError]:
    """Check the type of a key: Ed25519, three NIST curves, and RSA of two sizes. ``shown`` is the invalid value in errors."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    if isinstance(key, ec.EllipticCurvePublicKey):
        if key.curve.name not in ("secp256r1", "secp384r1", "secp521r1"):
            return [field.invalid(path, f"curve P-{key.curve.key_size}", "elliptic public keys must use curve P256 or P384")]
    elif isinstance(key, rsa.RSAPublicKey):
        bits = (key.key_size + 7) // 8 * 8  # rounded up to whole bytes
        if bits not in (3072, 4096):
            return [field.invalid(path, f"{bits}-bit modulus", "RSA keys must have modulus size 3072 or 4096")]
    elif not isinstance(key, ed25519.Ed25519PublicKey):
        return [field.invalid(path, shown, "unknown public key type; supported types are Ed25519, ECDSA, and RSA")]
    return []


def _uid_proof(spec: dict[str, Any], key_bytes: bytes, proof: bytes) -> list[FieldError]:
    """Check that the public key verifies a signature of the pod's UID."""
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

    try:
        key = public_key_of(key_bytes)
    except (ValueError, UnsupportedAlgorithm):
        return [field.invalid(KEY_PATH, spec.get("pkixPublicKey"), "must be a valid PKIX-serialized public key")]
    errs, message = _permitted(key, KEY_PATH, spec.get("pkixPublicKey")), (spec.get("podUID") or "").encode()
    if errs:
        return errs
    try:
        if isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(proof, message)
        elif isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(proof, message, ec.ECDSA(hashes.SHA256()))
        elif isinstance(key, rsa.RSAPublicKey):
            key.verify(proof, message, padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.AUTO), hashes.SHA256())
    except InvalidSignature:
        return [field.invalid(PROOF_PATH, OMIT_VALUE, "could not verify proof-of-possession signature")]
    return []


def _time(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


def _issued(ctx: Context, spec: dict[str, Any], status: dict[str, Any]) -> list[FieldError]:
    """The first certificate is the requested key's, its times are the status', the others parse."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    chain = status.get("certificateChain") or ""
    if len(chain.encode()) > MAX_CHAIN_BYTES:
        return [field.too_long(CHAIN_PATH, MAX_CHAIN_BYTES)]

    def refuse(text: str, path: str = CHAIN_PATH, value: Any = chain) -> list[FieldError]:
        return [field.invalid(path, value, text)]

    blocks = list(pem_blocks(chain.encode()))
    if not blocks:
        return refuse("issued certificate chain must contain at least one certificate")
    if blocks[0].kind != "CERTIFICATE":
        return refuse("issued certificate chain must consist entirely of CERTIFICATE PEM blocks")
    try:
        leaf = x509.load_der_x509_certificate(blocks[0].der)
        public, strange = public_key(leaf), _invalid_names(leaf)
    except unreadable():
        return refuse("leaf certificate does not parse as valid X.509")
    der = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    stub, wanted = decode_bytes(spec.get("stubPKCS10Request")), decode_bytes(spec.get("pkixPublicKey"))
    if stub:
        wanted = stub_key(stub).public_bytes(*der)
    if public.public_bytes(*der) != wanted:
        return strange + refuse("leaf certificate was not issued to the requested public key")
    missing = [
        field.required(f"status.{name}", f"must be present and {rule}")
        for name, rule in (
            ("notBefore", "consistent with the issued certificate"),
            ("notAfter", "consistent with the issued certificate"),
            ("beginRefreshAt", "in the range [notbefore+10min, notafter-10min]"),
        )
        if not status.get(name)
    ]
    if strange or missing:
        return strange + missing
    begin, end, refresh = (_time(status[name]) for name in ("notBefore", "notAfter", "beginRefreshAt"))
    if begin != leaf.not_valid_before_utc:
        return refuse("must be set to the NotBefore time encoded in the leaf certificate", "status.notBefore", status["notBefore"])
    if ctx.now and abs(begin - _time(ctx.now)) >= CLOCK_SKEW:
        return refuse("must be set to within 5 minutes of kube-apiserver's current time", "status.notBefore", status["notBefore"])
    if end != leaf.not_valid_after_utc:
        return refuse("must be set to the NotAfter time encoded in the leaf certificate", "status.notAfter", status["notAfter"])
    lifetime = int((end - begin).total_seconds())
    shown = lifetime * 10**9  # a time.Duration is an integer to JSON
    if lifetime < MIN_EXPIRATION_S:
        return refuse("leaf certificate lifetime must be >= 1 hour", CHAIN_PATH, shown)
    most = spec.get("maxExpirationSeconds") or 0
    if lifetime > most:
        return refuse(f"leaf certificate lifetime must be <= spec.maxExpirationSeconds ({most})", CHAIN_PATH, shown)
    if refresh < begin + REFRESH_MARGIN:
        return refuse("must be at least 10 minutes after status.notBefore", "status.beginRefreshAt", status["beginRefreshAt"])
    if refresh > end - REFRESH_MARGIN:
        return refuse("must be at least 10 minutes before status.notAfter", "status.beginRefreshAt", status["beginRefreshAt"])
    for block in blocks[1:]:
        if block.kind != "CERTIFICATE":
            return refuse("issued certificate chain must consist entirely of CERTFICATE PEM blocks")
        try:
            x509.load_der_x509_certificate(block.der)
        except unreadable():
            return refuse("intermediate certificate does not parse as valid X.509")
    return []


def _invalid_names(leaf: Any) -> list[FieldError]:
    """Names in the certificate that are none: DNS names with an empty label, addresses that no mail goes to."""
    from cryptography import x509

    try:
        found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    errs: list[FieldError] = []
    for name in found.get_values_for_type(x509.DNSName):
        if not name:
            errs.append(field.invalid(CHAIN_PATH, name, "leaf certificate should not contain empty DNSName"))
        if ".." in name:
            errs.append(field.invalid(CHAIN_PATH, name, "leaf certificate's DNSName should not contain '..'"))
        if name.startswith(".") or name.endswith("."):
            errs.append(field.invalid(CHAIN_PATH, name, "leaf certificate's DNSName should not start or end with '.'"))
    for address in found.get_values_for_type(x509.RFC822Name):
        if not is_address(address):
            errs.append(field.invalid(CHAIN_PATH, address, "leaf certificate should not contain invalid EmailAddress"))
    return errs


@printer("certificates.k8s.io", "PodCertificateRequest")
def pod_certificate_request_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, pod, service account, node, signer, state, annotations for the signer."""
    spec, state = part(obj, "spec"), "Pending"
    for c in part(obj, "status").get("conditions") or ():
        if c.get("type") in ("Issued", "Denied", "Failed"):
            state = c["type"]
    return [
        obj["metadata"].get("name", ""), spec.get("podName", ""), spec.get("serviceAccountName", ""), spec.get("nodeName", ""),
        spec.get("signerName", ""), state, labels(spec.get("unverifiedUserAnnotations")),
    ]  # fmt: skip

"""Strategy of PodCertificateRequest (upstream ``pkg/registry/certificates/podcertificaterequest``)."""

from __future__ import annotations

import datetime
from typing import Any

from kas.kinds.certificates.pem import decode_bytes
from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.kinds.core.signers import signer_name, user_annotations
from kas.meta import field, names
from kas.meta.checks import conditions, dns_subdomain, immutable, unsupported
from kas.meta.equality import semantic_equal
from kas.meta.field import OMIT_VALUE, FieldError
from kas.meta.pem import pem_blocks
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
KEY_PATH, PROOF_PATH, CHAIN_PATH = "spec.pkixPublicKey", "spec.proofOfPossession", "status.certificateChain"
CLOCK_SKEW = datetime.timedelta(minutes=5)
REFRESH_MARGIN = datetime.timedelta(minutes=10)


@strategy_for("certificates.k8s.io", "podcertificaterequests")
class PodCertificateRequestStrategy(Strategy):
    """Requests whose spec is fixed and whose status is decided once."""

    def prepare_for_create(self, ctx: Context, obj: Obj) -> None:
        """Drop the status: a request begins undecided."""
        super().prepare_for_create(ctx, obj)
        obj.pop("status", None)

    def prepare_for_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Carry over the status."""
        super().prepare_for_update(ctx, obj, old)
        self.carry_over(obj, old, ("status",))

    def prepare_for_status_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Carry over metadata and spec."""
        self.carry_over(obj, old, ("metadata", "spec"))

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
            if len(value) > MAX_UID:
                errs.append(field.too_long(f"spec.{uid}", MAX_UID))
        seconds = spec.get("maxExpirationSeconds")
        if seconds is None:
            return [*errs, field.required("spec.maxExpirationSeconds", "must be set")]
        domain = signer.partition("/")[0]
        is_kubernetes = domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
        most = KUBERNETES_MAX_EXPIRATION_S if is_kubernetes else MAX_EXPIRATION_S
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
        """``ValidatePodCertificateRequestStatusUpdate``: one step to issued, denied or failed, nothing after it; the chain fits the spec.
        """
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
    """The key is of a permitted kind and signed the pod's UID, so the requester holds its private half."""
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

    if spec.get("stubPKCS10Request") and not spec.get("pkixPublicKey"):
        return []
    key_bytes, proof = decode_bytes(spec.get("pkixPublicKey")), decode_bytes(spec.get("proofOfPossession"))
    for path, value in ((KEY_PATH, key_bytes), (PROOF_PATH, proof)):
        if len(value) > MAX_BYTES:
            return [field.too_long(path, MAX_BYTES)]
    try:
        key = serialization.load_der_public_key(key_bytes)
    except (ValueError, UnsupportedAlgorithm):
        return [field.invalid(KEY_PATH, spec.get("pkixPublicKey"), "must be a valid PKIX-serialized public key")]
    message = (spec.get("podUID") or "").encode()
    try:
        if isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(proof, message)
        elif isinstance(key, ec.EllipticCurvePublicKey):
            if key.curve.name not in ("secp256r1", "secp384r1", "secp521r1"):
                curve = f"curve P-{key.curve.key_size}"
                return [field.invalid(KEY_PATH, curve, "elliptic public keys must use curve P256 or P384")]
            key.verify(proof, message, ec.ECDSA(hashes.SHA256()))
        elif isinstance(key, rsa.RSAPublicKey):
            if key.key_size not in (3072, 4096):
                return [field.invalid(KEY_PATH, f"{key.key_size}-bit modulus", "RSA keys must have modulus size 3072 or 4096")]
            key.verify(proof, message, padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.AUTO), hashes.SHA256())
        else:
            text = "unknown public key type; supported types are Ed25519, ECDSA, and RSA"
            return [field.invalid(KEY_PATH, spec.get("pkixPublicKey"), text)]
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

    certificates = []
    for i, block in enumerate(pem_blocks(chain.encode())):
        if block.kind != "CERTIFICATE":
            return refuse("issued certificate chain must consist entirely of CERTIFICATE PEM blocks")
        try:
            certificates.append(x509.load_der_x509_certificate(block.der))
        except ValueError:
            return refuse(f"{'intermediate' if i else 'leaf'} certificate does not parse as valid X.509")
    if not certificates:
        return refuse("issued certificate chain must contain at least one certificate")
    leaf = certificates[0]
    der = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    wanted = decode_bytes(spec.get("pkixPublicKey"))
    if wanted and leaf.public_key().public_bytes(*der) != wanted:
        return refuse("leaf certificate was not issued to the requested public key")
    missing = [
        field.required(f"status.{name}", f"must be present and {rule}")
        for name, rule in (
            ("notBefore", "consistent with the issued certificate"),
            ("notAfter", "consistent with the issued certificate"),
            ("beginRefreshAt", "in the range [notbefore+10min, notafter-10min]"),
        )
        if not status.get(name)
    ]
    if missing:
        return missing
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
    return []


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

"""Strategy of CertificateSigningRequest and its /approval and /status (upstream ``pkg/registry/certificates/certificates``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kas.kinds.certificates.decisions import kept_conditions, stamp_transitions
from kas.kinds.certificates.pem import certificate_problem, decode_bytes, request_problem
from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.kinds.core.signers import signer_name
from kas.meta import field
from kas.meta.age import age, human_duration
from kas.meta.checks import unsupported
from kas.meta.equality import semantic_equal
from kas.meta.field import FieldError, go_quote
from kas.registry.printing.cells import NONE, part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.gostruct import diff, render_list
from kas.types.scheme import builtin_field

LEGACY_SIGNER = "kubernetes.io/legacy-unknown"
MIN_EXPIRATION_S = 600
APPROVAL_TYPES = ("Approved", "Denied")
TRUE_ONLY_TYPES = ("Approved", "Denied", "Failed")
USAGES = (
    "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment", "decipher only",
    "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel", "ipsec user", "key agreement",
    "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime", "server auth", "signing", "timestamping",
)  # fmt: skip


@dataclass(slots=True)
class _Options:
    """What this write may change, and which errors of the stored object are tolerated."""

    set_approval: bool = False
    set_certificate: bool = False
    both_approved_and_denied: bool = False
    legacy_signer: bool = False
    duplicate_types: bool = False
    empty_type: bool = False
    any_certificate: bool = False
    unknown_usages: bool = False
    duplicate_usages: bool = False


def any_name(name: str, prefix: bool) -> list[str]:
    """A name check: a CSR's name may be any path segment."""
    return []


@strategy_for("certificates.k8s.io", "certificatesigningrequests")
class CertificateSigningRequestStrategy(Strategy):
    """CertificateSigningRequests; spec, approval and certificate are written by three parties, each through its own endpoint."""

    costly = True  # parses certificates, and imports the parser

    def prepare_for_create(self, ctx: Context, obj: Obj) -> None:
        """Set the requester to the user of the request, whatever the body says; drop any approval."""
        super().prepare_for_create(ctx, obj)
        spec = obj.setdefault("spec", {})
        for name in ("username", "uid", "groups", "extra"):
            spec.pop(name, None)
            if ctx.user.get(name):
                spec[name] = ctx.user[name]

    def prepare_for_status_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Keep the spec and stored Approved and Denied conditions; stamp new conditions."""
        self.carry_over(obj, old, ("spec",))
        _stamp(ctx, obj, old, kept_conditions(_conditions(obj), _conditions(old), APPROVAL_TYPES))

    def prepare_for_approval_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Carry over the spec and the certificate, and fill in missing times of the conditions."""
        self.carry_over(obj, old, ("spec", "status.certificate"))
        _stamp(ctx, obj, old, [dict(c) for c in _conditions(obj)])

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateCertificateSigningRequestCreate``."""
        return _validate(obj, _options(obj, None))

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateCertificateSigningRequestUpdate``: approvals and the certificate may not change; stored errors are tolerated."""
        return _validate_update(obj, old, _options(obj, old))

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateCertificateSigningRequestStatusUpdate``: the certificate may be set, an approval or a denial may not."""
        options = _options(obj, old)
        options.set_certificate = True
        return _validate_update(obj, old, options)

    def validate_approval_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateCertificateSigningRequestApprovalUpdate``: an approval or a denial may be added."""
        options = _options(obj, old)
        options.set_approval = True
        return _validate_update(obj, old, options)


def _conditions(obj: Obj) -> list[dict[str, Any]]:
    return (obj.get("status") or {}).get("conditions") or []


def _stamp(ctx: Context, obj: Obj, old: Obj, conditions: list[dict[str, Any]]) -> None:
    """Set missing lastUpdateTime to now, and missing lastTransitionTime to the stored one of the same state or now."""
    if not conditions:
        return
    for condition in conditions:
        if not condition.get("lastUpdateTime"):
            condition["lastUpdateTime"] = ctx.now
    stamp_transitions(conditions, _conditions(old), ctx.now)
    obj["status"] = {**(obj.get("status") or {}), "conditions": conditions}


def _options(obj: Obj, old: Obj | None) -> _Options:
    if old is None:
        return _Options()
    types = [c.get("type") or "" for c in _conditions(old)]
    usages = (old.get("spec") or {}).get("usages") or []
    new_certificate, old_certificate = ((o.get("status") or {}).get("certificate") or "" for o in (obj, old))
    return _Options(
        both_approved_and_denied={"Approved", "Denied"} <= set(types),
        legacy_signer=(old.get("spec") or {}).get("signerName") == LEGACY_SIGNER,
        duplicate_types=len(set(types)) < len(types),
        empty_type="" in types,
        any_certificate=new_certificate == old_certificate or bool(certificate_problem(decode_bytes(old_certificate))),
        unknown_usages=any(usage not in USAGES for usage in usages),
        duplicate_usages=len(set(usages)) < len(usages),
    )


def _validate(obj: Obj, options: _Options) -> list[FieldError]:
    errs = object_meta(obj["metadata"], False, any_name)
    spec = obj.get("spec") or {}
    problem = request_problem(decode_bytes(spec.get("request")))
    if problem:
        errs.append(field.invalid("spec.request", spec.get("request"), problem))
    usages = spec.get("usages") or []
    if not usages:
        errs.append(field.required("spec.usages"))
    if not options.unknown_usages:
        errs += [unsupported(field.index("spec.usages", i), usage, USAGES) for i, usage in enumerate(usages) if usage not in USAGES]
    if not options.duplicate_usages:
        seen: set[str] = set()
        for i, usage in enumerate(usages):
            if usage in seen:
                errs.append(field.duplicate(field.index("spec.usages", i), usage))
            seen.add(usage)
    signer = spec.get("signerName") or ""
    if signer == LEGACY_SIGNER and not options.legacy_signer:
        errs.append(field.invalid("spec.signerName", signer, "the legacy signerName is not allowed via this API version"))
    else:
        errs += signer_name(signer, "spec.signerName")
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < MIN_EXPIRATION_S:
        text = f"may not specify a duration less than {MIN_EXPIRATION_S} seconds (10 minutes)"
        errs.append(field.invalid("spec.expirationSeconds", seconds, text))
    errs += _validate_conditions(_conditions(obj), options)
    if not options.any_certificate:
        problem = certificate_problem(decode_bytes((obj.get("status") or {}).get("certificate")))
        if problem:
            errs.append(field.invalid("status.certificate", "<certificate data>", problem))
    return errs


def _validate_conditions(conditions: list[dict[str, Any]], options: _Options) -> list[FieldError]:
    errs: list[FieldError] = []
    seen: set[str] = set()
    for i, condition in enumerate(conditions):
        path = field.index("status.conditions", i)
        kind, status, at = condition.get("type") or "", condition.get("status") or "", field.child(path, "type")
        if not kind and not options.empty_type:
            errs.append(field.required(at))
        allowed = ("True",) if kind in TRUE_ONLY_TYPES else ("False", "True", "Unknown")
        if not status:
            errs.append(field.required(field.child(path, "status")))
        elif status not in allowed:
            errs.append(unsupported(field.child(path, "status"), status, allowed))
        opposite = {"Approved": "Denied", "Denied": "Approved"}.get(kind)
        if opposite in seen and not options.both_approved_and_denied:
            errs.append(field.invalid("status.conditions", kind, "Approved and Denied conditions are mutually exclusive"))
        if kind in seen and not options.duplicate_types:
            errs.append(field.duplicate(at, kind))
        seen.add(kind)
    return errs


def _validate_update(obj: Obj, old: Obj, options: _Options) -> list[FieldError]:
    errs = _validate(obj, options)
    path = "status.conditions"
    now, then = ({k: [c for c in _conditions(o) if c.get("type") == k] for k in TRUE_ONLY_TYPES} for o in (obj, old))
    for kind in TRUE_ONLY_TYPES:
        if len(now[kind]) < len(then[kind]):
            errs.append(field.forbidden(path, f"updates may not remove a condition of type {go_quote(kind)}"))
    if not options.set_approval:
        for kind in APPROVAL_TYPES:
            if len(now[kind]) > len(then[kind]):
                errs.append(field.forbidden(path, f"updates may not add a condition of type {go_quote(kind)}"))
            elif len(now[kind]) == len(then[kind]) and not semantic_equal(
                now[kind], then[kind], builtin_field("certificates.v1.CertificateSigningRequestStatus", "conditions")
            ):
                was, becomes = (render_list("certificates.CertificateSigningRequestCondition", side[kind]) for side in (then, now))
                text = f"updates may not modify a condition of type {go_quote(kind)}\n{diff(was, becomes)}"
                errs.append(field.forbidden(path, text))
    new_certificate, old_certificate = ((o.get("status") or {}).get("certificate") or "" for o in (obj, old))
    if new_certificate != old_certificate:
        if not options.set_certificate:
            errs.append(field.forbidden("status.certificate", "updates may not set certificate content"))
        elif old_certificate:
            errs.append(field.forbidden("status.certificate", "updates may not modify existing certificate content"))
    return errs + object_meta_update(obj["metadata"], old["metadata"])


@printer("certificates.k8s.io", "CertificateSigningRequest")
def certificate_signing_request_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, age, signer, requestor, requested duration, state."""
    spec, status = part(obj, "spec"), part(obj, "status")
    types = {c.get("type") for c in status.get("conditions") or ()}
    state = "Denied" if "Denied" in types else "Approved" if "Approved" in types else "Pending"
    state += (",Failed" if "Failed" in types else "") + (",Issued" if status.get("certificate") else "")
    seconds = spec.get("expirationSeconds")
    return [
        obj["metadata"].get("name", ""), age(obj, now), spec.get("signerName") or NONE, spec.get("username", ""),
        NONE if seconds is None else human_duration(seconds), state,
    ]  # fmt: skip

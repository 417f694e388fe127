"""POST serviceaccounts/NAME/token: a signed token for a service account, optionally bound to the lifetime of an object.

``pkg/registry/core/serviceaccount/storage/token.go`` and ``pkg/apis/authentication/validation``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kas.auth.authn.jwttokens import Getter
from kas.auth.tokens import EXTENDED_EXPIRATION_S, WARN_AFTER_S, Signer, SignerError, bound_claims
from kas.config import features
from kas.meta import errors, field
from kas.meta.field import FieldError, go_quote
from kas.meta.offload import POOL
from kas.meta.scalars import format_time, parse_time
from kas.meta.waiting import awaited, eager
from kas.registry.generic import check_name
from kas.registry.strategy import Context, Obj

if TYPE_CHECKING:
    from kas.auth.externaljwt import ExternalSigner

GROUP = "authentication.k8s.io"
MISMATCH = "authentication.k8s.io/token-request-uid-mismatch"
Annotate = Callable[[str, str], object]
MIN_EXPIRATION_S = 600
MAX_EXPIRATION_S = 1 << 32


@dataclass(slots=True, frozen=True)
class Issuer:
    """Settings for issuing tokens.

    ``audiences`` are the API server's; ``max_expiration_s`` 0 is no limit (``--service-account-max-token-expiration``);
    ``extend_expiration`` makes a pod's default token valid for a year, until all clients reload their tokens.
    """

    signer: Signer | ExternalSigner
    audiences: Sequence[str]
    max_expiration_s: int = 0
    extend_expiration: bool = True
    extended_s: int = EXTENDED_EXPIRATION_S


@eager
async def create(
    ctx: Context, name: str, obj: Obj, issuer: Issuer, get: Getter, large: bool = False, annotate: Annotate = lambda key, value: None
) -> tuple[Obj, list[str]]:
    """Return (response, warnings).

    ``obj`` is the decoded, defaulted TokenRequest and ``name`` the service account's; a ``large`` one is signed in a thread. ``annotate``
    gets the audit annotations.

    Raises ApiError: 404 if the account or the bound object does not exist, 409 if it is not the expected one, 422, 400.
    """
    if not ctx.namespace:
        raise errors.bad_request("namespace is required")
    meta = dict(obj.get("metadata") or {})
    for key, own in (("name", name), ("namespace", ctx.namespace)):
        if meta.get(key) and meta[key] != own:
            why = f"must match the service account {key} if specified"
            raise errors.invalid(GROUP, "TokenRequest", name, [field.invalid(f"metadata.{key}", meta[key], why)])
    account = get("serviceaccounts", ctx.namespace, name)
    if account is None:
        raise errors.not_found("", "serviceaccounts", name)
    warnings = []
    own_uid = account["metadata"].get("uid", "")
    uid = meta.get("uid") or own_uid
    if uid != own_uid:
        why = f"the UID in the token request ({uid}) does not match the UID of the service account ({own_uid})"
        if features.DEFAULT.enabled("TokenRequestServiceAccountUIDValidation"):
            raise errors.conflict(GROUP, "TokenRequest", name, why)
        annotate(MISMATCH, why)
        gate = "TokenRequestServiceAccountUIDValidation is not enabled"
        warnings.append(f"{why} but {gate}. In the future, this will return a conflict error")
    spec = dict(obj.get("spec") or {})
    spec["audiences"] = list(spec.get("audiences") or issuer.audiences)
    errs = _validate(spec)
    if errs:
        raise errors.invalid(GROUP, "TokenRequest", "", errs)

    bound = _bound(ctx.namespace, name, spec.get("boundObjectRef"), get)
    expiration = spec["expirationSeconds"]
    if 0 < issuer.max_expiration_s < expiration:
        warnings.append(f"requested expiration of {expiration} seconds shortened to {issuer.max_expiration_s} seconds")
        expiration = spec["expirationSeconds"] = issuer.max_expiration_s
    lifetime, warn_after = expiration, 0
    if issuer.extend_expiration and "pod" in bound and expiration == WARN_AFTER_S and set(spec["audiences"]) <= set(issuer.audiences):
        lifetime, warn_after = issuer.extended_s, expiration

    now = parse_time(ctx.now)[0]
    claims = bound_claims(
        issuer.signer.issuer,
        account,
        spec["audiences"],
        now,
        lifetime,
        bound.get("pod"),
        bound.get("secret"),
        bound.get("node"),
        warn_after,
    )
    head = {"name": name, "namespace": ctx.namespace, "uid": uid, "creationTimestamp": ctx.now}
    try:
        signed = POOL.run(issuer.signer.sign, claims) if large and isinstance(issuer.signer, Signer) else issuer.signer.sign(claims)
        token = await awaited(signed)
    except SignerError as e:
        raise errors.internal(f"failed to generate token: {e}") from None
    status = {"token": token, "expirationTimestamp": format_time(now + expiration)}
    answer = {
        "kind": "TokenRequest",
        "apiVersion": f"{GROUP}/v1",
        "metadata": {**head, **{k: v for k, v in meta.items() if k not in head}},
        "spec": {"audiences": spec["audiences"], "expirationSeconds": expiration, "boundObjectRef": spec.get("boundObjectRef")},
        "status": status,
    }
    return answer, warnings


def _validate(spec: dict[str, Any]) -> list[FieldError]:
    seconds = spec.get("expirationSeconds") or 0
    if seconds < MIN_EXPIRATION_S:
        return [field.invalid("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")]
    if seconds > MAX_EXPIRATION_S:
        return [field.invalid("spec.expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds")]
    return []


def _bound(namespace: str, account: str, ref: dict[str, Any] | None, get: Getter) -> dict[str, Obj]:
    """Return the objects to which the token is bound, by the claim that names them; a pod adds its node."""
    if ref is None:
        return {}
    kind, name = ref.get("kind") or "", ref.get("name") or ""
    group, _, version = (ref.get("apiVersion") or "").rpartition("/")
    if "/" in group:
        # With more than one slash it is not a group version.
        group = version = ""
    if group or kind not in ("Pod", "Node", "Secret"):
        raise errors.bad_request(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
    check_name(name)
    resource = kind.lower() + "s"
    obj = get(resource, "" if kind == "Node" else namespace, name)
    if obj is None:
        raise errors.not_found("", resource, name)
    out = {kind.lower(): obj}
    if kind == "Pod":
        spec = obj.get("spec") or {}
        if spec.get("serviceAccountName") != account:
            why = f"cannot bind token for serviceaccount {go_quote(account)} to pod running with different serviceaccount name."
            raise errors.bad_request(why)
        node = spec.get("nodeName")
        if node:
            # A deleted node is still named, but without its uid.
            out["node"] = get("nodes", "", node) or {"metadata": {"name": node}}
    uid = ref.get("uid") or ""
    if uid and uid != obj["metadata"].get("uid"):
        why = (
            f"the UID in the bound object reference ({uid}) does not match the UID in record. "
            "The object might have been deleted and then recreated"
        )
        raise errors.conflict("", kind, name, why)
    return out

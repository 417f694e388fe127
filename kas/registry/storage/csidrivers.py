"""Strategy of CSIDriver (upstream ``pkg/registry/storage/csidriver``)."""

from __future__ import annotations

from typing import Any

from kas.api import field
from kas.api.equality import semantic_equal
from kas.api.field import FieldError
from kas.api.validation import names
from kas.api.validation.checks import immutable, unsupported
from kas.api.validation.coremeta import object_meta, object_meta_update
from kas.registry.strategy import Context, Obj, Strategy, strategy_for

FS_GROUP_POLICIES = ("File", "None", "ReadWriteOnceWithFSType")
LIFECYCLE_MODES = ("Persistent", "Ephemeral")
MIN_TOKEN_S = 600
MAX_TOKEN_S = 1 << 32
MIN_ALLOCATABLE_PERIOD_S = 10
TOKENS_IN_ATTRIBUTES = (
    "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver,"
    " set to true to prevent possible logging of tokens in volume attributes"
)


@strategy_for("storage.k8s.io", "csidrivers")
class CSIDriverStrategy(Strategy):
    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        errs = object_meta(obj["metadata"], False, names.dns_subdomain)
        return errs + _spec(obj.get("spec") or {})

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        new, before = obj.get("spec") or {}, old.get("spec") or {}
        errs = object_meta_update(obj["metadata"], old["metadata"]) + _spec(new)
        # upstream misspells the path of attachRequired
        errs += immutable(new.get("attachRequired"), before.get("attachRequired"), "spec.attachedRequired")
        errs += immutable(new.get("volumeLifecycleModes"), before.get("volumeLifecycleModes"), "spec.volumeLifecycleModes")
        return errs

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        spec = obj.get("spec") or {}
        undecided = spec.get("tokenRequests") and spec.get("serviceAccountTokenInSecrets") is None
        return [TOKENS_IN_ATTRIBUTES] if undecided else []

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        new, before = ((one.get("spec") or {}).get("tokenRequests") for one in (obj, old))
        return [] if semantic_equal(new, before) else self.warnings_on_create(ctx, obj)


def _spec(spec: dict[str, Any]) -> list[FieldError]:
    errs: list[FieldError] = []
    for name in ("attachRequired", "podInfoOnMount", "storageCapacity"):
        if spec.get(name) is None:
            errs.append(field.required(f"spec.{'attachedRequired' if name == 'attachRequired' else name}"))
    policy = spec.get("fsGroupPolicy")
    if policy is not None and policy not in FS_GROUP_POLICIES:
        errs.append(unsupported("spec.fsGroupPolicy", policy, FS_GROUP_POLICIES))
    errs += _token_requests(spec.get("tokenRequests"), "spec.tokenRequests")
    errs += [
        unsupported("spec.volumeLifecycleModes", mode, LIFECYCLE_MODES)
        for mode in spec.get("volumeLifecycleModes") or ()
        if mode not in LIFECYCLE_MODES
    ]
    if spec.get("seLinuxMount") is None:
        errs.append(field.required("spec.seLinuxMount"))
    period = spec.get("nodeAllocatableUpdatePeriodSeconds")
    if period is not None and period < MIN_ALLOCATABLE_PERIOD_S:
        text = f"must be greater than or equal to {MIN_ALLOCATABLE_PERIOD_S} seconds"
        errs.append(field.invalid("spec.nodeAllocatableUpdatePeriodSeconds", period, text))
    in_secrets = spec.get("serviceAccountTokenInSecrets")
    if in_secrets is not None and not spec.get("tokenRequests"):
        text = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
        errs.append(field.invalid("spec.serviceAccountTokenInSecrets", in_secrets, text))
    return errs


def _token_requests(requests: list[dict[str, Any]] | None, path: str) -> list[FieldError]:
    """Audiences are distinct; an empty one is an audience too."""
    errs: list[FieldError] = []
    audiences: set[str] = set()
    for i, request in enumerate(requests or ()):
        at = field.index(path, i)
        audience = request.get("audience") or ""
        if audience in audiences:
            errs.append(field.duplicate(field.child(at, "audience"), audience))
            continue
        audiences.add(audience)
        seconds = request.get("expirationSeconds")
        if seconds is None:
            continue
        here = field.child(at, "expirationSeconds")
        if seconds < MIN_TOKEN_S:
            errs.append(field.invalid(here, seconds, "may not specify a duration less than 10 minutes"))
        if seconds > MAX_TOKEN_S:
            errs.append(field.invalid(here, seconds, "may not specify a duration larger than 2^32 seconds"))
    return errs

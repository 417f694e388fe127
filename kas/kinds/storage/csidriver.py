"""Strategy of CSIDriver (upstream ``pkg/registry/storage/csidriver``)."""

from __future__ import annotations

from typing import Any

from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import immutable, unsupported
from kas.meta.equality import semantic_equal
from kas.meta.field import FieldError
from kas.registry.printing.cells import NONE, UNSET, part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.defaults import defaults_for
from kas.types.scheme import builtin_field

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
    """CSIDrivers; the driver's capabilities are immutable, how it is used is not."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateCSIDriver``."""
        errs = object_meta(obj["metadata"], False, names.dns_subdomain)
        return errs + _spec(obj.get("spec") or {})

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateCSIDriverUpdate``: attachRequired and the lifecycle modes may not change."""
        new, before = obj.get("spec") or {}, old.get("spec") or {}
        errs = object_meta_update(obj["metadata"], old["metadata"]) + _spec(new)
        # upstream misspells the path of attachRequired
        errs += immutable(new.get("attachRequired"), before.get("attachRequired"), "spec.attachedRequired")
        name = "volumeLifecycleModes"
        errs += immutable(new.get(name), before.get(name), f"spec.{name}", None, builtin_field("storage.v1.CSIDriverSpec", name))
        return errs

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """Return a warning if tokens are requested without saying how they are passed."""
        spec = obj.get("spec") or {}
        undecided = spec.get("tokenRequests") and spec.get("serviceAccountTokenInSecrets") is None
        return [TOKENS_IN_ATTRIBUTES] if undecided else []

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """Return the warnings that creating the new object would give, if the requested tokens change."""
        new, before = ((one.get("spec") or {}).get("tokenRequests") for one in (obj, old))
        of = builtin_field("storage.v1.CSIDriverSpec", "tokenRequests")
        return [] if semantic_equal(new, before, of) else self.warnings_on_create(ctx, obj)


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
    """Check that audiences are distinct; an empty one counts as an audience."""
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


@defaults_for("storage.k8s.io", "v1", "CSIDriver")
def default_csi_driver(obj: dict[str, Any]) -> None:
    """Apply computed defaults: lifecycle mode Persistent, and seLinuxMount false."""
    spec = obj.setdefault("spec", {})
    if not spec.get("volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = ["Persistent"]
    if spec.get("seLinuxMount") is None:  # gate SELinuxMountReadWriteOncePod, on by default
        spec["seLinuxMount"] = False


@printer("storage.k8s.io", "CSIDriver")
def csi_driver_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, attach required, pod info, storage capacity, token audiences, republish, modes, age."""
    spec = part(obj, "spec")
    requests = spec.get("tokenRequests")
    return [
        obj["metadata"].get("name", ""), spec.get("attachRequired", True), spec.get("podInfoOnMount", False),
        spec.get("storageCapacity", False), UNSET if requests is None else ",".join(r.get("audience", "") for r in requests),
        spec.get("requiresRepublish", False), ",".join(spec.get("volumeLifecycleModes") or ()) or NONE, age(obj, now),
    ]  # fmt: skip

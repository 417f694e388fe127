"""Strategies of Lease and LeaseCandidate (upstream ``pkg/registry/coordination``)."""

from __future__ import annotations

import re
from typing import Any

from kas import checks
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import immutable, qualified_name, unsupported
from kas.meta.field import FieldError
from kas.meta.objectmeta import validate_object_meta, validate_object_meta_update
from kas.registry.printing.cells import part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.checktables import ANY, Checked

OLDEST_EMULATION = "OldestEmulationVersion"
STRATEGIES = (OLDEST_EMULATION,)
MAX_NUMBER, MAX_DIGITS = (1 << 64) - 1, 20  # of a version
# (numbers, whether it is a release, pre-release identifiers), in comparable form.
Version = tuple[tuple[tuple[int, str], ...], bool, tuple[tuple[int, int, str], ...]]
_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)


CHECK = Checked(
    "coordination.v1.LeaseSpec",
    {
        "holderIdentity": ANY, "acquireTime": ANY, "renewTime": ANY, "leaseDurationSeconds": checks.integer(1),
        "leaseTransitions": checks.integer(0),
    },
)  # fmt: skip


@strategy_for("coordination.k8s.io", "leases")
class LeaseStrategy(Strategy):
    """Leases; they have no status, so the holder updates the spec."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateLease``."""
        return validate_object_meta(obj["metadata"], True, names.dns_subdomain) + _lease_spec(obj.get("spec") or {})

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateLeaseUpdate``: the metadata's change and the whole of the new spec."""
        return validate_object_meta_update(obj["metadata"], old["metadata"]) + _lease_spec(obj.get("spec") or {})


@strategy_for("coordination.k8s.io", "leasecandidates")
class LeaseCandidateStrategy(Strategy):
    """Candidates for a Lease, whose lease name is immutable."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateLeaseCandidate``."""
        return validate_object_meta(obj["metadata"], True, candidate_name) + _candidate_spec(obj.get("spec") or {})

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateLeaseCandidateUpdate``: leaseName may not change."""
        new, before = obj.get("spec") or {}, old.get("spec") or {}
        errs = validate_object_meta_update(obj["metadata"], old["metadata"]) + _candidate_spec(new)
        return errs + immutable(new.get("leaseName") or "", before.get("leaseName") or "", "spec.leaseName")


def candidate_name(name: str, prefix: bool) -> list[str]:
    """Check a name by the rule of ConfigMap keys, which allows a trailing dash anyway."""
    return names.is_config_map_key(name)


def _lease_spec(spec: dict[str, Any]) -> list[FieldError]:
    if CHECK.passes(spec):
        return []
    errs: list[FieldError] = []
    duration, transitions, strategy = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions"), spec.get("strategy")
    if duration is not None and duration <= 0:
        errs.append(field.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        errs.append(field.invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    if strategy is not None:
        errs += _strategy(strategy, "spec.strategy")
    if spec.get("preferredHolder") and not strategy:
        errs.append(field.forbidden("spec.preferredHolder", "may only be specified if `strategy` is defined"))
    return errs


def _strategy(strategy: str, path: str) -> list[FieldError]:
    at = field.child(path, "strategy")  # upstream names the field twice
    if "/" in strategy:
        return qualified_name(strategy, at)
    return [] if strategy in STRATEGIES else [unsupported(at, strategy, STRATEGIES)]


def semantic_version(text: str) -> Version | None:
    """Return a comparable semantic version; None if invalid, as with a number of more than 64 bits. Build metadata is ignored."""
    match = _SEMVER.fullmatch(text)
    if match is None:
        return None
    *numbers, pre = match.groups()
    if any(n.isdigit() and (len(n) > MAX_DIGITS or int(n) > MAX_NUMBER) for n in (*numbers, *(pre or "").split("."))):
        return None
    identifiers = tuple((0, len(p), p) if p.isdigit() else (1, 0, p) for p in pre.split(".")) if pre else ()
    return tuple((len(n), n) for n in numbers), pre is None, identifiers


def _candidate_spec(spec: dict[str, Any]) -> list[FieldError]:
    errs: list[FieldError] = []
    emulation, binary, strategy = (spec.get(name) or "" for name in ("emulationVersion", "binaryVersion", "strategy"))
    if not spec.get("leaseName"):
        errs.append(field.required("spec.leaseName"))
    zero: Version = (((1, "0"),) * 3, True, ())
    emulated = (semantic_version(emulation) if emulation else None) or zero
    if emulation and semantic_version(emulation) is None:
        errs.append(field.invalid("spec.emulationVersion", emulation, "must be a valid semantic version"))
    actual = (semantic_version(binary) if binary else None) or zero
    if not binary:
        errs.append(field.required("spec.binaryVersion"))
    elif semantic_version(binary) is None:
        errs.append(field.invalid("spec.binaryVersion", binary, "must be a valid semantic version"))
    if binary and emulation and actual < emulated:
        errs.append(field.invalid("spec.binaryVersion", binary, "must be greater than or equal to `emulationVersion`"))
    if not strategy:
        return [*errs, field.required("spec.strategy")]
    if strategy == OLDEST_EMULATION and emulated == zero:
        errs.append(field.required("spec.emulationVersion", "must be specified when `strategy` is 'OldestEmulationVersion'"))
    return errs + _strategy(strategy, "spec.strategy")


@printer("coordination.k8s.io", "Lease")
def lease_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, holder, age."""
    return [obj["metadata"].get("name", ""), part(obj, "spec").get("holderIdentity") or "", age(obj, now)]


@printer("coordination.k8s.io", "LeaseCandidate")
def lease_candidate_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, lease, binary and emulation version, age."""
    spec = part(obj, "spec")
    found = [spec.get(key, "") for key in ("leaseName", "binaryVersion", "emulationVersion")]
    return [obj["metadata"].get("name", ""), *found, age(obj, now)]

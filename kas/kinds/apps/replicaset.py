"""ReplicaSets (upstream ``pkg/registry/apps/replicaset``, ``pkg/apis/apps/validation``)."""

from __future__ import annotations

from typing import Any

from kas.kinds.apps.defaults import default_template
from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.kinds.core.pod.options import DEFAULT, Options, options_for_template
from kas.kinds.core.workload.strategy import Workload
from kas.kinds.core.workload.validation import COUNT, SELECTED, at_most, counts, immutable_selector, selected_template, selector
from kas.meta import names
from kas.meta.age import age
from kas.meta.field import FieldError
from kas.registry.printing import cells
from kas.registry.printing.cells import containers, part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, strategy_for
from kas.types.checktables import Checked
from kas.types.defaults import defaults_for

CHECK = Checked("apps.v1.ReplicaSetSpec", {**SELECTED, "replicas": COUNT, "minReadySeconds": COUNT})


def _spec(spec: dict[str, Any], options: Options) -> list[FieldError]:
    if CHECK.passes(spec):
        return selected_template(spec, "spec", "", "ReplicaSet", options)
    errs = counts(spec, "spec", "replicas", "minReadySeconds")
    errs += selector(spec, "spec", "empty selector is invalid for deployment")
    return errs + selected_template(spec, "spec", "invalid label selector", "ReplicaSet", options)


@strategy_for("apps", "replicasets")
class ReplicaSetStrategy(Workload):
    """ReplicaSets: a Workload with an immutable selector."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateReplicaSet``."""
        return object_meta(obj["metadata"], True, names.dns_subdomain) + _spec(obj.get("spec") or {}, DEFAULT)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateReplicaSetUpdate``: the selector may not change, and errors that the stored pod template already has are tolerated."""
        spec, before = obj.get("spec") or {}, old.get("spec") or {}
        options = options_for_template(before.get("template"))
        errs = object_meta_update(obj["metadata"], old["metadata"]) + _spec(spec, options)
        return errs + immutable_selector(spec, before)

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateReplicaSetStatusUpdate``: no count is negative or above its total."""
        status = obj.get("status") or {}
        errs = object_meta_update(obj["metadata"], old["metadata"])
        errs += counts(
            status, "status", "replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "terminatingReplicas",
            "observedGeneration",
        )  # fmt: skip
        for key in ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"):
            errs += at_most(status, key, "replicas", "cannot be greater than status.replicas")
        return errs + at_most(status, "availableReplicas", "readyReplicas", "cannot be greater than readyReplicas")


@defaults_for("apps", "v1", "ReplicaSet")
def default_replica_set(obj: Obj) -> None:
    """Computed defaults of the pod template."""
    default_template(obj)


@printer("apps", "ReplicaSet")
def replica_set_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, wanted, present and ready replicas, age, containers, images, selector."""
    spec, status = part(obj, "spec"), part(obj, "status")
    return [
        obj["metadata"].get("name", ""), spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0),
        age(obj, now), *containers(part(spec, "template")), cells.selector(spec.get("selector")),
    ]  # fmt: skip

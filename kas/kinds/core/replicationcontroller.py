"""ReplicationControllers (upstream ``pkg/registry/core/replicationcontroller``, ``pkg/apis/core/validation``)."""

from __future__ import annotations

from typing import Any

from kas.kinds.core.objectmeta import object_meta_of_generated, object_meta_update
from kas.kinds.core.pod.defaults import pod_template
from kas.kinds.core.pod.options import DEFAULT, Options, options_for_template
from kas.kinds.core.pod.spec import template
from kas.kinds.core.workload.strategy import Workload
from kas.kinds.core.workload.validation import NO_MATCH, always_restarted, at_most, counts, template_labels
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.field import FieldError
from kas.registry.printing.cells import containers, labels, part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, strategy_for
from kas.types.defaults import defaults_for
from kas.types.gostruct import sorted_map

NON_CONVERTIBLE = "non-convertible.kubernetes.io"


def _spec(spec: dict[str, Any], options: Options) -> list[FieldError]:
    errs = counts(spec, "spec", "minReadySeconds")
    wanted = spec.get("selector") or {}
    if not wanted:
        errs.append(field.required("spec.selector"))
    errs += counts(spec, "spec", "replicas")
    if spec.get("template") is None:
        return [*errs, field.required("spec.template")]
    labels = template_labels(spec)
    if any((labels or {}).get(k) != v for k, v in wanted.items()):
        errs.append(field.invalid("spec.template.metadata.labels", sorted_map(labels), NO_MATCH))
    errs += template(spec["template"], "spec.template", options)
    return errs + always_restarted(spec, "spec", "ReplicationController")


def _not_convertible(obj: Obj, old: Obj) -> list[FieldError]:
    """Check annotations that name fields which a conversion could not represent; these fields must not change."""
    errs = []
    for key, value in (old["metadata"].get("annotations") or {}).items():
        broken = key.split("/")[1:]
        if not key.startswith(NON_CONVERTIBLE) or len(broken) != 1:
            continue
        if "selector" not in broken[0]:
            errs.append(FieldError(field.NOT_FOUND, broken[0], value, "unknown non-convertible field"))
            continue
        before, after = ((o.get("spec") or {}).get("selector") for o in (old, obj))
        if (before or None) != (after or None):
            errs.append(field.invalid("spec.selector", sorted_map(after), "cannot update non-convertible selector"))
    return errs


@strategy_for("", "replicationcontrollers")
class ReplicationControllerStrategy(Workload):
    """A Workload whose selector is a map of labels."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateReplicationController``; a generated name is validated, but not its generateName."""
        return object_meta_of_generated(obj["metadata"], True, names.dns_subdomain) + _spec(obj.get("spec") or {}, DEFAULT)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateReplicationControllerUpdate``, and that a selector marked as not convertible does not change."""
        options = options_for_template((old.get("spec") or {}).get("template"))
        errs = object_meta_update(obj["metadata"], old["metadata"])
        return errs + _spec(obj.get("spec") or {}, options) + _not_convertible(obj, old)

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateReplicationControllerStatusUpdate``: no count is negative or above its total."""
        status, above = obj.get("status") or {}, "cannot be greater than status.replicas"
        errs = object_meta_update(obj["metadata"], old["metadata"])
        keys = ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration")
        errs += counts(status, "status", *keys)
        for key in keys[1:4]:
            errs += at_most(status, key, "replicas", above)
        return errs + at_most(status, "availableReplicas", "readyReplicas", "cannot be greater than readyReplicas")

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """Return the warnings of the stored template, if the generation changed."""
        # Upstream swaps the two templates, so the warnings are about the old one.
        return super().warnings_on_update(ctx, old, obj)


@defaults_for("", "v1", "ReplicationController")
def default_replication_controller(obj: Obj) -> None:
    """Apply computed defaults: the pod template's, whose labels become selector and labels if those are empty."""
    spec = obj.setdefault("spec", {})
    template = spec.get("template")
    if template is None:
        return
    pod_template(template)
    labels = (template.get("metadata") or {}).get("labels")
    if labels:
        if not spec.get("selector"):
            spec["selector"] = dict(labels)
        meta = obj.setdefault("metadata", {})
        if not meta.get("labels"):
            meta["labels"] = dict(labels)


@printer("", "ReplicationController")
def replication_controller_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, wanted, present and ready replicas, age, containers, images, selector."""
    spec, status = part(obj, "spec"), part(obj, "status")
    return [
        obj["metadata"].get("name", ""), spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0),
        age(obj, now), *containers(part(spec, "template")), labels(spec.get("selector")),
    ]  # fmt: skip

"""Strategy of CSIStorageCapacity (upstream ``pkg/registry/storage/csistoragecapacity``)."""

from __future__ import annotations

from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.kinds.core.pod.warnings import DEPRECATED_NODE_LABELS
from kas.kinds.core.resources import nonnegative_quantity
from kas.meta import names
from kas.meta.checks import immutable, invalid_each
from kas.meta.field import FieldError
from kas.meta.labelselectors import label_selector
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.gostruct import render
from kas.types.scheme import builtin_field


@strategy_for("storage.k8s.io", "csistoragecapacities")
class CSIStorageCapacityStrategy(Strategy):
    """CSIStorageCapacities; the arguments of GetCapacity (topology, class) are immutable, its result is not."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateCSIStorageCapacity``."""
        return self._validate(obj, allow_invalid_values=False)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateCSIStorageCapacityUpdate``: topology and class may not change; errors of a stored selector are tolerated."""
        stored = old.get("nodeTopology")
        tolerated = stored is not None and bool(label_selector(stored, ""))
        errs = self._validate(obj, tolerated) + object_meta_update(obj["metadata"], old["metadata"])
        topology = obj.get("nodeTopology")
        shown = None if topology is None else render("meta.LabelSelector", topology)
        errs += immutable(topology, stored, "nodeTopology", shown, builtin_field("storage.v1.CSIStorageCapacity", "nodeTopology"))
        return errs + immutable(obj.get("storageClassName") or "", old.get("storageClassName") or "", "storageClassName")

    def _validate(self, obj: Obj, allow_invalid_values: bool) -> list[FieldError]:
        errs = object_meta(obj["metadata"], True, names.dns_subdomain)
        if obj.get("nodeTopology") is not None:
            errs += label_selector(obj["nodeTopology"], "nodeTopology", allow_invalid_values)
        name = obj.get("storageClassName") or ""
        errs += invalid_each("storageClassName", name, names.is_dns1123_subdomain(name))
        if obj.get("capacity") is not None:  # upstream does not validate maximumVolumeSize
            errs += nonnegative_quantity(obj["capacity"], "capacity")
        return errs

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """Return a warning for each deprecated node label in the topology."""
        return _warnings(obj)

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """Return the warnings that creating the new object would give."""
        return _warnings(obj)


def _warnings(obj: Obj) -> list[str]:
    """Return warnings about deprecated node labels in the topology's expressions and labels."""
    topology = obj.get("nodeTopology") or {}
    found = []
    for i, expression in enumerate(topology.get("matchExpressions") or ()):
        key = expression.get("key") or ""
        if key in DEPRECATED_NODE_LABELS:
            found.append(f"nodeTopology.matchExpressions[{i}].key: {key} is {DEPRECATED_NODE_LABELS[key]}")
    labels = sorted(topology.get("matchLabels") or ())
    return found + [f"nodeTopology.matchLabels.{key}: {DEPRECATED_NODE_LABELS[key]}" for key in labels if key in DEPRECATED_NODE_LABELS]

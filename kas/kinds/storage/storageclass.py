"""Strategy of StorageClass (upstream ``pkg/registry/storage/storageclass``)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.kinds.core.pod.warnings import DEPRECATED_NODE_LABELS
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import immutable, qualified_name, unsupported
from kas.meta.errors import MAX_CAUSES
from kas.meta.field import FieldError
from kas.registry.printing.cells import name_with_default
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.gostruct import sorted_map
from kas.types.scheme import builtin_field

MAX_PARAMETERS = 512
MAX_PARAMETERS_BYTES = 256 * 1024
RECLAIM_POLICIES = ("Delete", "Retain")
BINDING_MODES = ("Immediate", "WaitForFirstConsumer")


@strategy_for("storage.k8s.io", "storageclasses")
class StorageClassStrategy(Strategy):
    """StorageClasses; parameters, provisioner, reclaim policy and binding mode are immutable."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateStorageClass``."""
        errs = object_meta(obj["metadata"], False, names.dns_subdomain)
        provisioner = obj.get("provisioner") or ""
        errs += qualified_name(provisioner.lower(), "provisioner") if provisioner else [field.required("provisioner")]
        errs += parameters(obj.get("parameters"), allow_empty=True, path="parameters")
        policy = obj.get("reclaimPolicy")
        if policy and policy not in RECLAIM_POLICIES:
            errs.append(unsupported("reclaimPolicy", policy, RECLAIM_POLICIES))
        mode = obj.get("volumeBindingMode")
        if mode is None:
            errs.append(field.required("volumeBindingMode"))
        elif mode not in BINDING_MODES:
            errs.append(unsupported("volumeBindingMode", mode, BINDING_MODES))
        return errs + _allowed_topologies(obj.get("allowedTopologies"), "allowedTopologies")

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateStorageClassUpdate``: parameters, provisioner, reclaim policy and binding mode may not change."""
        errs = self.validate(ctx, obj) + object_meta_update(obj["metadata"], old["metadata"])
        for name in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"):
            shown = sorted_map(obj.get(name)) if name == "parameters" else obj.get(name)
            errs += immutable(obj.get(name), old.get(name), name, shown, builtin_field("storage.v1.StorageClass", name))
        return errs

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """Return a warning for each deprecated node label in the allowed topologies."""
        found = []
        for i, term in enumerate(obj.get("allowedTopologies") or ()):
            for j, expression in enumerate(term.get("matchLabelExpressions") or ()):
                key = expression.get("key") or ""
                if key in DEPRECATED_NODE_LABELS:
                    found.append(f"allowedTopologies[{i}].matchLabelExpressions[{j}].key: {DEPRECATED_NODE_LABELS[key]}")
        return found

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """Return the warnings that creating the new object would give."""
        return self.warnings_on_create(ctx, obj)


def parameters(params: dict[str, str] | None, allow_empty: bool, path: str) -> list[FieldError]:
    """Check that there are at most 512 entries and 256 KiB; without ``allow_empty`` at least one entry is required."""
    params = params or {}
    errs: list[FieldError] = []
    if len(params) > MAX_PARAMETERS:
        return [field.too_long(path, MAX_PARAMETERS)]
    if not params and not allow_empty:
        return [field.required(path, "must contain at least one key/value pair")]
    if "" in params:
        errs.append(field.invalid(path, "", "field can not be empty."))
    if sum(len(k.encode()) + len((v or "").encode()) for k, v in params.items()) > MAX_PARAMETERS_BYTES:
        errs.append(field.too_long(path, MAX_PARAMETERS_BYTES))
    return errs


def _allowed_topologies(terms: list[dict[str, Any]] | None, path: str) -> list[FieldError]:
    """Check that terms are unique. As upstream, a term is also compared with an empty term for each existing one."""
    errs: list[FieldError] = []
    terms = terms or []
    seen: Counter[frozenset[tuple[str, frozenset[str]]]] = Counter({frozenset(): len(terms)})
    for i, term in enumerate(terms):
        at = field.index(path, i)
        expressions: dict[str, frozenset[str]] = {}
        for j, expression in enumerate(term.get("matchLabelExpressions") or ()):
            here = field.index(field.child(at, "matchLabelExpressions"), j)
            errs += _topology_expression(expression, here)
            key = expression.get("key") or ""
            if key in expressions:
                errs.append(field.duplicate(field.child(here, "key"), key))
            expressions[key] = frozenset(expression.get("values") or ())
        same = frozenset(expressions.items())
        # One error per pair: n empty terms give a number quadratic in n, so it is limited to what is reported.
        errs += [field.duplicate(field.child(at, "matchLabelExpressions"), "")] * min(seen[same], max(1, MAX_CAUSES + 1 - len(errs)))
        seen[same] += 1
    return errs


def _topology_expression(expression: dict[str, Any], path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    values = expression.get("values") or []
    if not values:
        errs.append(field.required(field.child(path, "values")))
    seen: set[str] = set()
    for i, value in enumerate(values):
        if value in seen:
            errs.append(field.duplicate(field.index(field.child(path, "values"), i), value))
        seen.add(value)
    return errs + qualified_name(expression.get("key") or "", field.child(path, "key"))


@printer("storage.k8s.io", "StorageClass")
def storage_class_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, marked when it is the default, provisioner, reclaim policy, binding mode, expansion, age."""
    name = name_with_default(obj, "storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
    return [
        name, obj.get("provisioner", ""), obj.get("reclaimPolicy", "Delete"), obj.get("volumeBindingMode", "Immediate"),
        obj.get("allowVolumeExpansion", False), age(obj, now),
    ]  # fmt: skip

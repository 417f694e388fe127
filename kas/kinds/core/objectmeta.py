"""Validation of the built-in kinds' ObjectMeta: the generic rules and the check of legacy finalizer names.

Upstream: ``pkg/apis/core/validation`` ``ValidateObjectMeta`` and ``ValidateObjectMetaUpdate``, which wrap apimachinery's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kas.meta import field, names
from kas.meta import objectmeta as metadata
from kas.meta.field import FieldError

NameCheck = Callable[[str, bool], list[str]]
STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})


def object_meta(meta: dict[str, Any], namespaced: bool, name_check: NameCheck, path: str = "metadata") -> list[FieldError]:
    """``ValidateObjectMeta`` of core: apimachinery's, and finalizers must be Kubernetes' own or qualified."""
    errs = metadata.validate_object_meta(meta, namespaced, name_check, path)
    if meta.get("finalizers"):
        errs += _kube_finalizers(meta, path)
    return errs


def object_meta_of_generated(meta: dict[str, Any], namespaced: bool, name_check: NameCheck) -> list[FieldError]:
    """``ValidateObjectMetaWithOpts`` of core: as ``object_meta``, except that of a generated name the prefix is not validated."""
    return object_meta({key: value for key, value in meta.items() if key != "generateName"}, namespaced, name_check)


def object_meta_update(meta: dict[str, Any], old: dict[str, Any], path: str = "metadata", passed: bool = False) -> list[FieldError]:
    """``ValidateObjectMetaUpdate`` of core: apimachinery's, and finalizers must be Kubernetes' own or qualified. ``passed`` says that
    apimachinery's rules have been checked already and found nothing.
    """
    errs = [] if passed else metadata.validate_object_meta_update(meta, old, path)
    if meta.get("finalizers"):
        errs += _kube_finalizers(meta, path)
    return errs


def _kube_finalizers(meta: dict[str, Any], path: str) -> list[FieldError]:
    errs = []
    for i, name in enumerate(meta["finalizers"]):
        errs += kube_finalizer_name(name, f"{path}.finalizers[{i}]")
    return errs


def kube_finalizer_name(name: str, path: str) -> list[FieldError]:
    """``validateKubeFinalizerName``: a name without a slash must be one of Kubernetes' own."""
    if "/" not in name and name not in STANDARD_FINALIZERS:
        return [field.invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified")]
    return []


def finalizer_name(name: str, path: str) -> list[FieldError]:
    """``validateFinalizerName``: the qualified-name rule and the legacy one."""
    return [field.invalid(path, name, m) for m in names.is_qualified_name(name)] + kube_finalizer_name(name, path)

"""The fields of a custom resource that its Scale shows: apiextensions-apiserver ``pkg/registry/customresource/validator.go``, ``etcd.go``.

``scale`` is the subresource of the definition: paths such as ``.spec.replicas``, without list indices.
"""

from __future__ import annotations

from typing import Any

from kas.meta import field
from kas.meta.field import FieldError

Obj = dict[str, Any]
MAX_INT32 = 2**31 - 1
_TYPES: dict[type, str] = {
    int: "int64", str: "string", float: "float64", bool: "bool", list: "[]interface {}", dict: "map[string]interface {}",
    type(None): "<nil>",
}  # fmt: skip


class PathError(ValueError):
    """The value at a path has the wrong type."""


def steps(path: str) -> list[str]:
    """Split ``.spec.replicas`` into its names."""
    return path.removeprefix(".").split(".")


def value_at(obj: Obj, path: str, wanted: type) -> Any:
    """Return the value (an int or a str) at a path, None if absent. Raises PathError in the words of ``unstructured.Nested…``."""
    names = steps(path)
    value: Any = obj
    for i, name in enumerate(names):
        if not isinstance(value, dict):
            raise _error(names[: i + 1], value, "map[string]interface{}")
        if name not in value:
            return None
        value = value[name]
        if value is None and i + 1 < len(names):
            return None
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise _error(names, value, _TYPES[wanted])
    return value


def _error(names: list[str], value: Any, wanted: str) -> PathError:
    from kas.patch.strategicmerge import go_text  # rarely needed

    return PathError(f".{'.'.join(names)} accessor error: {go_text(value)} is of the type {_TYPES[type(value)]}, expected {wanted}")


def set_at(obj: Obj, path: str, value: Any) -> Obj:
    """Return a copy of ``obj`` with ``value`` at a path, creating maps on the way; shares the rest. Raises PathError for a non-map."""
    names = steps(path)
    out = inner = dict(obj)
    for i, name in enumerate(names[:-1]):
        below = inner.get(name, {})
        if not isinstance(below, dict):
            raise PathError(f"value cannot be set because .{'.'.join(names[:i + 1])} is not a map[string]interface{{}}")
        inner[name] = inner = dict(below)
    inner[names[-1]] = value
    return out


def errors(scale: Obj | None, obj: Obj, status: bool = False) -> list[FieldError]:
    """Return errors for values at the paths that a Scale cannot show; with ``status`` only for the paths in the status."""
    if scale is None:
        return []
    errs: list[FieldError] = []
    for key in ("statusReplicasPath",) if status else ("specReplicasPath", "statusReplicasPath"):
        errs += _replicas(scale[key], obj)
        selector = scale.get("labelSelectorPath")
        if key == "statusReplicasPath" and selector:
            try:
                value_at(obj, selector, str)
            except PathError as e:
                errs.append(field.invalid(selector, "", str(e)))
    return errs


def _replicas(path: str, obj: Obj) -> list[FieldError]:
    try:
        found = value_at(obj, path, int) or 0
    except PathError as e:
        return [field.invalid(path, 0, str(e))]
    if found < 0:
        return [field.invalid(path, found, "should be a non-negative integer")]
    if found > MAX_INT32:
        return [field.invalid(path, found, f"should be less than or equal to {MAX_INT32}")]
    return []

"""JSON merge patch (RFC 7386) as github.com/evanphx/json-patch v4 applies it for the API server.

Arguments are never changed: the result shares unchanged parts with the document and the patch.
"""

from __future__ import annotations

from typing import Any

from kas.meta import gojson

INVALID = "Invalid JSON Patch"


class MergePatchError(ValueError):
    """The patch is not a valid merge patch: 400. ``str()`` is upstream's message."""


def apply(document: dict[str, Any], patch_text: bytes | str) -> Any:
    """Return ``document`` with the patch merged in. Raises MergePatchError."""
    return merged(document, decode(patch_text))


def decode(patch_text: bytes | str) -> dict[str, Any] | list[Any]:
    """Decode the text of a patch. Raises MergePatchError."""
    try:
        patch = gojson.loads(patch_text)
    except gojson.JSONError:
        raise MergePatchError(INVALID) from None
    return checked(patch)


def checked(patch: Any) -> dict[str, Any] | list[Any]:
    """Return a decoded patch if it is an object or an array. Raises MergePatchError for anything else."""
    if not isinstance(patch, (dict, list)):
        raise MergePatchError(INVALID)
    return patch


def merged(document: dict[str, Any], patch: dict[str, Any] | list[Any]) -> Any:
    """Return ``document`` with a decoded patch merged in; an array replaces the document. Raises MergePatchError."""
    try:
        return merge(document, patch) if isinstance(patch, dict) else without_nulls(patch)
    except RecursionError:
        raise MergePatchError("exceeded max depth") from None


def merge(document: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return ``document`` merged with a decoded patch object."""
    out = dict(document)
    for key, value in patch.items():
        if isinstance(value, dict):
            current = out.get(key)
            out[key] = merge(current, value) if isinstance(current, dict) else without_nulls(value)
        elif isinstance(value, list):
            # An array that replaces an object keeps its nulls, as upstream.
            out[key] = value if isinstance(out.get(key), dict) else without_nulls(value)
        elif value is None:
            out.pop(key, None)
        else:
            out[key] = value
    return out


def without_nulls(value: Any) -> Any:
    """Return ``value`` without null members of objects; nulls in arrays stay."""
    if isinstance(value, dict):
        return {k: without_nulls(v) if isinstance(v, (dict, list)) else v for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [without_nulls(v) if isinstance(v, (dict, list)) else v for v in value]
    return value

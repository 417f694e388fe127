"""JSON merge patch (RFC 7386) as github.com/evanphx/json-patch v4 applies it for the API server.

Nothing given is changed: what differs is built anew, what does not is shared between document and result.
"""

from __future__ import annotations

from typing import Any

from kas.api import gojson


class MergePatchError(ValueError):
    """A patch that is no merge patch; a 400 for the client. ``str()`` is upstream's message."""


def apply(document: dict[str, Any], patch_text: bytes | str) -> Any:
    """``document`` with the patch merged in. Raises MergePatchError.

    An array as patch replaces the document, any other non-object is refused.
    """
    try:
        patch = gojson.loads(patch_text)
    except gojson.JSONError:
        raise MergePatchError("Invalid JSON Patch") from None
    if not isinstance(patch, (dict, list)):
        raise MergePatchError("Invalid JSON Patch")
    try:
        return merge(document, patch) if isinstance(patch, dict) else without_nulls(patch)
    except RecursionError:
        raise MergePatchError("exceeded max depth") from None


def merge(document: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """``document`` merged with an already decoded patch object."""
    out = dict(document)
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
            continue
        current = out.get(key)
        if isinstance(current, dict):
            # An array over an object comes in as it is, nulls and all; that is how upstream does it.
            out[key] = merge(current, value) if isinstance(value, dict) else value
        else:
            out[key] = without_nulls(value)
    return out


def without_nulls(value: Any) -> Any:
    """``value`` with null members of objects dropped; nulls in arrays stay."""
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [without_nulls(v) for v in value]
    return value

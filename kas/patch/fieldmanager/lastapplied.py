"""The last-applied annotation of client-side apply: migrating from ``kubectl apply`` to server-side apply and back.

Upstream: managedfields ``internal/lastappliedmanager.go`` and ``lastappliedupdater.go``; only for the manager "kubectl".
"""

from __future__ import annotations

import json
from typing import Any

from kas.meta import gojson
from kas.patch._fieldsets import Mismatch, compare, difference, has, to_set, validate
from kas.patch.fieldmanager.conflicts import Conflict
from kas.patch.fieldmanager.schema import Schema

MANAGER = "kubectl"
ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
MAX_ANNOTATIONS_BYTES = 256 * 1024

Obj = dict[str, Any]


def remaining(schema: Schema, live: Obj, conflicts: list[Conflict]) -> list[Conflict]:
    """Return the conflicts that the annotation does not excuse. It excuses fields that it contains with their live value."""
    allowed = _allowed(schema, live)
    if allowed is None:
        return conflicts
    return [(ident, path) for ident, path in conflicts if not has(allowed, path)]


def _allowed(schema: Schema, live: Obj) -> dict | None:
    text = ((live.get("metadata") or {}).get("annotations") or {}).get(ANNOTATION)
    if not text:
        return None
    try:
        last = gojson.loads(text)  # a client chooses its depth and numbers
    except gojson.JSONError:
        return None
    if not isinstance(last, dict) or last.get("apiVersion") != schema.api_version or validate(schema.root, last):
        return None
    try:
        changed, removed = compare(schema.root, last, live)
        return difference(difference(to_set(schema.root, last), changed), removed)
    except Mismatch:
        return None


def refresh(meta: Obj, applied: Obj) -> None:
    """Update an existing annotation in ``meta`` (changed in place) to the applied configuration; drop it if it would be too large."""
    annotations = meta.get("annotations") or {}
    if not annotations.get(ANNOTATION):
        return
    annotations = dict(annotations)
    annotations[ANNOTATION] = _encode(applied)
    if sum(len(k.encode()) + len(v.encode()) for k, v in annotations.items()) > MAX_ANNOTATIONS_BYTES:
        del annotations[ANNOTATION]
    meta["annotations"] = annotations


def _encode(applied: Obj) -> str:
    """Encode the configuration without the annotation as Go prints it: sorted keys, HTML escaped, a newline at the end."""
    own = (applied.get("metadata") or {}).get("annotations")
    if own is not None:
        meta = dict(applied["metadata"])
        left = {k: v for k, v in own.items() if k != ANNOTATION}
        # SetAnnotations on unstructured content keeps an empty map.
        meta["annotations"] = left
        applied = {**applied, "metadata": meta}
    text = json.dumps(applied, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for c, escaped in (("&", "\\u0026"), ("<", "\\u003c"), (">", "\\u003e"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029")):
        text = text.replace(c, escaped)
    return text + "\n"

"""The variables of match conditions of authorization webhooks.

Upstream: apiserver ``pkg/authorization/cel/compile.go``.
"""

from __future__ import annotations

from kas.cel.base import BASE
from kas.cel.types import STRING, Type, list_of, map_of, struct

_TEXTS = list_of(STRING)
_SPEC, _RESOURCE, _PATH = "kubernetes.SubjectAccessReviewSpec", "kubernetes.ResourceAttributes", "kubernetes.NonResourceAttributes"
_FIELDS, _LABELS = "kubernetes.FieldSelectorAttributes", "kubernetes.LabelSelectorAttributes"
_SELECTED = "kubernetes.SelectorRequirement"
STRUCTS: dict[str, dict[str, Type]] = {
    _SPEC: {
        "resourceAttributes": struct(_RESOURCE), "nonResourceAttributes": struct(_PATH), "user": STRING, "groups": _TEXTS,
        "extra": map_of(STRING, _TEXTS), "uid": STRING,
    },
    _RESOURCE: {
        "namespace": STRING, "verb": STRING, "group": STRING, "version": STRING, "resource": STRING, "subresource": STRING, "name": STRING,
        "fieldSelector": struct(_FIELDS), "labelSelector": struct(_LABELS),
    },
    _PATH: {"path": STRING, "verb": STRING},
    _FIELDS: {"rawSelector": STRING, "requirements": list_of(struct(_SELECTED))},
    _LABELS: {"rawSelector": STRING, "requirements": list_of(struct(_SELECTED))},
    _SELECTED: {"key": STRING, "operator": STRING, "values": _TEXTS},
}  # fmt: skip

ENVIRONMENT = BASE.extended({"request": struct(_SPEC)}, STRUCTS)

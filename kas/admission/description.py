"""A request as webhooks and expressions are told of it: an AdmissionRequest."""

from __future__ import annotations

from typing import Any

import orjson

from kas.admission import CONNECT, DELETE, Attributes
from kas.admission.matching import GVK, Invocation, kind_of, namespace_of
from kas.types.scheme import builtin_kind, encode_json

Obj = dict[str, Any]
_DELETE_OPTIONS = builtin_kind("meta.k8s.io", "v1", "DeleteOptions")


def operation_options(a: Attributes) -> Obj | None:
    """The options of the request as a metav1 object; connecting has none."""
    if a.operation == CONNECT or not (a.options or a.operation == DELETE):
        return None
    if a.operation == DELETE:
        # In the order of their fields: clients send them in any.
        text = encode_json(_DELETE_OPTIONS.type, {**a.options, "kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"})
        found: Obj = orjson.loads(text)
        return found
    return a.options


def about(a: Attributes, shown: Invocation, own: GVK) -> Obj:
    """What an AdmissionRequest says of kinds and resources, in Go's order of the fields. The objects are of the kind ``own``, and ``shown``
    is the version they are told in."""
    told, sub = shown.kind, a.subresource
    return {
        "kind": {"group": told[0], "version": told[1], "kind": told[2]},
        "resource": {"group": shown.group, "version": shown.version, "resource": shown.resource},
        **({"subResource": sub} if sub else {}),
        "requestKind": {"group": own[0], "version": own[1], "kind": own[2]},
        "requestResource": {"group": a.group, "version": a.version, "resource": a.resource},
        **({"requestSubResource": sub} if sub else {}),
    }  # fmt: skip


def request_fields(a: Attributes, shown: Invocation) -> Obj:
    """An AdmissionRequest but for its uid and its objects, in Go's order of the fields; ``shown`` is the version it is told in."""
    out, namespace = about(a, shown, kind_of(a)), namespace_of(a)
    if a.name:
        out["name"] = a.name
    if namespace:
        out["namespace"] = namespace
    out["operation"], out["userInfo"] = a.operation, a.user.to_dict()
    return out

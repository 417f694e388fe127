"""A request as webhooks and expressions are told of it: an AdmissionRequest."""

from __future__ import annotations

from typing import Any

import orjson

from kas.admission import CONNECT, DELETE, Attributes
from kas.admission.matching import Invocation, kind_of, namespace_of
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


def request_fields(a: Attributes, shown: Invocation) -> Obj:
    """An AdmissionRequest but for its uid and its objects, in Go's order of the fields; ``shown`` is the version it is told in."""
    group, version, kind = kind_of(a)
    told, namespace = shown.kind, namespace_of(a)
    out: Obj = {
        "kind": {"group": told[0], "version": told[1], "kind": told[2]},
        "resource": {"group": shown.group, "version": shown.version, "resource": shown.resource},
    }
    if a.subresource:
        out["subResource"] = a.subresource
    out["requestKind"] = {"group": group, "version": version, "kind": kind}
    out["requestResource"] = {"group": a.group, "version": a.version, "resource": a.resource}
    if a.subresource:
        out["requestSubResource"] = a.subresource
    if a.name:
        out["name"] = a.name
    if namespace:
        out["namespace"] = namespace
    out["operation"], out["userInfo"] = a.operation, a.user.to_dict()
    return out

"""The description of a request for webhooks and expressions: an AdmissionRequest."""

from __future__ import annotations

from typing import Any

import orjson

from kas.admission import CONNECT, DELETE, Attributes
from kas.admission.matching import GVK, Invocation, kind_of, namespace_of
from kas.types.scheme import builtin_kind, encode_json

Obj = dict[str, Any]
_DELETE_OPTIONS = builtin_kind("meta.k8s.io", "v1", "DeleteOptions")


def operation_options(a: Attributes) -> Obj | None:
    """Return the options of the request as a metav1 object; CONNECT has none."""
    if a.operation == CONNECT or not (a.options or a.operation == DELETE):
        return None
    if a.operation == DELETE:
        # Clients send the fields in any order; encoding puts them in the order of the type.
        text = encode_json(_DELETE_OPTIONS.type, {**a.options, "kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"})
        found: Obj = orjson.loads(text)
        return found
    return a.options


def about(a: Attributes, shown: Invocation, own: GVK) -> Obj:
    """Return the kind and resource fields of an AdmissionRequest, in the order of Go's struct. The objects are of kind ``own`` in the
    request and are shown in the version ``shown``."""
    kind, sub = shown.kind, a.subresource
    return {
        "kind": {"group": kind[0], "version": kind[1], "kind": kind[2]},
        "resource": {"group": shown.group, "version": shown.version, "resource": shown.resource},
        **({"subResource": sub} if sub else {}),
        "requestKind": {"group": own[0], "version": own[1], "kind": own[2]},
        "requestResource": {"group": a.group, "version": a.version, "resource": a.resource},
        **({"requestSubResource": sub} if sub else {}),
    }  # fmt: skip


def request_fields(a: Attributes, shown: Invocation) -> Obj:
    """Return an AdmissionRequest without uid and objects, in the order of Go's struct; ``shown`` is the version it describes."""
    out, namespace = about(a, shown, kind_of(a)), namespace_of(a)
    if a.name:
        out["name"] = a.name
    if namespace:
        out["namespace"] = namespace
    out["operation"], out["userInfo"] = a.operation, a.user.to_dict()
    return out

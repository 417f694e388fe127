"""The variables of admission expressions: webhooks' match conditions and admission policies.

Upstream: apiserver ``pkg/admission/plugin/cel/compile.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from kas.cel.base import BASE
from kas.cel.environment import Environment, Fields
from kas.cel.library.objects import AUTHORIZER, RESOURCE_CHECK
from kas.cel.library.texts import PATCHES
from kas.cel.types import BOOL, DYN, INT, STRING, TIMESTAMP, UNSPECIFIED, Nullable, Type, list_of, map_of, struct

TEXTS, TEXT_MAP = list_of(STRING), map_of(STRING, STRING)
STRUCTS: dict[str, Mapping[str, Type]] = {
    "kubernetes.GroupVersionKind": {"group": STRING, "version": STRING, "kind": STRING},
    "kubernetes.GroupVersionResource": {"group": STRING, "version": STRING, "resource": STRING},
    "kubernetes.UserInfo": {"username": STRING, "uid": STRING, "groups": TEXTS, "extra": map_of(STRING, TEXTS)},
    "kubernetes.AdmissionRequest": {
        "kind": struct("kubernetes.GroupVersionKind"), "resource": struct("kubernetes.GroupVersionResource"), "subResource": STRING,
        "requestKind": struct("kubernetes.GroupVersionKind"), "requestResource": struct("kubernetes.GroupVersionResource"),
        "requestSubResource": STRING, "name": STRING, "namespace": STRING, "operation": STRING,
        "userInfo": struct("kubernetes.UserInfo"), "dryRun": BOOL, "options": DYN,
    },
    "kubernetes.NamespaceSpec": {"finalizers": TEXTS},
    "kubernetes.NamespaceCondition": {
        "status": STRING, "type": STRING, "lastTransitionTime": TIMESTAMP, "message": STRING, "reason": STRING,
    },
    "kubernetes.NamespaceStatus": {"conditions": list_of(struct("kubernetes.NamespaceCondition")), "phase": STRING},
    "kubernetes.NamespaceMetadata": {
        "name": STRING, "generateName": STRING, "namespace": STRING, "labels": TEXT_MAP, "annotations": TEXT_MAP, "UID": STRING,
        "creationTimestamp": TIMESTAMP, "deletionGracePeriodSeconds": INT, "deletionTimestamp": TIMESTAMP, "generation": INT,
        "resourceVersion": STRING, "finalizers": TEXTS,
    },
    "kubernetes.Namespace": {
        "metadata": struct("kubernetes.NamespaceMetadata"), "spec": struct("kubernetes.NamespaceSpec"),
        "status": struct("kubernetes.NamespaceStatus"),
    },
}  # fmt: skip
# The type whose fields are a policy's own variables.
VARIABLES = "kubernetes.variables"


# The results of mutations: an operation of a JSON patch, or an apply configuration.
PATCH, OBJECT = struct("JSONPatch"), struct("Object")
OPERATION: dict[str, Type] = {"op": STRING, "path": STRING, "from": STRING, "value": DYN}
# Operations accept any other field, too, but such fields have no type.
PATCH_STRUCTS: dict[str, Mapping[str, Type]] = {"JSONPatch": Fields(OPERATION, UNSPECIFIED)}


@cache
def environment(params: bool, authorizer: bool = True, patches: bool = False) -> Environment:
    """Return the environment. ``params``: the policy has a paramKind; ``patches``: the expression makes a patch."""
    variables = {
        "object": DYN, "oldObject": DYN, "namespaceObject": struct("kubernetes.Namespace"),
        "request": struct("kubernetes.AdmissionRequest"),
    }  # fmt: skip
    if params:
        variables["params"] = DYN
    if authorizer:
        variables |= {"authorizer": AUTHORIZER, "authorizer.requestResource": RESOURCE_CHECK}
    if patches:
        return BASE.extended(variables, STRUCTS | PATCH_STRUCTS, "Object", functions=PATCHES.functions)
    return BASE.extended(variables, STRUCTS)


def with_variables(env: Environment, types: dict[str, Type]) -> Environment:
    """Return the environment extended by a policy's own variables. ``types`` are as ``seen`` returns them, and may grow afterwards."""
    return env.extended({"variables": struct(VARIABLES)}, {VARIABLES: types})


# The types that variables keep (apiserver ``pkg/admission/plugin/cel/composition.go``, convertCelTypeToDeclType).
_KEPT = frozenset(("bool", "bytes", "double", "duration", "int", "null_type", "string", "timestamp", "uint"))


def seen(t: Type) -> Type:
    """Return the type of a variable as other expressions see it: objects, optional values and library types become dyn."""
    if t.kind in ("list", "map") and t.params:
        return Type(t.kind, t.name, tuple(map(seen, t.params)))
    return t if t.kind in _KEPT and not isinstance(t, Nullable) else DYN

"""Derives the types of API versions that are no longer served, but that upstream's scheme still knows, from the served ones.

The facts leave these versions out. Each one is the package of a later version under another name; ``EDITS`` lists the differences (from
the types.go files of k8s.io/api) as ``{type: {field: row or None}}``. A row replaces a field or, with ``after``, adds one. Rows have the
form of gen_types: ``[json name, number, cardinality, element, flags]``, with flags the sum of ptr 1, omitempty 2 and required 32.
"""

from __future__ import annotations

import copy
from typing import Any

API = "io.k8s.api."
PTR, OMIT, META = 1, 2, 18

# (source package, target package, group, version, kinds)
CLONES = (
    ("io.k8s.kube-aggregator.pkg.apis.apiregistration.v1", "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1beta1",
     "apiregistration.k8s.io", "v1beta1", ("APIService",)),
    ("apps.v1", "apps.v1beta1", "apps", "v1beta1", ("ControllerRevision", "Deployment", "StatefulSet")),
    ("apps.v1", "apps.v1beta2", "apps", "v1beta2", ("ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet")),
    ("apps.v1", "extensions.v1beta1", "extensions", "v1beta1", ("DaemonSet", "Deployment", "ReplicaSet")),
    ("networking.v1", "extensions.v1beta1", "extensions", "v1beta1", ("NetworkPolicy",)),
    ("networking.v1beta1", "extensions.v1beta1", "extensions", "v1beta1", ("Ingress",)),
    ("authentication.v1", "authentication.v1alpha1", "authentication.k8s.io", "v1alpha1", ("SelfSubjectReview",)),
    ("authentication.v1", "authentication.v1beta1", "authentication.k8s.io", "v1beta1", ("SelfSubjectReview", "TokenReview")),
    ("authorization.v1", "authorization.v1beta1", "authorization.k8s.io", "v1beta1",
     ("LocalSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview", "SubjectAccessReview")),
    ("autoscaling.v2", "autoscaling.v2beta2", "autoscaling", "v2beta2", ("HorizontalPodAutoscaler",)),
    ("batch.v1", "batch.v1beta1", "batch", "v1beta1", ("CronJob",)),
    ("discovery.v1", "discovery.v1beta1", "discovery.k8s.io", "v1beta1", ("EndpointSlice",)),
    ("events.v1", "events.v1beta1", "events.k8s.io", "v1beta1", ("Event",)),
    ("flowcontrol.v1", "flowcontrol.v1beta1", "flowcontrol.apiserver.k8s.io", "v1beta1", ("FlowSchema", "PriorityLevelConfiguration")),
    ("flowcontrol.v1", "flowcontrol.v1beta2", "flowcontrol.apiserver.k8s.io", "v1beta2", ("FlowSchema", "PriorityLevelConfiguration")),
    ("flowcontrol.v1", "flowcontrol.v1beta3", "flowcontrol.apiserver.k8s.io", "v1beta3", ("FlowSchema", "PriorityLevelConfiguration")),
    ("node.v1", "node.v1alpha1", "node.k8s.io", "v1alpha1", ("RuntimeClass",)),
    ("node.v1", "node.v1beta1", "node.k8s.io", "v1beta1", ("RuntimeClass",)),
    ("policy.v1", "policy.v1beta1", "policy", "v1beta1", ("Eviction", "PodDisruptionBudget")),
    ("rbac.v1", "rbac.v1alpha1", "rbac.authorization.k8s.io", "v1alpha1", ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")),
    ("rbac.v1", "rbac.v1beta1", "rbac.authorization.k8s.io", "v1beta1", ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")),
    ("scheduling.v1", "scheduling.v1alpha1", "scheduling.k8s.io", "v1alpha1", ("PriorityClass",)),
    ("scheduling.v1", "scheduling.v1beta1", "scheduling.k8s.io", "v1beta1", ("PriorityClass",)),
    ("storage.v1", "storage.v1alpha1", "storage.k8s.io", "v1alpha1", ("CSIStorageCapacity", "VolumeAttachment", "VolumeAttributesClass")),
)  # fmt: skip

# Types that an older version takes from the later version's package, as upstream does.
SHARED = frozenset(
    API + name for name in ("authorization.v1.FieldSelectorAttributes", "authorization.v1.LabelSelectorAttributes", "batch.v1.JobSpec")
)

_SELECTOR = "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"
_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def _scale(package: str) -> list[list[Any]]:
    name = f"{API}{package}."
    return [
        [name + "Scale", {}, [
            ["kind", None, "s", "string", META], ["apiVersion", None, "s", "string", META], ["metadata", 1, "s", _OBJECT_META, OMIT],
            ["spec", 2, "s", name + "ScaleSpec", OMIT], ["status", 3, "s", name + "ScaleStatus", OMIT]]],
        [name + "ScaleSpec", {}, [["replicas", 1, "s", "int32", OMIT]]],
        [name + "ScaleStatus", {}, [
            ["replicas", 1, "s", "int32", 32], ["selector", 2, "m", "string", OMIT], ["targetSelector", 3, "s", "string", OMIT]]],
    ]  # fmt: skip


def _rollback(package: str) -> list[list[Any]]:
    name = f"{API}{package}."
    return [
        [name + "DeploymentRollback", {}, [
            ["kind", None, "s", "string", META], ["apiVersion", None, "s", "string", META], ["name", 1, "s", "string", 32],
            ["updatedAnnotations", 2, "m", "string", OMIT], ["rollbackTo", 3, "s", name + "RollbackConfig", 32]]],
        [name + "RollbackConfig", {}, [["revision", 1, "s", "int64", OMIT]]],
    ]  # fmt: skip


EXTRA = (
    ("apps.v1beta1", "apps", "v1beta1", _scale("apps.v1beta1") + _rollback("apps.v1beta1")),
    ("apps.v1beta2", "apps", "v1beta2", _scale("apps.v1beta2")),
    ("extensions.v1beta1", "extensions", "v1beta1", _scale("extensions.v1beta1") + _rollback("extensions.v1beta1")),
)

_OPTIONAL_SELECTOR = ["selector", 2, "s", _SELECTOR, PTR | OMIT]


def _rollback_to(package: str) -> tuple[list[Any], str]:
    return ["rollbackTo", 8, "s", f"{API}{package}.RollbackConfig", PTR | OMIT], "paused"


# type -> field -> row, None to remove, or (row, name of the field it follows) to add.
EDITS: dict[str, dict[str, Any]] = {
    "apps.v1beta1.DeploymentSpec": {"selector": _OPTIONAL_SELECTOR, "rollbackTo": _rollback_to("apps.v1beta1")},
    "apps.v1beta1.StatefulSetSpec": {"selector": _OPTIONAL_SELECTOR},
    "apps.v1beta1.StatefulSetStatus": {"observedGeneration": ["observedGeneration", 1, "s", "int64", PTR | OMIT]},
    "extensions.v1beta1.DeploymentSpec": {"selector": _OPTIONAL_SELECTOR, "rollbackTo": _rollback_to("extensions.v1beta1")},
    "extensions.v1beta1.ReplicaSetSpec": {"selector": _OPTIONAL_SELECTOR},
    "extensions.v1beta1.DaemonSetSpec": {
        "selector": ["selector", 1, "s", _SELECTOR, PTR | OMIT],
        "templateGeneration": (["templateGeneration", 5, "s", "int64", OMIT], "minReadySeconds"),
    },
    "authorization.v1beta1.SubjectAccessReviewSpec": {"groups": ["group", 4, "l", "string", OMIT]},
    "discovery.v1beta1.Endpoint": {
        "deprecatedTopology": ["topology", 5, "m", "string", OMIT],
        "zone": None,
        "hints": ["hints", 7, "s", API + "discovery.v1beta1.EndpointHints", PTR | OMIT],
    },
    "flowcontrol.v1beta1.LimitedPriorityLevelConfiguration": {
        "nominalConcurrencyShares": ["assuredConcurrencyShares", 1, "s", "int32", 32]
    },
    "flowcontrol.v1beta2.LimitedPriorityLevelConfiguration": {
        "nominalConcurrencyShares": ["assuredConcurrencyShares", 1, "s", "int32", 32]
    },
    "flowcontrol.v1beta3.LimitedPriorityLevelConfiguration": {
        "nominalConcurrencyShares": ["nominalConcurrencyShares", 1, "s", "int32", 32]
    },
    "rbac.v1alpha1.Subject": {"apiGroup": ["apiVersion", 2, "s", "string", OMIT]},
    "rbac.v1alpha1.PolicyRule": {
        "apiGroups": ["apiGroups", 3, "l", "string", OMIT],
        "resources": ["resources", 4, "l", "string", OMIT],
        "resourceNames": ["resourceNames", 5, "l", "string", OMIT],
        "nonResourceURLs": ["nonResourceURLs", 6, "l", "string", OMIT],
    },
}

NODE_ALPHA = "node.v1alpha1."


def _edit(row: list[Any]) -> None:
    edits = EDITS.get(row[0].removeprefix(API), {})
    fields: list[Any] = []
    for field in row[2]:
        change = edits.get(field[0], field)
        if change is not None:
            fields.append(list(change))
    for change in edits.values():
        if isinstance(change, tuple):
            new, after = change
            at = next(i for i, f in enumerate(fields) if f[0] == after)
            fields.insert(at + 1, new)
    row[2] = fields


def _runtime_class_spec(rows: dict[str, list[Any]]) -> None:
    """Moves the fields that later versions have at the top into the spec of node.k8s.io/v1alpha1."""
    top = rows[API + NODE_ALPHA + "RuntimeClass"]
    moved = {f[0]: f for f in top[2]}
    spec = API + NODE_ALPHA + "RuntimeClassSpec"
    rows[spec] = [
        spec, {},
        [["runtimeHandler", 1, "s", "string", 32], ["overhead", 2, *moved["overhead"][2:5]], ["scheduling", 3, *moved["scheduling"][2:5]]],
    ]  # fmt: skip
    top[2] = [f for f in top[2] if f[0] in ("kind", "apiVersion", "metadata")] + [["spec", 2, "s", spec, 32]]


def legacy_rows(types: list[list[Any]]) -> list[list[Any]]:
    """Returns rows for every legacy type that ``types`` does not have."""
    known = {row[0]: row for row in types}
    made: dict[str, list[Any]] = {}

    def clone(name: str, source: str, target: str) -> str:
        if not name.startswith(source) or name in SHARED:
            return name
        copied = target + name.removeprefix(source)
        if copied in known or copied in made:
            return copied
        row = copy.deepcopy(known[name])
        row[0], row[1] = copied, {k: v for k, v in row[1].items() if k != "gvk"}
        made[copied] = row
        for field in row[2]:
            # Only served versions have defaults.
            if len(field) > 5:
                extras = {k: v for k, v in field[5].items() if k not in ("default", "defaultRule", "enum", "keyEnum")}
                field[5:] = [extras] if extras else []
            if "." in field[3]:
                field[3] = clone(field[3], source, target)
        _edit(row)
        return copied

    for source, target, group, version, kinds in CLONES:
        prefix = "" if source.startswith("io.") else API
        for kind in kinds:
            for name in (kind, kind + "List"):
                full = f"{prefix}{source}.{name}"
                if full in known:
                    copied = clone(full, f"{prefix}{source}.", f"{prefix}{target}.")
                    made[copied][1]["gvk"] = [[group, version, name]]
    for _, group, version, rows in EXTRA:
        for row in rows:
            name = row[0].rpartition(".")[2]
            if any(f[4] == META for f in row[2]):
                row[1]["gvk"] = [[group, version, name]]
            made[row[0]] = row
    _runtime_class_spec(made)
    return list(made.values())

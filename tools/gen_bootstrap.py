"""Writes bootstrap.json: the constant objects that a server creates at its first start. Run by tables.py.

Reads the facts rbac-bootstrap.json, flowcontrol-bootstrap.json, bootstrap-objects.json and resources.json. Objects are written in their
final form and key order, managedFields included. ``@uid`` and ``@now`` stand for values that are known only at the start.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# Lists and structs that a field manager owns as a whole.
ATOMIC = {"rules", "subjects", "roleRef", "clusterRoleSelectors", "cidrs"}
# Structs that are present even in an empty object: owning a field in one does not mean owning the struct.
ALWAYS_THERE = {("metadata",), ("spec",), ("spec", "priorityLevelConfiguration")}

DESCRIPTIONS = {
    "system-node-critical": "Used for system critical pods that must not be moved from their current node.",
    "system-cluster-critical": (
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."
    ),
}

# What the roles of the facts, which are those of the default gates, lack where one of these gates is off (upstream's ``policy.go`` and
# ``controller_policy.go``): a rule, a URL of a rule, or without either the role itself with its binding.
CLAIMS = {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["create", "delete"]}
BINDING = {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/binding"], "verbs": ["patch", "update"]}
ACCOUNTS = {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["get"]}
GATED_BY_DEFAULT: list[dict[str, Any]] = [
    {"gate": "ComponentFlagz", "clusterRole": "system:monitoring", "url": "/flagz"},
    {"gate": "ComponentStatusz", "clusterRole": "system:monitoring", "url": "/statusz"},
    {"gate": "DRADeviceTaints", "clusterRole": "system:controller:device-taint-eviction-controller"},
    {"gate": "DRAExtendedResource", "clusterRole": "system:kube-scheduler", "rule": CLAIMS},
    {"gate": "DRAResourceClaimGranularStatusAuthorization", "clusterRole": "system:kube-scheduler", "rule": BINDING},
    {"gate": "DRAResourceClaimGranularStatusAuthorization", "clusterRole": "system:controller:resource-claim-controller", "rule": BINDING},
    {"gate": "KubeletServiceAccountTokenForCredentialProviders", "clusterRole": "system:node", "rule": ACCOUNTS},
]


def fields_v1(value: Any, path: tuple[str, ...] = ()) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if path and path not in ALWAYS_THERE:
        out["."] = {}
    for key, item in value.items():
        if isinstance(item, dict) and key not in ATOMIC:
            out["f:" + key] = fields_v1(item, (*path, key))
        elif item is not None:
            out["f:" + key] = {}
    return dict(sorted(out.items()))


def entry(manager: str, api_version: str, fields: dict[str, Any], operation: str = "Update", subresource: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {"manager": manager, "operation": operation, "apiVersion": api_version, "time": "@now"}
    out.update(fieldsType="FieldsV1", fieldsV1=fields)
    return {**out, "subresource": subresource} if subresource else out


def finished(obj: dict[str, Any], manager: str, generation: int = 0, more: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    """Returns the object as it will be stored."""
    meta = obj["metadata"]
    owned = {k: v for k, v in meta.items() if k in ("labels", "annotations")}
    body = {k: v for k, v in obj.items() if k not in ("kind", "apiVersion", "metadata", "status")}
    fields = fields_v1({**({"metadata": owned} if owned else {}), **body})
    done: dict[str, Any] = {"name": meta["name"]}
    if "namespace" in meta:
        done["namespace"] = meta["namespace"]
    done["uid"] = "@uid"
    if generation:
        done["generation"] = generation
    done["creationTimestamp"] = "@now"
    for key in ("labels", "annotations"):
        if key in meta:
            done[key] = dict(sorted(meta[key].items()))
    done["managedFields"] = [entry(manager, obj["apiVersion"], fields), *more]
    head = {"kind": obj["kind"], "apiVersion": obj["apiVersion"], "metadata": done}
    return {**head, **{k: v for k, v in obj.items() if k not in head}}


def ordered(obj: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {k: obj[k] for k in keys if k in obj}


def rule(r: dict[str, Any]) -> dict[str, Any]:
    return ordered(r, "verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")


def role(obj: dict[str, Any]) -> dict[str, Any]:
    rules = obj.get("rules")
    obj = {**obj, "rules": None if rules is None else [rule(r) for r in rules]}
    return finished(ordered(obj, "kind", "apiVersion", "metadata", "rules", "aggregationRule"), "kube-apiserver")


def binding(obj: dict[str, Any]) -> dict[str, Any]:
    obj = {**obj, "roleRef": ordered(obj["roleRef"], "apiGroup", "kind", "name")}
    if "subjects" in obj:
        obj["subjects"] = [ordered(s, "kind", "apiGroup", "name", "namespace") for s in obj["subjects"]]
    return finished(ordered(obj, "kind", "apiVersion", "metadata", "subjects", "roleRef"), "kube-apiserver")


def namespace(obj: dict[str, Any]) -> dict[str, Any]:
    name = obj["metadata"]["name"]
    obj = {**obj, "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}}
    return {**finished(obj, "kube-apiserver"), "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}


def priority_class(obj: dict[str, Any]) -> dict[str, Any]:
    obj = {**obj, "description": DESCRIPTIONS[obj["metadata"]["name"]], "preemptionPolicy": "PreemptLowerPriority"}
    return finished(obj, "kube-apiserver", generation=1)


def priority_level(obj: dict[str, Any]) -> dict[str, Any]:
    return {**finished(obj, "api-priority-and-fairness-config-producer-v1", generation=1), "status": {}}


def flow_schema(obj: dict[str, Any]) -> dict[str, Any]:
    level = obj["spec"]["priorityLevelConfiguration"]["name"]
    condition = {
        "type": "Dangling",
        "status": "False",
        "lastTransitionTime": "@now",
        "reason": "Found",
        "message": f'This FlowSchema references the PriorityLevelConfiguration object named "{level}" and it exists',
    }
    owned = {".": {}, **{f"f:{k}": {} for k in sorted(condition)}}
    status = {"f:status": {"f:conditions": {'k:{"type":"Dangling"}': owned}}}
    consumer = entry("api-priority-and-fairness-config-consumer-v1", obj["apiVersion"], status, "Apply", "status")
    return {**finished(obj, "api-priority-and-fairness-config-producer-v1", 1, (consumer,)), "status": {"conditions": [condition]}}


def generate(facts: Path) -> dict[str, Any]:
    def read(name: str) -> dict[str, Any]:
        return json.loads((facts / name).read_text())

    rbac, flow, others = read("rbac-bootstrap.json"), read("flowcontrol-bootstrap.json"), read("bootstrap-objects.json")
    group, flow_group = "rbac.authorization.k8s.io", "flowcontrol.apiserver.k8s.io"
    objects: list[list[Any]] = [["", "namespaces", namespace(o)] for o in others["namespaces"]]
    objects += [["scheduling.k8s.io", "priorityclasses", priority_class(o)] for o in others["priorityClasses"]]
    objects += [[group, "clusterroles", role(o)] for o in rbac["clusterRoles"] + rbac["controllerClusterRoles"]]
    objects += [[group, "clusterrolebindings", binding(o)] for o in rbac["clusterRoleBindings"] + rbac["controllerClusterRoleBindings"]]
    objects += [[group, "roles", role(o)] for o in rbac["roles"]]
    objects += [[group, "rolebindings", binding(o)] for o in rbac["roleBindings"]]
    for rank in ("mandatory", "suggested"):
        objects += [[flow_group, "prioritylevelconfigurations", priority_level(o)] for o in flow[f"{rank}PriorityLevelConfigurations"]]
        objects += [[flow_group, "flowschemas", flow_schema(o)] for o in flow[f"{rank}FlowSchemas"]]

    gated = []
    for item in rbac["featureGated"]:
        if "addRule" in item:
            gated.append({"gate": item["gate"], "clusterRole": item["clusterRole"], "rule": rule(item["addRule"])})
        elif "addClusterRole" in item:
            gated.append({"gate": item["gate"], "object": [group, "clusterroles", role(item["addClusterRole"])]})
        else:
            gated.append({"gate": item["gate"], "object": [group, "clusterrolebindings", binding(item["addClusterRoleBinding"])]})

    priorities = {}
    for g in read("resources.json")["groups"]:
        if g["groupPriorityMinimum"] is not None:
            for version, priority in g["versionPriority"].items():
                priorities[f"{g['group']}/{version}"] = [g["groupPriorityMinimum"], priority]
    served = [[s["spec"].get("group", ""), s["spec"]["version"]] for s in others["apiServices"]]
    mandatory = [o["metadata"]["name"] for o in flow["mandatoryPriorityLevelConfigurations"] + flow["mandatoryFlowSchemas"]]
    return {
        "objects": objects,
        "gated": gated,
        "gatedByDefault": [{**row, "rule": rule(row["rule"])} if "rule" in row else row for row in GATED_BY_DEFAULT],
        "apiPriorities": priorities,
        "apiServices": served,
        "mandatoryFlowControl": sorted(set(mandatory)),
        "legacyAggregate": rbac["reconcile"]["legacyAggregate"],
    }


def main(facts: Path, out: Path) -> None:
    """Write the table ``out`` from a directory of facts."""
    table = generate(facts)
    lines = ['{"objects":[']
    lines.append(",\n".join(json.dumps(o, separators=(",", ":")) for o in table.pop("objects")))
    lines.append("],")
    lines.append(",\n".join(f"{json.dumps(k)}:{json.dumps(v, separators=(',', ':'))}" for k, v in table.items()))
    out.write_text("\n".join(lines) + "}\n")

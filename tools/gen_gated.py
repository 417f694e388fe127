"""Writes gated.json: the paths of fields behind feature gates that can be off. Run by tables.py.

There is one list of paths for every kind that is stored. A path is a list of field names, with "[]" for each item of a list and "{}" for
each value of a map. "!x" at its end means values other than x.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CORE, APPS = "io.k8s.api.core.v1.", "io.k8s.api.apps.v1."
# A gate that the facts call by another name, and fields whose gate the facts leave out because upstream describes it in prose.
CALLED = {"PodCertificateProjection": "PodCertificateRequest"}
FURTHER = {
    (CORE + "Lifecycle", "stopSignal"): ["ContainerStopSignals"],
    (CORE + "TopologySpreadConstraint", "matchLabelKeys"): ["MatchLabelKeysInPodTopologySpread"],
    (APPS + "DeploymentStatus", "terminatingReplicas"): ["DeploymentReplicaSetTerminatingReplicas"],
    (APPS + "ReplicaSetStatus", "terminatingReplicas"): ["DeploymentReplicaSetTerminatingReplicas"],
}
# Restart policies of containers are behind a gate, except the one that makes an init container a sidecar.
RESTART = [
    ([kind, "[]", "restartPolicy", *other], ["ContainerRestartRules"])
    for kind, other in (("containers", ()), ("initContainers", ("!Always",)), ("ephemeralContainers", ()))
]
# Fields whose gate depends on more than their presence (the kind's strategy handles it), or that kubelets and schedulers set regardless
# of gates.
BY_HAND = {(CORE + "TypedObjectReference", "namespace"), (CORE + "ContainerStatus", "stopSignal")}
for _version in ("v1", "v1beta1", "v1beta2"):
    _resource = f"io.k8s.api.resource.{_version}."
    BY_HAND |= {(_resource + "DeviceRequestAllocationResult", "tolerations"), (_resource + "AllocationResult", "allocationTimestamp")}


def main(facts: Path, out: Path) -> None:
    """Write the table ``out`` from a directory with types.json, resources.json and feature-gates.json."""
    types = {t["name"]: t for t in json.loads((facts / "types.json").read_text())["types"]}
    free = {g["name"] for g in json.loads((facts / "feature-gates.json").read_text())["gates"] if not g["locked"]}
    table = {}
    for resource in json.loads((facts / "resources.json").read_text())["resources"]:
        if not resource.get("etcdPrefix"):
            continue
        rows = [(path, [g for g in gates if g in free]) for path, gates in _walk(types, resource["type"], ())]
        rows = [(path, gates) for path, gates in rows if gates]
        if rows:
            table[f"{resource['group']}/{resource['version']}/{resource['kind']}"] = rows
    out.write_text("{\n" + ",\n".join(f"{json.dumps(n)}: {json.dumps(table[n], separators=(',', ':'))}" for n in sorted(table)) + "\n}\n")


def _walk(types: dict[str, Any], name: str, above: tuple[str, ...]) -> Iterator[tuple[list[str], list[str]]]:
    """Yields (path, gates) of every gated field of a type and of the types in it. A type that contains itself is not entered again."""
    if name in above or name not in types:
        return
    for f in types[name].get("fields", ()):
        step = [] if f.get("inline") else [f["json"]]
        gates = f.get("gates") or FURTHER.get((name, f["json"])) or []
        if gates and (name, f["json"]) not in BY_HAND:
            yield step, [CALLED.get(g, g) for g in gates]
        if f.get("ref"):
            step += {"list": ["[]"], "map": ["{}"]}.get(f["card"], [])
            for path, inner in _walk(types, f["ref"], (*above, name)):
                yield step + path, inner
    if name == CORE + "PodSpec":
        yield from RESTART


"""What kubelets, the scheduler and controllers write most: objects and patches of a usual size."""

from __future__ import annotations

from typing import Any

from bench.end_to_end import pod

CONDITIONS = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")  # of a node
POD_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
UID = "6c0a4a1e-3b1c-4d55-9f0e-3c9d6f1a2b3c"


def time(number: int) -> str:
    return f"2026-01-02T{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}Z"


def lease(name: str, number: int) -> dict[str, Any]:
    """As a kubelet renews it."""
    spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": f"2026-01-02T03:04:05.{number % 1_000_000:06d}Z"}
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": UID}
    return {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec}


def node(name: str) -> dict[str, Any]:
    """About 10 KB: a kubelet lists up to 50 images."""
    conditions = [
        {"type": t, "status": str(t == "Ready"), "reason": f"Kubelet{t}", "message": f"kubelet reports {t}", "lastHeartbeatTime": time(0)}
        for t in CONDITIONS
    ]
    images = [
        {"names": [f"registry.example.com/app-{i}:v1", f"registry.example.com/app-{i}@sha256:{i:064x}"], "sizeBytes": 50_000_000 + i}
        for i in range(50)
    ]
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "zone-a", "topology.kubernetes.io/region": "region-1"}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"podCIDR": "10.2.0.0/24", "podCIDRs": ["10.2.0.0/24"]},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": name}],
            "capacity": amounts, "allocatable": amounts, "conditions": conditions, "images": images,
        },
    }  # fmt: skip


def heartbeat(number: int) -> dict[str, Any]:
    """A kubelet's strategic merge patch of its Node's status."""
    conditions = [{"type": t, "lastHeartbeatTime": time(number)} for t in CONDITIONS]
    return {"status": {"$setElementOrder/conditions": [{"type": t} for t in CONDITIONS], "conditions": conditions}}


def pod_status(number: int) -> dict[str, Any]:
    """A kubelet's strategic merge patch of a pod's status, once its containers run."""
    containers = [
        {
            "name": n, "image": f"registry.example.com/{n}:v1", "imageID": f"registry.example.com/{n}@sha256:{number:064x}",
            "containerID": f"containerd://{number:064x}", "ready": True, "started": True, "restartCount": number,
            "lastState": {}, "state": {"running": {"startedAt": time(number)}},
        }
        for n in ("web", "sidecar")
    ]  # fmt: skip
    conditions = [{"type": t, "status": "True", "lastProbeTime": None, "lastTransitionTime": time(number)} for t in POD_CONDITIONS]
    return {
        "status": {
            "$setElementOrder/conditions": [{"type": t} for t in POD_CONDITIONS],
            "conditions": conditions, "containerStatuses": containers, "phase": "Running", "startTime": time(0),
            "hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.1"}], "podIP": "10.2.3.4", "podIPs": [{"ip": "10.2.3.4"}],
        }
    }  # fmt: skip


def event(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": name, "uid": UID, "apiVersion": "v1", "resourceVersion": "5"},
        "reason": "Pulled", "message": 'Container image "registry.example.com/web:v1" already present on machine', "type": "Normal",
        "source": {"component": "kubelet", "host": "node-1"}, "firstTimestamp": time(0), "lastTimestamp": time(0), "count": 1,
        "reportingComponent": "kubelet", "reportingInstance": "node-1",
    }  # fmt: skip


def endpoint_slice(name: str, number: int) -> dict[str, Any]:
    """20 endpoints, of which one is not ready: another one with every 32 numbers."""
    endpoints = [
        {
            "addresses": [f"10.2.{i}.4"], "nodeName": f"node-{i}", "zone": "zone-a",
            "conditions": {"ready": i != number // 32 % 20, "serving": True, "terminating": False},
            "targetRef": {"kind": "Pod", "namespace": "default", "name": f"{name}-{i}", "uid": UID},
        }
        for i in range(20)
    ]  # fmt: skip
    labels = {"kubernetes.io/service-name": name, "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}
    meta = {"name": name, "labels": labels, "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": time(number)}}
    return {"metadata": meta, "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}], "endpoints": endpoints}


def unbound(name: str) -> dict[str, Any]:
    """A pod that waits for the scheduler."""
    made = pod(name)
    del made["spec"]["nodeName"]
    return made


def binding(name: str, node_name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "target": {"kind": "Node", "name": node_name}}

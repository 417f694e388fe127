"""Computed defaults and the field mirroring of core/v1 (``pkg/apis/core/v1/defaults.go``, ``conversion.go``).

They run after the constant defaults, on every object decoded from a client or read from an older store.
"""

from __future__ import annotations

import base64
from typing import Any

from kas.api.defaults import defaults_for
from kas.api.defaults.podspec import drop_legacy_annotations, pod_spec, pod_template, round_up, round_up_requirements
from kas.api.quantity import Quantity, parse

Obj = dict[str, Any]


@defaults_for("", "v1", "Pod")
def default_pod(obj: Obj) -> None:
    spec = obj.get("spec")
    if spec is None:
        spec = obj["spec"] = {}
    pod_spec(spec, pod=True)
    if spec.get("resources") is not None:
        _pod_level_resources(spec)
    if spec.get("enableServiceLinks") is None:
        spec["enableServiceLinks"] = True
    if spec.get("hostNetwork"):
        for kind in ("containers", "initContainers"):
            for container in spec.get(kind) or ():
                for port in container.get("ports") or ():
                    if not port.get("hostPort") and port.get("containerPort"):
                        port["hostPort"] = port["containerPort"]
    drop_legacy_annotations(obj.get("metadata"))
    status = obj.get("status")
    if status:
        _mirror_first(status, "podIP", "podIPs", wrap=True)
        for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
            for item in status.get(kind) or ():
                round_up(item.get("allocatedResources"))
                round_up_requirements(item.get("resources"))


def _mirror_first(obj: Obj, one: str, many: str, wrap: bool = False) -> None:
    """A singular field and the first of its plural are the same thing; where they conflict, the singular wins."""
    single, plural = obj.get(one) or "", obj.get(many) or []
    first = (plural[0].get("ip") or "" if wrap else plural[0]) if plural else ""
    if single and single != first:
        obj[many] = [{"ip": single}] if wrap else [single]
    elif first and not single:
        obj[one] = first


def _add(total: dict[str, Quantity], items: dict[str, str] | None) -> None:
    for name, text in (items or {}).items():
        total[name] = total[name] + parse(text) if name in total else parse(text)


def _aggregate(spec: Obj, kind: str) -> dict[str, Quantity]:
    """The effective need of all containers: regular and sidecars summed, or the largest init step."""
    total: dict[str, Quantity] = {}
    for container in spec.get("containers") or ():
        _add(total, (container.get("resources") or {}).get(kind))
    sidecars: dict[str, Quantity] = {}
    peak: dict[str, Quantity] = {}
    for container in spec.get("initContainers") or ():
        own = (container.get("resources") or {}).get(kind)
        step = dict(sidecars)
        _add(step, own)
        if container.get("restartPolicy") == "Always":
            _add(total, own)
            sidecars = step
        for name, need in step.items():
            if name not in peak or peak[name] < need:
                peak[name] = need
    for name, need in peak.items():
        if name not in total or total[name] < need:
            total[name] = need
    return total


def _pod_level_resources(spec: Obj) -> None:
    resources = spec["resources"]
    limits, requests = dict(resources.get("limits") or {}), dict(resources.get("requests") or {})
    if limits or requests:
        for name, need in _aggregate(spec, "limits").items():
            if name.startswith("hugepages-") and name not in requests:
                limits.setdefault(name, str(need))
        if limits:
            resources["limits"] = limits
    if not limits:
        return
    for name, need in _aggregate(spec, "requests").items():
        if name in ("cpu", "memory"):
            requests.setdefault(name, str(need))
    for name, limit in limits.items():
        if name in ("cpu", "memory") or name.startswith("hugepages-"):
            requests.setdefault(name, limit)
    if requests:
        resources["requests"] = requests


@defaults_for("", "v1", "PodTemplate")
def default_pod_template(obj: Obj) -> None:
    pod_template(obj.setdefault("template", {}))


@defaults_for("", "v1", "ReplicationController")
def default_replication_controller(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    template = spec.get("template")
    if template is None:
        return
    pod_template(template)
    labels = (template.get("metadata") or {}).get("labels")
    if labels:
        if not spec.get("selector"):
            spec["selector"] = dict(labels)
        meta = obj.setdefault("metadata", {})
        if not meta.get("labels"):
            meta["labels"] = dict(labels)


@defaults_for("", "v1", "Service")
def default_service(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    affinity, kind = spec.get("sessionAffinity") or "None", spec.get("type") or "ClusterIP"
    spec["sessionAffinity"], spec["type"] = affinity, kind
    if affinity == "None":
        spec.pop("sessionAffinityConfig", None)
    elif affinity == "ClientIP":
        client = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
        if client.get("timeoutSeconds") is None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}
    for port in spec.get("ports") or ():
        if not port.get("targetPort"):
            port["targetPort"] = port.get("port") or 0
    if not spec.get("externalTrafficPolicy") and externally_accessible(spec):
        spec["externalTrafficPolicy"] = "Cluster"
    if spec.get("internalTrafficPolicy") is None and kind in ("ClusterIP", "NodePort", "LoadBalancer"):
        spec["internalTrafficPolicy"] = "Cluster"
    if kind == "LoadBalancer":
        if spec.get("allocateLoadBalancerNodePorts") is None:
            spec["allocateLoadBalancerNodePorts"] = True
        for ingress in ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ():
            if ingress.get("ip") and ingress.get("ipMode") is None:
                ingress["ipMode"] = "VIP"


def externally_accessible(spec: Obj) -> bool:
    kind = spec.get("type")
    return kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and bool(spec.get("externalIPs")))


@defaults_for("", "v1", "Secret")
def default_secret(obj: Obj) -> None:
    """stringData is write-only: it goes into data."""
    strings = obj.pop("stringData", None)
    if strings:
        data = obj.get("data")
        if data is None:
            data = obj["data"] = {}
        for key, text in strings.items():
            data[key] = base64.b64encode(text.encode()).decode()


@defaults_for("", "v1", "Node")
def default_node(obj: Obj) -> None:
    status = obj.get("status")
    if status:
        if status.get("allocatable") is None and status.get("capacity") is not None:
            status["allocatable"] = dict(status["capacity"])
        round_up(status.get("capacity"))
        round_up(status.get("allocatable"))
    if obj.get("spec"):
        _mirror_first(obj["spec"], "podCIDR", "podCIDRs")


@defaults_for("", "v1", "PersistentVolume")
def default_persistent_volume(obj: Obj) -> None:
    round_up((obj.get("spec") or {}).get("capacity"))


@defaults_for("", "v1", "PersistentVolumeClaim")
def default_persistent_volume_claim(obj: Obj) -> None:
    round_up_requirements((obj.get("spec") or {}).get("resources"))
    status = obj.get("status") or {}
    round_up(status.get("capacity"))
    round_up(status.get("allocatedResources"))


@defaults_for("", "v1", "Namespace")
def namespace(obj: Obj) -> None:
    """The label that selects a namespace by its name; set before managed fields, so that who creates it owns it."""
    name = obj["metadata"].get("name")
    if name:
        obj["metadata"]["labels"] = {**(obj["metadata"].get("labels") or {}), "kubernetes.io/metadata.name": name}


@defaults_for("", "v1", "LimitRange")
def default_limit_range(obj: Obj) -> None:
    for item in (obj.get("spec") or {}).get("limits") or ():
        for name in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
            round_up(item.get(name))
        if item.get("type") != "Container":
            continue
        limit = dict(item.get("default") or {})
        request = dict(item.get("defaultRequest") or {})
        for name, text in (item.get("max") or {}).items():
            limit.setdefault(name, text)
        for source in (limit, item.get("min") or {}):
            for name, text in source.items():
                request.setdefault(name, text)
        item["default"], item["defaultRequest"] = limit, request


@defaults_for("", "v1", "ResourceQuota")
def default_resource_quota(obj: Obj) -> None:
    round_up((obj.get("spec") or {}).get("hard"))
    round_up((obj.get("status") or {}).get("hard"))
    round_up((obj.get("status") or {}).get("used"))

"""Rows of the core group's kinds except pods, and of events."""

from __future__ import annotations

from typing import Any

from kas.api.field import GO_SPACE
from kas.api.printers.age import ZERO_TIME, age, since
from kas.api.printers.cells import NONE, UNSET, containers, first_three, is_true, labels, load_balancer, part
from kas.api.printers.registry import printer

Object = dict[str, Any]
_MODES = (("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP"))
_ROLE_PREFIX = "node-role.kubernetes.io/"


@printer("", "ServiceAccount")
def name_and_age(obj: Object, now: float) -> list[Any]:
    return [obj["metadata"].get("name", ""), age(obj, now)]


@printer("", "Namespace")
def namespace(obj: Object, now: float) -> list[Any]:
    return [obj["metadata"].get("name", ""), part(obj, "status").get("phase", ""), age(obj, now)]


@printer("", "ConfigMap")
def config_map(obj: Object, now: float) -> list[Any]:
    count = len(obj.get("data") or ()) + len(obj.get("binaryData") or ())
    return [obj["metadata"].get("name", ""), count, age(obj, now)]


@printer("", "Secret")
def secret(obj: Object, now: float) -> list[Any]:
    return [obj["metadata"].get("name", ""), obj.get("type", ""), len(obj.get("data") or ()), age(obj, now)]


@printer("", "ReplicationController")
def replication_controller(obj: Object, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    return [
        obj["metadata"].get("name", ""), spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0),
        age(obj, now), *containers(part(spec, "template")), labels(spec.get("selector")),
    ]  # fmt: skip


def _external_ip(obj: Object) -> str:
    spec = part(obj, "spec")
    external = list(spec.get("externalIPs") or ())
    match spec.get("type"):
        case "ClusterIP" | "NodePort":
            return ",".join(external) or NONE
        case "LoadBalancer":
            balanced = load_balancer(part(obj, "status"))
            return ",".join(([balanced] if balanced else []) + external) or "<pending>"
        case "ExternalName":
            return spec.get("externalName", "")
    return "<unknown>"


def _service_port(port: Object) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort", 0) > 0 else ""
    return f"{port.get('port', 0)}{node}/{port.get('protocol', '')}"


@printer("", "Service")
def service(obj: Object, now: float) -> list[Any]:
    spec = part(obj, "spec")
    ips = spec.get("clusterIPs")
    return [
        obj["metadata"].get("name", ""), spec.get("type", ""), ips[0] if ips else NONE, _external_ip(obj),
        ",".join(_service_port(p) for p in spec.get("ports") or ()) or NONE, age(obj, now), labels(spec.get("selector")),
    ]  # fmt: skip


def _endpoints(subsets: list[Object]) -> str:
    shown: list[str] = []
    count = 0
    for subset in subsets:
        addresses = subset.get("addresses") or ()
        for port in subset.get("ports") or (None,):
            count += len(addresses)
            for address in addresses[: 3 - len(shown)]:
                ip = address.get("ip", "")
                if port is not None:
                    ip = f"[{ip}]:{port.get('port', 0)}" if ":" in ip else f"{ip}:{port.get('port', 0)}"
                shown.append(ip)
    return first_three(shown, count)


@printer("", "Endpoints")
def endpoints(obj: Object, now: float) -> list[Any]:
    subsets = obj.get("subsets")
    return [obj["metadata"].get("name", ""), _endpoints(subsets) if subsets else NONE, age(obj, now)]


def _node_status(obj: Object) -> str:
    ready = next((c for c in reversed(part(obj, "status").get("conditions") or ()) if c.get("type") == "Ready"), None)
    text = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    return text + (",SchedulingDisabled" if part(obj, "spec").get("unschedulable") else "")


def _node_roles(found: dict[str, str]) -> str:
    roles = {k[len(_ROLE_PREFIX) :] for k in found if k.startswith(_ROLE_PREFIX)} | {found.get("kubernetes.io/role", "")}
    return ",".join(sorted(roles - {""})) or NONE


@printer("", "Node")
def node(obj: Object, now: float) -> list[Any]:
    status = part(obj, "status")
    info, addresses = part(status, "nodeInfo"), status.get("addresses") or ()

    def address(kind: str) -> str:
        return next((a.get("address", "") for a in addresses if a.get("type") == kind), NONE)

    kernel = info.get("kernelVersion") or "<unknown>"
    if info.get("architecture"):
        kernel += f" ({info['architecture']})"
    return [
        obj["metadata"].get("name", ""), _node_status(obj), _node_roles(part(obj, "metadata", "labels")), age(obj, now),
        info.get("kubeletVersion", ""), address("InternalIP"), address("ExternalIP"), info.get("osImage") or "<unknown>",
        kernel, info.get("containerRuntimeVersion") or "<unknown>",
    ]  # fmt: skip


def access_modes(modes: list[str] | None) -> str:
    return ",".join(short for mode, short in _MODES if mode in modes) if modes else ""


def _phase(obj: Object) -> str:
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else part(obj, "status").get("phase", "")


def _storage_class(obj: Object) -> str:
    annotations = obj["metadata"].get("annotations") or {}
    found = annotations.get("volume.beta.kubernetes.io/storage-class")
    return part(obj, "spec").get("storageClassName") or "" if found is None else found


@printer("", "PersistentVolume")
def persistent_volume(obj: Object, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    claim = spec.get("claimRef")
    return [
        obj["metadata"].get("name", ""), part(spec, "capacity").get("storage", "0"), access_modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""), _phase(obj),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim is not None else "", _storage_class(obj),
        spec.get("volumeAttributesClassName", UNSET), status.get("reason", ""), age(obj, now), spec.get("volumeMode", UNSET),
    ]  # fmt: skip


@printer("", "PersistentVolumeClaim")
def persistent_volume_claim(obj: Object, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    volume, capacity, modes = spec.get("volumeName", ""), "", ""
    if volume:
        capacity, modes = part(status, "capacity").get("storage", "0"), access_modes(status.get("accessModes"))
    return [
        obj["metadata"].get("name", ""), _phase(obj), volume, capacity, modes, _storage_class(obj),
        spec.get("volumeAttributesClassName", UNSET), age(obj, now), spec.get("volumeMode", UNSET),
    ]  # fmt: skip


@printer("", "ComponentStatus")
def component_status(obj: Object, now: float) -> list[Any]:
    healthy = next((c for c in obj.get("conditions") or () if c.get("type") == "Healthy"), None)
    if healthy is None:
        return [obj["metadata"].get("name", ""), "Unknown", "", ""]
    text = "Healthy" if healthy.get("status") == "True" else "Unhealthy"
    return [obj["metadata"].get("name", ""), text, healthy.get("message", ""), healthy.get("error", "")]


def _quota(hard: dict[str, str], used: dict[str, str], limits: bool) -> str:
    names = sorted(name for name in hard if name.startswith("limits.") == limits)
    return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in names)


@printer("", "ResourceQuota")
def resource_quota(obj: Object, now: float) -> list[Any]:
    hard, used = part(obj, "status", "hard"), part(obj, "status", "used")
    return [obj["metadata"].get("name", ""), _quota(hard, used, False), _quota(hard, used, True), age(obj, now)]


def _event(obj: Object, now: float, new: bool) -> list[Any]:
    """Both event APIs: the new one calls the object ``regarding``, the message ``note`` and the old fields deprecated."""
    about = obj.get("regarding" if new else "involvedObject") or {}
    source = obj.get("deprecatedSource" if new else "source") or {}
    first = obj.get("deprecatedFirstTimestamp" if new else "firstTimestamp")
    last = obj.get("deprecatedLastTimestamp" if new else "lastTimestamp")
    count = obj.get("deprecatedCount" if new else "count") or 1
    component = source.get("component") or obj.get("reportingController" if new else "reportingComponent") or ""
    instance = source.get("host") or obj.get("reportingInstance") or ""

    first_seen = since(first if first and first != ZERO_TIME else obj.get("eventTime"), now)
    last_seen = since(last, now) if last and last != ZERO_TIME else first_seen
    series = obj.get("series")
    if series is not None:
        last_seen, count = since(series.get("lastObservedTime"), now), series.get("count", 0)
    kind, name = about.get("kind", "").lower(), about.get("name")
    return [
        last_seen, obj.get("type", ""), obj.get("reason", ""), f"{kind}/{name}" if name else kind, about.get("fieldPath", ""),
        f"{component}, {instance}" if instance else component, (obj.get("note" if new else "message") or "").strip(GO_SPACE),
        first_seen, count, obj["metadata"].get("name", ""),
    ]  # fmt: skip


@printer("", "Event")
def core_event(obj: Object, now: float) -> list[Any]:
    return _event(obj, now, new=False)


@printer("events.k8s.io", "Event")
def event(obj: Object, now: float) -> list[Any]:
    return _event(obj, now, new=True)


@printer("policy", "PodDisruptionBudget")
def pod_disruption_budget(obj: Object, now: float) -> list[Any]:
    spec = part(obj, "spec")
    return [
        obj["metadata"].get("name", ""), str(spec.get("minAvailable", "N/A")), str(spec.get("maxUnavailable", "N/A")),
        part(obj, "status").get("disruptionsAllowed", 0), age(obj, now),
    ]  # fmt: skip


@printer("meta", "Status")
def status(obj: Object, now: float) -> list[Any]:
    return [obj.get("status", ""), obj.get("reason", ""), obj.get("message", "")]


@printer("scheduling.k8s.io", "PodGroup")
def pod_group(obj: Object, now: float) -> list[Any]:
    spec, conditions = part(obj, "spec"), part(obj, "status").get("conditions") or ()
    state = "Pending"
    for c in conditions:
        if c.get("type") == "PodGroupScheduled":
            state = "Scheduled" if c.get("status") == "True" else "Unschedulable"
    if is_true(conditions, "DisruptionTarget"):
        state = next(c.get("reason", "") for c in conditions if c.get("type") == "DisruptionTarget")
    return [
        obj["metadata"].get("name", ""), "Gang" if "gang" in part(spec, "schedulingPolicy") else "Basic",
        part(spec, "podGroupTemplateRef", "workload").get("workloadName") or NONE, state, age(obj, now),
    ]  # fmt: skip


@printer("scheduling.k8s.io", "PriorityClass")
def priority_class(obj: Object, now: float) -> list[Any]:
    return [
        obj["metadata"].get("name", ""), obj.get("value", 0), obj.get("globalDefault", False), age(obj, now),
        obj.get("preemptionPolicy", ""),
    ]  # fmt: skip


printer("scheduling.k8s.io", "Workload")(name_and_age)

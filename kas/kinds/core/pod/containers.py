"""Validation of all three sorts of containers (``pkg/apis/core/validation``).

The rules common to all come first, in upstream's order, because clients see the order of errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kas.config import features
from kas.kinds.core.pod.fieldrefs import ENV_FIELDS, object_field, resource_field
from kas.kinds.core.pod.options import DEFAULT, Options
from kas.kinds.core.pod.probes import container_ports, host_port_conflicts, lifecycle, probe
from kas.kinds.core.pod.security import container_security
from kas.kinds.core.pod.security import containers as all_containers
from kas.kinds.core.pod.volumes import PULL_POLICIES, pull_policy
from kas.kinds.core.pod.volumesources import local_descending_path, no_backsteps
from kas.kinds.core.resources import ClaimNames, container_requirements
from kas.meta import cached, field, names
from kas.meta.checks import unsupported
from kas.meta.field import FieldError
from kas.meta.records import NamedTuple

Container = Mapping[str, Any]
PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
RESTART_POLICIES = ("Always", "Never", "OnFailure")
EPHEMERAL = "cannot be set for an Ephemeral Container"
NOT_FOR_INIT = "may not be set for init containers without restartPolicy=Always"
_EPHEMERAL_REFUSED = (
    "ports", "resources", "resizePolicy", "restartPolicy", "restartPolicyRules", "livenessProbe", "readinessProbe",
    "startupProbe", "lifecycle",
)  # fmt: skip


class PodFacts(NamedTuple):
    """What the validation of a container needs to know about its pod."""

    volumes: dict[str, dict[str, Any]]
    claims: ClaimNames
    grace: int
    restart_policy: str
    host_users: bool
    os_name: str | None
    options: Options = DEFAULT


# -- environment -------------------------------------------------------------------------------------------------------


def _env(items: list[dict[str, Any]], path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    for i, item in enumerate(items):
        name = item.get("name")
        if not name:
            errs.append(field.required(f"{path}[{i}].name"))
        else:
            messages = cached.env_name(name)
            if messages:
                errs += [field.invalid(f"{path}[{i}].name", name, m) for m in messages]
        if item.get("valueFrom") is not None:
            errs += _value_from(item, f"{path}[{i}].valueFrom")
    return errs


def _value_from(item: Container, path: str) -> list[FieldError]:
    source, count = item["valueFrom"], 0
    errs: list[FieldError] = []
    if source.get("fieldRef") is not None:
        count += 1
        errs += object_field(source["fieldRef"], ENV_FIELDS, f"{path}.fieldRef")
    if source.get("resourceFieldRef") is not None:
        count += 1
        errs += resource_field(source["resourceFieldRef"], f"{path}.resourceFieldRef", False)
    for key in ("configMapKeyRef", "secretKeyRef"):
        if source.get(key) is not None:
            count += 1
            errs += _key_ref(source[key], f"{path}.{key}")
    if source.get("fileKeyRef") is not None:
        count += 1
        errs += _file_key_ref(source["fileKeyRef"], f"{path}.fileKeyRef")
    if not count:
        rest = "`secretKeyRef` or `fileKeyRef`" if features.DEFAULT.enabled("EnvFiles") else "or `secretKeyRef`"
        comma = "," if features.DEFAULT.enabled("EnvFiles") else ""
        message = f"must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`{comma} {rest}"
        errs.append(field.invalid(path, "", message))
    elif item.get("value"):
        errs.append(field.invalid(path, "", "may not be specified when `value` is not empty"))
    elif count > 1:
        errs.append(field.invalid(path, "", "may not have more than one field specified at a time"))
    return errs


def _key_ref(ref: Container, path: str) -> list[FieldError]:
    name, key = ref.get("name") or "", ref.get("key") or ""
    errs = [field.invalid(f"{path}.name", name, m) for m in cached.dns_subdomain(name)]
    if not key:
        errs.append(field.required(f"{path}.key"))
    else:
        errs += [field.invalid(f"{path}.key", key, m) for m in cached.config_map_key(key)]
    return errs


def _file_key_ref(ref: Container, path: str) -> list[FieldError]:
    key, volume, where = ref.get("key") or "", ref.get("volumeName") or "", ref.get("path") or ""
    errs: list[FieldError] = []
    if not key:
        errs.append(field.required(f"{path}.key"))
    else:
        errs += [field.invalid(f"{path}.key", key, m) for m in cached.env_name(key)]
    if not volume:
        errs.append(field.required(f"{path}.volumeName"))
    else:
        errs += [field.invalid(f"{path}.volumeName", volume, m) for m in names.is_dns1123_label(volume)]
    if not where:
        errs.append(field.required(f"{path}.path"))
    else:
        errs += no_backsteps(where, f"{path}.path")
    return errs


def volumes_of_files(spec: Container, path: str) -> list[FieldError]:
    """Check that the files from which environments are read are in an emptyDir of the pod."""
    errs: list[FieldError] = []
    known = {v.get("name") or "": v for v in spec.get("volumes") or ()}
    for container, at in all_containers(spec, path):
        for i, item in enumerate(container.get("env") or ()):
            ref = (item.get("valueFrom") or {}).get("fileKeyRef")
            if ref is None:
                continue
            name, where = ref.get("volumeName") or "", f"{at}.env[{i}].valueFrom.fileKeyRef.volumeName"
            if name not in known:
                errs.append(field.not_found(where, name))
            elif known[name].get("emptyDir") is None:
                errs.append(field.invalid(where, name, "referenced volume must be of type emptyDir"))
    return errs


def _env_from(items: list[dict[str, Any]], path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    for i, item in enumerate(items):
        at, prefix, count = f"{path}[{i}]", item.get("prefix"), 0
        if prefix:
            errs += [field.invalid(f"{at}.prefix", prefix, m) for m in cached.env_name(prefix)]
        for key in ("configMapRef", "secretRef"):
            ref = item.get(key)
            if ref is None:
                continue
            count += 1
            name = ref.get("name") or ""
            if not name:
                errs.append(field.required(f"{at}.{key}.name"))
            else:
                errs += [field.invalid(f"{at}.{key}.name", name, m) for m in names.dns_subdomain(name, True)]
        if not count:
            errs.append(field.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif count > 1:
            errs.append(field.invalid(path, "", "may not have more than one field specified at a time"))
    return errs


# -- mounts ------------------------------------------------------------------------------------------------------------


def _mounts(container: Container, mounts: list[dict[str, Any]], volumes: Mapping[str, Any], path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    devices = {d.get("name") or "": d.get("devicePath") or "" for d in container.get("volumeDevices") or ()}
    device_paths = set(devices.values())
    points: set[str] = set()
    for i, mount in enumerate(mounts):
        name, point = mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            errs.append(field.required(f"{path}[{i}].name"))
        volume = volumes.get(name)
        if volume is None:
            errs.append(field.not_found(f"{path}[{i}].name", name))
        if not point:
            errs.append(field.required(f"{path}[{i}].mountPath"))
        if point in points:
            errs.append(field.invalid(f"{path}[{i}].mountPath", point, "must be unique"))
        points.add(point)
        if devices:
            if name in devices:
                errs.append(field.invalid(f"{path}[{i}].name", name, "must not already exist in volumeDevices"))
            if point in device_paths:
                message = "must not already exist as a path in volumeDevices"
                errs.append(field.invalid(f"{path}[{i}].mountPath", point, message))
        sub, expression = mount.get("subPath"), mount.get("subPathExpr")
        if sub:
            errs += local_descending_path(sub, f"{path}.subPath")
        if expression:
            if sub:
                message = "subPathExpr and subPath are mutually exclusive"
                errs.append(field.invalid(f"{path}[{i}].subPathExpr", expression, message))
            errs += local_descending_path(expression, f"{path}.subPathExpr")
        propagation, recursive = mount.get("mountPropagation"), mount.get("recursiveReadOnly")
        if propagation is not None:
            errs += _propagation(propagation, container, f"{path}.mountPropagation")
        if recursive is not None:
            errs += _recursive_read_only(mount, recursive, f"{path}.recursiveReadOnly")
    return errs


def _propagation(mode: str, container: Container, path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    if mode not in ("Bidirectional", "HostToContainer", "None"):
        errs.append(unsupported(path, mode, ("Bidirectional", "HostToContainer", "None")))
    if mode == "Bidirectional" and not (container.get("securityContext") or {}).get("privileged"):
        message = "Bidirectional mount propagation is available only to privileged containers"
        errs.append(field.forbidden(path, message))
    return errs


def _recursive_read_only(mount: Container, mode: str, path: str) -> list[FieldError]:
    if mode == "Disabled":
        return []
    if mode not in ("Enabled", "IfPossible"):
        return [unsupported(path, mode, ("Disabled", "Enabled", "IfPossible"))]
    errs: list[FieldError] = []
    if not mount.get("readOnly"):
        errs.append(field.forbidden(path, "may only be specified when readOnly is true"))
    if mount.get("mountPropagation") not in (None, "None"):
        errs.append(field.forbidden(path, "may only be specified when mountPropagation is None or not specified"))
    return errs


def _devices(container: Container, devices: list[dict[str, Any]], volumes: Mapping[str, Any], path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    mounts = {m.get("name") or "": m.get("mountPath") or "" for m in container.get("volumeMounts") or ()}
    mount_paths = set(mounts.values())
    seen_names: set[str] = set()
    seen_paths: set[str] = set()
    for i, device in enumerate(devices):
        at, name, where = f"{path}[{i}]", device.get("name") or "", device.get("devicePath") or ""
        volume = volumes.get(name)
        if not name:
            errs.append(field.required(f"{at}.name"))
        if name in seen_names:
            errs.append(field.invalid(f"{at}.name", name, "must be unique"))
        if volume is None:
            errs.append(field.not_found(f"{at}.name", name))
        elif volume.get("persistentVolumeClaim") is None and volume.get("ephemeral") is None:
            message = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            errs.append(field.invalid(f"{at}.name", name, message))
        if not where:
            errs.append(field.required(f"{at}.devicePath"))
        if where in seen_paths:
            errs.append(field.invalid(f"{at}.devicePath", where, "must be unique"))
        if where and no_backsteps(where, ""):
            errs.append(field.invalid(f"{at}.devicePath", where, "can not contain backsteps ('..')"))
        else:
            seen_paths.add(where)
        if name in mounts:
            errs.append(field.invalid(f"{at}.name", name, "must not already exist in volumeMounts"))
        if where in mount_paths:
            errs.append(field.invalid(f"{at}.devicePath", where, "must not already exist as a path in volumeMounts"))
        if name:
            seen_names.add(name)
    return errs


# -- common ------------------------------------------------------------------------------------------------------------


def _resize_policy(items: list[dict[str, Any]], pod_restart_policy: str, path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    seen: set[str] = set()
    for i, item in enumerate(items):
        name, policy = item.get("resourceName") or "", item.get("restartPolicy") or ""
        if name in seen:
            errs.append(field.duplicate(f"{path}[{i}]", name))
        seen.add(name)
        if name not in ("cpu", "memory"):
            errs.append(unsupported(path, name, ("cpu", "memory")) if name else field.required(path))
        if policy not in ("NotRequired", "RestartContainer"):
            errs.append(unsupported(path, policy, ("NotRequired", "RestartContainer")) if policy else field.required(path))
        if pod_restart_policy == "Never" and policy != "NotRequired":
            errs.append(field.invalid(path, policy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'"))
    return errs


def _init_restart_rules(container: Container, path: str, options: Options) -> list[FieldError]:
    """``validateInitContainerRestartPolicy``; feature gates decide which policies besides Always are allowed."""
    policy = container.get("restartPolicy")
    if policy is None:  # its rules are not validated then
        message = "must specify restartPolicy when restart rules are used"
        return [field.required(f"{path}.restartPolicy", message)] if container.get("restartPolicyRules") else []
    if not options.restart_rules:
        return [] if policy == "Always" else [unsupported(f"{path}.restartPolicy", policy, ("Always",))]
    if policy == "Always" and not options.restart_all:
        message = "restartPolicyRules are not allowed for init containers with restart policy Always"
        return [field.forbidden(f"{path}.restartPolicyRules", message)] if container.get("restartPolicyRules") else []
    return _restart_rules(container, path, options)


def _restart_rules(container: Container, path: str, options: Options) -> list[FieldError]:
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or []
    errs: list[FieldError] = []
    if policy is None:
        if rules:
            message = "must specify restartPolicy when restart rules are used"
            errs.append(field.required(f"{path}.restartPolicy", message))
    elif policy not in RESTART_POLICIES:
        errs.append(unsupported(f"{path}.restartPolicy", policy, RESTART_POLICIES))
    actions = ("Restart", "RestartAllContainers") if options.restart_all else ("Restart",)
    if len(rules) > 20:
        errs.append(field.too_many(f"{path}.restartPolicyRules", len(rules), 20))
    for i, rule in enumerate(rules):
        at, codes = f"{path}.restartPolicyRules[{i}]", rule.get("exitCodes")
        if rule.get("action") not in actions:
            errs.append(unsupported(f"{at}.action", rule.get("action") or "", actions))
        if codes is None:
            errs.append(field.required(f"{at}.exitCodes", "must be specified"))
            continue
        if codes.get("operator") not in ("In", "NotIn"):
            errs.append(unsupported(f"{at}.exitCodes.operator", codes.get("operator") or "", ("In", "NotIn")))
        if len(codes.get("values") or ()) > 255:
            errs.append(field.too_many(f"{at}.exitCodes.values", len(codes["values"]), 255))
    return errs


def _common(container: Container, pod: PodFacts, path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    get = container.get
    name = get("name")
    if not name:
        errs.append(field.required(f"{path}.name"))
    else:
        messages = cached.dns_label(name)
        if messages:
            errs += [field.invalid(f"{path}.name", name, m) for m in messages]
    if not get("image"):
        errs.append(field.required(f"{path}.image"))
    policy = get("terminationMessagePolicy")
    if policy not in MESSAGE_POLICIES:
        at = f"{path}.terminationMessagePolicy"
        errs.append(unsupported(at, policy, MESSAGE_POLICIES) if policy else field.required(at))
    if get("ports"):
        errs += container_ports(container["ports"], f"{path}.ports")
    if get("env"):
        errs += _env(container["env"], f"{path}.env")
    if get("envFrom"):
        errs += _env_from(container["envFrom"], f"{path}.envFrom")
    if get("volumeMounts"):
        errs += _mounts(container, container["volumeMounts"], pod.volumes, f"{path}.volumeMounts")
    if get("volumeDevices"):
        errs += _devices(container, container["volumeDevices"], pod.volumes, f"{path}.volumeDevices")
    if get("imagePullPolicy") not in PULL_POLICIES:
        errs += pull_policy(get("imagePullPolicy"), f"{path}.imagePullPolicy")
    if get("resources"):
        errs += container_requirements(container["resources"], pod.claims, f"{path}.resources", pod.options)
    if get("resizePolicy"):
        errs += _resize_policy(container["resizePolicy"], pod.restart_policy, f"{path}.resizePolicy")
    if get("securityContext"):
        errs += container_security(container["securityContext"], pod.host_users, f"{path}.securityContext")
    return errs


def _run_time(container: Container, pod: PodFacts, path: str) -> list[FieldError]:
    """Validate hooks and probes of containers that may have them."""
    errs: list[FieldError] = []
    if container.get("lifecycle") is not None:
        errs += lifecycle(container["lifecycle"], pod.grace, pod.os_name, f"{path}.lifecycle")
    for which in PROBES:
        if container.get(which) is not None:
            errs += probe(container[which], which, pod.grace, f"{path}.{which}")
    return errs


def regular_containers(items: list[dict[str, Any]], pod: PodFacts, path: str) -> list[FieldError]:
    """``validateContainers``: there is at least one; names and, across all of them, host ports are unique."""
    if not items:
        return [field.required(path)]
    errs: list[FieldError] = []
    seen: set[str] = set()
    for i, container in enumerate(items):
        at, name = f"{path}[{i}]", container.get("name") or ""
        errs += _common(container, pod, at)
        if name in seen:
            errs.append(field.duplicate(f"{at}.name", name))
        seen.add(name)
        errs += _run_time(container, pod, at)
        if container.get("restartPolicy") is not None or container.get("restartPolicyRules"):
            errs += _restart_rules(container, at, pod.options)
    return errs + host_port_conflicts(items, path)


def init_containers(items: list[dict[str, Any]], regular: list[dict[str, Any]], pod: PodFacts, path: str) -> list[FieldError]:
    """``validateInitContainers``: their names also differ from those of ``regular``; only sidecars (restartPolicy Always) may have hooks
    and probes.
    """
    errs: list[FieldError] = []
    seen = {c.get("name") or "" for c in regular}
    for i, container in enumerate(items):
        at, name, policy = f"{path}[{i}]", container.get("name") or "", container.get("restartPolicy")
        errs += _common(container, pod, at)
        if policy is not None or container.get("restartPolicyRules"):
            errs += _init_restart_rules(container, at, pod.options)
        if name in seen:
            errs.append(field.duplicate(f"{at}.name", name))
        elif name:
            seen.add(name)
        errs += host_port_conflicts([container], path)
        if policy == "Always":
            errs += _run_time(container, pod, at)
        else:
            for key in ("lifecycle", *PROBES):
                if container.get(key) is not None:
                    errs.append(field.forbidden(f"{at}.{key}", NOT_FOR_INIT))
            for j, item in enumerate(container.get("resizePolicy") or ()):
                if item.get("restartPolicy") == "RestartContainer" and not pod.options.restarting_init:
                    message = "must not be set to 'RestartContainer' for non-sidecar initContainers"
                    errs.append(field.invalid(f"{at}.resizePolicy[{j}].restartPolicy", "RestartContainer", message))
    return errs


def ephemeral_containers(
    items: list[dict[str, Any]], others: list[dict[str, Any]], pod: PodFacts, path: str
) -> list[FieldError]:
    """Validate ephemeral containers; ``others`` are the regular and init containers of the pod."""
    errs: list[FieldError] = []
    known = {c.get("name") or "" for c in others}
    seen = set(known)
    for i, container in enumerate(items):
        at, name, target = f"{path}[{i}]", container.get("name") or "", container.get("targetContainerName")
        errs += _common(container, pod, at)
        errs += image_without_padding(container, at)
        if name in seen:
            errs.append(field.duplicate(f"{at}.name", name))
        seen.add(name)
        if target and target not in known:
            errs.append(field.not_found(f"{at}.targetContainerName", target))
        for key in _EPHEMERAL_REFUSED:
            # A field counts as set if it is not Go's zero value: an empty list is set, empty resources are not.
            value = container.get(key)
            if value is not None and (value or key != "resources"):
                errs.append(field.forbidden(f"{at}.{key}", EPHEMERAL))
        for j, mount in enumerate(container.get("volumeMounts") or ()):
            for key in ("subPath", "subPathExpr"):
                if mount.get(key):
                    errs.append(field.forbidden(f"{at}.volumeMounts[{j}].{key}", EPHEMERAL))
    return errs


def image_without_padding(container: Container, path: str) -> list[FieldError]:
    """Check that the image has no surrounding white space, which is allowed in templates only."""
    image = container.get("image") or ""
    if image != image.strip():
        return [field.invalid(f"{path}.image", image, "must not have leading or trailing whitespace")]
    return []

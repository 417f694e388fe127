"""The check tables of pod specs: the field values of pods without validation errors and warnings.

The rules are in this package (``containers``, ``volumes``, ``scheduling``, ``spec``, ``warnings``); fields that a table does not name are
left to them.
"""

from __future__ import annotations

from typing import Any

from kas import checks
from kas.checks import Scope
from kas.kinds.core.pod.fieldrefs import ENV_FIELDS, VOLUME_FIELDS
from kas.meta.metachecks import LABELS
from kas.types.checktables import ANY, ENUM, FALSE, Checked, Message, at_most_one, each, either, need, one_of, only_with, whole

NAMES, PORTS, VOLUMES, FILES = Scope("containers"), Scope("ports"), Scope("volumes"), Scope("files")

SOME_TEXT = checks.text(1)
LABEL, SUBDOMAIN = checks.dns_label(), checks.dns_subdomain()
PORT = checks.integer(1, 65535)
PORT_OR_NAME = checks.by_kind(integer=PORT, text=checks.port_name())
MODE = checks.integer(0, 0o777)
COUNT = checks.integer(0)
ID = checks.integer(0, 0x7FFFFFFF)
RELATIVE, FILE_NAME = checks.path(), checks.path(folders=False)

# -- environment

_KEY_OF = {"name": need(SUBDOMAIN), "key": need(checks.data_key()), "optional": ANY}
_ALL_OF = {"name": need(SUBDOMAIN), "optional": ANY}


def _field_of(known: tuple[str, ...]) -> dict[str, Any]:
    return {"apiVersion": need(checks.option("v1")), "fieldPath": need(checks.option(*known))}


_VALUE_FROM = Message(
    {"fieldRef": _field_of(ENV_FIELDS), "secretKeyRef": _KEY_OF, "configMapKeyRef": _KEY_OF},
    groups=[one_of("fieldRef", "secretKeyRef", "configMapKeyRef")],
)
# A repeated name overrides the earlier one, which causes a warning.
_ENV = Message(
    {"name": need(checks.printable(refused="=")), "value": ANY, "valueFrom": _VALUE_FROM}, groups=[at_most_one("value", "valueFrom")]
)
_ENV_FROM = Message({"configMapRef": _ALL_OF, "secretRef": _ALL_OF}, groups=[one_of("configMapRef", "secretRef")])

# -- resources, ports, mounts

_AMOUNTS = {"cpu": checks.amount(), "memory": checks.amount(whole=True), "ephemeral-storage": checks.amount(whole=True)}
_LIMITED = whole(checks.record(_AMOUNTS))
_RESOURCES = Message({"limits": _LIMITED, "requests": _LIMITED}, not_above=[("requests", "limits")])
# Fields that concern the host are left to the rules.
_PORT = Message(
    {"name": checks.port_name().claim(PORTS), "containerPort": need(PORT), "protocol": need(ENUM)},
    keys=[(PORTS, ("containerPort", "protocol"))],
)
_MOUNT = Message(
    {
        "name": need(checks.member(VOLUMES)), "mountPath": need(SOME_TEXT), "readOnly": ANY, "subPath": RELATIVE, "subPathExpr": RELATIVE,
    },
    groups=[at_most_one("subPath", "subPathExpr")],
)  # fmt: skip

# -- security

_PROFILE = {"type": need(checks.option("RuntimeDefault", "Unconfined"))}
_CONTEXT = {"readOnlyRootFilesystem": ANY, "runAsNonRoot": ANY, "runAsUser": ID, "runAsGroup": ID, "seccompProfile": _PROFILE}
_SECURITY = either(
    {**_CONTEXT, "allowPrivilegeEscalation": ANY, "privileged": FALSE, "capabilities": {"drop": ANY}},
    {**_CONTEXT, "privileged": ANY, "capabilities": {"add": ANY, "drop": ANY}},
)

# -- probes

_EXEC = {"command": need(each(ANY, 1))}
_HTTP = {"path": need(SOME_TEXT), "port": need(PORT_OR_NAME), "scheme": need(ENUM), "host": ANY}
_SOCKET = {"port": need(PORT_OR_NAME), "host": ANY}
_ACTIONS = {"exec": _EXEC, "httpGet": _HTTP, "tcpSocket": _SOCKET}
_GRPC = {"port": need(PORT), "service": ANY}


def _probe(successes: Any) -> Message:
    counts = dict.fromkeys(("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "failureThreshold"), COUNT)
    return Message(
        {**_ACTIONS, "grpc": _GRPC, **counts, "successThreshold": successes}, groups=[one_of(*_ACTIONS, "grpc")]
    )  # fmt: skip


_ONCE, _READINESS = _probe(need(checks.integer(1, 1))), _probe(COUNT)
_HOOK = Message(_ACTIONS, groups=[one_of(*_ACTIONS)])

# -- containers

_EVERY_CONTAINER = {
    "name": need(LABEL.claim(NAMES)), "image": need(checks.unpadded()), "ports": each(_PORT, unique=False), "envFrom": _ENV_FROM,
    "env": _ENV,
    "resources": _RESOURCES, "volumeMounts": _MOUNT, "terminationMessagePolicy": need(ENUM), "imagePullPolicy": need(ENUM),
    "securityContext": _SECURITY,
    **dict.fromkeys(("command", "args", "workingDir", "terminationMessagePath", "stdin", "stdinOnce", "tty"), ANY),
}  # fmt: skip
_RUNNING = {
    **_EVERY_CONTAINER, "livenessProbe": _ONCE, "readinessProbe": _READINESS, "startupProbe": _ONCE,
    "lifecycle": {"postStart": _HOOK, "preStop": _HOOK},
}  # fmt: skip
_SIDECAR = checks.option("Always")
_INIT = Message(
    {**_RUNNING, "restartPolicy": _SIDECAR},
    groups=[only_with("restartPolicy", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle")],
)

# -- volumes


def _items(item: dict[str, Any]) -> Any:
    """Return the check of files in one directory: a file may be in a subdirectory only if it is alone, as another's name could collide."""
    files = Message({**item, "path": need(FILE_NAME)}, keys=[(FILES, ("path",))])
    return either(each({**item, "path": need(RELATIVE)}, 1, 1), each(files, 1, opens=[FILES]))


_KEY = {"key": need(SOME_TEXT), "mode": MODE}
_DOWNWARD = {"fieldRef": need(_field_of(VOLUME_FIELDS)), "mode": MODE}


def _of_keys(name: str) -> dict[str, Any]:
    return {name: need(SOME_TEXT), "defaultMode": MODE, "items": _items(_KEY), "optional": ANY}


def _sources(listed: bool) -> Any:
    """Return the check of projected sources. A source without files causes warnings about the files of the source before it."""

    def files(item: dict[str, Any], **more: Any) -> dict[str, Any]:
        if not listed:
            return more
        item = {**item, "path": need(FILE_NAME.claim(FILES))}
        return {"items": need(each(item, 1)), **more}

    sources: dict[str, Any] = {
        "secret": files(_KEY, name=need(SOME_TEXT), optional=ANY), "configMap": files(_KEY, name=need(SOME_TEXT), optional=ANY),
    }  # fmt: skip
    if listed:
        token = {"audience": ANY, "expirationSeconds": need(checks.integer(600, 1 << 32)), "path": need(FILE_NAME.claim(FILES))}
        sources |= {"downwardAPI": files(_DOWNWARD), "serviceAccountToken": token}
    return each(Message(sources, groups=[one_of(*sources)]), 1, opens=[FILES])


_HOST_PATH = {"path": need(checks.path(relative=False)), "type": ENUM}
_SOURCES = {
    "emptyDir": {"medium": ANY, "sizeLimit": checks.amount()}, "configMap": _of_keys("name"), "secret": _of_keys("secretName"),
    "projected": {"sources": need(either(_sources(True), _sources(False))), "defaultMode": MODE},
    "persistentVolumeClaim": {"claimName": need(SOME_TEXT), "readOnly": ANY}, "hostPath": _HOST_PATH,
    "downwardAPI": {"items": _items(_DOWNWARD), "defaultMode": MODE},
}  # fmt: skip
_VOLUME = Message({"name": need(LABEL.claim(VOLUMES)), **_SOURCES}, groups=[one_of(*_SOURCES)])

# -- the rest of a spec

_NODE_TAINTS = tuple(
    f"node.kubernetes.io/{name}"
    for name in (
        "not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "network-unavailable", "unschedulable",
    )
)  # fmt: skip
_OF_NODES, _EXISTS = checks.option(*_NODE_TAINTS), checks.option("Exists")
_TOLERATION = either(
    {"key": need(_OF_NODES), "operator": need(_EXISTS), "effect": need(checks.option("NoExecute")), "tolerationSeconds": ANY},
    {"key": need(checks.qualified_name()), "operator": need(_EXISTS), "effect": ENUM},
    {"key": need(checks.qualified_name()), "operator": checks.option("Equal"), "value": checks.label_value(), "effect": ENUM},
)
_POD_CONTEXT = {
    "fsGroup": ID, "runAsUser": ID, "runAsGroup": ID, "supplementalGroups": each(ID), "runAsNonRoot": ANY, "seccompProfile": _PROFILE,
    "fsGroupChangePolicy": checks.option("Always", "OnRootMismatch"),
}  # fmt: skip

_PARTS = {
    "volumes": each(_VOLUME, unique=False),
    "containers": need(each(_RUNNING, 1, unique=False)),
    "initContainers": each(_INIT, unique=False),
}
_REST = {
    "restartPolicy": need(ENUM),
    "terminationGracePeriodSeconds": need(checks.integer(0)),
    "activeDeadlineSeconds": checks.integer(1, 0x7FFFFFFF),
    "dnsPolicy": need(checks.option("ClusterFirst", "ClusterFirstWithHostNet", "Default")),
    "serviceAccountName": SUBDOMAIN,
    "nodeName": SUBDOMAIN,
    "hostNetwork": FALSE,
    "hostPID": FALSE,
    "nodeSelector": whole(LABELS),
    "securityContext": _POD_CONTEXT,
    "imagePullSecrets": {"name": need(SOME_TEXT)},
    "hostname": LABEL,
    "subdomain": LABEL,
    "tolerations": each(_TOLERATION),
    "priorityClassName": SUBDOMAIN,
    "preemptionPolicy": checks.option("PreemptLowerPriority", "Never"),
    "runtimeClassName": SUBDOMAIN,
    **dict.fromkeys(
        (
            "serviceAccount", "automountServiceAccountToken", "hostIPC", "shareProcessNamespace", "schedulerName", "priority",
            "enableServiceLinks", "setHostnameAsFQDN",
        ),
        ANY,
    ),
}  # fmt: skip

PARTS = Checked("core.v1.PodSpec", Message(_PARTS, first=["volumes"], opens=[NAMES, PORTS, VOLUMES], rest=ANY))
REST = Checked("core.v1.PodSpec", {**dict.fromkeys(_PARTS, ANY), **_REST})

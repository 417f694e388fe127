"""Rendering of upstream's *internal* types: JSON with Go's field names, with every field present.

Some errors quote such a value (``Duplicate value: {"Name":"","Protocol":"TCP",...}``), and changes of immutable specs are refused with a
unified diff of two of them. Types are named ``group.Type`` (``core.PodSpec``, ``meta.LabelSelector``), or ``group.version.Type`` when there
is no v1.

The output follows from the type's descriptor. Types of ``meta`` have JSON tags and print as they are served. Internal types have no tags,
so that Go prints its own field names, and unset fields too. Other differences between an internal type and the served one (order, a field
in another struct, a value in place of a pointer) are listed in the tables below.

Values are typed as ``decode`` returns them: an absent one prints null, an empty list or map ``[]`` or ``{}``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from itertools import chain
from typing import Any

import orjson

from kas.types.scheme import Field, TypeDesc, builtin_type, encode_json

# JSON names whose Go names are not simply capitalised.
_NAMES = {
    "apiGroups": "APIGroups", "pkixPublicKey": "PKIXPublicKey",
    "apiGroup": "APIGroup", "apiVersion": "APIVersion", "awsElasticBlockStore": "AWSElasticBlockStore", "cel": "CEL", "cephfs": "CephFS",
    "csi": "CSI", "dnsConfig": "DNSConfig", "dnsPolicy": "DNSPolicy", "fc": "FC", "fsGroup": "FSGroup", "fsType": "FSType",
    "fsGroupChangePolicy": "FSGroupChangePolicy", "gcePersistentDisk": "GCEPersistentDisk", "gmsaCredentialSpec": "GMSACredentialSpec",
    "gmsaCredentialSpecName": "GMSACredentialSpecName", "grpc": "GRPC", "httpGet": "HTTPGet", "httpHeaders": "HTTPHeaders", "ip": "IP",
    "iqn": "IQN", "iscsi": "ISCSI", "iscsiInterface": "ISCSIInterface", "nfs": "NFS", "os": "OS", "pdName": "PDName", "rbd": "RBD",
    "seLinuxChangePolicy": "SELinuxChangePolicy", "seLinuxOptions": "SELinuxOptions", "sslEnabled": "SSLEnabled", "storageos": "StorageOS",
    "tcpSocket": "TCPSocket", "tls": "TLS", "tty": "TTY", "uid": "UID", "wwids": "WWIDs", "http": "HTTP",
    "cidr": "CIDR", "cidrs": "CIDRs", "url": "URL",
}  # fmt: skip
_RBD = {"monitors": "CephMonitors", "image": "RBDImage", "pool": "RBDPool", "user": "RadosUser"}
_CHAP = {"chapAuthDiscovery": "DiscoveryCHAPAuth", "chapAuthSession": "SessionCHAPAuth"}
_TYPE_NAMES = {
    "RBDVolumeSource": _RBD, "RBDPersistentVolumeSource": _RBD, "ISCSIVolumeSource": _CHAP, "ISCSIPersistentVolumeSource": _CHAP,
    "GlusterfsVolumeSource": {"endpoints": "EndpointsName"}, "GlusterfsPersistentVolumeSource": {"endpoints": "EndpointsName"},
    "AzureDiskVolumeSource": {"diskURI": "DataDiskURI"},
    "DeviceAttribute": {
        "int": "IntValue", "bool": "BoolValue", "string": "StringValue", "version": "VersionValue",
        "ints": "IntValues", "bools": "BoolValues", "strings": "StringValues", "versions": "VersionValues",
    },
}  # fmt: skip

_VOLUME_SOURCE = (
    "hostPath emptyDir gcePersistentDisk awsElasticBlockStore gitRepo secret nfs iscsi glusterfs persistentVolumeClaim rbd quobyte "
    "flexVolume cinder cephfs flocker downwardAPI fc azureFile configMap vsphereVolume azureDisk photonPersistentDisk projected "
    "portworxVolume scaleIO storageos csi ephemeral image"
)
_PERSISTENT_SOURCE = (
    "gcePersistentDisk awsElasticBlockStore hostPath glusterfs nfs rbd quobyte iscsi flexVolume cinder cephfs fc flocker azureFile "
    "vsphereVolume azureDisk photonPersistentDisk portworxVolume scaleIO local storageos csi"
)
_HOST = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers")
# Field order of types that internally have other fields or another order.
_ORDER = {
    "PodSpec": "volumes initContainers containers ephemeralContainers restartPolicy terminationGracePeriodSeconds "
    "activeDeadlineSeconds dnsPolicy nodeSelector serviceAccountName automountServiceAccountToken nodeName securityContext "
    "imagePullSecrets hostname subdomain setHostnameAsFQDN affinity schedulerName tolerations hostAliases priorityClassName priority "
    "preemptionPolicy dnsConfig readinessGates runtimeClassName overhead enableServiceLinks topologySpreadConstraints os "
    "schedulingGates resourceClaims resources hostnameOverride schedulingGroup",
    "Volume": "name " + _VOLUME_SOURCE,
    "PodSecurityContext": "seLinuxOptions windowsOptions runAsUser runAsGroup runAsNonRoot supplementalGroups supplementalGroupsPolicy "
    "fsGroup fsGroupChangePolicy sysctls seccompProfile appArmorProfile seLinuxChangePolicy",
    "PersistentVolumeSource": _PERSISTENT_SOURCE,
    "PersistentVolumeSpec": f"capacity {_PERSISTENT_SOURCE} accessModes claimRef persistentVolumeReclaimPolicy storageClassName "
    "mountOptions volumeMode nodeAffinity volumeAttributesClassName",
}
# Pointers in v1, values in the internal type.
_VALUES = frozenset(
    {
        ("RollingUpdateDeployment", "maxUnavailable"), ("RollingUpdateDeployment", "maxSurge"),
        ("RollingUpdateDaemonSet", "maxUnavailable"), ("RollingUpdateDaemonSet", "maxSurge"),
        ("RollingUpdateStatefulSetStrategy", "partition"), ("ServiceAccountTokenProjection", "expirationSeconds"),
        ("LimitedPriorityLevelConfiguration", "nominalConcurrencyShares"), ("PodSpec", "securityContext"),
    }
)  # fmt: skip


@cache
def _type(name: str) -> TypeDesc:
    group, _, rest = name.partition(".")
    version, _, kind = rest.rpartition(".")
    prefix = "io.k8s.apimachinery.pkg.apis.meta" if group == "meta" else f"io.k8s.api.{group}"
    return builtin_type(f"{prefix}.{version or 'v1'}.{kind}")


@cache
def _fields(type_: TypeDesc) -> tuple[tuple[str, Field], ...]:
    """(Go's name, field) in the order of the internal struct."""
    own = _TYPE_NAMES.get(type_.kind_name, {})
    by_name = type_.by_name
    fields = list(type_.json_fields)
    if type_.kind_name in _ORDER:
        fields = [by_name[name] for name in _ORDER[type_.kind_name].split()]
    if type_.kind_name == "PodSecurityContext":
        # Internally the host namespaces are here; v1 has them in the pod's spec.
        spec = _type("core.PodSpec").by_name
        fields = [spec[name] for name in _HOST] + fields
    return tuple((own.get(f.name) or _NAMES.get(f.name) or f.name[0].upper() + f.name[1:], f) for f in fields)


def render(name: str, obj: Mapping[str, Any] | None) -> dict[str, Any]:
    """Renders ``obj`` as the internal type ``name`` ("core.PodSpec"), with Go's field names; None counts as an empty object."""
    return _struct(_type(name), dict(obj or {}))


def render_list(name: str, items: list[Any] | None) -> list[Any] | None:
    """Renders a slice of ``name``; None is nil."""
    return None if items is None else [render(name, item) for item in items]


def served(name: str, value: Any, member: str = "") -> Any:
    """A value in its served form, for rules that upstream evaluates on that: one of type ``name``, or the value of its field ``member``."""
    if value is None:
        return None
    if member:
        return orjson.loads(encode_json(_type(name), {member: value})).get(member, value)
    return orjson.loads(encode_json(_type(name), value))


def _tagged(type_: TypeDesc) -> bool:
    """Whether the internal and the served type are the same, with JSON tags."""
    return type_.name.startswith("io.k8s.apimachinery.")


def _struct(type_: TypeDesc, obj: dict[str, Any]) -> dict[str, Any]:
    if _tagged(type_):
        return orjson.loads(encode_json(type_, obj))
    if type_.kind_name == "PodSpec":
        host = {k: obj[k] for k in _HOST if k in obj}
        obj = {**obj, "securityContext": {**(obj.get("securityContext") or {}), **host}}
    out: dict[str, Any] = {}
    for go, field in _fields(type_):
        message = field.message
        if field.name == "metadata" and message is not None and message.kind_name in ("ObjectMeta", "ListMeta"):
            out.update(_struct(message, obj.get("metadata") or {}))  # embedded
        else:
            out[go] = _value(type_, field, obj.get(field.name))
    return out


def _value(owner: TypeDesc, field: Field, value: Any) -> Any:
    if field.card == "list":
        return None if value is None else [_element(field, item) for item in value]
    if field.card == "map":
        return None if value is None else {k: _element(field, value[k]) for k in sorted(value)}
    if value is None and field.ptr and (owner.kind_name, field.name) not in _VALUES:
        return None
    return _element(field, value)


_ZERO = {"string": "", "bool": False, "int32": 0, "int64": 0, "double": 0}
_ZERO_MESSAGE = {"Quantity": "0", "IntOrString": 0, "Duration": "0s"}


def _element(field: Field, value: Any) -> Any:
    message = field.message
    if message is None:
        return _ZERO.get(field.type) if value is None else value
    if message.custom_json is not None:
        return _ZERO_MESSAGE.get(message.kind_name) if value is None else value
    return _struct(message, value or {})


def sorted_map(value: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A map of plain values with sorted keys, as Go prints it; None is nil."""
    return None if value is None else {k: value[k] for k in sorted(value)}


_INDENTED = json.JSONEncoder(indent=1, ensure_ascii=False)


def _lines(value: Any) -> list[str]:
    """The lines of the indented JSON, built piecewise: for a pod with thousands of volumes the whole text has 50 MB, and each operation on
    it holds the GIL.
    """
    out, line = list[str](), list[str]()
    for piece in chain(_INDENTED.iterencode(value), ("\n",)):
        end, newline, begun = piece.partition("\n")  # inside strings it is escaped
        line.append(end)
        if newline:
            out.append("".join(line).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
            line = [begun]
    return out


def spec_diff(name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> str:
    """apimachinery's ``diff.Diff(old, new)`` of two values rendered as ``name``: a unified diff with three lines of context, without file
    names.
    """
    return diff(render(name, old), render(name, new))


# Finding common lines takes time proportional to the product of the line counts.
MAX_DIFF_LINES = 1_000
_CONTEXT = 3


def diff(old: Any, new: Any) -> str:
    """``diff.Diff`` of two rendered values.

    Above ``MAX_DIFF_LINES`` lines in total, only a common beginning and end are detected. The rest is one change, shown up to half that
    many lines on each side.
    """
    before, after = _lines(old), _lines(new)
    if len(before) + len(after) > MAX_DIFF_LINES:
        return "".join(line + "\n" for line in _one_change(before, after))
    import difflib  # needed only for errors about changes of immutable fields

    out = list(difflib.unified_diff(before, after, n=_CONTEXT, lineterm=""))
    return "".join(line + "\n" for line in out[2:])


def _one_change(before: list[str], after: list[str]) -> list[str]:
    if before == after:
        return []
    first, shorter = 0, min(len(before), len(after))
    while first < shorter and before[first] == after[first]:
        first += 1
    alike = 0
    while alike < shorter - first and before[-1 - alike] == after[-1 - alike]:
        alike += 1
    start, tail = max(0, first - _CONTEXT), min(alike, _CONTEXT)
    ends = len(before) - alike, len(after) - alike
    head = f"@@ -{start + 1},{ends[0] + tail - start} +{start + 1},{ends[1] + tail - start} @@"
    lead, trail = before[start:first], before[ends[0] : ends[0] + tail]
    most = first + MAX_DIFF_LINES // 2
    gone, come = before[first : min(ends[0], most)], after[first : min(ends[1], most)]
    return [head, *(f" {x}" for x in lead), *(f"-{x}" for x in gone), *(f"+{x}" for x in come), *(f" {x}" for x in trail)]

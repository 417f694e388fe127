"""PersistentVolumes (upstream ``pkg/registry/core/persistentvolume``, ``pkg/apis/core/validation``)."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from typing import Any

from kas.config import features
from kas.kinds.core.claims import VOLUME_MODES, access_modes
from kas.kinds.core.columns import phase, short_modes, storage_class
from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.kinds.core.pod import volumesources as volumes
from kas.kinds.core.pod.defaults import round_up
from kas.kinds.core.pod.scheduling import node_selector
from kas.kinds.core.pod.warnings import deprecated_volumes, node_selector_term_warnings
from kas.kinds.core.resources import basic_resource, positive_quantity
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import unsupported
from kas.meta.equality import semantic_equal
from kas.meta.field import FieldError
from kas.registry.printing.cells import UNSET, part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.defaults import defaults_for
from kas.types.gostruct import render, spec_diff
from kas.types.scheme import builtin_field, builtin_type

Source = Mapping[str, Any]
RECLAIM_POLICIES = ("Delete", "Recycle", "Retain")
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
MOUNT_ANNOTATION = "volume.beta.kubernetes.io/mount-options"
# Node labels that may be replaced by their GA names in an otherwise immutable node affinity.
_GA_LABELS = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}


def _named_secret(source: Source, path: str) -> list[FieldError]:
    ref = source.get("secretRef")
    if ref is None:
        return []
    return [field.required(f"{path}.secretRef.{key}") for key in ("name", "namespace") if not ref.get(key)]


def _glusterfs(source: Source, path: str) -> list[FieldError]:
    errs, namespace = volumes.glusterfs(source, path), source.get("endpointsNamespace")
    if namespace == "":
        message = "if the endpointnamespace is set, it must be a valid namespace name"
        errs.append(field.invalid(f"{path}.endpointsNamespace", namespace, message))
    elif namespace is not None:
        errs += [field.invalid(f"{path}.endpointsNamespace", namespace, m) for m in names.is_dns1123_label(namespace)]
    return errs


def _iscsi(source: Source, path: str, pv_name: str = "") -> list[FieldError]:
    portal, unknown = source.get("targetPortal") or "", "must be valid format"
    errs = volumes.need(source, path, "targetPortal")
    if source.get("initiatorName") is not None and names.byte_length(f"{pv_name}:{portal}") > 64:
        errs.append(field.invalid(f"{path}.targetportal", portal, volumes.ISCSI_NAME_LENGTH))
    errs += volumes.iscsi_target(source, path, unknown)
    if source.get("secretRef") is not None and not source["secretRef"].get("name"):
        errs.append(field.required(f"{path}.secretRef.name"))
    return errs + volumes.iscsi_initiator(source, path, unknown)


def _cinder(source: Source, path: str) -> list[FieldError]:
    bare = {k: v for k, v in source.items() if k != "secretRef"}
    return volumes.cinder(bare, path) + _named_secret(source, path)


def _storage_os(source: Source, path: str) -> list[FieldError]:
    bare = {k: v for k, v in source.items() if k != "secretRef"}
    return volumes.storage_os(bare, path) + _named_secret(source, path)


def _azure_file(source: Source, path: str) -> list[FieldError]:
    errs = volumes.azure_file(source, path)
    if source.get("secretNamespace") == "":
        errs.append(field.required(f"{path}.secretNamespace"))
    return errs


def _local(source: Source, path: str) -> list[FieldError]:
    if not source.get("path"):
        return [field.required(f"{path}.path")]
    return volumes.no_backsteps(source["path"], f"{path}.path")


# (JSON name, path segment, segment of the error for a second source, check), in upstream's order.
_SOURCES: tuple[tuple[str, str, str, Callable[[Source, str], list[FieldError]]], ...] = (
    ("hostPath", "hostPath", "hostPath", volumes.host_path),
    ("gcePersistentDisk", "persistentDisk", "gcePersistentDisk", volumes.gce_disk),
    ("awsElasticBlockStore", "awsElasticBlockStore", "awsElasticBlockStore", volumes.aws_disk),
    ("glusterfs", "glusterfs", "glusterfs", _glusterfs),
    ("flocker", "flocker", "flocker", volumes.flocker),
    ("nfs", "nfs", "nfs", volumes.nfs),
    ("rbd", "rbd", "rbd", volumes.rbd),
    ("quobyte", "quobyte", "quobyte", volumes.quobyte),
    ("cephfs", "cephfs", "cephFS", volumes.cephfs),
    ("iscsi", "iscsi", "iscsi", _iscsi),
    ("cinder", "cinder", "cinder", _cinder),
    ("fc", "fc", "fc", volumes.fc),
    ("flexVolume", "flexVolume", "flexVolume", volumes.flex_volume),
    ("azureFile", "azureFile", "azureFile", _azure_file),
    ("vsphereVolume", "vsphereVolume", "vsphereVolume", volumes.vsphere),
    ("photonPersistentDisk", "photonPersistentDisk", "photonPersistentDisk", volumes.photon),
    ("portworxVolume", "portworxVolume", "portworxVolume", volumes.portworx),
    ("azureDisk", "azureDisk", "azureDisk", volumes.azure_disk),
    ("scaleIO", "scaleIO", "scaleIO", volumes.scale_io),
    ("local", "local", "local", _local),
    ("storageos", "storageos", "storageos", _storage_os),
    ("csi", "csi", "csi", volumes.persistent_csi),
)


def one_source(spec: Source, path: str, pv_name: str, has_affinity: bool) -> list[FieldError]:
    """Check that the spec at ``path`` has exactly one volume source, which is valid."""
    errs: list[FieldError] = []
    found = 0
    for key, segment, complaint, check in _SOURCES:
        source = spec.get(key)
        if source is None:
            continue
        if found and key != "flexVolume":
            errs.append(field.forbidden(f"{path}.{complaint}", volumes.MORE_THAN_ONE))
            continue
        found += 1
        at = f"{path}.{segment}"
        errs += _iscsi(source, at, pv_name) if key == "iscsi" else check(source, at)
        if key == "local" and not has_affinity:
            errs.append(field.required(f"{path}.nodeAffinity", "Local volume requires node affinity"))
    if not found:
        errs.append(field.required(path, "must specify a volume type"))
    host = (spec.get("hostPath") or {}).get("path") or ""
    if host and posixpath.normpath(host).lstrip("/") == "" and spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        message = "may not be 'recycle' for a hostPath mount of '/'"
        errs.append(field.forbidden(f"{path}.persistentVolumeReclaimPolicy", message))
    return errs


def _spec(spec: Source, pv_name: str, allow_invalid_nodes: bool) -> list[FieldError]:
    errs: list[FieldError] = []
    if not spec.get("accessModes"):
        errs.append(field.required("spec.accessModes"))
    errs += access_modes(spec.get("accessModes") or (), "spec.accessModes")
    capacity = spec.get("capacity") or {}
    if not capacity:
        errs.append(field.required("spec.capacity"))
    if "storage" not in capacity or len(capacity) > 1:
        errs.append(unsupported("spec.capacity", capacity or spec.get("capacity"), ("storage",)))
    for name in sorted(capacity):
        at = f"spec.capacity[{name}]"
        errs += basic_resource(capacity[name], at) + positive_quantity(capacity[name], at)
    policy = spec.get("persistentVolumeReclaimPolicy") or ""
    if policy and policy not in RECLAIM_POLICIES:
        errs.append(unsupported("spec.persistentVolumeReclaimPolicy", policy, RECLAIM_POLICIES))
    affinity = spec.get("nodeAffinity")
    if affinity is not None:
        if affinity.get("required") is not None:
            errs += node_selector(affinity["required"], allow_invalid_nodes, "spec.nodeAffinity.required")
        else:
            errs.append(field.required("spec.nodeAffinity.required", "must specify required node constraints"))
    errs += one_source(spec, "spec", pv_name, affinity is not None)
    class_name, mode, attributes = spec.get("storageClassName"), spec.get("volumeMode"), spec.get("volumeAttributesClassName")
    if class_name:
        errs += [field.invalid("spec.storageClassName", class_name, m) for m in names.is_dns1123_subdomain(class_name)]
    if mode is not None and mode not in VOLUME_MODES:
        errs.append(unsupported("spec.volumeMode", mode, VOLUME_MODES))
    if attributes is not None:
        at = "spec.volumeAttributesClassName"
        if not attributes:
            errs.append(field.required(at, "an empty string is disallowed"))
        else:
            errs += [field.invalid(at, attributes, m) for m in names.is_dns1123_subdomain(attributes)]
        if spec.get("csi") is None:
            errs.append(field.required("spec.csi", "has to be specified when using volumeAttributesClassName"))
    return errs


# Sources whose plug-ins support mount options, which were an annotation before there was a field.
_MOUNTED = frozenset(
    (
        "gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "nfs", "rbd", "quobyte", "iscsi", "cinder", "cephfs", "azureFile",
        "vsphereVolume", "azureDisk", "photonPersistentDisk",
    )
)  # fmt: skip


def _mount_options(obj: Obj) -> list[FieldError]:
    """``ValidatePersistentVolume`` of ``pkg/volume/validation``."""
    if MOUNT_ANNOTATION not in (obj["metadata"].get("annotations") or {}) or _MOUNTED & _source_of(obj.get("spec") or {}).keys():
        return []
    return [field.forbidden(f"metadata.annotations.{MOUNT_ANNOTATION}", "may not specify mount options for this volume type")]


def _validate(obj: Obj, allow_invalid_nodes: bool = False) -> list[FieldError]:
    meta = obj["metadata"]
    errs = object_meta(meta, False, names.dns_subdomain)
    return errs + _spec(obj.get("spec") or {}, meta.get("name") or "", allow_invalid_nodes)


def _source_of(spec: Source) -> dict[str, Any]:
    return {key: spec[key] for key, *_ in _SOURCES if spec.get(key) is not None}


def _with_ga_labels(affinity: Any, wanted: Any) -> Any:
    """Return ``affinity`` with beta node labels renamed where ``wanted`` has the GA name at the same place."""
    if isinstance(affinity, dict) and isinstance(wanted, dict):
        out = {k: _with_ga_labels(v, wanted.get(k)) for k, v in affinity.items()}
        if "operator" in out and _GA_LABELS.get(out.get("key") or "") == wanted.get("key"):
            out["key"] = wanted["key"]
        return out
    if isinstance(affinity, list) and isinstance(wanted, list) and len(affinity) == len(wanted):
        return [_with_ga_labels(a, b) for a, b in zip(affinity, wanted, strict=True)]
    return affinity


def _update(obj: Obj, old: Obj) -> list[FieldError]:
    spec, before = obj.get("spec") or {}, old.get("spec") or {}
    errs: list[FieldError] = []
    source, was = _source_of(spec), _source_of(before)
    csi, old_csi = source.get("csi"), was.get("csi")
    if csi and old_csi and old_csi.get("controllerExpandSecretRef") is None:
        source["csi"] = {k: v for k, v in csi.items() if k != "controllerExpandSecretRef"}
    if not semantic_equal(source, was, builtin_type("core.v1.PersistentVolumeSource")):
        diff = spec_diff("core.PersistentVolumeSource", was, source)
        message = f"spec.persistentvolumesource is immutable after creation\n{diff}"
        errs.append(field.forbidden("spec.persistentvolumesource", message))
    if spec.get("volumeMode") != before.get("volumeMode"):
        errs.append(field.invalid("volumeMode", spec.get("volumeMode"), "field is immutable"))
    affinity, had = spec.get("nodeAffinity"), before.get("nodeAffinity")
    of = builtin_field("core.v1.PersistentVolumeSpec", "nodeAffinity")
    fixed = had is not None and not features.DEFAULT.enabled("MutablePVNodeAffinity")
    if fixed and not semantic_equal(affinity, _with_ga_labels(had, affinity), of):
        message = "field is immutable, except for updating from beta label to GA"
        shown = None if affinity is None else render("core.VolumeNodeAffinity", affinity)
        errs.append(field.invalid("nodeAffinity", shown, message))
    if before.get("volumeAttributesClassName") is not None and spec.get("volumeAttributesClassName") is None:
        at = "spec.volumeAttributesClassName"
        errs.append(field.forbidden(at, "update from non-nil value to nil is forbidden"))
    return errs


_DEPRECATED = ("cephfs", "photonPersistentDisk", "scaleIO", "storageos", "glusterfs", "rbd")


def _warnings(obj: Obj) -> list[str]:
    spec, annotations = obj.get("spec") or {}, obj["metadata"].get("annotations") or {}
    out = []
    if CLASS_ANNOTATION in annotations:
        out.append(f'metadata.annotations[{CLASS_ANNOTATION}]: deprecated since v1.8; use "storageClassName" attribute instead')
    if MOUNT_ANNOTATION in annotations:
        out.append(f'metadata.annotations[{MOUNT_ANNOTATION}]: deprecated since v1.31; use "mountOptions" attribute instead')
    if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        text = "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning."
        out.append(f"spec.persistentVolumeReclaimPolicy: {text}")
    terms = ((spec.get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms") or ()
    for i, term in enumerate(terms):
        out += node_selector_term_warnings(term, False, f"spec.nodeAffinity.required.nodeSelectorTerms[{i}]")
    return out + deprecated_volumes(spec, "spec", _DEPRECATED)


@strategy_for("", "persistentvolumes")
class PersistentVolumeStrategy(Strategy):
    """PersistentVolumes; the source is immutable, and the phase has the time of its last change."""

    def prepare_for_create(self, ctx: Context, obj: Obj) -> None:
        """Set phase Pending as of now, whatever the request says."""
        super().prepare_for_create(ctx, obj)
        obj["status"] = {"phase": "Pending", "lastPhaseTransitionTime": ctx.now}

    def prepare_for_status_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Carry over the spec; set the time of a phase change unless the request has one, and keep it without a change."""
        super().prepare_for_status_update(ctx, obj, old)
        status, before = obj.setdefault("status", {}), old.get("status") or {}
        stamp, was = status.get("lastPhaseTransitionTime"), before.get("lastPhaseTransitionTime")
        if status.get("phase") == before.get("phase"):
            if stamp is None and was is not None:
                status["lastPhaseTransitionTime"] = was
        elif stamp is None or stamp == was:
            status["lastPhaseTransitionTime"] = ctx.now

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidatePersistentVolume``, and the validation of the volume's type."""
        return _validate(obj) + _mount_options(obj)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidatePersistentVolumeUpdate``; the volume's errors come twice, as upstream's strategy and function both validate it."""
        required = ((old.get("spec") or {}).get("nodeAffinity") or {}).get("required")
        allow = bool(required and node_selector(required, False, "") and not node_selector(required, True, ""))
        return _validate(obj, allow) + _mount_options(obj) + _validate(obj, allow) + _update(obj, old)

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidatePersistentVolumeStatusUpdate``: metadata, which needs a resourceVersion."""
        errs = object_meta_update(obj["metadata"], old["metadata"])
        if not obj["metadata"].get("resourceVersion"):
            errs.append(field.required("resourceVersion"))
        return errs

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """Return a warning for each deprecated annotation, policy, node label or volume source."""
        return _warnings(obj)

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """Return the warnings that creating the new object would give."""
        return _warnings(obj)


@defaults_for("", "v1", "PersistentVolume")
def default_persistent_volume(obj: Obj) -> None:
    """Apply computed defaults: the capacity is rounded up to thousandths."""
    round_up((obj.get("spec") or {}).get("capacity"))


@printer("", "PersistentVolume")
def persistent_volume_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, capacity, modes, reclaim policy, status, claim, class, attributes class, reason, age, volume mode."""
    spec, status = part(obj, "spec"), part(obj, "status")
    claim = spec.get("claimRef")
    return [
        obj["metadata"].get("name", ""), part(spec, "capacity").get("storage", "0"), short_modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""), phase(obj),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim is not None else "", storage_class(obj),
        spec.get("volumeAttributesClassName", UNSET), status.get("reason", ""), age(obj, now), spec.get("volumeMode", UNSET),
    ]  # fmt: skip

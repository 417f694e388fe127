"""Validation of volume sources that pods and PersistentVolumes share, and the path rules of all (``pkg/apis/core/validation``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kas.meta import field, names
from kas.meta.checks import csi_driver_name, unsupported
from kas.meta.field import FieldError
from kas.meta.patterns import later

Source = Mapping[str, Any]
MORE_THAN_ONE = "may not specify more than 1 volume type"
PARTITION = "must be between 1 and 255, inclusive"
LUN = "must be between 0 and 255, inclusive"
RESERVED_OPTION = "kubernetes.io and k8s.io namespaces are reserved"
ISCSI_NAME_LENGTH = (
    "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."
)
HOST_PATH_TYPES = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
_INITIATORS = {
    "iqn": later(r"iqn\.[0-9]{4}-[0-9]{2}\.([a-zA-Z0-9\-.]+)(:[^,;*&$|\t\n\f\r ]+)\Z"),
    "eui": later(r"\Aeui.[a-zA-Z0-9]{16}\Z"),
    "naa": later(r"\Anaa.[a-zA-Z0-9]{32}\Z"),
}


# -- paths -------------------------------------------------------------------------------------------------------------


def no_backsteps(target: str, path: str) -> list[FieldError]:
    """``validatePathNoBacksteps``: no element of the path is ".."."""
    if ".." in target and ".." in target.split("/"):
        return [field.invalid(path, target, "must not contain '..'")]
    return []


def local_descending_path(target: str, path: str) -> list[FieldError]:
    """``validateLocalDescendingPath``: a relative path without an element ".."."""
    errs = []
    if target.startswith("/"):
        errs.append(field.invalid(path, target, "must be a relative path"))
    return errs + no_backsteps(target, path)


def local_non_reserved_path(target: str, path: str) -> list[FieldError]:
    """``validateLocalNonReservedPath``: as ``local_descending_path``, and its first element does not start with ".."."""
    errs = local_descending_path(target, path)
    if target.startswith("..") and not target.startswith("../"):
        errs.append(field.invalid(path, target, "must not start with '..'"))
    return errs


def need(source: Source, path: str, *keys: str) -> list[FieldError]:
    """A "Required value" for each of ``keys`` that is absent or empty, in their order."""
    return [field.required(f"{path}.{key}") for key in keys if not source.get(key)]


# -- sources shared with PersistentVolumes -------------------------------------------------------------------------------


def host_path(source: Source, path: str) -> list[FieldError]:
    """``validateHostPathVolumeSource``: a path without "..", and a known type where one is given."""
    where = source.get("path")
    if not where:
        return [field.required(f"{path}.path")]
    errs = no_backsteps(where, f"{path}.path")
    kind = source.get("type")
    if kind is not None and kind not in HOST_PATH_TYPES:
        errs.append(unsupported(f"{path}.type", kind, HOST_PATH_TYPES))
    return errs


def partitioned_disk(source: Source, path: str, name_key: str) -> list[FieldError]:
    """Validate a disk named by ``name_key``, with a partition from 0, which means none, to 255."""
    errs = need(source, path, name_key)
    partition = source.get("partition") or 0
    if not 0 <= partition <= 255:
        errs.append(field.invalid(f"{path}.partition", partition, PARTITION))
    return errs


def gce_disk(source: Source, path: str) -> list[FieldError]:
    """``validateGCEPersistentDiskVolumeSource``: see ``partitioned_disk``."""
    return partitioned_disk(source, path, "pdName")


def aws_disk(source: Source, path: str) -> list[FieldError]:
    """``validateAWSElasticBlockStoreVolumeSource``: see ``partitioned_disk``."""
    return partitioned_disk(source, path, "volumeID")


def nfs(source: Source, path: str) -> list[FieldError]:
    """``validateNFSVolumeSource``: a server and an absolute path; an empty path is two errors."""
    errs = need(source, path, "server", "path")
    where = source.get("path") or ""
    if not where.startswith("/"):
        errs.append(field.invalid(f"{path}.path", where, "must be an absolute path"))
    return errs


def _initiator(value: str, path: str, unknown: str) -> list[FieldError]:
    prefix = value[:3]
    if prefix not in _INITIATORS:
        return [field.invalid(path, value, unknown)]
    if not _INITIATORS[prefix].search(value):
        return [field.invalid(path, value, "must be valid format")]
    return []


def iscsi(source: Source, path: str) -> list[FieldError]:
    """``validateISCSIVolumeSource`` of a pod; the length of its name with the portal is the volume's to check."""
    unknown = "must be valid format starting with iqn, eui, or naa"
    return need(source, path, "targetPortal") + iscsi_target(source, path, unknown) + iscsi_initiator(source, path, unknown)


def iscsi_target(source: Source, path: str, unknown: str) -> list[FieldError]:
    """Validate the fields that sources of pods and PersistentVolumes share: an iqn, a LUN from 0 to 255, and a secret if CHAP is on.
    ``unknown`` is the error for an iqn of unknown format.
    """
    errs: list[FieldError] = []
    iqn, lun = source.get("iqn"), source.get("lun") or 0
    errs += _initiator(iqn, f"{path}.iqn", unknown) if iqn else [field.required(f"{path}.iqn")]
    if not 0 <= lun <= 255:
        errs.append(field.invalid(f"{path}.lun", lun, LUN))
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and source.get("secretRef") is None:
        errs.append(field.required(f"{path}.secretRef"))
    return errs


def iscsi_initiator(source: Source, path: str, unknown: str) -> list[FieldError]:
    """Check that the initiator's name, if given, is an iqn, eui or naa; ``unknown`` is the error for other formats."""
    name = source.get("initiatorName")
    return [] if name is None else _initiator(name, f"{path}.initiatorname", unknown)


def glusterfs(source: Source, path: str) -> list[FieldError]:
    """``validateGlusterfsVolumeSource``: endpoints and a path."""
    return need(source, path, "endpoints", "path")


def flocker(source: Source, path: str) -> list[FieldError]:
    """``validateFlockerVolumeSource``: either the name of a dataset, without "/", or its UUID."""
    name, uid = source.get("datasetName") or "", source.get("datasetUUID") or ""
    errs = []
    if not name and not uid:
        errs.append(field.required(path, "one of datasetName and datasetUUID is required"))
    if name and uid:
        errs.append(field.invalid(path, "resource", "datasetName and datasetUUID can not be specified simultaneously"))
    if "/" in name:
        errs.append(field.invalid(f"{path}.datasetName", name, "must not contain '/'"))
    return errs


def rbd(source: Source, path: str) -> list[FieldError]:
    """``validateRBDVolumeSource``: monitors and an image."""
    return need(source, path, "monitors", "image")


def cinder(source: Source, path: str) -> list[FieldError]:
    """``validateCinderVolumeSource``: a volume, and the name of a secret if one is given; its namespace is not validated."""
    errs = need(source, path, "volumeID")
    if source.get("secretRef") is not None:
        errs += need(source["secretRef"], f"{path}.secretRef", "name")
    return errs


def cephfs(source: Source, path: str) -> list[FieldError]:
    """``validateCephFSVolumeSource``: monitors."""
    return need(source, path, "monitors")


def quobyte(source: Source, path: str) -> list[FieldError]:
    """``validateQuobyteVolumeSource``: a registry of host:port pairs set apart by commas, a volume, and a tenant of at most 64
    characters.
    """
    pairs = "must be a host:port pair or multiple pairs separated by commas"
    registry = source.get("registry") or ""
    errs = []
    if not registry:
        errs.append(field.required(f"{path}.registry", pairs))
    elif names.byte_length(source.get("tenant") or "") >= 65:
        errs.append(field.required(f"{path}.tenant", "must be a UUID and may not exceed a length of 64 characters"))
    else:
        for pair in registry.split(","):
            host, colon, _ = pair.rpartition(":")
            bracketed = host.startswith("[") and host.endswith("]")
            stray = any(c in "[]" for c in (pair[1 : len(host) - 1] + pair[len(host) :] if bracketed else pair))
            if not colon or stray or (":" in host and not bracketed):
                errs.append(field.invalid(f"{path}.registry", registry, pairs))
    return errs + need(source, path, "volume")


def fc(source: Source, path: str) -> list[FieldError]:
    """``validateFCVolumeSource``: either targetWWNs with a LUN from 0 to 255, or wwids, whose LUN is not looked at."""
    wwns, ids, lun = source.get("targetWWNs") or [], source.get("wwids") or [], source.get("lun")
    errs = []
    if not wwns and not ids:
        errs.append(field.required(f"{path}.targetWWNs", "must specify either targetWWNs or wwids, but not both"))
    if wwns and ids:
        message = "targetWWNs and wwids can not be specified simultaneously"
        errs.append(field.invalid(f"{path}.targetWWNs", wwns, message))
    if wwns:
        if lun is None:
            errs.append(field.required(f"{path}.lun", "lun is required if targetWWNs is specified"))
        elif not 0 <= lun <= 255:
            errs.append(field.invalid(f"{path}.lun", lun, LUN))
    return errs


def flex_volume(source: Source, path: str) -> list[FieldError]:
    """``validateFlexVolumeSource``: a driver, and no option in the domains kubernetes.io and k8s.io; errors in the order of the options'
    keys.
    """
    errs = need(source, path, "driver")
    for key in sorted(source.get("options") or ()):
        domain = "." + key.split("/", 1)[0].lower()
        if domain.endswith((".kubernetes.io", ".k8s.io")):
            errs.append(field.invalid(f"{path}.options[{key}]", key, RESERVED_OPTION))
    return errs


def azure_file(source: Source, path: str) -> list[FieldError]:
    """``validateAzureFile`` of a pod: a secret and a share."""
    return need(source, path, "secretName", "shareName")


def azure_disk(source: Source, path: str) -> list[FieldError]:
    """``validateAzureDisk``: a name, known caching mode and kind where given, and a URI that suits the kind."""
    errs = need(source, path, "diskName", "diskURI")
    caching, kind, uri = source.get("cachingMode"), source.get("kind"), source.get("diskURI") or ""
    if caching is not None and caching not in ("None", "ReadOnly", "ReadWrite"):
        errs.append(unsupported(f"{path}.cachingMode", caching, ("None", "ReadOnly", "ReadWrite")))
    if kind is not None and kind not in ("Dedicated", "Managed", "Shared"):
        errs.append(unsupported(f"{path}.kind", kind, ("Dedicated", "Managed", "Shared")))
    managed = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
    blob = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
    if kind == "Managed" and not uri.startswith("/subscriptions/"):
        errs.append(unsupported(f"{path}.diskURI", uri, (managed,)))
    if kind is not None and kind != "Managed" and not uri.startswith("https://"):
        errs.append(unsupported(f"{path}.diskURI", uri, (blob,)))
    return errs


def vsphere(source: Source, path: str) -> list[FieldError]:
    """``validateVsphereVolumeSource``: a volume path."""
    return need(source, path, "volumePath")


def photon(source: Source, path: str) -> list[FieldError]:
    """``validatePhotonPersistentDiskVolumeSource``: a disk."""
    return need(source, path, "pdID")


def portworx(source: Source, path: str) -> list[FieldError]:
    """``validatePortworxVolumeSource``: a volume."""
    return need(source, path, "volumeID")


def scale_io(source: Source, path: str) -> list[FieldError]:
    """``validateScaleIOVolumeSource``: gateway, system and volume name; a pod's and a PersistentVolume's alike."""
    return need(source, path, "gateway", "system", "volumeName")


def storage_os(source: Source, path: str) -> list[FieldError]:
    """``validateStorageOSVolumeSource``: volume name and, where given, namespace are DNS labels; a secret that is given has a name."""
    name, namespace = source.get("volumeName"), source.get("volumeNamespace")
    errs = []
    if not name:
        errs.append(field.required(f"{path}.volumeName"))
    else:
        errs += [field.invalid(f"{path}.volumeName", name, m) for m in names.is_dns1123_label(name)]
    if namespace:
        errs += [field.invalid(f"{path}.volumeNamespace", namespace, m) for m in names.is_dns1123_label(namespace)]
    if source.get("secretRef") is not None:
        errs += need(source["secretRef"], f"{path}.secretRef", "name")
    return errs


def persistent_csi(source: Source, path: str) -> list[FieldError]:
    """Validate the CSI source of a PersistentVolume; a pod's is another type."""
    errs = csi_driver_name(source.get("driver") or "", f"{path}.driver")
    if not source.get("volumeHandle"):
        errs.append(field.required(f"{path}.volumeHandle"))
    for key in ("controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"):
        ref = source.get(key)
        if ref is None:
            continue
        for part, check in (("name", names.is_dns1123_subdomain), ("namespace", names.is_dns1123_label)):
            value, at = ref.get(part) or "", f"{path}.{key}.{part}"
            errs += [field.invalid(at, value, m) for m in check(value)] if value else [field.required(at)]
    return errs

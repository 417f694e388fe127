"""Volumes of a pod: exactly one source each, and the rules of every source (``pkg/apis/core/validation``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from kas.api import field
from kas.api.field import FieldError
from kas.api.validation import cached, names
from kas.api.validation.checks import csi_driver_name, unsupported
from kas.api.validation.claims import claim_template
from kas.api.validation.fieldrefs import VOLUME_FIELDS, object_field, resource_field
from kas.api.validation.labelselectors import label_selector
from kas.api.validation.resources import amount
from kas.api.validation.signers import bundle_name, signer_name

Source = Mapping[str, Any]
MORE_THAN_ONE = "may not specify more than 1 volume type"
FILE_MODE = "must be a number between 0 and 0777 (octal), both inclusive"
MAX_FILE_MODE = 0o777
PARTITION = "must be between 1 and 255, inclusive"
LUN = "must be between 0 and 255, inclusive"
RESERVED_OPTION = "kubernetes.io and k8s.io namespaces are reserved"
ISCSI_NAME_LENGTH = (
    "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."
)
HOST_PATH_TYPES = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
_INITIATORS = {
    "iqn": re.compile(r"iqn\.\d{4}-\d{2}\.([a-zA-Z0-9\-.]+)(:[^,;*&$|\s]+)$"),
    "eui": re.compile(r"^eui.[a-zA-Z0-9]{16}$"),
    "naa": re.compile(r"^naa.[a-zA-Z0-9]{32}$"),
}


# -- paths -------------------------------------------------------------------------------------------------------------


def no_backsteps(target: str, path: str) -> list[FieldError]:
    if ".." in target and ".." in target.split("/"):
        return [field.invalid(path, target, "must not contain '..'")]
    return []


def local_descending_path(target: str, path: str) -> list[FieldError]:
    errs = []
    if target.startswith("/"):
        errs.append(field.invalid(path, target, "must be a relative path"))
    return errs + no_backsteps(target, path)


def local_non_reserved_path(target: str, path: str) -> list[FieldError]:
    errs = local_descending_path(target, path)
    if target.startswith("..") and not target.startswith("../"):
        errs.append(field.invalid(path, target, "must not start with '..'"))
    return errs


def _mode(mode: int | None, path: str) -> list[FieldError]:
    return [field.invalid(path, mode, FILE_MODE)] if mode is not None and not 0 <= mode <= MAX_FILE_MODE else []


def _need(source: Source, path: str, *keys: str) -> list[FieldError]:
    return [field.required(f"{path}.{key}") for key in keys if not source.get(key)]


# -- sources shared with PersistentVolumes -------------------------------------------------------------------------------


def host_path(source: Source, path: str) -> list[FieldError]:
    where = source.get("path")
    if not where:
        return [field.required(f"{path}.path")]
    errs = no_backsteps(where, f"{path}.path")
    kind = source.get("type")
    if kind is not None and kind not in HOST_PATH_TYPES:
        errs.append(unsupported(f"{path}.type", kind, HOST_PATH_TYPES))
    return errs


def partitioned_disk(source: Source, path: str, name_key: str) -> list[FieldError]:
    errs = _need(source, path, name_key)
    partition = source.get("partition") or 0
    if not 0 <= partition <= 255:
        errs.append(field.invalid(f"{path}.partition", partition, PARTITION))
    return errs


def gce_disk(source: Source, path: str) -> list[FieldError]:
    return partitioned_disk(source, path, "pdName")


def aws_disk(source: Source, path: str) -> list[FieldError]:
    return partitioned_disk(source, path, "volumeID")


def nfs(source: Source, path: str) -> list[FieldError]:
    errs = _need(source, path, "server", "path")
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


def iscsi(source: Source, path: str, unknown: str = "must be valid format starting with iqn, eui, or naa") -> list[FieldError]:
    errs = _need(source, path, "targetPortal")
    iqn, lun = source.get("iqn"), source.get("lun") or 0
    errs += _initiator(iqn, f"{path}.iqn", unknown) if iqn else [field.required(f"{path}.iqn")]
    if not 0 <= lun <= 255:
        errs.append(field.invalid(f"{path}.lun", lun, LUN))
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and source.get("secretRef") is None:
        errs.append(field.required(f"{path}.secretRef"))
    if source.get("initiatorName") is not None:
        errs += _initiator(source["initiatorName"], f"{path}.initiatorname", unknown)
    return errs


def glusterfs(source: Source, path: str) -> list[FieldError]:
    return _need(source, path, "endpoints", "path")


def flocker(source: Source, path: str) -> list[FieldError]:
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
    return _need(source, path, "monitors", "image")


def cinder(source: Source, path: str) -> list[FieldError]:
    errs = _need(source, path, "volumeID")
    if source.get("secretRef") is not None:
        errs += _need(source["secretRef"], f"{path}.secretRef", "name")
    return errs


def cephfs(source: Source, path: str) -> list[FieldError]:
    return _need(source, path, "monitors")


def quobyte(source: Source, path: str) -> list[FieldError]:
    pairs = "must be a host:port pair or multiple pairs separated by commas"
    registry = source.get("registry") or ""
    errs = []
    if not registry:
        errs.append(field.required(f"{path}.registry", pairs))
    elif len(source.get("tenant") or "") >= 65:
        errs.append(field.required(f"{path}.tenant", "must be a UUID and may not exceed a length of 64 characters"))
    else:
        for pair in registry.split(","):
            host, colon, _ = pair.rpartition(":")
            bracketed = host.startswith("[") and host.endswith("]")
            if not colon or (":" in host and not bracketed):
                errs.append(field.invalid(f"{path}.registry", registry, pairs))
    return errs + _need(source, path, "volume")


def fc(source: Source, path: str) -> list[FieldError]:
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
    errs = _need(source, path, "driver")
    for key in sorted(source.get("options") or ()):
        domain = "." + key.split("/", 1)[0].lower()
        if domain.endswith((".kubernetes.io", ".k8s.io")):
            errs.append(field.invalid(f"{path}.options[{key}]", key, RESERVED_OPTION))
    return errs


def azure_file(source: Source, path: str) -> list[FieldError]:
    return _need(source, path, "secretName", "shareName")


def azure_disk(source: Source, path: str) -> list[FieldError]:
    errs = _need(source, path, "diskName", "diskURI")
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
    return _need(source, path, "volumePath")


def photon(source: Source, path: str) -> list[FieldError]:
    return _need(source, path, "pdID")


def portworx(source: Source, path: str) -> list[FieldError]:
    return _need(source, path, "volumeID")


def scale_io(source: Source, path: str) -> list[FieldError]:
    return _need(source, path, "gateway", "system", "volumeName")


def storage_os(source: Source, path: str) -> list[FieldError]:
    name, namespace = source.get("volumeName"), source.get("volumeNamespace")
    errs = []
    if not name:
        errs.append(field.required(f"{path}.volumeName"))
    else:
        errs += [field.invalid(f"{path}.volumeName", name, m) for m in names.is_dns1123_label(name)]
    if namespace:
        errs += [field.invalid(f"{path}.volumeNamespace", namespace, m) for m in names.is_dns1123_label(namespace)]
    if source.get("secretRef") is not None:
        errs += _need(source["secretRef"], f"{path}.secretRef", "name")
    return errs


# -- sources of pods only ----------------------------------------------------------------------------------------------


def _empty_dir(source: Source, path: str) -> list[FieldError]:
    limit = source.get("sizeLimit")
    if limit is not None and amount(limit) < 0:
        return [field.forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")]
    return []


def _git_repo(source: Source, path: str) -> list[FieldError]:
    return _need(source, path, "repository") + local_descending_path(source.get("directory") or "", f"{path}.directory")


def _key_to_path(item: Source, path: str) -> list[FieldError]:
    errs = _need(item, path, "key", "path")
    errs += local_non_reserved_path(item.get("path") or "", f"{path}.path")
    return errs + _mode(item.get("mode"), f"{path}.mode")


def _keyed_files(source: Source, path: str, name_key: str) -> list[FieldError]:
    errs = _need(source, path, name_key)
    errs += _mode(source.get("defaultMode"), f"{path}.defaultMode")
    for i, item in enumerate(source.get("items") or ()):
        errs += _key_to_path(item, f"{path}.items[{i}]")
    return errs


def _secret(source: Source, path: str) -> list[FieldError]:
    return _keyed_files(source, path, "secretName")


def _config_map(source: Source, path: str) -> list[FieldError]:
    return _keyed_files(source, path, "name")


def _claim(source: Source, path: str) -> list[FieldError]:
    return _need(source, path, "claimName")


def _downward_file(item: Source, path: str) -> list[FieldError]:
    errs = _need(item, path, "path")
    errs += local_non_reserved_path(item.get("path") or "", f"{path}.path")
    if item.get("fieldRef") is not None:
        errs += object_field(item["fieldRef"], VOLUME_FIELDS, f"{path}.fieldRef")
        if item.get("resourceFieldRef") is not None:
            message = "fieldRef and resourceFieldRef can not be specified simultaneously"
            errs.append(field.invalid(path, "resource", message))
    elif item.get("resourceFieldRef") is not None:
        errs += resource_field(item["resourceFieldRef"], f"{path}.resourceFieldRef", True)
    else:
        errs.append(field.required(path, "one of fieldRef and resourceFieldRef is required"))
    return errs + _mode(item.get("mode"), f"{path}.mode")


def _downward_api(source: Source, path: str) -> list[FieldError]:
    errs = _mode(source.get("defaultMode"), f"{path}.defaultMode")
    for item in source.get("items") or ():
        errs += _downward_file(item, path)
    return errs


def _projected(source: Source, path: str) -> list[FieldError]:
    errs = _mode(source.get("defaultMode"), f"{path}.defaultMode")
    taken: set[str] = set()

    def take(target: str, shown: str) -> None:
        if target in taken:
            errs.append(field.invalid(path, shown, "conflicting duplicate paths"))
        taken.add(target)

    for i, entry in enumerate(source.get("sources") or ()):
        at, count = f"{path}.sources[{i}]", 0
        for kind in ("secret", "configMap"):
            part = entry.get(kind)
            if part is None:
                continue
            count += 1
            errs += _need(part, f"{at}.{kind}", "name")
            for j, item in enumerate(part.get("items") or ()):
                errs += _key_to_path(item, f"{at}.{kind}.items[{j}]")
                if item.get("path"):
                    take(item["path"], part.get("name") or "")
        if entry.get("downwardAPI") is not None:
            count += 1
            for item in entry["downwardAPI"].get("items") or ():
                errs += _downward_file(item, f"{at}.downwardAPI")
                if item.get("path"):
                    take(item["path"], item["path"])
        token = entry.get("serviceAccountToken")
        if token is not None:
            count += 1
            seconds = token.get("expirationSeconds") or 0
            where = f"{at}.serviceAccountToken.expirationSeconds"
            if seconds < 600:
                errs.append(field.invalid(where, seconds, "may not specify a duration less than 10 minutes"))
            if seconds > 1 << 32:
                errs.append(field.invalid(where, seconds, "may not specify a duration larger than 2^32 seconds"))
            if not token.get("path"):
                errs.append(field.required(f"{path}.path"))
            else:
                errs += local_non_reserved_path(token["path"], f"{path}.path")
        bundle = entry.get("clusterTrustBundle")
        if bundle is not None:
            count += 1
            errs += _trust_bundle(bundle, f"{at}.clusterTrustBundle")
            take(bundle.get("path") or "", bundle.get("path") or "")
        certificate = entry.get("podCertificate")
        if certificate is not None:
            count += 1
            errs += _pod_certificate(certificate, f"{at}.podCertificate", take)
        if count > 1:
            errs.append(field.forbidden(at, "may not specify more than 1 volume type per source"))
    return errs


def _trust_bundle(bundle: Source, path: str) -> list[FieldError]:
    name, signer, selector = bundle.get("name"), bundle.get("signerName"), bundle.get("labelSelector")
    errs: list[FieldError] = []
    if name is not None and signer is not None:
        errs.append(field.invalid(path, dict(bundle), "only one of name and signerName may be used"))
    elif name is not None:
        if not name:
            errs.append(field.required(f"{path}.name", "must be a valid object name"))
        errs += [field.invalid(f"{path}.name", name, f"not a valid clustertrustbundlename: {m}") for m in bundle_name(name)]
        if selector is not None:
            errs.append(field.invalid(f"{path}.labelSelector", selector, "labelSelector must be unset if name is specified"))
    elif signer is not None:
        if not signer:
            errs.append(field.required(f"{path}.signerName", "must be a valid signer name"))
        errs += signer_name(signer, f"{path}.signerName")
        errs += label_selector(selector, f"{path}.labelSelector")
    else:
        errs.append(field.required(path, "either name or signerName must be specified"))
    if not bundle.get("path"):
        errs.append(field.required(f"{path}.path"))
    return errs + local_non_reserved_path(bundle.get("path") or "", f"{path}.path")


KEY_TYPES = ("ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519", "RSA3072", "RSA4096")


def _pod_certificate(source: Source, path: str, take: Callable[[str, str], None]) -> list[FieldError]:
    errs = signer_name(source.get("signerName") or "", f"{path}.signerName")
    if source.get("keyType") not in KEY_TYPES:
        errs.append(unsupported(f"{path}.keyType", source.get("keyType") or "", sorted(KEY_TYPES)))
    lifetime = source.get("maxExpirationSeconds")
    if lifetime is not None and lifetime < 3600:
        errs.append(field.invalid(f"{path}.maxExpirationSeconds", lifetime, "if provided, maxExpirationSeconds must be >= 3600"))
    if lifetime is not None and lifetime > 91 * 86400:
        errs.append(field.invalid(f"{path}.maxExpirationSeconds", lifetime, "if provided, maxExpirationSeconds must be <= 7862400"))
    given = 0
    for key in ("credentialBundlePath", "keyPath", "certificateChainPath"):
        target = source.get(key)
        if target:
            given += 1
            errs += local_non_reserved_path(target, f"{path}.{key}")
            take(target, target)
    if not given:
        errs.append(field.required(path, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"))
    return errs


def _csi(source: Source, path: str) -> list[FieldError]:
    errs = csi_driver_name(source.get("driver") or "", f"{path}.driver")
    ref = source.get("nodePublishSecretRef")
    if ref is not None:
        if not ref.get("name"):
            errs.append(field.required(f"{path}.nodePublishSecretRef.name"))
        else:
            errs += [field.invalid(f"{path}.name", ref["name"], m) for m in names.is_dns1123_subdomain(ref["name"])]
    return errs


def _ephemeral(source: Source, path: str) -> list[FieldError]:
    template = source.get("volumeClaimTemplate")
    if template is None:
        return [field.required(f"{path}.volumeClaimTemplate")]
    return claim_template(template, f"{path}.volumeClaimTemplate")


# JSON name, path segment of the checks, path segment of the "more than one" complaint (they differ upstream), check.
_SOURCES: tuple[tuple[str, str, str, Callable[[Source, str], list[FieldError]]], ...] = (
    ("emptyDir", "emptyDir", "emptyDir", _empty_dir),
    ("hostPath", "hostPath", "hostPath", host_path),
    ("gitRepo", "gitRepo", "gitRepo", _git_repo),
    ("gcePersistentDisk", "persistentDisk", "gcePersistentDisk", gce_disk),
    ("awsElasticBlockStore", "awsElasticBlockStore", "awsElasticBlockStore", aws_disk),
    ("secret", "secret", "secret", _secret),
    ("nfs", "nfs", "nfs", nfs),
    ("iscsi", "iscsi", "iscsi", iscsi),
    ("glusterfs", "glusterfs", "glusterfs", glusterfs),
    ("flocker", "flocker", "flocker", flocker),
    ("persistentVolumeClaim", "persistentVolumeClaim", "persistentVolumeClaim", _claim),
    ("rbd", "rbd", "rbd", rbd),
    ("cinder", "cinder", "cinder", cinder),
    ("cephfs", "cephfs", "cephFS", cephfs),
    ("quobyte", "quobyte", "quobyte", quobyte),
    ("downwardAPI", "downwardAPI", "downwarAPI", _downward_api),
    ("fc", "fc", "fc", fc),
    ("flexVolume", "flexVolume", "flexVolume", flex_volume),
    ("configMap", "configMap", "configMap", _config_map),
    ("azureFile", "azureFile", "azureFile", azure_file),
    ("vsphereVolume", "vsphereVolume", "vsphereVolume", vsphere),
    ("photonPersistentDisk", "photonPersistentDisk", "photonPersistentDisk", photon),
    ("portworxVolume", "portworxVolume", "portworxVolume", portworx),
    ("azureDisk", "azureDisk", "azureDisk", azure_disk),
    ("storageos", "storageos", "storageos", storage_os),
    ("projected", "projected", "projected", _projected),
    ("scaleIO", "scaleIO", "scaleIO", scale_io),
    ("csi", "csi", "csi", _csi),
    ("ephemeral", "ephemeral", "ephemeral", _ephemeral),
)
_ORDER = {source[0]: i for i, source in enumerate(_SOURCES)}
PULL_POLICIES = ("Always", "IfNotPresent", "Never")


def pull_policy(policy: str | None, path: str) -> list[FieldError]:
    if policy in PULL_POLICIES:
        return []
    return [unsupported(path, policy, PULL_POLICIES) if policy else field.required(path)]


def _source(volume: Source, pod_name: str, is_pod: bool, path: str) -> list[FieldError]:
    """Rules of the one source; every further one is refused."""
    errs: list[FieldError] = []
    given = [_ORDER[key] for key in volume if key in _ORDER and volume[key] is not None]
    given.sort()
    name = volume.get("name") or ""
    for n, i in enumerate(given):
        key, segment, complaint, check = _SOURCES[i]
        if n:
            errs.append(field.forbidden(f"{path}.{complaint}", MORE_THAN_ONE))
        else:
            errs += check(volume[key], f"{path}.{segment}")
        if key == "iscsi" and volume[key].get("initiatorName") is not None:
            if len(f"{name}:{volume[key].get('targetPortal') or ''}") > 64:
                errs.append(field.invalid(f"{path}.name", name, ISCSI_NAME_LENGTH))
        if key == "ephemeral" and not n and pod_name and name:
            claim = f"{pod_name}-{name}"
            quoted = field.go_quote(claim)
            errs += [field.invalid(f"{path}.name", name, f"PVC name {quoted}: {m}") for m in names.is_dns1123_subdomain(claim)]
    image = volume.get("image")
    if image is not None:
        if given:
            errs.append(field.forbidden(f"{path}.image", MORE_THAN_ONE))
        else:
            if is_pod and not image.get("reference"):
                errs.append(field.required(f"{path}.image.reference"))
            errs += pull_policy(image.get("pullPolicy"), f"{path}.image.pullPolicy")
    elif not given:
        errs.append(field.required(path, "must specify a volume type"))
    return errs


def volumes(
    items: list[dict[str, Any]], pod_name: str, is_pod: bool, path: str
) -> tuple[dict[str, dict[str, Any]], list[FieldError]]:
    """Valid volumes by name, and what is wrong with the others."""
    errs: list[FieldError] = []
    valid: dict[str, dict[str, Any]] = {}
    created = {f"{pod_name}-{v.get('name') or ''}" for v in items if v.get("ephemeral") is not None} if pod_name else ()
    for i, volume in enumerate(items):
        at, name = f"{path}[{i}]", volume.get("name") or ""
        found = _source(volume, pod_name, is_pod, at)
        if not name:
            found.append(field.required(f"{at}.name"))
        else:
            found += [field.invalid(f"{at}.name", name, m) for m in cached.dns_label(name)]
        if name in valid:
            found.append(field.duplicate(f"{at}.name", name))
        if found:
            errs += found
        else:
            valid[name] = volume
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if claim and claim in created:
            message = "must not reference a PVC that gets created for an ephemeral volume"
            errs.append(field.invalid(f"{at}.persistentVolumeClaim.claimName", claim, message))
    return valid, errs

"""Validation of a pod's volumes: exactly one source each, and the sources that only pods have (``pkg/apis/core/validation``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kas.kinds.core.claims import claim_template
from kas.kinds.core.pod import volumesources as sources
from kas.kinds.core.pod.fieldrefs import VOLUME_FIELDS, object_field, resource_field
from kas.kinds.core.pod.options import Options
from kas.kinds.core.pod.volumesources import ISCSI_NAME_LENGTH, MORE_THAN_ONE, Source, local_descending_path, local_non_reserved_path, need
from kas.kinds.core.resources import amount
from kas.kinds.core.signers import bundle_name, is_kubernetes_signer, signer_name, user_annotations
from kas.meta import cached, field, names
from kas.meta.checks import csi_driver_name, unsupported
from kas.meta.field import FieldError
from kas.meta.labelselectors import label_selector
from kas.types.gostruct import render

FILE_MODE = "must be a number between 0 and 0777 (octal), both inclusive"
MAX_FILE_MODE = 0o777


def _mode(mode: int | None, path: str) -> list[FieldError]:
    return [field.invalid(path, mode, FILE_MODE)] if mode is not None and not 0 <= mode <= MAX_FILE_MODE else []


def _empty_dir(source: Source, path: str) -> list[FieldError]:
    limit = source.get("sizeLimit")
    if limit is not None and amount(limit) < 0:
        return [field.forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")]
    return []


def _git_repo(source: Source, path: str) -> list[FieldError]:
    return need(source, path, "repository") + local_descending_path(source.get("directory") or "", f"{path}.directory")


def _key_to_path(item: Source, path: str) -> list[FieldError]:
    errs = need(item, path, "key", "path")
    errs += local_non_reserved_path(item.get("path") or "", f"{path}.path")
    return errs + _mode(item.get("mode"), f"{path}.mode")


def _keyed_files(source: Source, path: str, name_key: str) -> list[FieldError]:
    errs = need(source, path, name_key)
    errs += _mode(source.get("defaultMode"), f"{path}.defaultMode")
    for i, item in enumerate(source.get("items") or ()):
        errs += _key_to_path(item, f"{path}.items[{i}]")
    return errs


def _secret(source: Source, path: str) -> list[FieldError]:
    return _keyed_files(source, path, "secretName")


def _config_map(source: Source, path: str) -> list[FieldError]:
    return _keyed_files(source, path, "name")


def _claim(source: Source, path: str) -> list[FieldError]:
    return need(source, path, "claimName")


def _downward_file(item: Source, path: str) -> list[FieldError]:
    errs = need(item, path, "path")
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


def _projected(source: Source, path: str, options: Options) -> list[FieldError]:
    errs = _mode(source.get("defaultMode"), f"{path}.defaultMode")
    taken: set[str] = set()

    def take(target: str, shown: str) -> list[FieldError]:
        again = target in taken
        taken.add(target)
        return [field.invalid(path, shown, "conflicting duplicate paths")] if again else []

    for i, entry in enumerate(source.get("sources") or ()):
        at, count = f"{path}.sources[{i}]", 0
        for kind in ("secret", "configMap"):
            part = entry.get(kind)
            if part is None:
                continue
            count += 1
            errs += need(part, f"{at}.{kind}", "name")
            for j, item in enumerate(part.get("items") or ()):
                errs += _key_to_path(item, f"{at}.{kind}.items[{j}]")
                if item.get("path"):
                    errs += take(item["path"], part.get("name") or "")
        if entry.get("downwardAPI") is not None:
            count += 1
            for item in entry["downwardAPI"].get("items") or ():
                errs += _downward_file(item, f"{at}.downwardAPI")
                if item.get("path"):
                    errs += take(item["path"], item["path"])
        token = entry.get("serviceAccountToken")
        if token is not None:
            count += 1
            seconds = token.get("expirationSeconds") or 0
            where = f"{at}.serviceAccountToken.expirationSeconds"
            if seconds < 600:
                errs.append(field.invalid(where, seconds, "may not specify a duration less than 10 minutes"))
            if seconds > 1 << 32:
                errs.append(field.invalid(where, seconds, "may not specify a duration larger than 2^32 seconds"))
            found = need(token, path, "path") or local_non_reserved_path(token["path"], f"{path}.path")
            if found and not (token.get("path") and options.token_path):
                errs += found
        bundle = entry.get("clusterTrustBundle")
        if bundle is not None:
            count += 1
            errs += _trust_bundle(bundle, f"{at}.clusterTrustBundle")
            errs += take(bundle.get("path") or "", bundle.get("path") or "")
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
        errs.append(field.invalid(path, render("core.ClusterTrustBundleProjection", bundle), "only one of name and signerName may be used"))
    elif name is not None:
        if not name:
            errs.append(field.required(f"{path}.name", "must be a valid object name"))
        errs += [field.invalid(f"{path}.name", name, f"not a valid clustertrustbundlename: {m}") for m in bundle_name(name)]
        if selector is not None:
            shown = render("meta.LabelSelector", selector)
            errs.append(field.invalid(f"{path}.labelSelector", shown, "labelSelector must be unset if name is specified"))
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


KEY_TYPES = ("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
LONGEST, LONGEST_OF_KUBERNETES = 91 * 86400, 86400


def _pod_certificate(source: Source, path: str, take: Callable[[str, str], list[FieldError]]) -> list[FieldError]:
    signer = source.get("signerName") or ""
    errs = signer_name(signer, f"{path}.signerName")
    errs += user_annotations(source.get("userAnnotations"), f"{path}.userAnnotations")
    if source.get("keyType") not in KEY_TYPES:
        errs.append(unsupported(f"{path}.keyType", source.get("keyType") or "", KEY_TYPES))
    lifetime = source.get("maxExpirationSeconds")
    if lifetime is not None and lifetime < 3600:
        errs.append(field.invalid(f"{path}.maxExpirationSeconds", lifetime, "if provided, maxExpirationSeconds must be >= 3600"))
    longest = LONGEST_OF_KUBERNETES if is_kubernetes_signer(signer) else LONGEST
    if lifetime is not None and lifetime > longest:
        errs.append(field.invalid(f"{path}.maxExpirationSeconds", lifetime, f"if provided, maxExpirationSeconds must be <= {longest}"))
    given = 0
    for key in ("credentialBundlePath", "keyPath", "certificateChainPath"):
        target = source.get(key)
        if target:
            given += 1
            errs += local_non_reserved_path(target, f"{path}.{key}")
            errs += take(target, target)
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


# (JSON name, path segment of the checks, path segment of the "more than one" error (they differ upstream), check); the check of
# projected needs the options, too.
_SOURCES: tuple[tuple[str, str, str, Callable[[Source, str], list[FieldError]] | None], ...] = (
    ("emptyDir", "emptyDir", "emptyDir", _empty_dir),
    ("hostPath", "hostPath", "hostPath", sources.host_path),
    ("gitRepo", "gitRepo", "gitRepo", _git_repo),
    ("gcePersistentDisk", "persistentDisk", "gcePersistentDisk", sources.gce_disk),
    ("awsElasticBlockStore", "awsElasticBlockStore", "awsElasticBlockStore", sources.aws_disk),
    ("secret", "secret", "secret", _secret),
    ("nfs", "nfs", "nfs", sources.nfs),
    ("iscsi", "iscsi", "iscsi", sources.iscsi),
    ("glusterfs", "glusterfs", "glusterfs", sources.glusterfs),
    ("flocker", "flocker", "flocker", sources.flocker),
    ("persistentVolumeClaim", "persistentVolumeClaim", "persistentVolumeClaim", _claim),
    ("rbd", "rbd", "rbd", sources.rbd),
    ("cinder", "cinder", "cinder", sources.cinder),
    ("cephfs", "cephfs", "cephFS", sources.cephfs),
    ("quobyte", "quobyte", "quobyte", sources.quobyte),
    ("downwardAPI", "downwardAPI", "downwarAPI", _downward_api),
    ("fc", "fc", "fc", sources.fc),
    ("flexVolume", "flexVolume", "flexVolume", sources.flex_volume),
    ("configMap", "configMap", "configMap", _config_map),
    ("azureFile", "azureFile", "azureFile", sources.azure_file),
    ("vsphereVolume", "vsphereVolume", "vsphereVolume", sources.vsphere),
    ("photonPersistentDisk", "photonPersistentDisk", "photonPersistentDisk", sources.photon),
    ("portworxVolume", "portworxVolume", "portworxVolume", sources.portworx),
    ("azureDisk", "azureDisk", "azureDisk", sources.azure_disk),
    ("storageos", "storageos", "storageos", sources.storage_os),
    ("projected", "projected", "projected", None),
    ("scaleIO", "scaleIO", "scaleIO", sources.scale_io),
    ("csi", "csi", "csi", _csi),
    ("ephemeral", "ephemeral", "ephemeral", _ephemeral),
)
_ORDER = {source[0]: i for i, source in enumerate(_SOURCES)}
PULL_POLICIES = ("Always", "IfNotPresent", "Never")


def pull_policy(policy: str | None, path: str) -> list[FieldError]:
    """``validatePullPolicy``: one of ``PULL_POLICIES``; required."""
    if policy in PULL_POLICIES:
        return []
    return [unsupported(path, policy, PULL_POLICIES) if policy else field.required(path)]


def _source(volume: Source, pod_name: str, options: Options, path: str) -> list[FieldError]:
    """Validate the source of a volume; every further source is refused."""
    errs: list[FieldError] = []
    given = [_ORDER[key] for key in volume if key in _ORDER and volume[key] is not None]
    given.sort()
    name = volume.get("name") or ""
    for n, i in enumerate(given):
        key, segment, complaint, check = _SOURCES[i]
        if n:
            errs.append(field.forbidden(f"{path}.{complaint}", MORE_THAN_ONE))
        elif check is None:
            errs += _projected(volume[key], f"{path}.{segment}", options)
        else:
            errs += check(volume[key], f"{path}.{segment}")
        if key == "iscsi" and volume[key].get("initiatorName") is not None:
            if names.byte_length(f"{name}:{volume[key].get('targetPortal') or ''}") > 64:
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
            if options.is_pod and not image.get("reference"):
                errs.append(field.required(f"{path}.image.reference"))
            errs += pull_policy(image.get("pullPolicy"), f"{path}.image.pullPolicy")
    elif not given:
        errs.append(field.required(path, "must specify a volume type"))
    return errs


def volumes(
    items: list[dict[str, Any]], pod_name: str, options: Options, path: str
) -> tuple[dict[str, dict[str, Any]], list[FieldError]]:
    """Return the valid volumes by name, and the errors of the others."""
    errs: list[FieldError] = []
    valid: dict[str, dict[str, Any]] = {}
    created = {f"{pod_name}-{v.get('name') or ''}" for v in items if v.get("ephemeral") is not None} if pod_name else ()
    for i, volume in enumerate(items):
        at, name = f"{path}[{i}]", volume.get("name") or ""
        found = _source(volume, pod_name, options, at)
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

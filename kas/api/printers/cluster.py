"""Rows of cluster administration: access control, certificates, admission, flow control, leases and API registration."""

from __future__ import annotations

from typing import Any

from kas.api.printers.age import age, human_duration
from kas.api.printers.cells import NONE, UNSET, first_three, is_true, kind_slash_name, labels, part
from kas.api.printers.registry import printer

Object = dict[str, Any]


@printer("rbac.authorization.k8s.io", "RoleBinding")
@printer("rbac.authorization.k8s.io", "ClusterRoleBinding")
def role_binding(obj: Object, now: float) -> list[Any]:
    names: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in obj.get("subjects") or ():
        kind, name = subject.get("kind"), subject.get("name", "")
        if kind in names:
            names[kind].append(f"{subject.get('namespace', '')}/{name}" if kind == "ServiceAccount" else name)
    columns = [", ".join(found) for found in names.values()]
    return [obj["metadata"].get("name", ""), kind_slash_name(part(obj, "roleRef")), age(obj, now), *columns]


@printer("certificates.k8s.io", "CertificateSigningRequest")
def certificate_signing_request(obj: Object, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    types = {c.get("type") for c in status.get("conditions") or ()}
    state = "Denied" if "Denied" in types else "Approved" if "Approved" in types else "Pending"
    state += (",Failed" if "Failed" in types else "") + (",Issued" if status.get("certificate") else "")
    seconds = spec.get("expirationSeconds")
    return [
        obj["metadata"].get("name", ""), age(obj, now), spec.get("signerName") or NONE, spec.get("username", ""),
        NONE if seconds is None else human_duration(seconds), state,
    ]  # fmt: skip


@printer("certificates.k8s.io", "ClusterTrustBundle")
def cluster_trust_bundle(obj: Object, now: float) -> list[Any]:
    return [obj["metadata"].get("name", ""), part(obj, "spec").get("signerName") or NONE]


@printer("certificates.k8s.io", "PodCertificateRequest")
def pod_certificate_request(obj: Object, now: float) -> list[Any]:
    spec, state = part(obj, "spec"), "Pending"
    for c in part(obj, "status").get("conditions") or ():
        if c.get("type") in ("Issued", "Denied", "Failed"):
            state = c["type"]
    return [
        obj["metadata"].get("name", ""), spec.get("podName", ""), spec.get("serviceAccountName", ""), spec.get("nodeName", ""),
        spec.get("signerName", ""), state, labels(spec.get("unverifiedUserAnnotations")),
    ]  # fmt: skip


@printer("coordination.k8s.io", "Lease")
def lease(obj: Object, now: float) -> list[Any]:
    return [obj["metadata"].get("name", ""), part(obj, "spec").get("holderIdentity") or "", age(obj, now)]


@printer("coordination.k8s.io", "LeaseCandidate")
def lease_candidate(obj: Object, now: float) -> list[Any]:
    spec = part(obj, "spec")
    found = [spec.get(key, "") for key in ("leaseName", "binaryVersion", "emulationVersion")]
    return [obj["metadata"].get("name", ""), *found, age(obj, now)]


@printer("admissionregistration.k8s.io", "MutatingWebhookConfiguration")
@printer("admissionregistration.k8s.io", "ValidatingWebhookConfiguration")
def webhook_configuration(obj: Object, now: float) -> list[Any]:
    return [obj["metadata"].get("name", ""), len(obj.get("webhooks") or ()), age(obj, now)]


def _param_kind(spec: Object) -> str:
    kind = spec.get("paramKind")
    return UNSET if kind is None else f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}"


@printer("admissionregistration.k8s.io", "ValidatingAdmissionPolicy")
def validating_admission_policy(obj: Object, now: float) -> list[Any]:
    spec = part(obj, "spec")
    return [obj["metadata"].get("name", ""), len(spec.get("validations") or ()), _param_kind(spec), age(obj, now)]


@printer("admissionregistration.k8s.io", "MutatingAdmissionPolicy")
def mutating_admission_policy(obj: Object, now: float) -> list[Any]:
    spec = part(obj, "spec")
    return [obj["metadata"].get("name", ""), len(spec.get("mutations") or ()), _param_kind(spec), age(obj, now)]


def _selector_dump(selector: Object) -> str:
    """A LabelSelector as its generated Go ``String`` method shows it, which is what this column prints."""
    pairs = "".join(f"{k}: {v}," for k, v in sorted((selector.get("matchLabels") or {}).items()))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{e.get('key', '')},Operator:{e.get('operator', '')},Values:[{' '.join(e.get('values') or ())}],}},"
        for e in selector.get("matchExpressions") or ()
    )
    return f"&LabelSelector{{MatchLabels:map[string]string{{{pairs}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"


@printer("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding")
@printer("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding")
def admission_policy_binding(obj: Object, now: float) -> list[Any]:
    spec, text = part(obj, "spec"), UNSET
    ref = spec.get("paramRef") or {}
    if ref.get("name"):
        # Whether the parameter has a namespace is not known here, so one without prints any.
        text = f"{ref.get('namespace') or '*'}/{ref['name']}"
    elif ref.get("selector") is not None:
        text = _selector_dump(ref["selector"])
    return [obj["metadata"].get("name", ""), spec.get("policyName", ""), text, age(obj, now)]


@printer("flowcontrol.apiserver.k8s.io", "FlowSchema")
def flow_schema(obj: Object, now: float) -> list[Any]:
    spec, conditions = part(obj, "spec"), part(obj, "status").get("conditions") or ()
    return [
        obj["metadata"].get("name", ""), part(spec, "priorityLevelConfiguration").get("name", ""),
        spec.get("matchingPrecedence", 0), part(spec, "distinguisherMethod").get("type", NONE), age(obj, now),
        next((c.get("status", "") for c in conditions if c.get("type") == "Dangling"), "?"),
    ]  # fmt: skip


@printer("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration")
def priority_level_configuration(obj: Object, now: float) -> list[Any]:
    spec = part(obj, "spec")
    shares, queues = NONE, [NONE, NONE, NONE]
    limited = spec.get("limited")
    if limited is not None:
        shares = limited.get("nominalConcurrencyShares", 0)
        queuing = part(limited, "limitResponse").get("queuing")
        if queuing is not None:
            queues = [queuing.get(key, 0) for key in ("queues", "handSize", "queueLengthLimit")]
    return [obj["metadata"].get("name", ""), spec.get("type", ""), shares, *queues, age(obj, now)]


@printer("internal.apiserver.k8s.io", "StorageVersion")
def storage_version(obj: Object, now: float) -> list[Any]:
    status = part(obj, "status")
    versions = [f"{v.get('apiServerID', '')}={v.get('encodingVersion', '')}" for v in status.get("storageVersions") or ()]
    return [obj["metadata"].get("name", ""), status.get("commonEncodingVersion", UNSET), first_three(versions) or UNSET, age(obj, now)]


@printer("storagemigration.k8s.io", "StorageVersionMigration")
def storage_version_migration(obj: Object, now: float) -> list[Any]:
    resource, state = part(obj, "spec", "resource"), "Unknown"
    for c in part(obj, "status").get("conditions") or ():
        if c.get("status") == "True" and c.get("type") in ("Running", "Failed", "Succeeded"):
            state = c["type"]
    group = resource.get("group")
    text = resource.get("resource", "") + (f".{group}" if group else "")
    return [obj["metadata"].get("name", ""), text, state]


@printer("apiregistration.k8s.io", "APIService")
def api_service(obj: Object, now: float) -> list[Any]:
    service, conditions = part(obj, "spec").get("service"), part(obj, "status").get("conditions") or ()
    available = next((c for c in conditions if c.get("type") == "Available"), None)
    text = "Unknown" if available is None else available.get("status", "")
    if available is not None and not is_true([available], "Available") and available.get("reason"):
        text += f" ({available['reason']})"
    where = "Local" if service is None else f"{service.get('namespace', '')}/{service.get('name', '')}"
    return [obj["metadata"].get("name", ""), where, text, age(obj, now)]

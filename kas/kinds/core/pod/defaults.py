"""Computed defaults of pod specs, in pods and in templates (``pkg/apis/core/v1/defaults.go``, ``conversion.go``)."""

from __future__ import annotations

import re
from typing import Any

from kas.kinds.core.defaults import mirror_first
from kas.kinds.core.pod._containers import default_containers
from kas.kinds.core.resources import aggregate
from kas.meta import quantity
from kas.observe.caches import remembered
from kas.types.defaults import defaults_for

Obj = dict[str, Any]
# Former representations of init containers; they are dropped so that no old kubelet sees them.
LEGACY_ANNOTATIONS = frozenset((
    "pod.beta.kubernetes.io/init-containers", "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses", "pod.alpha.kubernetes.io/init-container-statuses",
))  # fmt: skip


_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_DOMAIN = rf"{_LABEL}(?:\.{_LABEL})*(?::[0-9]+)?|\[[a-fA-F0-9:]+\](?::[0-9]+)?"
_DIGEST = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}"
_IMAGE = re.compile(rf"(?:(?:{_DOMAIN})/)?{_PART}(?:/{_PART})*(?::(?P<tag>\w[\w.-]{{0,127}}))?(?:@(?P<digest>{_DIGEST}))?", re.ASCII)
_HEX_ID = re.compile(r"[a-f0-9]{64}")


@remembered("image_pull_policies", "the pull policies that images ask for", 1024, 512)
def image_pull_policy(image: str) -> str:
    """Return Always for the tag ``latest``, which is also that of an image without tag and digest, else IfNotPresent.

    A text that is not an image reference (distribution's grammar) has no tag, so its policy is IfNotPresent.
    """
    match = _IMAGE.fullmatch(image)
    if match is None or _HEX_ID.fullmatch(image):
        return "IfNotPresent"
    tag = match["tag"]
    return "Always" if tag == "latest" or (tag is None and match["digest"] is None) else "IfNotPresent"


def round_up(items: dict[str, str] | None) -> None:
    """Round the amounts of a resource list up to thousandths, in place. Canonical text shows finer amounts by its suffix."""
    if items:
        for name, text in items.items():
            if text and text[-1] in "nu":
                items[name] = str(quantity.parse(text).round_up(-3)[0])


def round_up_requirements(resources: Obj | None) -> None:
    """Apply ``round_up`` to limits and requests, in place; None is ignored."""
    if resources:
        round_up(resources.get("limits"))
        round_up(resources.get("requests"))


def _volume(volume: Obj) -> None:
    for key, source in volume.items():
        if source is not None and key != "name":
            break
    else:
        volume["emptyDir"] = {}
    image = volume.get("image")
    if image is not None and not image.get("pullPolicy"):
        image["pullPolicy"] = image_pull_policy(image.get("reference") or "")
    ephemeral = volume.get("ephemeral")
    if ephemeral and ephemeral.get("volumeClaimTemplate"):
        round_up_requirements((ephemeral["volumeClaimTemplate"].get("spec") or {}).get("resources"))


def pod_spec(spec: Obj, pod: bool = False) -> None:
    """Apply the defaults of a pod spec in place; ``pod``: of a pod, not of a template. Only in a pod requests default to limits."""
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        containers = spec.get(kind)
        if containers:
            default_containers(containers, image_pull_policy, round_up, pod and kind != "ephemeralContainers")
    for volume in spec.get("volumes") or ():
        _volume(volume)
    if "overhead" in spec:
        round_up(spec["overhead"])
    if "resources" in spec:
        round_up_requirements(spec["resources"])
    if spec.get("securityContext") is None:
        spec["securityContext"] = {}
    # The deprecated field mirrors the other one, which wins; the API always shows both.
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    else:
        spec.pop("serviceAccount", None)
        spec.pop("serviceAccountName", None)


def pod_template(template: Obj | None) -> None:
    """Default a template in place as ``pod_spec`` does, adding an empty spec if it has none; None is ignored."""
    if template is None:
        return
    spec = template.get("spec")
    if spec is None:
        spec = template["spec"] = {}
    pod_spec(spec)
    drop_legacy_annotations(template.get("metadata"))


def drop_legacy_annotations(meta: Obj | None) -> None:
    """Remove ``LEGACY_ANNOTATIONS`` in place; a map that becomes empty stays. None is ignored."""
    annotations = meta.get("annotations") if meta else None
    if annotations and not LEGACY_ANNOTATIONS.isdisjoint(annotations):
        for name in LEGACY_ANNOTATIONS:
            annotations.pop(name, None)


@defaults_for("", "v1", "Pod")
def default_pod(obj: Obj) -> None:
    """``SetDefaults_Pod``, in place: the defaults of the spec, pod-level resources, host ports on the host's network and, in the status,
    ``podIPs`` and rounded amounts. A negative grace period becomes 1 (upstream's conversion).
    """
    spec = obj.get("spec")
    if spec is None:
        spec = obj["spec"] = {}
    if spec.get("resources") is not None:
        _pod_level_resources(spec)  # from amounts that are not rounded yet
    pod_spec(spec, pod=True)
    if spec.get("enableServiceLinks") is None:
        spec["enableServiceLinks"] = True
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0:  # only in pods: a template keeps it, with a warning
        spec["terminationGracePeriodSeconds"] = 1
    if spec.get("hostNetwork"):
        for kind in ("containers", "initContainers"):
            for container in spec.get(kind) or ():
                for port in container.get("ports") or ():
                    if not port.get("hostPort") and port.get("containerPort"):
                        port["hostPort"] = port["containerPort"]
    drop_legacy_annotations(obj.get("metadata"))
    status = obj.get("status")
    if status:
        mirror_first(status, "podIP", "podIPs", wrap=True)
        for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
            for item in status.get(kind) or ():
                round_up(item.get("allocatedResources"))
                round_up_requirements(item.get("resources"))


def _asking_for_limits(container: Obj) -> Obj:
    """Return a copy of ``container`` whose requests default to its limits."""
    resources = container.get("resources") or {}
    requests = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {**container, "resources": {**resources, "requests": requests}}


def _pod_level_resources(spec: Obj) -> None:
    resources = spec["resources"]
    limits, requests = dict(resources.get("limits") or {}), dict(resources.get("requests") or {})
    if limits or requests:
        for name, need in aggregate(spec, "limits").items():
            if name.startswith("hugepages-") and name not in requests:
                limits.setdefault(name, str(need))
        if limits:
            resources["limits"] = limits
    if not limits:
        return
    asked = {kind: [_asking_for_limits(c) for c in spec.get(kind) or ()] for kind in ("containers", "initContainers")}
    for name, need in aggregate(asked, "requests").items():
        if name in ("cpu", "memory"):
            requests.setdefault(name, str(need))
    for name, limit in limits.items():
        if name in ("cpu", "memory") or name.startswith("hugepages-"):
            requests.setdefault(name, limit)
    if requests:
        resources["requests"] = requests

"""Pods (upstream ``pkg/registry/core/pod/strategy.go``, ``pkg/api/pod/util.go``)."""

from __future__ import annotations

from collections import deque
from typing import Any

from kas.config import features
from kas.kinds.core.pod import security
from kas.kinds.core.pod import validation as pods
from kas.kinds.core.pod.options import FOR_PODS, options_for
from kas.kinds.core.pod.qos import quality_of_service
from kas.kinds.core.pod.spec import passes_checks
from kas.kinds.core.pod.warnings import pod_warnings
from kas.meta import names
from kas.meta.conditions import with_condition
from kas.meta.field import FieldError
from kas.meta.ipchecks import ip_warnings
from kas.registry.strategy import Context, Obj, Strategy, strategy_for, take

GATED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}


def _copied_selector(term: dict[str, Any]) -> dict[str, Any]:
    selector = dict(term["labelSelector"])
    selector["matchExpressions"] = list(selector.get("matchExpressions") or ())
    term["labelSelector"] = selector
    return selector


def merge_label_keys(pod: Obj) -> None:
    """Convert matchLabelKeys to expressions on the pod's own labels, so that the scheduler only needs to evaluate selectors."""
    labels, spec = pod["metadata"].get("labels") or {}, pod.get("spec") or {}
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(kind) or {}
        terms = list(rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ())
        terms += [t.get("podAffinityTerm") or {} for t in rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ()]
        for term in terms:
            _merge_term(term, labels)
    if features.DEFAULT.enabled("MatchLabelKeysInPodTopologySpreadSelectorMerge"):
        for constraint in spec.get("topologySpreadConstraints") or ():
            _merge_term(constraint, labels)


def _merge_term(term: dict[str, Any], labels: dict[str, str]) -> None:
    if term.get("labelSelector") is None:
        return
    new = [(k, "In") for k in term.get("matchLabelKeys") or () if k in labels]
    new += [(k, "NotIn") for k in term.get("mismatchLabelKeys") or () if k in labels]
    if new:
        expressions = _copied_selector(term)["matchExpressions"]
        expressions += [{"key": k, "operator": op, "values": [labels[k]]} for k, op in new]


def apparmor_from_annotations(ctx: Context, pod: Obj) -> None:
    """Fill a container's AppArmor field from the legacy annotation."""
    annotations, spec = pod["metadata"].get("annotations") or {}, pod.get("spec") or {}
    if not annotations or (spec.get("os") or {}).get("name") == "windows" or not security.has_legacy_profiles(annotations):
        return
    pod_profile = (spec.get("securityContext") or {}).get("appArmorProfile")
    for container, _ in security.containers(spec, "spec"):
        key = security.APPARMOR + (container.get("name") or "")
        own = container.get("securityContext") or {}
        if key not in annotations or own.get("appArmorProfile") is not None:
            continue
        profile = _apparmor_profile(annotations[key])
        if profile is not None and security.apparmor_profile(profile, ""):
            profile = None
        warn = profile is None
        if profile is not None and profile != pod_profile:
            container["securityContext"] = {**own, "appArmorProfile": profile}
            warn = True
        if warn:
            text = 'deprecated since v1.30; use the "appArmorProfile" field instead'
            ctx.warnings.append(f"metadata.annotations[{key}]: {text}")


def keep_observed(status: Obj, before: Obj) -> None:
    """Keep the previous status' observedGeneration, also of conditions by type, where the new status has none."""
    if not status.get("observedGeneration") and before.get("observedGeneration"):
        status["observedGeneration"] = before["observedGeneration"]
    seen: dict[str, deque[int]] = {}
    for condition in before.get("conditions") or ():
        seen.setdefault(condition.get("type") or "", deque()).append(condition.get("observedGeneration") or 0)
    if not any(map(any, seen.values())):
        return
    kept = []
    for condition in status.get("conditions") or ():
        generations = seen.get(condition.get("type") or "")
        was = generations.popleft() if generations else 0
        kept.append({**condition, "observedGeneration": was} if was and not condition.get("observedGeneration") else condition)
    if kept:
        status["conditions"] = kept


def _apparmor_profile(text: str) -> dict[str, Any] | None:
    if text == "unconfined":
        return {"type": "Unconfined"}
    if text == "runtime/default":
        return {"type": "RuntimeDefault"}
    if text.startswith("localhost/"):
        name = text[len("localhost/") :]
        return {"type": "Localhost", "localhostProfile": name} if name else None
    return None


@strategy_for("", "pods")
class PodStrategy(Strategy):
    """Pods; spec, status, ephemeral containers and resources are written through separate endpoints."""

    validates_metadata = True

    def prepare_for_create(self, ctx: Context, obj: Obj) -> None:
        """Set generation 1 and a new status, merge label keys into selectors, and fill fields from legacy AppArmor annotations.

        The status has phase Pending, the QoS class, and SchedulingGated if gates are set. Of the client's status only a QoS class is kept.
        """
        obj["metadata"]["generation"] = 1
        sent = (obj.get("status") or {}).get("qosClass")
        status = obj["status"] = {"phase": "Pending", "qosClass": sent or quality_of_service(obj)}
        spec = obj.setdefault("spec", {})
        if spec.get("schedulingGates"):
            status["conditions"] = [{**GATED, "lastProbeTime": None, "lastTransitionTime": ctx.now}]
        if spec.get("affinity") or spec.get("topologySpreadConstraints"):
            merge_label_keys(obj)
        apparmor_from_annotations(ctx, obj)

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidatePodCreate``. Stores in ``ctx.no_warnings`` whether the spec passes its checks, which saves work in
        ``warnings_on_create``.
        """
        ctx.no_warnings = passes_checks(obj.get("spec") or {})
        return pods.create(obj, FOR_PODS, ctx.no_warnings)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidatePodUpdate``, tolerating errors that ``old`` already has."""
        return pods.update(obj, old, options_for(old.get("spec") or {}, old["metadata"], True))

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """Return the warnings of ``pod_warnings``, after one for a name that is not a DNS label and gives a surprising hostname."""
        out = pod_warnings(obj["metadata"], obj.get("spec") or {}, passed=ctx.no_warnings)
        messages = names.is_dns1123_label(obj["metadata"].get("name") or "")
        if messages:
            text = "this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended"
            out.insert(0, f"metadata.name: {text}: [{' '.join(messages)}]")
        return out

    def check_graceful_delete(self, ctx: Context, obj: Obj, options: dict[str, Any]) -> bool:
        """Use the pod's own grace period unless the request gives one; a pod that no node runs is deleted at once."""
        spec = obj.get("spec") or {}
        period = options.get("gracePeriodSeconds")
        if period is None:
            period = spec.get("terminationGracePeriodSeconds") or 0
        if not spec.get("nodeName") or (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            period = 0
        options["gracePeriodSeconds"] = 1 if period < 0 else period
        return True

    # -- subresources --------------------------------------------------------------------------------------------------

    def prepare_for_status_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Carry over the spec, owner references and, where the new status has none, the QoS class and observed generations; drop
        deletionTimestamp.
        """
        meta = obj["metadata"]
        obj["spec"] = old.get("spec") or {}
        meta.pop("deletionTimestamp", None)
        if old["metadata"].get("ownerReferences"):
            meta["ownerReferences"] = old["metadata"]["ownerReferences"]
        else:
            meta.pop("ownerReferences", None)
        status, before = obj.setdefault("status", {}), old.get("status") or {}
        if not status.get("qosClass") and before.get("qosClass"):
            status["qosClass"] = before["qosClass"]
        keep_observed(status, before)

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidatePodStatusUpdate``, tolerating errors that ``old`` already has."""
        return pods.status_update(obj, old, options_for(old.get("spec") or {}, old["metadata"], True), ctx.metadata_passed)

    def warnings_on_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """Return a warning for each address in podIPs and hostIPs that is not in canonical form."""
        status, out = obj.get("status") or {}, []
        for key in ("podIPs", "hostIPs"):
            for i, item in enumerate(status.get(key) or ()):
                out += ip_warnings(f"status.{key}[{i}].ip", item.get("ip") or "")
        return out

    def prepare_for_ephemeralcontainers_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Take only spec.ephemeralContainers from the request."""
        wanted = (obj.get("spec") or {}).get("ephemeralContainers")
        self._restore(obj, old)
        spec = obj["spec"] = dict(old.get("spec") or {})
        if wanted is None:
            spec.pop("ephemeralContainers", None)
        else:
            spec["ephemeralContainers"] = wanted
        self.bump_generation(obj, old)

    def validate_ephemeralcontainers_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidatePodEphemeralContainersUpdate``, tolerating errors that ``old`` already has."""
        return pods.ephemeral_containers_update(obj, old, options_for(old.get("spec") or {}, old["metadata"], True))

    def prepare_for_resize_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Take only resources and resize policies of containers and the pod-level resources from the request.

        If containers were added, removed or renamed, the request stays as it is, for validation to refuse.
        """
        wanted, before = obj.get("spec") or {}, old.get("spec") or {}
        kinds = ("containers", "initContainers")
        if all(len(wanted.get(kind) or ()) == len(before.get(kind) or ()) for kind in kinds):
            self._restore(obj, old)
            spec = obj["spec"] = dict(before)
            for kind in kinds:
                if before.get(kind):
                    spec[kind] = self._resized(wanted[kind], before[kind])
            if features.DEFAULT.enabled("InPlacePodLevelResourcesVerticalScaling"):
                take(spec, wanted, "resources")
        self.bump_generation(obj, old)

    @staticmethod
    def _resized(wanted: list[Obj], before: list[Obj]) -> list[Obj]:
        if any(new.get("name") != had.get("name") for new, had in zip(wanted, before, strict=True)):
            return wanted
        out = [dict(container) for container in before]
        for container, new in zip(out, wanted, strict=True):
            take(container, new, "resources")
            take(container, new, "resizePolicy")
        return out

    @staticmethod
    def _restore(obj: Obj, old: Obj) -> None:
        """Restore everything as stored except the expected version and the field managers."""
        wanted = obj["metadata"]
        meta = obj["metadata"] = dict(old["metadata"])
        for key in ("resourceVersion", "managedFields"):
            if key in wanted:
                meta[key] = wanted[key]
        obj["status"] = old.get("status") or {}

    def validate_resize_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidatePodResize``, tolerating errors that ``old`` already has."""
        options = options_for(old.get("spec") or {}, old["metadata"], True)
        return pods.resize(obj, old, options, quality_of_service)


def assign(pod: Obj, target: Obj, now: str) -> Obj:
    """Return the pod bound to ``target``, a valid Binding (``/binding``).

    The caller has checked that the pod is neither bound, deleted nor gated. Annotations and labels of the binding are merged in; the
    generation stays.
    """
    meta, wanted = dict(pod["metadata"]), target.get("metadata") or {}
    for key in ("annotations", "labels"):
        if wanted.get(key):
            meta[key] = {**(meta.get(key) or {}), **wanted[key]}
    status = dict(pod.get("status") or {})
    status.pop("nominatedNodeName", None)
    condition = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    status["conditions"] = with_condition(status.get("conditions") or [], condition)
    return {**pod, "metadata": meta, "spec": {**pod["spec"], "nodeName": target["target"]["name"]}, "status": status}

"""Rows of the workload kinds: apps, batch and autoscaling."""

from __future__ import annotations

from typing import Any

from kas.api.printers.age import age, human_duration, parse_time, since
from kas.api.printers.cells import NONE, UNSET, containers, is_true, kind_slash_name, labels, part, selector, selector_text
from kas.api.printers.registry import printer

Object = dict[str, Any]
_JOB_STATES = ("Suspended", "FailureTarget", "SuccessCriteriaMet")


@printer("apps", "Deployment")
def deployment(obj: Object, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    return [
        obj["metadata"].get("name", ""), f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
        status.get("updatedReplicas", 0), status.get("availableReplicas", 0), age(obj, now),
        *containers(part(spec, "template")), selector_text(spec.get("selector")),
    ]  # fmt: skip


@printer("apps", "ReplicaSet")
def replica_set(obj: Object, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    return [
        obj["metadata"].get("name", ""), spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0),
        age(obj, now), *containers(part(spec, "template")), selector(spec.get("selector")),
    ]  # fmt: skip


@printer("apps", "StatefulSet")
def stateful_set(obj: Object, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    ratio = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    return [obj["metadata"].get("name", ""), ratio, age(obj, now), *containers(part(spec, "template"))]


@printer("apps", "DaemonSet")
def daemon_set(obj: Object, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    template = part(spec, "template")
    return [
        obj["metadata"].get("name", ""), status.get("desiredNumberScheduled", 0), status.get("currentNumberScheduled", 0),
        status.get("numberReady", 0), status.get("updatedNumberScheduled", 0), status.get("numberAvailable", 0),
        labels(part(template, "spec").get("nodeSelector")), age(obj, now), *containers(template), selector(spec.get("selector")),
    ]  # fmt: skip


@printer("apps", "ControllerRevision")
def controller_revision(obj: Object, now: float) -> list[Any]:
    owner = next((o for o in obj["metadata"].get("ownerReferences") or () if o.get("controller")), None)
    text = NONE
    if owner is not None:
        group, slash, _ = owner.get("apiVersion", "").partition("/")
        kind = f"{owner.get('kind', '')}.{group}" if slash else owner.get("kind", "")
        text = f"{kind.lower()}/{owner.get('name', '')}" if kind else owner.get("name", "")
    return [obj["metadata"].get("name", ""), text, obj.get("revision", 0), age(obj, now)]


def _job_status(obj: Object) -> str:
    conditions = part(obj, "status").get("conditions")
    if is_true(conditions, "Complete"):
        return "Complete"
    if is_true(conditions, "Failed"):
        return "Failed"
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return next((state for state in _JOB_STATES if is_true(conditions, state)), "Running")


def _job_completions(spec: Object, succeeded: int) -> str:
    if spec.get("completions") is not None:
        return f"{succeeded}/{spec['completions']}"
    parallelism = spec.get("parallelism") or 0
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _job_duration(status: Object, now: float) -> str:
    start, end = parse_time(status.get("startTime")), parse_time(status.get("completionTime"))
    if start is None:
        return ""
    return human_duration((now if end is None else end) - start)


@printer("batch", "Job")
def job(obj: Object, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    return [
        obj["metadata"].get("name", ""), _job_status(obj), _job_completions(spec, status.get("succeeded", 0)),
        _job_duration(status, now), age(obj, now), *containers(part(spec, "template")), selector(spec.get("selector")),
    ]  # fmt: skip


@printer("batch", "CronJob")
def cron_job(obj: Object, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    job_spec, last = part(spec, "jobTemplate", "spec"), status.get("lastScheduleTime")
    suspend = spec.get("suspend")
    return [
        obj["metadata"].get("name", ""), spec.get("schedule", ""), spec.get("timeZone", NONE),
        UNSET if suspend is None else str(suspend), len(status.get("active") or ()), since(last, now) if last else NONE,
        age(obj, now), *containers(part(job_spec, "template")), selector(job_spec.get("selector")),
    ]  # fmt: skip


def _against(current: Any, target: Any) -> str:
    return f"{'<unknown>' if current is None else current}/{target}"


def _usage(name: str, target: Object, now_at: Object | None) -> str:
    current = part(now_at or {}, "current")
    if target.get("averageValue") is not None:
        at = None if now_at is None else current.get("averageValue", "<nil>")
        return f"{name}: {_against(at, target['averageValue'])}"
    at, goal = current.get("averageUtilization"), target.get("averageUtilization")
    return f"{name}: {_against(None if at is None else f'{at}%', '<auto>' if goal is None else f'{goal}%')}"


def _metric(spec: Object, status: Object) -> str:
    """One metric's current value against its target."""
    match spec.get("type"):
        case "Resource":
            source = part(spec, "resource")
            return _usage(source.get("name", ""), part(source, "target"), status.get("resource"))
        case "ContainerResource":
            source = part(spec, "containerResource")
            return _usage(source.get("name", ""), part(source, "target"), status.get("containerResource"))
        case "Pods":
            at = status.get("pods")
            current = None if at is None else part(at, "current").get("averageValue", "<nil>")
            return _against(current, part(spec, "pods", "target").get("averageValue", "<nil>"))
        case "Object" | "External" as kind:
            target, at = part(spec, kind.lower(), "target"), status.get(kind.lower())
            if target.get("averageValue") is not None:
                return _against(part(at or {}, "current").get("averageValue"), target["averageValue"]) + " (avg)"
            return _against(None if at is None else part(at, "current").get("value", "<nil>"), target.get("value", "<nil>"))
    return "<unknown type>"


def _targets(specs: list[Object], statuses: list[Object]) -> str:
    if not specs:
        return NONE
    shown = [_metric(spec, statuses[i] if i < len(statuses) else {}) for i, spec in enumerate(specs[:2])]
    text = ", ".join(shown)
    return f"{text} + {len(specs) - 2} more..." if len(specs) > 2 else text


@printer("autoscaling", "HorizontalPodAutoscaler")
def horizontal_pod_autoscaler(obj: Object, now: float) -> list[Any]:
    """Reads the autoscaling/v2 form."""
    spec, status = part(obj, "spec"), part(obj, "status")
    return [
        obj["metadata"].get("name", ""), kind_slash_name(part(spec, "scaleTargetRef")),
        _targets(spec.get("metrics") or [], status.get("currentMetrics") or []), str(spec.get("minReplicas", UNSET)),
        spec.get("maxReplicas", 0), status.get("currentReplicas", 0), age(obj, now),
    ]  # fmt: skip


@printer("autoscaling", "Scale")
def scale(obj: Object, now: float) -> list[Any]:
    replicas = part(obj, "spec").get("replicas", 0)
    return [obj["metadata"].get("name", ""), replicas, part(obj, "status").get("replicas", 0), age(obj, now)]

"""Rows of pods, after upstream's ``printPod``."""

from __future__ import annotations

from typing import Any

from kas.api.printers.age import age, human_duration, parse_time
from kas.api.printers.cells import NONE, containers, labels
from kas.api.printers.registry import printer

_SUCCEEDED = [{"type": "Completed", "status": "True", "reason": "Succeeded", "message": "The pod has completed successfully."}]
_FAILED = [{"type": "Completed", "status": "True", "reason": "Failed", "message": "The pod failed."}]
_NO_CONDITION: dict[str, Any] = {}
# What a row of a finished pod says besides its cells.
ROW_CONDITIONS = {"Succeeded": _SUCCEEDED, "Failed": _FAILED}


def _last_end(status: dict[str, Any], so_far: float) -> float:
    """When the container last ended before its present run, if that is later than ``so_far``."""
    ended = status["lastState"].get("terminated")
    return max(so_far, parse_time(ended.get("finishedAt")) or 0.0) if ended else so_far


def _exit_text(terminated: dict[str, Any]) -> str:
    if terminated.get("reason"):
        return terminated["reason"]
    return f"Signal:{terminated['signal']}" if terminated.get("signal") else f"ExitCode:{terminated.get('exitCode', 0)}"


def _readiness_gates(gates: list[dict[str, Any]], conditions: dict[str, dict[str, Any]]) -> str:
    met = sum(conditions.get(g.get("conditionType", ""), {}).get("status") == "True" for g in gates)
    return f"{met}/{len(gates)}"


@printer("", "Pod")
def pod(obj: dict[str, Any], now: float) -> list[Any]:
    meta, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    conditions = {c.get("type"): c for c in reversed(status.get("conditions") or ())}  # of equal types the first counts
    init = spec.get("initContainers") or ()
    # By name, of which the last counts; every sidecar counts as a container.
    sidecars = {c["name"]: c.get("restartPolicy") == "Always" for c in init} if init else {}
    total, ready = len(spec.get("containers") or ()) + sum(c.get("restartPolicy") == "Always" for c in init), 0

    phase = status.get("phase", "")
    reason = status.get("reason") or phase
    scheduled = conditions.get("PodScheduled")
    if scheduled and scheduled.get("reason") == "SchedulingGated":
        reason = "SchedulingGated"

    restarts, last, initializing = 0, 0.0, False
    of_sidecars, last_of_sidecars = 0, 0.0
    for i, c in enumerate(status.get("initContainerStatuses") or ()):
        is_sidecar = sidecars.get(c.get("name", ""), False)
        restarts += c.get("restartCount", 0)
        if c.get("lastState"):
            last = _last_end(c, last)
        if is_sidecar:
            of_sidecars += c.get("restartCount", 0)
            if c.get("lastState"):
                last_of_sidecars = _last_end(c, last_of_sidecars)
        state = c.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting") or {}
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if is_sidecar and c.get("started"):
            ready += bool(c.get("ready"))
            continue
        if terminated is not None:
            reason = "Init:" + _exit_text(terminated)
        elif waiting.get("reason") and waiting["reason"] != "PodInitializing":
            reason = "Init:" + waiting["reason"]
        else:
            reason = f"Init:{i}/{len(init)}"
        initializing = True
        break

    if not initializing or conditions.get("Initialized", _NO_CONDITION).get("status") == "True":
        restarts, last = of_sidecars, last_of_sidecars
        has_running, error = False, ""
        for c in reversed(status.get("containerStatuses") or ()):
            restarts += c.get("restartCount", 0)
            if c.get("lastState"):
                last = _last_end(c, last)
            state = c.get("state") or {}
            waiting, terminated = state.get("waiting"), state.get("terminated")
            if waiting and waiting.get("reason"):
                reason = waiting["reason"]
            elif terminated is not None:
                reason = _exit_text(terminated)
                if terminated.get("exitCode"):
                    error = reason
            elif c.get("ready") and state.get("running") is not None:
                has_running = True
                ready += 1
        if reason == "Completed":  # one container may have ended while others go on
            if has_running and conditions.get("Ready", _NO_CONDITION).get("status") == "True":
                reason = "Running"
            elif error:
                reason = error
            elif has_running:
                reason = "NotReady"

    if meta.get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif phase not in ("Succeeded", "Failed"):
            reason = "Terminating"

    ips, gates = status.get("podIPs"), spec.get("readinessGates")
    return [
        meta.get("name", ""), f"{ready}/{total}", reason,
        f"{restarts} ({human_duration(now - last)} ago)" if restarts and last else str(restarts), age(obj, now),
        (ips[0].get("ip") if ips else status.get("podIP")) or NONE,
        spec.get("nodeName") or NONE, status.get("nominatedNodeName") or NONE,
        _readiness_gates(gates, conditions) if gates else NONE,
    ]  # fmt: skip


@printer("", "PodTemplate")
def pod_template(obj: dict[str, Any], now: float) -> list[Any]:
    template = obj.get("template") or {}
    return [obj["metadata"].get("name", ""), *containers(template), labels((template.get("metadata") or {}).get("labels"))]

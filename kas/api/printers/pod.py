"""Rows of pods, after upstream's ``printPod``."""

from __future__ import annotations

from typing import Any

from kas.api.printers.age import age, human_duration, parse_time
from kas.api.printers.cells import NONE, containers, is_true, labels
from kas.api.printers.registry import printer

_SUCCEEDED = [{"type": "Completed", "status": "True", "reason": "Succeeded", "message": "The pod has completed successfully."}]
_FAILED = [{"type": "Completed", "status": "True", "reason": "Failed", "message": "The pod failed."}]
# What a row of a finished pod says besides its cells.
ROW_CONDITIONS = {"Succeeded": _SUCCEEDED, "Failed": _FAILED}


class _Restarts:
    """How often containers restarted and when the last of them ended."""

    __slots__ = ("count", "last")

    def __init__(self) -> None:
        self.count, self.last = 0, 0.0

    def add(self, status: dict[str, Any]) -> None:
        self.count += status.get("restartCount", 0)
        ended = (status.get("lastState") or {}).get("terminated")
        if ended:
            self.last = max(self.last, parse_time(ended.get("finishedAt")) or 0.0)

    def text(self, now: float) -> str:
        return f"{self.count} ({human_duration(now - self.last)} ago)" if self.count and self.last else str(self.count)


def _exit_text(terminated: dict[str, Any]) -> str:
    if terminated.get("reason"):
        return terminated["reason"]
    return f"Signal:{terminated['signal']}" if terminated.get("signal") else f"ExitCode:{terminated.get('exitCode', 0)}"


def _readiness_gates(gates: list[dict[str, Any]], conditions: list[dict[str, Any]]) -> str:
    first: dict[str, str] = {}
    for c in conditions:
        first.setdefault(c.get("type", ""), c.get("status", ""))
    return f"{sum(first.get(g.get('conditionType', '')) == 'True' for g in gates)}/{len(gates)}"


@printer("", "Pod")
def pod(obj: dict[str, Any], now: float) -> list[Any]:
    meta, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    conditions = status.get("conditions") or ()
    init = spec.get("initContainers") or ()
    sidecars = {c["name"] for c in init if c.get("restartPolicy") == "Always"} if init else ()
    total, ready = len(spec.get("containers") or ()) + len(sidecars), 0

    phase = status.get("phase", "")
    reason = status.get("reason") or phase
    if any(c.get("type") == "PodScheduled" and c.get("reason") == "SchedulingGated" for c in conditions):
        reason = "SchedulingGated"

    restarts, initializing = _Restarts(), False
    init_statuses = status.get("initContainerStatuses") or ()
    if init_statuses:
        restarts, of_sidecars = _Restarts(), _Restarts()
        for i, c in enumerate(init_statuses):
            restarts.add(c)
            is_sidecar = c.get("name") in sidecars
            if is_sidecar:
                of_sidecars.add(c)
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

    if not initializing or is_true(conditions, "Initialized"):
        if init_statuses:
            restarts = of_sidecars
        has_running, error = False, ""
        for c in reversed(status.get("containerStatuses") or ()):
            restarts.add(c)
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
            if has_running and is_true(conditions, "Ready"):
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
        meta.get("name", ""), f"{ready}/{total}", reason, restarts.text(now), age(obj, now),
        (ips[0].get("ip") if ips else status.get("podIP")) or NONE,
        spec.get("nodeName") or NONE, status.get("nominatedNodeName") or NONE,
        _readiness_gates(gates, conditions) if gates else NONE,
    ]  # fmt: skip


@printer("", "PodTemplate")
def pod_template(obj: dict[str, Any], now: float) -> list[Any]:
    template = obj.get("template") or {}
    return [obj["metadata"].get("name", ""), *containers(template), labels((template.get("metadata") or {}).get("labels"))]

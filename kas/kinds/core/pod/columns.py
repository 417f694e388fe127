"""Table rows of pods, as upstream's ``printPod``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kas.meta.age import age, human_duration, parse_time
from kas.registry.printing.cells import NONE, containers, labels
from kas.registry.printing.rows import CONDITIONS, printer

_SUCCEEDED = [{"type": "Completed", "status": "True", "reason": "Succeeded", "message": "The pod has completed successfully."}]
_FAILED = [{"type": "Completed", "status": "True", "reason": "Failed", "message": "The pod failed."}]
_NO_CONDITION: dict[str, Any] = {}
_FINISHED = {"Succeeded": _SUCCEEDED, "Failed": _FAILED}
# The conditions of the row of a finished pod.
CONDITIONS["", "Pod"] = lambda pod: _FINISHED.get((pod.get("status") or {}).get("phase", ""))


def _last_end(status: dict[str, Any], so_far: float) -> float:
    """Return when the container's previous run ended, if that is later than ``so_far``; in seconds since the epoch."""
    ended = status["lastState"].get("terminated")
    return max(so_far, parse_time(ended.get("finishedAt")) or 0.0) if ended else so_far


def _exit_text(terminated: dict[str, Any]) -> str:
    if terminated.get("reason"):
        return terminated["reason"]
    return f"Signal:{terminated['signal']}" if terminated.get("signal") else f"ExitCode:{terminated.get('exitCode', 0)}"


def _readiness_gates(gates: list[dict[str, Any]], conditions: dict[str, dict[str, Any]]) -> str:
    met = sum(conditions.get(g.get("conditionType", ""), {}).get("status") == "True" for g in gates)
    return f"{met}/{len(gates)}"


class _Tally:
    """The summary of a pod's container statuses: the reason to show, the numbers of ready containers and restarts, the last restart."""

    __slots__ = ("conditions", "last", "listed", "ready", "reason", "restarts")

    def __init__(self, reason: str, listed: Sequence[dict[str, Any]], conditions: dict[str, dict[str, Any]]) -> None:
        self.reason, self.listed, self.conditions = reason, listed, conditions
        self.ready = self.restarts = 0
        self.last = 0.0  # seconds since the epoch; 0 for never

    def init_containers(self, spec: dict[str, Any], statuses: list[dict[str, Any]]) -> bool:
        """Count init containers up to the first that has not ended; return whether there is one."""
        init = spec.get("initContainers") or ()
        # By name, of which the last counts; every sidecar counts as a container.
        sidecars = {c.get("name", ""): c.get("restartPolicy") == "Always" for c in init} if init else {}
        of_sidecars, last_of_sidecars = 0, 0.0
        for i, c in enumerate(statuses):
            is_sidecar = sidecars.get(c.get("name", ""), False)
            self.restarts += c.get("restartCount", 0)
            if c.get("lastState"):
                self.last = _last_end(c, self.last)
            if is_sidecar:
                of_sidecars += c.get("restartCount", 0)
                if c.get("lastState"):
                    last_of_sidecars = _last_end(c, last_of_sidecars)
            state = c.get("state") or {}
            terminated, waiting = state.get("terminated"), state.get("waiting") or {}
            if terminated is not None and not terminated.get("exitCode"):
                continue
            if is_sidecar and c.get("started"):
                self.ready += bool(c.get("ready"))
                continue
            if terminated is not None:
                self.reason = "Init:" + _exit_text(terminated)
            elif waiting.get("reason") and waiting["reason"] != "PodInitializing":
                self.reason = "Init:" + waiting["reason"]
            else:
                self.reason = f"Init:{i}/{len(init)}"
            if self.is_true("Initialized"):
                self.restarts, self.last = of_sidecars, last_of_sidecars
                return False
            return True
        self.restarts, self.last = of_sidecars, last_of_sidecars
        return False

    def containers(self, statuses: list[dict[str, Any]]) -> None:
        """Count the containers; the reason is that of the first one that has any."""
        has_running, error = False, ""
        for c in reversed(statuses):
            self.restarts += c.get("restartCount", 0)
            if c.get("lastState"):
                self.last = _last_end(c, self.last)
            state = c.get("state") or {}
            waiting, terminated = state.get("waiting"), state.get("terminated")
            if waiting and waiting.get("reason"):
                self.reason = waiting["reason"]
            elif terminated is not None:
                self.reason = _exit_text(terminated)
                if terminated.get("exitCode"):
                    error = self.reason
            elif c.get("ready") and state.get("running") is not None:
                has_running = True
                self.ready += 1
        if self.reason == "Completed":  # one container may have ended while others still run
            if has_running and any(c.get("type") == "Ready" and c.get("status") == "True" for c in self.listed):
                self.reason = "Running"
            elif error:
                self.reason = error
            elif has_running:
                self.reason = "NotReady"

    def is_true(self, condition: str) -> bool:
        return self.conditions.get(condition, _NO_CONDITION).get("status") == "True"


@printer("", "Pod")
def pod(obj: dict[str, Any], now: float) -> list[Any]:
    """Return the row of a pod; ``now`` is in seconds since the epoch."""
    meta, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    listed = status.get("conditions") or ()
    conditions = {c.get("type"): c for c in reversed(listed)}  # of equal types the first counts
    phase = status.get("phase", "")
    tally = _Tally(status.get("reason") or phase, listed, conditions)
    for c in listed:
        if c.get("reason") == "SchedulingGated" and c.get("type") == "PodScheduled":
            tally.reason = "SchedulingGated"
    if not tally.init_containers(spec, status.get("initContainerStatuses") or []):
        tally.containers(status.get("containerStatuses") or [])
    if meta.get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            tally.reason = "Unknown"
        elif phase not in ("Succeeded", "Failed"):
            tally.reason = "Terminating"

    total = len(spec.get("containers") or ()) + sum(c.get("restartPolicy") == "Always" for c in spec.get("initContainers") or ())
    restarts, last = tally.restarts, tally.last
    ips, gates = status.get("podIPs"), spec.get("readinessGates")
    return [
        meta.get("name", ""), f"{tally.ready}/{total}", tally.reason,
        f"{restarts} ({human_duration(now - last)} ago)" if restarts and last else str(restarts), age(obj, now),
        (ips[0].get("ip") if ips else status.get("podIP")) or NONE,
        spec.get("nodeName") or NONE, status.get("nominatedNodeName") or NONE,
        _readiness_gates(gates, conditions) if gates else NONE,
    ]  # fmt: skip


@printer("", "PodTemplate")
def pod_template(obj: dict[str, Any], now: float) -> list[Any]:
    """Return the row of a PodTemplate: its name, the containers' names and images, and the labels of its pods."""
    template = obj.get("template") or {}
    return [obj["metadata"].get("name", ""), *containers(template), labels((template.get("metadata") or {}).get("labels"))]

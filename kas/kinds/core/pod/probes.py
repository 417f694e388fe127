"""Probes, lifecycle handlers and ports (``pkg/apis/core/validation``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kas.meta import cached, field, names
from kas.meta.checks import unsupported
from kas.meta.field import FieldError

PORT_RANGE = "must be between 1 and 65535, inclusive"
PROTOCOLS = ("SCTP", "TCP", "UDP")
STOP_SIGNALS_NEED_OS = "may not be set for containers with empty `spec.os.name`"
MORE_THAN_ONE = "may not specify more than 1 handler type"


def port_num_or_name(port: Any, path: str) -> list[FieldError]:
    """``ValidatePortNumOrName`` of an int-or-string; an absent one counts as 0."""
    if isinstance(port, str):
        return [field.invalid(path, port, m) for m in cached.port_name(port)]
    port = port or 0
    return [] if 1 <= port <= 65535 else [field.invalid(path, port, PORT_RANGE)]


def _http_get(action: Mapping[str, Any], path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    if not action.get("path"):
        errs.append(field.required(f"{path}.path"))
    errs += port_num_or_name(action.get("port"), f"{path}.port")
    if action.get("scheme") not in ("HTTP", "HTTPS"):
        errs.append(unsupported(f"{path}.scheme", action.get("scheme") or "", ("HTTP", "HTTPS")))
    for header in action.get("httpHeaders") or ():
        name = header.get("name") or ""
        errs += [field.invalid(f"{path}.httpHeaders", name, m) for m in names.is_http_header_name(name)]
    return errs


def _exec(action: Mapping[str, Any], path: str) -> list[FieldError]:
    return [] if action.get("command") else [field.required(f"{path}.command")]


def _socket(action: Mapping[str, Any], path: str) -> list[FieldError]:
    return port_num_or_name(action.get("port"), f"{path}.port")


_HANDLERS = (("exec", _exec), ("httpGet", _http_get), ("tcpSocket", _socket), ("grpc", _socket))


def handler(spec: Mapping[str, Any], grace: int, path: str, sleep_allowed: bool) -> list[FieldError]:
    """Validate the action of a probe (which allows grpc) or of a lifecycle hook (which allows sleep)."""
    errs: list[FieldError] = []
    found = 0
    for name, check in _HANDLERS:
        action = spec.get(name)
        if action is None or (sleep_allowed and name == "grpc"):
            continue
        if found:
            errs.append(field.forbidden(f"{path}.{name}", MORE_THAN_ONE))
        else:
            found = 1
            errs += check(action, f"{path}.{name}")
    if sleep_allowed and spec.get("sleep") is not None:
        if found:
            errs.append(field.forbidden(f"{path}.sleep", MORE_THAN_ONE))
        else:
            found = 1
            seconds = spec["sleep"].get("seconds") or 0
            if seconds < 0 or seconds > grace:
                message = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
                errs.append(field.invalid(f"{path}.sleep", seconds, message))
    if not found:
        errs.append(field.required(path, "must specify a handler type"))
    return errs


_COUNTS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")


def probe(spec: Mapping[str, Any], which: str, grace: int, path: str) -> list[FieldError]:
    """Validate a probe; ``which`` is livenessProbe, readinessProbe or startupProbe."""
    errs = handler(spec, grace, path, False)
    for name in _COUNTS:
        n = spec.get(name) or 0
        if n < 0:
            errs.append(field.invalid(f"{path}.{name}", n, "must be greater than or equal to 0"))
    own_grace = spec.get("terminationGracePeriodSeconds")
    if own_grace is not None and own_grace <= 0:
        errs.append(field.invalid(f"{path}.terminationGracePeriodSeconds", own_grace, "must be greater than 0"))
    if which == "readinessProbe":
        if own_grace is not None:
            at = f"{path}.terminationGracePeriodSeconds"
            errs.append(field.invalid(at, own_grace, "must not be set for readinessProbes"))
    elif (spec.get("successThreshold") or 0) != 1:
        errs.append(field.invalid(f"{path}.successThreshold", spec.get("successThreshold") or 0, "must be 1"))
    return errs


LINUX_SIGNALS = frozenset(
    {
        "SIGABRT", "SIGALRM", "SIGBUS", "SIGCHLD", "SIGCLD", "SIGCONT", "SIGFPE", "SIGHUP", "SIGILL", "SIGINT", "SIGIO", "SIGIOT",
        "SIGKILL", "SIGPIPE", "SIGPOLL", "SIGPROF", "SIGPWR", "SIGQUIT", "SIGSEGV", "SIGSTKFLT", "SIGSTOP", "SIGSYS", "SIGTERM",
        "SIGTRAP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGWINCH", "SIGXCPU", "SIGXFSZ",
        "SIGRTMIN", "SIGRTMAX",
    }
) | {f"SIGRTMIN+{i}" for i in range(1, 16)} | {f"SIGRTMAX-{i}" for i in range(1, 15)}  # fmt: skip
WINDOWS_SIGNALS = frozenset({"SIGTERM", "SIGKILL"})


def lifecycle(spec: Mapping[str, Any], grace: int, os_name: str | None, path: str) -> list[FieldError]:
    """``validateLifecycle``: the hooks, and a stop signal, which needs a pod that names its operating system and must exist there.

    ``grace`` in seconds bounds a hook's sleep. ``os_name`` is None if the pod has no os; an unknown name is reported elsewhere.
    """
    errs: list[FieldError] = []
    if spec.get("postStart") is not None:
        errs += handler(spec["postStart"], grace, f"{path}.postStart", True)
    if spec.get("preStop") is not None:
        errs += handler(spec["preStop"], grace, f"{path}.preStop", True)
    signal = spec.get("stopSignal")
    if signal is not None:
        if os_name is None:
            errs.append(field.forbidden(f"{path}.stopSignal", STOP_SIGNALS_NEED_OS))
        elif os_name in ("linux", "windows"):
            known = LINUX_SIGNALS if os_name == "linux" else WINDOWS_SIGNALS
            if signal not in known:
                errs.append(field.not_supported(f"{path}.stopSignal", signal, sorted(known)))
    return errs


def container_ports(ports: list[dict[str, Any]], path: str) -> list[FieldError]:
    """``validateContainerPorts`` of one container: unique names, numbers 1 to 65535, known protocols; a host port of 0 means none."""
    errs: list[FieldError] = []
    seen: set[str] = set()
    for i, port in enumerate(ports):
        name = port.get("name")
        if name:
            messages = cached.port_name(name)
            if messages:
                errs += [field.invalid(f"{path}[{i}].name", name, m) for m in messages]
            elif name in seen:
                errs.append(field.duplicate(f"{path}[{i}].name", name))
            else:
                seen.add(name)
        number = port.get("containerPort") or 0
        if not 1 <= number <= 65535:
            at = f"{path}[{i}].containerPort"
            errs.append(field.invalid(at, number, PORT_RANGE) if number else field.required(at))
        host = port.get("hostPort") or 0
        if host and not 1 <= host <= 65535:
            errs.append(field.invalid(f"{path}[{i}].hostPort", host, PORT_RANGE))
        protocol = port.get("protocol")
        if protocol not in PROTOCOLS:
            at = f"{path}[{i}].protocol"
            errs.append(unsupported(at, protocol, PROTOCOLS) if protocol else field.required(at))
    return errs


def host_port_conflicts(containers: list[dict[str, Any]], path: str) -> list[FieldError]:
    """``checkHostPortConflicts``: no two ports of ``containers`` have the same protocol, address and port of the host."""
    errs: list[FieldError] = []
    seen: set[tuple] = set()
    for ci, container in enumerate(containers):
        for pi, port in enumerate(container.get("ports") or ()):
            host = port.get("hostPort")
            if not host:
                continue
            key = (port.get("protocol") or "", port.get("hostIP") or "", host)
            if key in seen:
                errs.append(field.duplicate(f"{path}[{ci}].ports[{pi}].hostPort", f"{key[0]}/{key[1]}/{host}"))
            seen.add(key)
    return errs

"""``/healthz``, ``/livez``, ``/readyz``: named checks, each addressable (apiserver's ``server/healthz``).

``?verbose`` lists every check, ``?exclude=name`` leaves one out; a failed check answers 500 and says which.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from kas.director import Director, not_found
from kas.edge.http import Request, Response
from kas.endpoints.respond import text

# A check returns "" when all is well, else the reason.
Check = Callable[[], str]

# What a client may ask for by name because kube-apiserver has it; here all of it is done before the port opens.
START_HOOKS = (
    "start-apiserver-admission-initializer", "generic-apiserver-start-informers", "priority-and-fairness-config-consumer",
    "priority-and-fairness-filter", "storage-object-count-tracker-hook", "start-apiextensions-informers",
    "start-apiextensions-controllers", "crd-informer-synced", "start-system-namespaces-controller",
    "start-cluster-authentication-info-controller", "start-kube-apiserver-identity-lease-controller",
    "start-kube-apiserver-identity-lease-garbage-collector", "start-legacy-token-tracking-controller",
    "start-service-ip-repair-controllers", "rbac/bootstrap-roles", "scheduling/bootstrap-system-priority-classes",
    "priority-and-fairness-config-producer", "bootstrap-controller", "start-kubernetes-service-cidr-controller",
    "aggregator-reload-proxy-client-cert", "start-kube-aggregator-informers", "apiservice-status-local-available-controller",
    "apiservice-status-remote-available-controller", "apiservice-registration-controller", "apiservice-discovery-controller",
    "kube-apiserver-autoregistration", "apiservice-openapi-controller", "apiservice-openapiv3-controller",
    "apiservice-wait-for-first-sync", "peer-endpoint-reconciler-controller", "storage-readiness",
)  # fmt: skip


class Health:
    """``started`` says that start-up is complete, ``store_check`` whether the store answers, ``shutting_down`` when it ends."""

    def __init__(self, started: Callable[[], bool], store_check: Check, shutting_down: Callable[[], bool]) -> None:
        def hook() -> str:
            return "" if started() else "not finished"

        def ok() -> str:
            return ""

        hooks: dict[str, Check] = {f"poststarthook/{name}": hook for name in START_HOOKS}
        base: dict[str, Check] = {"ping": ok, "log": ok, "etcd": store_check}
        self.checks: dict[str, dict[str, Check]] = {
            "healthz": {**base, **hooks, "autoregister-completion": hook, "loopback-serving-certificate": ok},
            "livez": {**base, **hooks, "autoregister-completion": hook, "loopback-serving-certificate": ok},
            "readyz": {
                "ping": ok, "log": ok, "informer-sync": hook, **hooks, "autoregister-completion": hook,
                "shutdown": lambda: "process is shutting down" if shutting_down() else "",
            },
        }  # fmt: skip

    def install(self, director: Director) -> None:
        for name in self.checks:
            director.exact(f"/{name}", functools.partial(self._all, name))
            director.prefix(f"/{name}/", functools.partial(self._one, name))

    def paths(self) -> list[str]:
        return [p for name, checks in self.checks.items() for p in (f"/{name}", *(f"/{name}/{c}" for c in checks))]

    def _one(self, group: str, req: Request) -> Response:
        check = self.checks[group].get(req.path[len(group) + 2 :])
        if check is None:
            return not_found()
        why = check()
        return text(500, f"internal server error: {why}\n") if why else text(200, "ok")

    def _all(self, group: str, req: Request) -> Response:
        q = req.params
        excluded = {v.strip() for e in q.values("exclude") for v in e.split(",") if v.strip()}
        if not req.query and not any(check() for check in self.checks[group].values()):
            return text(200, "ok")
        lines, failed = [], []
        for name, check in self.checks[group].items():
            if name in excluded:
                excluded.discard(name)
                lines.append(f"[+]{name} excluded: ok\n")
                continue
            why = check()
            if why:
                failed.append(name)
                lines.append(f"[-]{name} failed: reason withheld\n")
            else:
                lines.append(f"[+]{name} ok\n")
        body = "".join(lines)
        if excluded:
            body += "warn: some health checks cannot be excluded: no matches for " + ",".join(f'"{e}"' for e in sorted(excluded)) + "\n"
        if failed:
            return text(500, f"{body}{group} check failed\n")
        if "verbose" not in q:
            return text(200, "ok")
        return text(200, f"{body}{group} check passed\n")

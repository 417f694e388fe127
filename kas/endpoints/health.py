"""``/healthz``, ``/livez`` and ``/readyz``: named checks, each with its own path (apiserver's ``server/healthz``).

``?verbose`` lists every check and ``?exclude=name`` skips one. A failed check answers 500 and names it. Every result is counted for
``/metrics/slis``.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from time import monotonic

from kas._fastpath import go_quote
from kas.endpoints.respond import not_found, plain, text
from kas.observe.logs import RateLimitedLog
from kas.observe.metrics import Registry
from kas.request.http import Request, Response
from kas.request.masking import shortened
from kas.request.mux import Mux

log = logging.getLogger("kas.health")

# A check returns "" if healthy, otherwise the reason.
Check = Callable[[], str]


def _group(name: str) -> str:
    """Return the name under which checks of several etcd clusters are excluded together."""
    if not name.startswith("etcd-override-"):
        return ""
    return "etcd-readiness" if name.startswith("etcd-override-readiness-") else "etcd"


class Health:
    """Serves the health checks. ``checks`` are those of each path; ``slis`` is the registry of ``/metrics/slis``."""

    def __init__(self, checks: dict[str, dict[str, Check]], slis: Registry) -> None:
        self.checks, self._been_ready = checks, False
        self._told = RateLimitedLog(log, "%d more requests exclude health checks that are not there")
        self._now = slis.gauge(
            "kubernetes_healthcheck", "This metric records the result of a single healthcheck.", ("name", "type"), shared=False
        )
        self._total = slis.counter(
            "kubernetes_healthchecks_total", "This metric records the results of all healthcheck.", ("name", "status", "type")
        )
        slis.own_collectors.append(self._set_gauges)

    def install(self, mux: Mux) -> None:
        """Register each group of checks, and each check below it."""
        for name in self.checks:
            mux.exact(f"/{name}", functools.partial(self._all, name))
            mux.prefix(f"/{name}/", functools.partial(self._one, name))

    def paths(self) -> list[str]:
        """Return the paths of all groups and checks."""
        return [p for name, checks in self.checks.items() for p in (f"/{name}", *(f"/{name}/{c}" for c in checks))]

    def been_ready(self) -> bool:
        """Return whether /readyz has ever passed."""
        self._been_ready = self._been_ready or not any(check() for check in self.checks["readyz"].values())
        return self._been_ready

    def _set_gauges(self) -> None:
        for group, checks in self.checks.items():
            for name, check in checks.items():
                self._now.set((name, group), 0 if check() else 1)

    def _run(self, group: str, name: str) -> str:
        why = self.checks[group][name]()
        self._total.inc((name, "error" if why else "success", group))
        return why

    def _one(self, group: str, req: Request) -> Response:
        name = req.path[len(group) + 2 :]
        if name not in self.checks[group]:
            return not_found()
        why = self._run(group, name)
        return text(500, f"internal server error: {why}\n") if why else plain(200, "ok")

    def _all(self, group: str, req: Request) -> Response:
        q = req.params
        asked = set(q.values("exclude"))  # each value as it is: upstream does not split lists
        excluded = set(asked)
        lines, failed = [], list[str]()
        for name in self.checks[group]:
            if name in excluded:
                excluded.discard(name)
                lines.append(f"[+]{name} excluded: ok\n")
            elif (whole := _group(name)) and whole in asked:
                excluded.discard(whole)
                lines.append(f"[+]{name} excluded with {whole}: ok\n")
            elif why := self._run(group, name):
                failed.append(f"{name}: {why}")
                lines.append(f"[-]{name} failed: reason withheld\n")
            else:
                lines.append(f"[+]{name} ok\n")
        unknown = ",".join(map(go_quote, sorted(excluded)))
        # most responses do not say so; rate-limited and shortened, because any client can cause it with any text
        if excluded and self._told.one(monotonic()):
            log.warning("cannot exclude some health checks, no health checks are installed matching %s", shortened(unknown))
        if failed:  # the response withholds the reason, because it may be unauthenticated
            log.info("%s check failed: %s", group, "; ".join(failed))
        elif "verbose" not in q:
            return text(200, "ok")
        body = "".join(lines)
        if excluded:
            body += f"warn: some health checks cannot be excluded: no matches for {unknown}\n"
        return text(500, f"{body}{group} check failed\n") if failed else text(200, f"{body}{group} check passed\n")

"""``componentstatuses``: the health of scheduler, controller manager and store (upstream ``pkg/registry/core/componentstatus``).

Deprecated since v1.19 and computed on every read. Like upstream, the scheduler and controller manager are probed at their health ports on
this host. The objects have no labels, and of their fields only the name can be selected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from kas.client.http import BackendError, Target, connect, insecure_tls
from kas.endpoints import respond
from kas.endpoints.options import ListOptions, list_options
from kas.endpoints.selection import with_served_fields
from kas.meta.errors import ApiError
from kas.registry import printing as printers
from kas.registry.strategy import Obj
from kas.request.http import Request, Response
from kas.types.fieldlabels import selectable_fields
from kas.types.scheme import builtin_kind

SCHEDULER, CONTROLLER_MANAGER, STORE = "scheduler", "controller-manager", "etcd-0"
PORTS = {SCHEDULER: "10259", CONTROLLER_MANAGER: "10257"}
TIMEOUT_S = 20.0
MAX_ANSWER = 10 << 10


class ComponentStatuses:
    """Serves ``componentstatuses``. ``store_check`` returns "" or the store's problem."""

    def __init__(self, store_check: Callable[[], str]) -> None:
        self._store_check = store_check

    async def get(self, req: Request, served: Any, namespace: str, name: str) -> Response:
        """Serve GET of one component. Like upstream, a missing one is a 500."""
        if name not in (*PORTS, STORE):
            raise ApiError(500, "", f"Component not found: {name}")
        return respond.transformed(req, respond.media(req), served, await self._status(name), 200)

    async def list(self, req: Request, served: Any, namespace: str, name: str) -> Response:
        """Serve the selected components. All are probed concurrently."""
        o = with_served_fields(served, list_options(req.params))
        items = [i for i in await asyncio.gather(*(self._status(n) for n in (*PORTS, STORE))) if _selected(served, o, i)]
        m = respond.media_of_list(req, served)
        if m.convert is not None and m.convert.kind == respond.TABLE:
            import time

            table = printers.table(
                (served.group, served.version, served.kind), items, now=time.time(), version=m.convert.version,
                include_object=req.params.get("includeObject"), list_metadata={},
            )  # fmt: skip
            return respond.generic(req, m, table)
        if m.convert is not None:
            value = {
                "kind": respond.PARTIAL_LIST, "apiVersion": f"meta.k8s.io/{m.convert.version}", "metadata": {},
                "items": [respond.partial(i, m.convert.version) for i in items],
            }  # fmt: skip
            return respond.generic(req, m, value)
        kind = builtin_kind("", "v1", "ComponentStatusList")
        value = {"metadata": {}, "items": [{k: v for k, v in i.items() if k not in ("kind", "apiVersion")} for i in items]}
        return respond.typed(req, m, kind.type, "v1", kind.kind, value, 200)

    async def _status(self, name: str) -> Obj:
        if name == STORE:
            problem = self._store_check()
            healthy, message = not problem, problem or "ok"
        else:
            healthy, message = await _probe(PORTS[name])
        condition = {"type": "Healthy", "status": "True" if healthy else "False", "message": message}
        return {"kind": "ComponentStatus", "apiVersion": "v1", "metadata": {"name": name}, "conditions": [condition]}


def _selected(served: Any, o: ListOptions, status: Obj) -> bool:
    if o.label_selector is not None and not o.label_selector.matches({}):
        return False
    return o.field_selector is None or bool(o.field_selector.matches(selectable_fields(served.record, status)))


async def _probe(port: str) -> tuple[bool, str]:
    """Return (healthy, the response or error). Like upstream's HTTP prober, only 2xx and 3xx are healthy."""
    target = Target("https", "127.0.0.1", port, "/healthz", tls=insecure_tls())
    try:
        connection = await connect(target, TIMEOUT_S)
        try:
            await connection.send("GET", target, [(b"user-agent", b"kube-probe/1.36"), (b"accept", b"*/*"), (b"connection", b"close")])
            await connection.head(TIMEOUT_S)
            body = (await connection.read(MAX_ANSWER)).decode("utf-8", "replace")
        finally:
            connection.close()
    except BackendError as e:
        return False, f'Get "{target.url}": {e}'
    if 200 <= connection.status < 400:
        return True, body
    return False, f"HTTP probe failed with statuscode: {connection.status}"

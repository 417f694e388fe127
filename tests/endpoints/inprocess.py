"""The REST resources over a store in this process: without network and filters, with plug-ins and a converter of the test's choice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import orjson

from kas.admission import Chain
from kas.auth.attributes import ALLOW
from kas.auth.user import UserInfo
from kas.endpoints import respond, translate
from kas.endpoints.delete import Deleter
from kas.endpoints.rest import Rest
from kas.endpoints.served import Served
from kas.endpoints.watch import Watches
from kas.endpoints.write import Writer
from kas.meta import errors
from kas.registry.generic import Registry
from kas.registry.versions import BUILT_IN
from kas.request.http import Request, Response
from kas.request.requestinfo import Query, parse
from kas.store import open_store
from kas.types.scheme import BUILTIN

NOW = "2024-01-02T03:04:05Z"
GROUP, RESOURCE = "autoscaling", "horizontalpodautoscalers"
V1 = f"/apis/autoscaling/v1/namespaces/ns/{RESOURCE}"
V2 = f"/apis/autoscaling/v2/namespaces/ns/{RESOURCE}"
PROTOBUF = "application/vnd.kubernetes.protobuf"


class WaitingConverter:
    """A conversion that waits, as a webhook's does. It refuses the objects named in ``refused`` and waits while ``gate`` is shut.
    ``calls`` has the number of objects of each call, ``called`` is set at a call."""

    total = False

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.refused: set[str] = set()
        self.called, self.gate = asyncio.Event(), asyncio.Event()
        self.gate.set()

    async def convert(self, objects: Sequence[dict[str, Any]], target: tuple[str, str, str]) -> list[dict[str, Any]]:
        self.calls.append(len(objects))
        self.called.set()
        await asyncio.sleep(0)
        await self.gate.wait()
        for obj in objects:
            if obj["metadata"]["name"] in self.refused:
                raise errors.internal(f"conversion of {obj['metadata']['name']} failed")
        return BUILT_IN.convert(objects, target)


class Api:
    """HorizontalPodAutoscalers, stored as autoscaling/v2, served as v1 (through ``converter``) and v2 (``native``); and ConfigMaps."""

    def __init__(
        self, path: Any, converter: Any = BUILT_IN, plugins: Sequence[Any] = (), native: Any = BUILT_IN, transformers: Any = None,
        deletes_at_once: int = 1,
    ) -> None:  # fmt: skip
        self.store = open_store(str(path), sync=False, transformers=transformers)
        self.store.start(asyncio.get_running_loop())
        always = SimpleNamespace(authorize=lambda a: (ALLOW, "", ""))
        self.writer = Writer(Chain(list(plugins)), lambda: NOW, always)
        self.watches = Watches(1800)
        self.rest = Rest(self.writer, Deleter(self.writer, deletes_at_once), self.watches)
        self.registry = Registry(BUILTIN.resource(GROUP, "v2", RESOURCE), self.store, lambda: NOW)
        self.config_maps = Registry(BUILTIN.resource("", "v1", "configmaps"), self.store, lambda: NOW)
        self.rest.add(Served(BUILTIN.resource(GROUP, "v1", RESOURCE), self.registry, converter))
        self.rest.add(Served(BUILTIN.resource(GROUP, "v2", RESOURCE), self.registry, native))
        self.rest.add(Served(BUILTIN.resource("", "v1", "configmaps"), self.config_maps, native))

    async def request(self, method: str, path: str, body: Any = None, ctype: str = "application/json", accept: str = "") -> Response:
        """Returns the answer, also of a stream, or the Status of a refusal."""
        path, _, query = path.partition("?")
        headers = [(b"content-type", ctype.encode()), (b"accept", accept.encode())]
        req = Request(method, path, query, headers, b"" if body is None else json.dumps(body).encode())
        req.params = Query(query)
        req.info = parse(method, path, req.params)
        req.user = UserInfo("admin", ("system:masters",))
        try:
            resp = self.rest.handle(req)
            return resp if isinstance(resp, Response) else await resp
        except errors.ApiError as e:
            return respond.status(req, e)
        except Exception as e:
            known = translate(e)
            if known is None:
                raise
            return respond.status(req, known)

    async def __call__(self, method: str, path: str, body: Any = None, ctype: str = "application/json") -> tuple[int, Any]:
        resp = await self.request(method, path, body, ctype)
        return resp.status, orjson.loads(await whole(resp))

    def stored(self, name: str) -> dict[str, Any] | None:
        rec = self.registry.find("ns", name)
        return self.registry.object(rec) if rec is not None else None

    def close(self) -> None:
        self.store.close()


def run(path: Any, test: Callable[[Api], Awaitable[None]], **options: Any) -> None:
    """Runs a test with its own Api in its own loop."""

    async def main() -> None:
        api = Api(path, **options)
        try:
            await test(api)
        finally:
            api.watches.end_all()
            api.close()

    asyncio.run(main())


async def whole(resp: Response) -> bytes:
    """Returns the body, also of a streamed answer."""
    if resp.stream is None:
        return resp.body
    parts: list[bytes] = []

    async def write(piece: bytes) -> None:
        parts.append(piece)

    await resp.stream(write)
    return b"".join(parts)


def autoscaler(name: str, version: str = "v2", most: int = 3) -> dict[str, Any]:
    """Returns an HPA with a CPU target, which v1 and v2 express differently."""
    spec: dict[str, Any] = {"maxReplicas": most, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}
    if version == "v1":
        spec["targetCPUUtilizationPercentage"] = 60
    else:
        target = {"type": "Utilization", "averageUtilization": 60}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    return {"apiVersion": f"autoscaling/{version}", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name}, "spec": spec}


class Stream:
    """A watch that is read: ``next()`` returns its next event, ``ended`` is done when it has ended."""

    def __init__(self, resp: Response) -> None:
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        assert resp.stream is not None
        self.ended = asyncio.ensure_future(resp.stream(self._write))

    async def _write(self, piece: bytes) -> None:
        for line in piece.splitlines(keepends=True):
            assert line.endswith(b"\n"), "half a frame was written"
            self._lines.put_nowait(line)

    async def next(self) -> dict[str, Any]:
        return orjson.loads(await asyncio.wait_for(self._lines.get(), 60))

    def rest(self) -> list[dict[str, Any]]:
        out = []
        while not self._lines.empty():
            out.append(orjson.loads(self._lines.get_nowait()))
        return out

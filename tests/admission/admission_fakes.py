"""A fake server that only has objects, to test plug-ins in isolation."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from kas.admission import Attributes, Chain
from kas.admission.configuration import Section
from kas.admission.initializer import Initializer
from kas.auth.attributes import ALLOW, NO_OPINION
from kas.auth.authz.rbac import RbacIndex
from kas.auth.user import UserInfo
from kas.client.hooks import Shares
from kas.client.http import DIRECT
from kas.client.services import ServiceResolver
from kas.config.options import Options
from kas.meta.errors import ApiError
from kas.observe.metrics import Registry as Metrics
from kas.registry.registries import Registries
from kas.registry.versions import BUILT_IN, Family
from kas.types.scheme import BUILTIN

NOW = "2024-01-02T03:04:05Z"
ADMIN = UserInfo("admin", ("system:masters",))


class _Record(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.json)


class FakeStore:
    """Records by key, and listeners that are told of changes at once."""

    most_ops = 1000

    def __init__(self) -> None:
        self.records: dict[str, Any] = {}
        self.revision = 1
        self.listeners: list[tuple[str, Any]] = []

    def listen(self, prefix: str, callback: Any, reset: Any = None) -> Any:
        self.listeners.append((prefix, callback))
        return lambda: self.listeners.remove((prefix, callback))

    def part(self, key: str) -> FakeStore:
        return self

    def get(self, key: str) -> Any:
        return self.records.get(key)

    def range(self, prefix: str, start: str = "", limit: int = 0, count: bool = False, **_: Any) -> Any:
        found = [self.records[k] for k in sorted(self.records) if k.startswith(prefix) and k >= start]
        page = found[:limit] if limit else found
        next_key = found[len(page)].key if len(page) < len(found) else ""
        return SimpleNamespace(
            records=page, more=len(page) < len(found), remaining=len(found) - len(page), revision=self.revision, next_key=next_key
        )

    def put(self, key: str, obj: dict[str, Any]) -> None:
        self.revision += 1
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.revision)}}
        labels = obj["metadata"].get("labels") or {}
        rec = _Record(key=key, json=orjson.dumps(obj), revision=self.revision, labels=labels, fields={})
        self.records[key] = rec
        self._tell(key, rec)

    def drop(self, key: str) -> None:
        self.revision += 1
        del self.records[key]
        self._tell(key, None)

    def _tell(self, key: str, rec: Any) -> None:
        for prefix, callback in self.listeners:
            if key.startswith(prefix):
                callback([SimpleNamespace(key=key, record=rec, revision=self.revision)])


class FakeServer:
    """``add`` stores an object; ``grants`` are (user, verb, resource, name) that the authorizer allows; ``kinds`` are the records of the
    served resources by (group, version, kind). ``plugin`` creates a module's plug-in from these."""

    def __init__(self, run_dir: Path = Path()) -> None:
        self.store = FakeStore()
        self.registries = Registries(self.store, lambda: NOW)
        self.registries.add_stored(BUILTIN.resources, BUILTIN.resource, 3600, {})
        self.grants: set[tuple[str, str, str, str]] = set()
        self.kinds: dict[tuple[str, str, str], list[Any]] = {}
        self.initializer = Initializer(
            objects=self.registries, informers=self.registries, registries=self.registries,
            authorizer=SimpleNamespace(authorize=self._authorize), rules=RbacIndex(),
            mapper=lambda *kind: self.kinds.get(kind, []), equivalents=self._equivalents, metrics=Metrics(), run_dir=run_dir,
            resolve=ServiceResolver(self.registries, self.registries, False).resolve, shares=lambda: Shares(100),
            egress=DIRECT, settings=Options(),
        )  # fmt: skip

    @staticmethod
    def _equivalents(group: str, resource: str) -> Family:
        """Returns every built-in version of the resource."""
        return Family(
            SimpleNamespace(
                group=r.group, version=r.version, resource=r.resource, kind=r.kind, record=r, converter=BUILT_IN,
                subresources=r.subresources,
            )
            for r in BUILTIN.resources
            if (r.group, r.resource) == (group, resource)
        )

    def _authorize(self, q: Any) -> tuple[int, str, str]:
        known = (q.user.name, q.verb, f"{q.resource}/{q.subresource}" if q.subresource else q.resource, q.name) in self.grants
        return (ALLOW if known or "system:masters" in q.user.groups else NO_OPINION), "", ""

    def plugin(self, module: Any, section: Section | None = None, **more: Any) -> Any:
        return self.initializer.make(module.Plugin, section=section, **more)

    def add(self, group: str, resource: str, obj: dict[str, Any]) -> None:
        meta = obj["metadata"]
        self.store.put(self.registries.of(group, resource).key(meta.get("namespace", ""), meta["name"]), obj)


def refused(request: Request) -> ApiError:
    """Returns the error of a request that is refused."""
    with pytest.raises(ApiError) as e:
        request.run()
    return e.value


class Request:
    """Runs one request through one or several plug-ins: the steps of the chain, and their results."""

    def __init__(
        self, *plugins: Any, operation: str = "CREATE", group: str = "", resource: str = "pods", subresource: str = "", kind: str = "Pod",
        namespace: str = "ns1", obj: dict[str, Any] | None = None, old: dict[str, Any] | None = None, user: UserInfo = ADMIN,
        name: str | None = None, dry_run: bool = False,
    ) -> None:  # fmt: skip
        self.warnings: list[str] = []
        self.annotations: dict[str, str] = {}
        meta = (obj or old or {}).get("metadata") or {}
        self.attributes = Attributes(
            operation, group, "v1", resource, subresource, kind, namespace, meta.get("name", "") if name is None else name, obj, old, user,
            {}, dry_run, NOW, self.warnings.append, self._annotate,
        )  # fmt: skip
        self.chain = Chain(list(plugins))

    def _annotate(self, key: str, value: str) -> bool:
        return self.annotations.setdefault(key, value) == value

    def run(self) -> dict[str, Any]:
        asyncio.run(self.steps())
        return self.attributes.obj

    async def steps(self) -> None:
        await self.chain.mutate(self.attributes)
        await self.chain.validate(self.attributes)


def pod(name: str = "a", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "ns1", "uid": f"uid-{name}"},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


def turns_beside(request: Request) -> int:
    """Returns how many loop iterations other tasks get while the request is validated."""
    turns = 0

    async def run() -> None:
        nonlocal turns
        running = asyncio.ensure_future(request.chain.validate(request.attributes))
        while not running.done():
            turns += 1
            await asyncio.sleep(0)
        await running

    asyncio.run(run())
    return turns

"""A server of nothing but objects, for plug-ins alone."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import orjson

from kas.admission import Attributes, Chain
from kas.api.scheme import SCHEME
from kas.auth.attributes import ALLOW, NO_OPINION
from kas.auth.user import UserInfo
from kas.registry.generic import Registry

NOW = "2024-01-02T03:04:05Z"
ADMIN = UserInfo("admin", ("system:masters",))


class FakeStore:
    """Records by key, and listeners that hear of changes at once."""

    def __init__(self) -> None:
        self.records: dict[str, Any] = {}
        self.revision = 1
        self.listeners: list[tuple[str, Any]] = []
        self.hub = SimpleNamespace(listen=lambda prefix, callback, reset=None: self.listeners.append((prefix, callback)))

    def get(self, key: str) -> Any:
        return self.records.get(key)

    def range(self, prefix: str, start: str = "", limit: int = 0, count: bool = False, **_: Any) -> Any:
        found = [self.records[k] for k in sorted(self.records) if k.startswith(prefix)]
        page = found[:limit] if limit else found
        return SimpleNamespace(records=page, more=len(page) < len(found), remaining=len(found) - len(page))

    def put(self, key: str, obj: dict[str, Any]) -> None:
        self.revision += 1
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.revision)}}
        rec = SimpleNamespace(key=key, json=orjson.dumps(obj), revision=self.revision, fields={})
        self.records[key] = rec
        self._tell(key, rec)

    def drop(self, key: str) -> None:
        del self.records[key]
        self._tell(key, None)

    def _tell(self, key: str, rec: Any) -> None:
        for prefix, callback in self.listeners:
            if key.startswith(prefix):
                callback([SimpleNamespace(key=key, record=rec)])


class FakeServer:
    """``add`` stores an object; ``grants`` are (user, verb, resource, name) that the authorizer allows."""

    def __init__(self) -> None:
        self.store = FakeStore()
        self.grants: set[tuple[str, str, str, str]] = set()
        self.authorizer = SimpleNamespace(authorize=self._authorize)
        self.rest = SimpleNamespace(resources={})

    def _authorize(self, q: Any) -> tuple[int, str, str]:
        known = (q.user.name, q.verb, f"{q.resource}/{q.subresource}" if q.subresource else q.resource, q.name) in self.grants
        return (ALLOW if known or "system:masters" in q.user.groups else NO_OPINION), "", ""

    def registry(self, group: str, resource: str) -> Any:
        record = next(r for r in SCHEME.resources if (r.group, r.resource) == (group, resource))
        return Registry(record, self.store, lambda: NOW)

    def object(self, group: str, resource: str, namespace: str, name: str) -> dict[str, Any] | None:
        rec = self.store.get(self.registry(group, resource).key(namespace, name))
        return orjson.loads(rec.json) if rec is not None else None

    def add(self, group: str, resource: str, obj: dict[str, Any]) -> None:
        meta = obj["metadata"]
        self.store.put(self.registry(group, resource).key(meta.get("namespace", ""), meta["name"]), obj)


class Request:
    """One request through one plug-in, or several: the steps of the chain, and what it said."""

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
            {}, dry_run, NOW, self.warnings.append, self.annotations.__setitem__,
        )  # fmt: skip
        self.chain = Chain(list(plugins))

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

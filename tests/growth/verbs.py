"""The requests with an object of a generated family: creates in each form of bodies and responses; and for a stored object a replace, a
patch of each type, an apply, a delete. The name of a family decides which of them it gets, so that they stay the same when other families
are added or removed; all families get creates and replaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from zlib import crc32

from kas.registry import pipeline
from kas.store import Op
from kas.types.scheme import Resource, decode, encode_protobuf
from tests.growth import generated
from tests.growth.serving import APPLY, JSON, JSON_PATCH, MERGE_PATCH, PROTOBUF, STRATEGIC, YAML, InProcess, Sent

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
NAME = "stored"

Prepared = tuple[Callable[[], None], Sent]
Ask = Callable[[int], "Prepared | None"]
Obj = dict[str, Any]


def path_of(r: Resource) -> str:
    prefix = f"/apis/{r.group}/{r.version}" if r.group else f"/api/{r.version}"
    return f"{prefix}/{'namespaces/default/' if r.namespaced else ''}{r.resource}"


def nothing() -> None:
    """Prepares nothing."""


def store(server: InProcess, r: Resource, obj: Obj) -> str:
    """Writes an object to where it would be stored, whether it is valid or not; returns its resourceVersion."""
    registry = server.server.registries.of(r.group, r.resource)
    typed = pipeline.to_storage(r, decode(r.type, generated.fresh(obj))[0])
    typed["metadata"] |= {"name": NAME, "uid": "u", "creationTimestamp": "2024-01-02T03:04:05Z"}
    typed["metadata"] |= {"namespace": "default"} if r.namespaced else {}
    key = registry.key("default" if r.namespaced else "", NAME)

    async def commit() -> str:
        rec = server.store.get(key)
        await server.store.commit(registry.put(key, typed, rec.revision if rec is not None else 0))
        rec = server.store.get(key)
        assert rec is not None
        return str(rec.revision)

    return server.loop.run_until_complete(commit())


class Verbs:
    """The requests of one family."""

    def __init__(self, server: InProcess, grown: generated.Grown) -> None:
        self.server, self.grown, self.resource = server, grown, grown.resource
        self.path = path_of(self.resource)
        self.stored = self.resource.etcd_prefix is not None and "update" in self.resource.verbs
        self.query = "?dryRun=All" if self.resource.etcd_prefix else ""

    def all(self) -> Iterator[tuple[str, Ask]]:
        """(verb, request) of those that the family gets."""
        yield "create", lambda n: (nothing, Sent("POST", self.path + self.query, self.grown.make(n)))
        chance = crc32(self.grown.name.encode())
        creates = self.creates()
        if not chance % 8:
            yield creates[chance // 8 % len(creates)]
        if not self.stored:
            return
        if self.grown.how in generated.REPLACED and (self.grown.how != "whole" or chance % 4 < 2):
            yield "replace", self.over("PUT", JSON, lambda obj: obj)
            if "status" in self.resource.subresources and self.grown.path[0].name == "status":
                yield "replace status", self.over("PUT", JSON, lambda obj: obj, "/status")
            changes = self.changes()
            if chance % 2:
                yield changes[chance // 2 % len(changes)]

    def forget(self) -> None:
        """Removes the stored object: other requests would read it, and it need not be valid."""
        if not self.stored:
            return
        registry = self.server.server.registries.of(self.resource.group, self.resource.resource)
        key = registry.key("default" if self.resource.namespaced else "", NAME)

        async def remove() -> None:
            if (rec := self.server.store.get(key)) is not None:
                await self.server.store.commit(Op(key, None, rec.revision))

        self.server.loop.run_until_complete(remove())

    def creates(self) -> list[tuple[str, Ask]]:
        """Creates in other formats than JSON."""

        def form(accept: str, ctype: str, body: Callable[[Obj], Any]) -> Ask:
            return lambda n: (nothing, Sent("POST", self.path + self.query, body(self.grown.make(n)), ctype, accept))

        return [
            ("create, and a row", form(TABLE if self.resource.etcd_prefix else JSON, JSON, lambda obj: obj)),
            ("create in YAML", form(YAML, YAML, lambda obj: obj)),  # JSON is YAML
            ("create in protobuf", self.in_protobuf),
        ]

    def in_protobuf(self, n: int) -> Prepared | None:
        try:
            decoded = decode(self.resource.type, self.grown.make(n))[0]
        except ValueError:
            return None  # it cannot be encoded in protobuf
        r = self.resource
        raw = encode_protobuf(r.type, decoded, api_version=r.api_version, kind=r.kind)
        return nothing, Sent("POST", self.path + self.query, raw, PROTOBUF, PROTOBUF)

    def changes(self) -> list[tuple[str, Ask]]:
        """Changes of a stored object."""
        managed = f"&fieldManager=x&force={'true' if self.grown.how == 'whole' else 'false'}"

        def bare(obj: Obj) -> Obj:
            return {k: v for k, v in obj.items() if k not in ("apiVersion", "kind", "metadata")} | {"metadata": obj["metadata"]}

        def operations(obj: Obj) -> list[Obj]:
            return [{"op": "add", "path": f"/{k}", "value": v} for k, v in bare(obj).items() if k != "metadata"]

        return [
            ("merge patch", self.over("PATCH", MERGE_PATCH, bare)),
            ("strategic merge patch", self.over("PATCH", STRATEGIC, bare)),
            ("strategic merge patch with an order", self.over("PATCH", STRATEGIC, self.ordered)),
            ("JSON patch", self.over("PATCH", JSON_PATCH, operations)),
            ("apply", self.over("PATCH", APPLY, lambda obj: obj, query=managed)),
            ("apply what another owns", self.applied),
            ("delete", self.over("DELETE", JSON, lambda obj: None)),
        ]

    def over(self, method: str, ctype: str, body: Callable[[Obj], Any], subresource: str = "", query: str = "") -> Ask:
        """A request about a stored object, with the object it was changed to."""

        def ask(n: int) -> Prepared | None:
            obj = self.grown.make(n)
            try:
                decode(self.resource.type, generated.fresh(obj))
            except ValueError:
                return None  # no such object can be stored
            to = generated.changed(self.grown, obj)
            to["metadata"]["name"] = NAME
            sent = Sent(method, f"{self.path}/{NAME}{subresource}{self.query}{query}", body(to), ctype)

            def prepare() -> None:
                version = store(self.server, self.resource, obj)
                if method == "PUT":
                    sent.body["metadata"]["resourceVersion"] = version

            return prepare, sent

        return ask

    def ordered(self, to: Obj) -> Obj:
        """A patch with the order of the list that was grown, and directives to delete half of the list."""
        field, holder = self.grown.path[-1], generated.holder(self.grown, to)
        key, value = field.patch_merge_key, holder[field.name]
        if not isinstance(value, list) or "merge" not in (field.patch_strategy or ""):
            return to
        if not key or not all(isinstance(item, dict) and key in item for item in value):
            holder[f"$deleteFromPrimitiveList/{field.name}"] = value[::2]
            return to
        holder[f"$setElementOrder/{field.name}"] = [{key: item[key]} for item in value[1::2]]
        holder[field.name] = [item if i % 2 else {"$patch": "delete", key: item[key]} for i, item in enumerate(value)]
        return to

    def applied(self, n: int) -> Prepared:
        """A configuration that conflicts with another manager in every field that was grown, if it can be applied at all."""
        obj = self.grown.make(n)
        to = generated.changed(self.grown, obj)
        for one in (obj, to):
            one["metadata"] = {**one["metadata"], "name": NAME}

        def prepare() -> None:
            self.server.ask(Sent("DELETE", f"{self.path}/{NAME}?gracePeriodSeconds=0"))
            self.server.ask(Sent("PATCH", f"{self.path}/{NAME}?fieldManager=one", obj, APPLY))

        return prepare, Sent("PATCH", f"{self.path}/{NAME}{self.query}&fieldManager=two", to, APPLY)

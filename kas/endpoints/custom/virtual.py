"""Resources that an embedding program stores itself (``kas.registry.rest``), served like custom resources.

Reads call the program's storage. A write takes the same steps as any other (``kas.registry.write``), with a registry of its own that
holds the one object, read beforehand, and whose commit calls the storage.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import orjson

from kas.apiextensions import customtypes
from kas.apiextensions import definition as definitions
from kas.apiextensions.nopconverter import NopConverter
from kas.endpoints import discovery, listing, respond
from kas.endpoints.custom.handler import check_patch_type, without_protobuf
from kas.endpoints.custom.merging import MergeSchemas
from kas.endpoints.custom.served import CustomServed, State
from kas.endpoints.custom.table import GROUP, RESOURCE, record
from kas.endpoints.custom.virtualwatch import VirtualWatch
from kas.endpoints.listing import Listing
from kas.endpoints.options import ListOptions, list_options
from kas.endpoints.read import limit_of, position
from kas.endpoints.rest import Rest, method_not_allowed
from kas.endpoints.selection import with_served_fields
from kas.kinds.apiextensions.customresource.strategy import CustomResourceStrategy
from kas.meta import errors
from kas.meta.offload import is_large, step
from kas.meta.waiting import TimeSlice, awaited
from kas.registry import pipeline
from kas.registry import rest as storages
from kas.registry.generic import Registry
from kas.registry.registries import Registries
from kas.registry.rest import ObjectList, VirtualResource, listing_of
from kas.registry.strategy import Context, Obj
from kas.registry.versions import Decoded, Shown
from kas.request.http import Request, Response, Result, with_body
from kas.store import Conflict, Record, Store, continuetoken
from kas.types.scheme import DecodeError, Scheme, encode_json, lazy_schema_type, schema_type

_LIST: Obj = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_ACROSS_NAMESPACES = frozenset({"list", "watch"})


class VirtualServed(CustomServed):
    """A resource described by ``resource``, whose objects have only this version."""

    def __init__(self, resource: VirtualResource, scheme: Scheme) -> None:
        self.resource_of, text = resource, orjson.dumps(resource.definition())
        found = orjson.loads(text)
        found["metadata"] |= {"uid": f"virtual-{resource.resource}.{resource.group}", "generation": 1}
        found["status"] = {"acceptedNames": found["spec"]["names"], "conditions": [{"type": "Established", "status": "True"}]}
        self.described: Obj = found
        d = definitions.read(SimpleNamespace(json=orjson.dumps(found)), 0, 0)
        (version,) = d.versions
        name = f"{'.'.join(reversed(d.group.split('.')))}.{version.name}.{resource.kind}"
        type_, list_kind = lazy_schema_type(name, lambda: resource.schema), f"{resource.kind}List"
        kinds = {resource.kind: type_, list_kind: schema_type(list_kind, _LIST)}
        row = {**record(d, version, version.name), "verbs": resource.verbs(), "gcDefault": "unsupported"}
        made = scheme.put(d.group, version.name, kinds, row)
        made.allow_unconditional_update = True
        made.strategy = CustomResourceStrategy(made, version)
        types = {version.name: type_}
        converter = NopConverter(d)
        state = State(d, types, True, MergeSchemas(d.group, resource.kind, types, False, converter))
        super().__init__(made, Registry(made, cast(Store, _Slot(None)), lambda: ""), converter, state, version)

    def shown(self, obj: Obj) -> Decoded:
        """Return an object of the storage in the form that responses use."""
        obj = {**obj, "apiVersion": self.api_version, "kind": self.kind}
        return Decoded(self.type, obj, int(obj["metadata"].get("resourceVersion") or 0))

    def about(self, ctx: Context, found: Decoded | None) -> VirtualServed:
        """Return this resource for a single write, with a registry that holds one object."""
        out = copy.copy(self)
        out.registry = _OneObject(self, ctx, found)
        return out


class _Slot:
    """Replaces the store: holds the one object of a write."""

    revision = 0
    fills = as_protobuf = False

    def __init__(self, found: Decoded | None) -> None:
        self.found = found

    def part(self, _: str) -> _Slot:
        return self

    def get(self, key: str) -> Decoded | None:
        return self.found

    @staticmethod
    def stale(_: Shown) -> bool:
        return False

    @staticmethod
    async def behind(_: int) -> bool:
        return False


class _OneObject(Registry):
    """The registry of one write."""

    def __init__(self, served: VirtualServed, ctx: Context, found: Decoded | None) -> None:
        self._slot = _Slot(found)
        super().__init__(served.record, cast(Store, self._slot), lambda: ctx.now)
        self._served, self._ctx, self._storage = served, ctx, served.resource_of.storage

    async def commit(
        self, key: str, obj: Obj, expected: int, encoded: Any = None, old: Obj | None = None, ctx: Context | None = None
    ) -> Shown:
        """Store the object, as plain JSON values. Raises store.Conflict if the storage has another object by now."""
        found = self._slot.found
        obj = orjson.loads(encode_json(self.type, obj))
        try:
            if found is None:
                kept = await awaited(self._storage.create(self._ctx, obj))
            else:
                kept = await awaited(self._storage.update(self._ctx, obj, found.object))
        except (storages.AlreadyExists, storages.Conflict):
            raise await self._lost(key, obj) from None
        return self._served.shown(kept)

    async def remove(self, ctx: Context, key: str, obj: Obj, expected: int) -> int:
        """Delete the object from the storage."""
        found = self._slot.found
        assert found is not None  # a missing object is never removed
        try:
            await awaited(self._storage.delete(ctx, found.object))
        except storages.Conflict:
            raise await self._lost(key, obj) from None
        return expected

    async def _lost(self, key: str, obj: Obj) -> Conflict:
        self._slot.found = await load(self._served, self._ctx, obj["metadata"]["name"])
        return Conflict(cast("Record | None", self._slot.found), key)


async def load(served: VirtualServed, ctx: Context, name: str) -> Decoded | None:
    """Return the object of this name in ``ctx.namespace``, with the schema's defaults, or None if the storage has none."""
    get = getattr(served.resource_of.storage, "get", None)
    try:
        obj = await awaited(get(ctx, name)) if get is not None else None
    except errors.ApiError as e:
        if e.code != 404:
            raise
        obj = None  # the storage may raise 404 instead of returning None
    if obj is None:
        return None
    customtypes.default(served.type, obj)
    return served.shown(obj)


class VirtualResources:
    """The virtual resources of one server. A handler of the director that returns None for other paths."""

    def __init__(self, resources: Sequence[VirtualResource], scheme: Scheme, rest: Rest, registries: Registries) -> None:
        """Raises ValueError for a resource that is not a valid definition."""
        self._rest = rest
        self._served: dict[tuple[str, str, str], VirtualServed] = {}
        for resource in resources:
            _check(resource, scheme, registries)
            key = resource.group, resource.version, resource.resource
            if key in self._served:
                raise ValueError(f"{resource.resource}.{resource.group}/{resource.version} is there twice")
            self._served[key] = VirtualServed(resource, scheme)

    @property
    def group_versions(self) -> set[tuple[str, str]]:
        """The served group versions."""
        return {(group, version) for group, version, _ in self._served}

    def of_kind(self, group: str, version: str, kind: str) -> list[Any]:
        """Return the records of the served resources of a kind."""
        return [s.record for s in self._served.values() if (s.group, s.version, s.kind) == (group, version, kind)]

    def equivalents(self, group: str, resource: str) -> list[VirtualServed]:
        """Return the versions in which a resource is served."""
        return [s for s in self._served.values() if (s.group, s.resource) == (group, resource)]

    def versions(self) -> list[discovery.Version]:
        """Return the entries for discovery."""
        found: dict[tuple[str, str], list[Obj]] = {}
        for (group, version, _), served in sorted(self._served.items()):
            found.setdefault((group, version), []).extend(discovery.describe(served.record))
        return [discovery.Version(group, version, tuple(shown), custom=True) for (group, version), shown in found.items()]

    def parts(self) -> list[Any]:
        """Return the entries for OpenAPI: group, version, a tag, and a function that returns the description."""
        return [
            (group, version, f"virtual {name}", lambda served=served: _described(served))
            for (group, version, name), served in self._served.items()
        ]

    def __call__(self, req: Request) -> Result | None:
        """Return the response, or None if the path does not belong to a virtual resource."""
        info = req.info
        if not info.is_resource_request:
            return None
        served = self._served.get((info.api_group, info.api_version, info.resource))
        if served is None:
            return None
        if served.record.namespaced != bool(info.namespace) and not (served.record.namespaced and info.verb in _ACROSS_NAMESPACES):
            return respond.not_found()
        req.known = True
        if info.subresource:
            if info.subresource != "status" or not served.defined.status:
                raise errors.not_found(info.api_group, info.resource, info.name)
            if info.verb not in ("get", "update", "patch"):
                raise method_not_allowed()
        if info.verb not in served.record.verbs or req.method == "HEAD":
            raise method_not_allowed()
        if b"protobuf" in req.raw_header(b"accept"):
            without_protobuf(req, info.verb)
        if info.verb == "patch":
            check_patch_type(req)
        elif info.verb == "watch":
            respond.media(req)
        return with_body(req, getattr(self, f"_{info.verb}"), served, info.namespace, info.name)

    def _context(self, req: Request, namespace: str, subresource: str = "") -> Context:
        return self._rest.writer.context(req, namespace, False, subresource)

    async def _get(self, req: Request, served: VirtualServed, namespace: str, name: str) -> Response:
        respond.media(req)
        found = await self._found(req, served, namespace, name)
        return await step(is_large(found.object) or respond.prints_long(req, served), respond.obj, req, served, found)

    async def _found(self, req: Request, served: VirtualServed, namespace: str, name: str) -> Decoded:
        found = await load(served, self._context(req, namespace), name)
        if found is None:
            raise served.registry.not_found(name)
        return found

    async def _list(self, req: Request, served: VirtualServed, namespace: str, name: str) -> Response:
        o, m = with_served_fields(served, list_options(req.params)), respond.media(req)
        meta, found = await self._listed(req, served, namespace, o)
        return await self._list_response(req, served, m, meta, found)

    @staticmethod
    async def _list_response(req: Request, served: VirtualServed, m: respond.Media, meta: Obj, found: list[Decoded]) -> Response:
        """Answer with a list; a large one is encoded in the thread pool."""
        large = is_large([rec.object for rec in found])
        return await step(large, listing.encode, Listing(req, served, m, "", None, "", 0, 0), meta, found)

    async def _listed(self, req: Request, served: VirtualServed, namespace: str, o: ListOptions) -> tuple[Obj, list[Decoded]]:
        """Return ``_page`` of the storage's objects."""
        _, start, _ = position(served, namespace, o)
        listed = listing_of(served.resource_of, await awaited(served.resource_of.storage.list(self._context(req, namespace))))
        items = tuple(listed.items)
        return await step(is_large(items), self._page, served, namespace, o, start, listed._replace(items=items))

    @staticmethod
    def _page(served: VirtualServed, namespace: str, o: ListOptions, start: str, listed: ObjectList) -> tuple[Obj, list[Decoded]]:
        """Return ListMeta and the objects of a page.

        A storage has only current objects, so the continue tokens are the inconsistent ones that upstream returns for an expired list.
        """
        by_key = {_key(served, obj): obj for obj in listed.items if selects(o, obj)}
        keys, limit, meta = sorted(key for key in by_key if key >= start), limit_of(o), Obj(resourceVersion=listed.resource_version)
        if 0 < limit < len(keys):
            meta["continue"] = continuetoken.encode(keys[limit - 1] + "\0", served.registry.prefix(namespace), -1)
            if o.label_selector is None and o.field_selector is None and o.shards is None:
                meta["remainingItemCount"] = len(keys) - limit
            keys = keys[:limit]
        if o.shards is not None:
            meta["shardInfo"] = {"selector": o.shards.text}
        for key in keys:
            customtypes.default(served.type, by_key[key])
        return {**served.list_meta, **meta}, [served.shown(by_key[key]) for key in keys]

    def _watch(self, req: Request, served: VirtualServed, namespace: str, name: str) -> Response:
        ctx, storage = self._context(req, namespace), served.resource_of.storage

        async def listed() -> ObjectList:
            return listing_of(served.resource_of, await awaited(storage.list(ctx))) if hasattr(storage, "list") else ObjectList(())

        return VirtualWatch.begin(req, served, name, self._rest.watches, lambda v: storage.watch(ctx, v), listed, selects)

    async def _create(self, req: Request, served: VirtualServed, namespace: str, name: str) -> Response:
        if name:
            raise method_not_allowed()
        return await self._rest.writer.create(req, served.about(self._context(req, namespace), None), namespace)

    async def _update(self, req: Request, served: VirtualServed, namespace: str, name: str) -> Response:
        about = await self._about(req, served, namespace, name)
        return await self._rest.writer.update(req, about, namespace, name, req.info.subresource)

    async def _patch(self, req: Request, served: VirtualServed, namespace: str, name: str) -> Response:
        about = await self._about(req, served, namespace, name)
        return await self._rest.patcher.patch(req, about, namespace, name, req.info.subresource)

    async def _delete(self, req: Request, served: VirtualServed, namespace: str, name: str) -> Response:
        return await self._rest.deleter.delete(req, await self._about(req, served, namespace, name), namespace, name)

    async def _about(self, req: Request, served: VirtualServed, namespace: str, name: str) -> VirtualServed:
        ctx = self._context(req, namespace, req.info.subresource)
        return served.about(ctx, await load(served, ctx, name))

    async def _deletecollection(self, req: Request, served: VirtualServed, namespace: str, name: str) -> Response:
        o, m = with_served_fields(served, list_options(req.params)), respond.media(req)
        list_meta, found = await self._listed(req, served, namespace, o)
        options, time_slice = await self._rest.deleter.options(req, served), TimeSlice()
        for rec in found:
            if time_slice.over:
                await time_slice.pause()
            meta = rec.object["metadata"]
            ctx = self._rest.writer.context(req, meta.get("namespace") or "", bool(options.get("dryRun")))
            try:
                await self._rest.deleter.step(req, served.about(ctx, rec), ctx, meta["name"], options).run()
            except errors.ApiError as e:
                if e.code != 404:
                    raise
        return await self._list_response(req, served, m, list_meta, found)


def _key(served: VirtualServed, obj: Obj) -> str:
    meta = obj["metadata"]
    return served.registry.key(meta.get("namespace") or "", meta["name"])


def selects(o: ListOptions, obj: Obj) -> bool:
    """Return whether a list with these options contains the object."""
    meta = obj["metadata"]
    if o.shards is not None and not o.shards.matches(obj):
        return False
    if o.label_selector is not None and not o.label_selector.matches(meta.get("labels") or {}):
        return False
    if o.field_selector is None:
        return True
    fields = {"metadata.name": meta.get("name") or "", "metadata.namespace": meta.get("namespace") or ""}
    found: bool = o.field_selector.matches(fields)
    return found


def _check(resource: VirtualResource, scheme: Scheme, registries: Registries) -> None:
    """Validate the resource like a definition that is being created."""
    registry = registries.of(GROUP, RESOURCE)
    v1 = scheme.resource(GROUP, "v1", RESOURCE)
    assert v1 is not None
    try:
        obj, _ = pipeline.decode_input(v1, resource.definition())
        pipeline.build_create(registry.resource, obj, Context(registries.now()))
    except (errors.ApiError, DecodeError) as e:
        raise ValueError(f"{resource.resource}.{resource.group}: {e}") from None
    missing = [name for name in ("get", "list") if name not in resource.verbs()]
    if len(missing) > 1:
        raise ValueError(f"{resource.resource}.{resource.group}: its storage has neither get nor list")


def _described(served: VirtualServed) -> Any:
    from kas.endpoints.openapi import custom  # large and rarely needed

    return custom.describe(served.described)

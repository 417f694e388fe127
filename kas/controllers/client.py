"""How a controller reads and writes: the registries directly, as a system user, with managed fields as over HTTP.

Admission does not see these writes, they come from the server itself, but for the deletes of a controller that has been given its chain.
Objects are dicts in the storage version.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any

import orjson

from kas.admission import Chain
from kas.auth.user import AUTHENTICATED, UserInfo, service_account_groups, split_service_account
from kas.controllers.admission import DeleteAdmission
from kas.informers import reflector as informers
from kas.informers.reflector import Handlers, Reflectors
from kas.meta.errors import ApiError
from kas.meta.offload import is_large
from kas.meta.stored import object_of
from kas.meta.waiting import TimeSlice
from kas.patch.fieldmanager import apply, builtin, create, deduced_schema, field_set, update
from kas.registry import pipeline
from kas.registry.generic import Registry
from kas.registry.registries import Registries
from kas.registry.strategy import Context, Obj
from kas.store import PAGE_BYTES, Event, RangeResult, Record

NOT_FOUND, CONFLICT = 404, 409
PAGE = 64  # records that are looked at in one turn of the loop


class Filling:
    """Shows all records under ``prefix``, after ``clear()``, one by one to ``take``: with others' turns between the pages as long as nobody
    works on what came of it (``fill``, of ``queue.follow``), and at once when events were lost later (``listed``, of a reflector without
    lists). What is shown is as new as any event that was told before, or newer."""

    def __init__(self, client: Client, prefix: str, clear: Callable[[], None], take: Callable[[Record], None]) -> None:
        self._client, self._prefix, self._clear, self._take = client, prefix, clear, take
        self._waits = self._missed = False

    def begin(self) -> None:
        """``fill`` will come."""
        self._waits = True

    def listed(self, _: Sequence[Record]) -> None:
        """There is something to make up for."""
        if self._waits:
            self._missed = True
            return
        self._clear()
        for record in self._client.pages(self._prefix):
            self._take(record)

    async def fill(self) -> None:
        """Shows them, and again while events are lost meanwhile."""
        time_slice = TimeSlice()
        while self._missed:
            self._missed = False
            self._clear()
            async for page in self._client.paced_pages(self._prefix, PAGE):
                for record in page.records:  # in one turn: an event about one of them comes after it
                    self._take(record)
                if time_slice.over:
                    await time_slice.pause()
        self._waits = False


class Client:
    """What one controller sees of the server. ``manager`` is its field manager, ``user`` whom its writes are by."""

    def __init__(
        self, registries: Registries, manager: str, user: str = "system:kube-controller-manager", admission: Chain | None = None
    ) -> None:
        """The plug-ins of ``admission`` are asked about its deletes."""
        self.registries, self.store, self.manager, self._admission = registries, registries.store, manager, admission
        self._user = {"username": user, "groups": ["system:authenticated"]}
        account = split_service_account(user)
        self._asking = UserInfo(user, (*(service_account_groups(account[0]) if account else ()), AUTHENTICATED))

    def context(self, namespace: str = "", subresource: str = "") -> Context:
        """What the strategies are told of a write by a controller: now, and the controllers' user."""
        return Context(self.registries.now(), namespace, self._user, subresource)

    # --- reading

    def get(self, group: str, resource: str, namespace: str, name: str) -> Obj | None:
        """The object in the storage version, None when it does not exist; shared, so not to be changed."""
        return self.registries.get(group, resource, namespace, name)

    def list(self, group: str, resource: str, namespace: str = "") -> list[Obj]:
        """The objects in the storage version, in the order of their keys; shared, so not to be changed."""
        return self.registries.list(group, resource, namespace)

    def pages(self, prefix: str, size: int = 64) -> Iterator[Record]:
        """All records under ``prefix``, read as they are taken: for what would be large at once."""
        start = ""
        while True:
            page = self.store.range(prefix, start, size, max_bytes=PAGE_BYTES)
            yield from page.records
            if not page.more:
                return
            start = page.next_key

    async def paced_pages(self, prefix: str, size: int = 256) -> AsyncIterator[RangeResult]:
        """The pages of what is under ``prefix``, the next one read when it is asked for: for who has to know how new each is. There is
        always one."""
        start = ""
        while True:
            page = self.store.range(prefix, start, size, max_bytes=PAGE_BYTES)
            yield page
            if not page.more:
                return
            start = page.next_key

    async def paced(self, prefix: str) -> AsyncIterator[Record]:
        """``pages``, while others have their turns: of what is written meanwhile some may be seen."""
        time_slice = TimeSlice()
        for record in self.pages(prefix):
            if time_slice.over:
                await time_slice.pause()
            yield record

    def reflector(
        self, prefix: str, apply: Callable[[Sequence[Event]], None], replace: Callable[[Sequence[Record]], None] | None = None,
        lists: bool = True,
    ) -> Reflectors:  # fmt: skip
        """A reflector of what is under ``prefix``, wherever that is kept; without ``replace`` one that has nothing to make up for after a
        gap. With ``lists`` off ``replace`` is given nothing and reads for itself."""
        return Reflectors(self.store.parts_below(prefix), prefix, Handlers(replace or _nothing, apply), lists and replace is not None)

    async def rest_fresh(self, key: str, rest: Iterable[str]) -> None:
        """Waits until those of the prefixes ``rest`` that are kept elsewhere than ``key`` are as new as any acknowledged write: who sees an
        object sees all that was there before it in the same place, but not in another. Raises ``StoreError``."""
        own = self.store.part(key)
        for part in dict.fromkeys(map(self.store.part, rest)):
            if part is not own:
                await part.fresh()

    def each(self, prefix: str, look: Callable[[Record], None]) -> Reflectors:
        """A reflector that shows ``look`` every record under ``prefix`` that is there, at first (as a ``Filling``) and whenever it changes;
        deletions are not told."""

        def changed(events: Sequence[Event]) -> None:
            for e in events:
                if e.record is not None:
                    look(e.record)

        filling = Filling(self, prefix, lambda: None, look)
        filling.begin()
        found = self.reflector(prefix, changed, filling.listed, lists=False)
        found.fill = filling.fill
        return found

    # --- writing

    async def create(self, group: str, resource: str, obj: Obj) -> Obj | None:
        """Creates ``obj`` (kind and apiVersion of the storage version set); None when it exists already."""
        reg = self.registries.of(group, resource)
        obj, _ = pipeline.decode_input(reg.resource, obj)
        ctx = self.context(obj["metadata"].get("namespace", ""))
        entries = create(self._schema(reg), obj, self.manager, now=ctx.now, reset_fields=self._reset(reg, ""))
        if entries:
            obj["metadata"]["managedFields"] = entries
        try:
            rec = await reg.create(ctx, obj)
        except ApiError as e:
            if e.reason == "AlreadyExists":
                return None
            raise
        return object_of(rec)

    async def update(
        self, reg: Registry, namespace: str, name: str, change: Callable[[Obj], bool], subresource: str = "", uid: str = ""
    ) -> Obj | None:
        """Changes an object in place by ``change(obj)``, which says whether there is anything to write.

        Starts over when somebody else was quicker. None when the object is gone, or no longer the one with ``uid``.
        """
        ctx = self.context(namespace, subresource)

        def mutate(live: Obj | None) -> Obj:
            assert live is not None  # an update that may not create
            if uid and live["metadata"].get("uid") != uid:
                raise reg.not_found(name)
            wanted: Obj = orjson.loads(orjson.dumps(live))  # what follows a write is told by what the object was before
            if not change(wanted):
                raise _Unchanged
            reset = self._reset(reg, subresource)
            entries = update(self._schema(reg), live, wanted, self.manager, now=ctx.now, subresource=subresource, reset_fields=reset)
            wanted["metadata"]["managedFields"] = entries
            if not entries:
                del wanted["metadata"]["managedFields"]
            return wanted

        try:
            rec = await reg.update(ctx, name, mutate, subresource=subresource)
        except _Unchanged:
            return None
        except ApiError as e:
            if e.code == NOT_FOUND:
                return None
            raise
        return object_of(rec)

    async def apply(self, reg: Registry, namespace: str, name: str, wanted: Obj, subresource: str = "") -> None:
        """Forced server-side apply of ``wanted`` (without identity) to an existing object; nothing happens when it is gone."""
        ctx = self.context(namespace, subresource)
        r = reg.resource
        head: Obj = {"kind": r.kind, "apiVersion": f"{r.group}/{r.version}" if r.group else r.version, "metadata": {"name": name}}
        if namespace:
            head["metadata"]["namespace"] = namespace

        def mutate(current: Obj | None) -> Obj:
            assert current is not None  # an update that may not create
            live = pipeline.from_storage(reg.resource, current)
            merged = apply(
                self._schema(reg), live, {**head, **wanted}, self.manager, now=ctx.now, subresource=subresource, force=True,
                reset_fields=self._reset(reg, subresource),
            )  # fmt: skip
            obj, _ = pipeline.decode_input(r, merged)
            return obj

        try:
            await reg.update(ctx, name, mutate, subresource=subresource, aside=is_large(wanted))
        except ApiError as e:
            if e.code != NOT_FOUND:
                raise

    async def delete(
        self, reg: Registry, namespace: str, name: str, uid: str = "", of_collection: bool = False, **options: Any
    ) -> bool:
        """True when the object was there and was deleted or marked. Another object under the name is left alone. Admission is not told
        the name of one ``of_collection``, as in requests."""
        if uid:
            options["preconditions"] = {"uid": uid}
        try:
            await self.delete_with(reg, namespace, name, options, "" if of_collection else name)
        except ApiError as e:
            if e.code == NOT_FOUND or (e.code == CONFLICT and uid):
                return False
            raise
        return True

    async def delete_with(self, reg: Registry, namespace: str, name: str, options: Obj, asked: str) -> None:
        """Deletes with metav1.DeleteOptions; ``asked`` is the name that admission is told, "" for one of a collection. Raises ApiError."""
        ctx = self.context(namespace)
        await reg.delete(ctx, name, options, self._asked(reg, ctx, asked, options))

    def asks_webhooks(self, reg: Registry, namespace: str) -> bool:
        """Whether webhooks are asked about deletes of the kind."""
        asked = self._asked(reg, self.context(namespace), "", {})
        return asked is not None and asked.asks_webhooks

    def _asked(self, reg: Registry, ctx: Context, name: str, options: Obj) -> DeleteAdmission | None:
        """The admission of a delete."""
        if self._admission is None:
            return None
        return DeleteAdmission(self._admission, self._asking, reg.resource, ctx, name, options)

    async def warn(self, involved: Obj, reason: str, message: str, component: str) -> None:
        """A warning event about ``involved``, an object reference."""
        now, namespace = self.context().now, involved.get("namespace") or ""
        event = {
            "kind": "Event",
            "apiVersion": "v1",
            "metadata": {"name": f"{involved['name']}.{time.time_ns():x}", "namespace": namespace or "default"},
            "involvedObject": {k: v for k, v in involved.items() if v},
            "reason": reason,
            "message": message,
            "source": {"component": component},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "type": "Warning",
            "reportingComponent": component,
        }
        await self.create("", "events", event)

    @staticmethod
    def _schema(reg: Registry) -> Any:
        r = reg.resource
        if not r.type.custom:
            return builtin(r.group, r.version, r.kind)
        # A custom resource: these writes are about its metadata, for which any schema will do.
        return deduced_schema(f"{r.group}/{r.version}", r.kind)

    @staticmethod
    def _reset(reg: Registry, subresource: str) -> Any:
        r = reg.resource
        if subresource:
            sub = r.subresources.get(subresource)
            return field_set(tuple(sub.reset) if sub is not None else ())
        return field_set(reg.strategy.reset)


def _nothing(records: Sequence[Record]) -> None:
    """For events that matter when they come, and leave nothing behind when they are missed."""


class _Unchanged(Exception):
    """Leaves an update that has nothing to write."""


def split_key(reg: Registry, key: str) -> tuple[str, str]:
    """(namespace, name) of a store key."""
    return informers.split_key(reg.root, key)

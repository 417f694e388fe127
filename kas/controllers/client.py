"""A controller's access to objects: directly through the registries, as a system user, with managed fields as over HTTP.

These writes bypass admission, since they come from the server itself, except the deletes of a controller that was given the admission
chain. Objects are dicts in the storage version.
"""

from __future__ import annotations

import json
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
PAGE = 64  # records processed in one loop iteration


def _copied(obj: Obj) -> Obj:
    try:
        found: Obj = orjson.loads(orjson.dumps(obj))
    except TypeError:  # nested deeper than orjson supports
        found = json.loads(json.dumps(obj))
    return found


class Filling:
    """Passes all records under ``prefix`` to ``take``, one by one, after ``clear()``.

    Initially (``fill``, called by ``queue.follow``) it yields to other tasks between the pages, since no item is worked on yet. After
    lost events (``listed``, called by a reflector with ``lists`` off) it reads all at once. A record passed to ``take`` is as new as any
    event delivered before, or newer.
    """

    def __init__(self, client: Client, prefix: str, clear: Callable[[], None], take: Callable[[Record], None]) -> None:
        self._client, self._prefix, self._clear, self._take = client, prefix, clear, take
        self._waits = self._missed = False

    def begin(self) -> None:
        """Announce that ``fill`` will be called."""
        self._waits = True

    def listed(self, _: Sequence[Record]) -> None:
        """Handle lost events: read all records now, or in ``fill`` if that has not finished."""
        if self._waits:
            self._missed = True
            return
        self._clear()
        for record in self._client.pages(self._prefix):
            self._take(record)

    async def fill(self) -> None:
        """Read all records, and again if events were lost in the meantime."""
        time_slice = TimeSlice()
        while self._missed:
            self._missed = False
            self._clear()
            async for page in self._client.paced_pages(self._prefix, PAGE):
                for record in page.records:  # in one turn: events about these records are delivered later
                    self._take(record)
                if time_slice.over:
                    await time_slice.pause()
        self._waits = False


class Client:
    """A controller's client. ``manager`` is its field manager, ``user`` the user of its writes."""

    def __init__(
        self, registries: Registries, manager: str, user: str = "system:kube-controller-manager", admission: Chain | None = None
    ) -> None:
        """``admission`` is the chain for its deletes, None for no admission."""
        self.registries, self.store, self.manager, self._admission = registries, registries.store, manager, admission
        self._user = {"username": user, "groups": ["system:authenticated"]}
        account = split_service_account(user)
        self._asking = UserInfo(user, (*(service_account_groups(account[0]) if account else ()), AUTHENTICATED))

    def context(self, namespace: str = "", subresource: str = "") -> Context:
        """Return the context of a write by this controller, with the current time."""
        return Context(self.registries.now(), namespace, self._user, subresource)

    # --- reading

    def get(self, group: str, resource: str, namespace: str, name: str) -> Obj | None:
        """Return the object in the storage version, None if it does not exist. Shared; do not modify it."""
        return self.registries.get(group, resource, namespace, name)

    def list(self, group: str, resource: str, namespace: str = "") -> list[Obj]:
        """Return the objects in the storage version, ordered by key. Shared; do not modify them."""
        return self.registries.list(group, resource, namespace)

    def pages(self, prefix: str, size: int = 64) -> Iterator[Record]:
        """Yield all records under ``prefix``, reading page by page on demand, to bound memory."""
        start = ""
        while True:
            page = self.store.range(prefix, start, size, max_bytes=PAGE_BYTES)
            yield from page.records
            if not page.more:
                return
            start = page.next_key

    async def paced_pages(self, prefix: str, size: int = 256) -> AsyncIterator[RangeResult]:
        """Yield the pages of records under ``prefix``, read on demand; a page has the revision it was read at. There is at least one
        page."""
        start = ""
        while True:
            page = self.store.range(prefix, start, size, max_bytes=PAGE_BYTES)
            yield page
            if not page.more:
                return
            start = page.next_key

    async def paced(self, prefix: str) -> AsyncIterator[Record]:
        """Yield the records of ``pages`` and yield to other tasks in between. Concurrent writes may or may not be seen."""
        time_slice = TimeSlice()
        for record in self.pages(prefix):
            if time_slice.over:
                await time_slice.pause()
            yield record

    def reflector(
        self, prefix: str, apply: Callable[[Sequence[Event]], None], replace: Callable[[Sequence[Record]], None] | None = None,
        lists: bool = True,
    ) -> Reflectors:  # fmt: skip
        """Return a reflector of ``prefix``, in whichever stores its keys are kept.

        Without ``replace`` nothing is done after lost events. With ``lists`` off, ``replace`` receives no records and reads them itself.
        """
        return Reflectors(self.store.parts_below(prefix), prefix, Handlers(replace or _nothing, apply), lists and replace is not None)

    async def rest_fresh(self, key: str, rest: Iterable[str]) -> None:
        """Wait until those of the prefixes ``rest`` that are kept in another store than ``key`` are as new as any acknowledged write.

        A reader that sees an object also sees everything written to the same store before it, but not to another store. Raises
        ``StoreError``.
        """
        own = self.store.part(key)
        for part in dict.fromkeys(map(self.store.part, rest)):
            if part is not own:
                await part.fresh()

    def each(self, prefix: str, look: Callable[[Record], None]) -> Reflectors:
        """Return a reflector that calls ``look`` with every record under ``prefix``, initially (by a ``Filling``) and after each change;
        not for deletions."""

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
        """Create ``obj``, with kind and apiVersion of the storage version. Return None if it exists already."""
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
        """Change an object in place with ``change(obj)``, which returns whether there is anything to write.

        Retries after a conflicting write. Returns the new object; None if nothing was written, the object is gone, or it no longer has
        ``uid``.
        """
        ctx = self.context(namespace, subresource)

        def mutate(live: Obj | None) -> Obj:
            assert live is not None  # an update cannot create
            if uid and live["metadata"].get("uid") != uid:
                raise reg.not_found(name)
            wanted = _copied(live)  # the old state is needed to process the write
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
        """Force a server-side apply of ``wanted`` (without identity) to an existing object; do nothing if it is gone."""
        ctx = self.context(namespace, subresource)
        r = reg.resource
        head: Obj = {"kind": r.kind, "apiVersion": f"{r.group}/{r.version}" if r.group else r.version, "metadata": {"name": name}}
        if namespace:
            head["metadata"]["namespace"] = namespace

        def mutate(current: Obj | None) -> Obj:
            assert current is not None  # an update cannot create
            live = pipeline.from_storage(reg.resource, current)
            merged = apply(
                self._schema(reg), live, {**head, **wanted}, self.manager, now=ctx.now, subresource=subresource, force=True,
                reset_fields=self._reset(reg, subresource),
            )  # fmt: skip
            obj, _ = pipeline.decode_input(r, merged)
            return obj

        try:
            await reg.update(ctx, name, mutate, subresource=subresource, in_thread=is_large(wanted))
        except ApiError as e:
            if e.code != NOT_FOUND:
                raise

    async def delete(
        self, reg: Registry, namespace: str, name: str, uid: str = "", of_collection: bool = False, **options: Any
    ) -> bool:
        """Delete an object; return True if it existed and was deleted or marked for deletion.

        An object of the same name with another uid is left alone. For one ``of_collection``, admission does not see its name, as in
        requests.
        """
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
        """Delete with metav1.DeleteOptions; ``asked`` is the name that admission sees, "" for one of a collection. Raises ApiError."""
        ctx = self.context(namespace)
        await reg.delete(ctx, name, options, self._asked(reg, ctx, asked, options))

    def asks_webhooks(self, reg: Registry, namespace: str) -> bool:
        """Return whether deletes of the kind may call webhooks."""
        asked = self._asked(reg, self.context(namespace), "", {})
        return asked is not None and asked.asks_webhooks

    def _asked(self, reg: Registry, ctx: Context, name: str, options: Obj) -> DeleteAdmission | None:
        """Return the admission of a delete, or None."""
        if self._admission is None:
            return None
        return DeleteAdmission(self._admission, self._asking, reg.resource, ctx, name, options)

    async def warn(self, involved: Obj, reason: str, message: str, component: str) -> None:
        """Record a warning event about ``involved``, an object reference."""
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
        # For custom resources these writes only concern metadata, for which any schema will do.
        return deduced_schema(f"{r.group}/{r.version}", r.kind)

    @staticmethod
    def _reset(reg: Registry, subresource: str) -> Any:
        r = reg.resource
        if subresource:
            sub = r.subresources.get(subresource)
            return field_set(tuple(sub.reset) if sub is not None else ())
        return field_set(reg.strategy.reset)


def _nothing(records: Sequence[Record]) -> None:
    """Ignore a list: for events that need no catching up when they were missed."""


class _Unchanged(Exception):
    """Aborts an update that has nothing to write."""


def split_key(reg: Registry, key: str) -> tuple[str, str]:
    """Return (namespace, name) of a store key."""
    return informers.split_key(reg.root, key)

"""The steps of a write: upstream's ``handlers/{create,update,patch,delete}.go`` and ``registry/generic/registry/store.go``.

    prepare     read the current object and convert it to the request's version
    mutate      compute the wanted object from a body, a patch or an applied configuration
    admit       run the mutating plug-ins, all of them again if one asks for it; then convert to the storage version
    validate    check preconditions, then run the kind's strategy: prepare_for_*, defaults of what it carries over, validation
    admit       run the validating plug-ins
    commit      write under the precondition that the revision is still that of the object read

A write that loses a race starts over at ``prepare`` with the newer object, in the loop of its class. A write that names no
revision is recomputed, one after another where several have lost (``lines.py``); one that names a revision fails with 409. A
dry run takes every step but the commit.

If other servers write too, reads may be stale, and the commit detects it. A write that ends without a commit is therefore
repeated once if its reads turn out to have been stale (``store.behind``), as upstream does with objects from its cache.

Objects are dicts. ``prepare``, ``mutate`` and ``admit`` work in the request's version, ``validate`` and ``commit`` in the
storage version; a custom resource is also validated in the request's version, which has its own schema. Every step may wait
(for a webhook that admits or converts); none holds a transaction while it waits.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import orjson

from kas._codecs import RawJSON
from kas.meta import errors, field
from kas.meta.offload import LARGE, POOL, BudgetSpentError, in_turn, is_large, step
from kas.meta.scalars import parse_uint64
from kas.meta.stored import object_of
from kas.patch.fieldmanager import Unanswered, keep_timestamps, restore_after_admission
from kas.registry import pipeline
from kas.registry.admission import Admission, Made, dedup_owner_references
from kas.registry.deletion import Step
from kas.registry.strategy import Context, Obj
from kas.registry.versions import Decoded, Shown, Version
from kas.store import Conflict

if TYPE_CHECKING:
    from kas.registry.generic import Registry
    from kas.store import Record

CREATE, UPDATE, DELETE = "CREATE", "UPDATE", "DELETE"
MAX_GENERATE_NAME_ATTEMPTS = 8
MAX_UPDATE_ATTEMPTS = 1000  # a writer that loses this often has hit a bug, not a race
MAX_ALLOCATION_ATTEMPTS = 64  # each failed attempt means that another writer took the chosen value
STORE_PREFIX = "/registry"
MANY_OWNERS = 1000  # references; comparing one takes some microseconds

Change = Callable[[Obj], Obj]
Turn = asyncio.Future[None]


async def admit(admission: Admission, operation: str, obj: Obj, live: Obj | None) -> Obj:
    """Runs mutating admission; returns the object with valid managed fields and without repeated owner references."""
    entries = obj["metadata"].get("managedFields")
    again = True
    while again:
        pending = admission.admit(operation, obj, live)
        if pending is not None:
            await pending
        obj = admission.obj
        again = admission.reinvoke()
    meta = obj["metadata"]
    after, owners = meta.get("managedFields"), meta.get("ownerReferences")
    if after is entries and not owners:
        return obj  # as most are
    # Managed fields that admission replaced have not been checked yet.
    large = (after is not entries and is_large(after)) or len(owners or ()) >= MANY_OWNERS
    if large:
        await POOL.run(_clean_metadata, admission, entries, meta)
    else:
        _clean_metadata(admission, entries, meta)
    return obj


def _clean_metadata(admission: Admission, entries: list[Obj] | None, meta: Obj) -> None:
    """Restores invalid managed fields and removes repeated owner references, with warnings."""
    warning = restore_after_admission(entries, meta)
    if warning is not None:
        admission.warn(warning)
    dedup_owner_references(meta, admission.warn, " after mutating admission happens")


class Write:
    """The common part of all writes. Without ``version``, objects are in the storage version; without ``admission``, no
    admission takes place: the server's own writes use both. ``warnings`` are the strategy's, for the client."""

    anew = True  # whether a lost race is retried; a write that names a revision learns only by the retry that it is refused
    # Class attributes are defaults that hold for most writes: setting them for each would cost time.
    native, least_large = True, LARGE  # bytes of the stored object
    own = False  # whose strategy applies: the storage version's, unless the version has its own and is converted after it
    changed = False  # admission replaced the object
    sure_of = -1  # reads at this revision are known to be current
    large = False  # the work on the object is done in a thread, not on the event loop
    replaced: Record | None = None

    def __init__(self, registry: Registry, ctx: Context, version: Version | None = None, admission: Admission | None = None) -> None:
        self.registry, self.ctx, self.version, self.admission = registry, ctx, version, admission
        self.resource = registry.resource
        self.warnings: list[str] = []
        if version is not None:
            if not version.native:
                self.native, self.least_large = False, version.converts_from
            if version.own_strategy:
                self.own, self.resource = True, version.record

    def _costly(self) -> bool:
        return self.admission is not None and self.registry.strategy.costly

    async def lost(self, key: str, e: Conflict, turn: Turn | None) -> tuple[Record | None, Turn | None]:
        """Returns, after a lost race for ``key``, the newer object and the turn to change it; the caller ends the turn.
        ``turn`` is the caller's previous one. A write that names a revision needs no turn: it will be refused."""
        if self.anew:
            turn = await self.registry.lines.turn(key, turn)
        rec: Record | None = self.registry.store.get(key)
        reported = None if self.registry.lost_allocation(e.key) else e.current
        # A read of the local store may be older than the record in the conflict.
        return (reported if reported is not None and (rec is None or rec.revision < reported.revision) else rec), turn

    async def was_behind(self, revision: int) -> bool:
        """Returns whether reads at ``revision`` were stale and are current now; False if this was already checked."""
        if self.sure_of >= 0:
            return False
        self.sure_of = revision
        return await self.registry.store.behind(revision)

    def tell(self, warnings: list[str]) -> None:
        """Warns the client although nothing is written."""
        if self.admission is not None:
            for text in warnings:
                self.admission.warn(text)

    # --- conversion between versions; overridden by subresources that are views of their parent

    async def to_request(self, obj: Obj) -> Obj:
        """Returns a stored object in the request's version."""
        return obj if self.version is None else await self.version.from_storage(obj, self.large)

    async def to_storage(self, obj: Obj, old: Obj | None) -> Obj:
        """Returns the request's object in the storage version; ``old`` is the stored object."""
        return obj if self.version is None else await self.version.to_storage(obj, self.large)

    # --- admission

    def admitted(self, admission: Admission, obj: Obj, found: Obj) -> Obj:
        """Returns ``found``, the result of mutating admission of ``obj``. Sets ``changed`` if it is another object, and
        ``large`` if a small object has become large."""
        self.changed = found is not obj
        if not self.large:
            self.large = admission.grown or (self.changed and is_large(found))
        return found

    def admit_valid(self, operation: str, obj: Obj, live: Obj | None) -> Awaitable[None] | None:
        """Runs validating admission on the object as it would be stored; ``live`` is in the request's version. Returns an
        awaitable for the rest if a plug-in waits, otherwise None."""
        if self.admission is None:
            return None
        if self.own:
            return self.admission.validate(operation, obj, live)
        if self.native:
            forms = None if self.large else self.registry.shown_forms
            return self.admission.validate(operation, obj, live, forms, self.replaced if forms is not None else None)
        return self._admit_shown(self.admission, operation, obj, live)

    async def _admit_shown(self, admission: Admission, operation: str, obj: Obj, live: Obj | None) -> None:
        pending = admission.validate(operation, await self.to_request(obj), live)
        if pending is not None:
            await pending

    async def _with_storage_errors(self, e: errors.ApiError, operation: str, obj: Obj, live: Obj | None) -> errors.ApiError:
        """Returns the strategy's error for ``obj``, which it has prepared, preceded by the problems that upstream's storage
        finds before validation."""
        if self.admission is None or self.own or not isinstance(e, errors.Invalid):
            return e
        found = await self.admission.found_by_storage(operation, obj if self.native else await self.to_request(obj), live)
        return e.after(found) if found else e

    def _made(self) -> Made | None:
        """The encoded forms of the object that a validating plug-in has requested."""
        return self.admission.made if self.admission is not None else None

    # --- a new object

    def insert(self, obj: Obj) -> Awaitable[Shown]:
        """Validates, admits and commits a new object of the strategy's version. Raises Conflict if the key exists."""
        return self._insert_once(obj) if self.registry.allocator is None else self._insert_allocated(obj)

    async def _insert_allocated(self, obj: Obj) -> Shown:
        template = await step(self.large, _template, obj)
        for _ in range(MAX_ALLOCATION_ATTEMPTS):
            try:
                return await self._insert_once(await step(self.large, orjson.loads, template))
            except Conflict as e:
                if not self.registry.lost_allocation(e.key):
                    raise
        raise errors.internal("what was allocated was taken by others again and again")

    async def _insert_once(self, obj: Obj) -> Shown:
        ctx, registry, allocator = self.ctx, self.registry, self.registry.allocator
        given = obj["metadata"].pop("resourceVersion", None)
        allocate = (lambda obj: allocator.prepare_create(ctx, obj)) if allocator is not None else None
        in_thread = self.large or self._costly()  # allocators, too: they read the store, and claim nothing before the commit
        try:
            built = pipeline.build_create
            if in_thread:
                obj, self.warnings = await POOL.run(built, self.resource, obj, ctx, allocate)
            elif self.own:
                obj, self.warnings = await in_turn(False, built, self.resource, obj, ctx)
            else:
                obj, self.warnings = built(self.resource, obj, ctx, allocate)
        except errors.ApiError as e:
            self.tell(ctx.warnings)
            raise await self._with_storage_errors(e, CREATE, obj, None) from None
        pending = self.admit_valid(CREATE, obj, None)
        if pending is not None:
            await pending
        if self.own and (self.changed or not self.native):
            obj = await self.to_storage(obj, None)
        meta = obj["metadata"]
        key = registry.key(meta.get("namespace", ""), meta["name"])
        if ctx.dry_run:
            if registry.store.get(key) is not None:
                raise Conflict(None, key)
            if given:  # only the storage removes it
                meta["resourceVersion"] = given
            return await step(self.large, registry.not_stored, obj, 0, None if given else self._made())
        if given and given.isascii() and given.isdigit() and given.strip("0"):
            # The storage's error, raised after all other checks have passed. As upstream, a value that is no number passes.
            raise errors.ApiError(500, "", "resourceVersion should not be set on objects to be created")
        made = self._made()
        if made is not None:
            encoded = made[0]
        else:
            encoded = await POOL.run(registry.encoded, obj) if self.large else registry.encoded(obj)
        encoded = registry.bounded(ctx, obj, encoded, 0)
        return await registry.commit(key, obj, 0, encoded, ctx=ctx)


class Create(Write):
    """Creates an object."""

    async def run(self, obj: Obj) -> Shown:
        """Stores ``obj``: decoded, defaulted, with managed fields, in the request's version. The dict is consumed. Raises 409
        if the name exists."""
        if self.admission is not None:
            obj = self.admitted(self.admission, obj, await admit(self.admission, CREATE, obj, None))
        if not self.native and not self.own:
            obj = await self.to_storage(obj, None)
        generated = bool(obj["metadata"].get("generateName")) and not obj["metadata"].get("name")
        template = b"" if not generated else await POOL.run(_template, obj) if self.large else _template(obj)
        r = self.registry.resource
        for attempt in range(MAX_GENERATE_NAME_ATTEMPTS):
            if attempt:
                obj = await step(self.large, orjson.loads, template)
            try:
                return await self.insert(obj)
            except Conflict as e:
                name = e.key.rpartition("/")[2]
                if not generated:
                    self.tell(self.warnings)
                    raise self._exists(e.key, name) from None
        raise errors.generate_name_conflict(r.group, r.resource, name, 1)

    def _exists(self, key: str, name: str) -> errors.ApiError:
        e = errors.already_exists(self.registry.resource.group, self.registry.resource.resource, name)
        rec = self.registry.store.get(key)
        if rec is not None and object_of(rec)["metadata"].get("deletionTimestamp"):
            e.message = f"object is being deleted: {e.message}"
        return e


class Update(Write):
    """``GuaranteedUpdate``: a subclass computes the wanted object from the current one in ``mutate``.

    A ``metadata.resourceVersion`` in the result must be the current one (409); an empty one is accepted only if
    ``unconditional`` (422); one that is no number is a 500. A ``uid``, if set, must be the current object's (409); this is
    checked first. With ``allow_create`` a missing object is created, and ``created`` says so. A result that equals the stored
    object is not written.
    """

    unconditional = True
    allow_create = False
    pure = True  # whether ``mutate`` may run in a thread
    created = False
    uid = ""
    read_at = 0
    _mutated: Obj | None = None

    def __init__(
        self, registry: Registry, ctx: Context, name: str, version: Version | None = None, admission: Admission | None = None
    ) -> None:
        super().__init__(registry, ctx, version, admission)
        self.name, self.subresource, self.key = name, ctx.subresource, registry.key(ctx.namespace, name)

    def mutate(self, live: Obj | None) -> Obj:
        """Returns the wanted object for ``live`` (None: there is none). Called again with the newer object after a lost race.
        ``live`` must not be changed, but the result may share parts with it."""
        raise NotImplementedError

    def managed(self, live: Obj | None, obj: Obj) -> Obj:
        """Returns the result of ``mutate`` with its managed fields. Like ``mutate``, it may raise ``Unanswered``, and is
        called again then."""
        return obj

    def _wanted(self, live: Obj | None) -> Obj:
        obj = self.mutate(live) if self._mutated is None else self._mutated
        self._mutated = obj  # kept: ``managed`` may raise Unanswered
        obj = self.managed(live, obj)
        self._mutated = None
        return obj

    async def _answered(self, live: Obj | None) -> Obj:
        """``mutate`` and ``managed``, repeated after each conversion that they had to wait for."""
        while True:
            try:
                return await POOL.run(self._wanted, live) if self.large and self.pure else self._wanted(live)
            except Unanswered as e:
                await e.wait()

    async def run(self) -> Shown:
        """Raises 404 if the object does not exist, and the errors of the steps."""
        registry = self.registry
        self.read_at = registry.store.revision
        rec: Record | None = registry.store.get(self.key)
        turn: Turn | None = None
        try:
            for _ in range(MAX_UPDATE_ATTEMPTS):
                try:
                    if rec is None and not self.allow_create:
                        raise registry.not_found(self.name)
                    return await self._create() if rec is None else await self._update(rec)
                except Conflict as e:
                    rec, turn = await self.lost(self.key, e, turn)
                except errors.ApiError:
                    if not await self.was_behind(self.read_at):
                        raise
                    self._mutated = None
                    rec = registry.store.get(self.key)
            raise registry.conflict(self.name)
        finally:
            if turn is not None:
                registry.lines.over(self.key, turn)

    async def _create(self) -> Shown:
        self._check_uid("")
        wanted = await self._answered(None)
        if self.admission is not None:
            wanted = self.admitted(self.admission, wanted, await admit(self.admission, CREATE, wanted, None))
        obj = wanted if self.native or self.own else await self.to_storage(wanted, None)
        meta = obj.setdefault("metadata", {})
        revision_of(meta.get("resourceVersion", ""))  # checks the syntax; a revision has no meaning for a new object
        if not self.ctx.dry_run:
            meta.pop("resourceVersion", None)
        rec = await self.insert(obj)
        self.created = True
        return rec

    def admit_valid(self, operation: str, obj: Obj, live: Obj | None) -> Awaitable[None] | None:
        """If the update creates the object, first checks that the client may also create; 403 if not."""
        if operation == CREATE and self.admission is not None:
            return self._admit_created(self.admission, obj, live)
        return super().admit_valid(operation, obj, live)

    async def _admit_created(self, admission: Admission, obj: Obj, live: Obj | None) -> None:
        await admission.authorize_create(self.name)
        pending = super().admit_valid(CREATE, obj, live)
        if pending is not None:
            await pending

    def judged(self, wanted: Obj, live: Obj) -> tuple[Obj, Obj]:
        """Returns the pair (new, old) that a version's own strategy validates."""
        return wanted, live

    async def _update(self, rec: Record) -> Shown:
        # prepare
        self.large = self.large or len(rec.json) >= self.least_large
        parse = self.registry.parse
        old = await POOL.run(parse, rec) if self.large else parse(rec)
        if self.uid:
            self._check_uid(old["metadata"].get("uid", ""))
        live = old if self.native else await self.to_request(old)
        self.replaced = rec
        # mutate
        if self.large:
            wanted = await self._answered(live)
        else:
            try:
                wanted = self._wanted(live)
            except Unanswered as e:
                await e.wait()
                wanted = await self._answered(live)
            except BudgetSpentError:
                self.large = True
                wanted = await self._answered(live)
        # admit
        if self.admission is not None:
            wanted = self.admitted(self.admission, wanted, await admit(self.admission, UPDATE, wanted, live))
        before = old
        if self.own:
            obj, before = self.judged(wanted, live)
        else:
            obj = wanted if self.native else await self.to_storage(wanted, old)
        # validate
        self._check_revision(obj.setdefault("metadata", {}), rec)
        in_thread = self.large or self._costly()
        try:
            if self.own and not in_thread:
                obj, self.warnings = await in_turn(False, self.validate, obj, before)
            else:
                obj, self.warnings = await POOL.run(self.validate, obj, before) if in_thread else self.validate(obj, before)
        except errors.ApiError as e:
            raise await self._with_storage_errors(e, UPDATE, obj, live) from None
        of = self.resource.type if self.ctx.apply and not self.resource.type.custom else None
        obj = await POOL.run(keep_timestamps, before, obj, of) if self.large else keep_timestamps(before, obj, of)
        # admit
        pending = self.admit_valid(UPDATE, obj, live)
        if pending is not None:
            await pending
        if self.own and (self.changed or not self.native):
            obj = await self.to_storage(obj, old)
        return await self._commit(rec, obj, old)

    def validate(self, obj: Obj, old: Obj) -> tuple[Obj, list[str]]:
        """Runs the kind's strategy; returns the object to store and the warnings."""
        ctx, allocator = self.ctx, self.registry.allocator if not self.subresource else None
        allocate = (lambda obj, old: allocator.prepare_update(ctx, obj, old)) if allocator is not None else None
        try:
            return pipeline.build_update(self.resource, obj, old, ctx, self.subresource, allocate)
        except errors.ApiError:
            self.tell(ctx.warnings)
            raise

    async def _commit(self, rec: Record, obj: Obj, old: Obj) -> Shown:
        ctx, registry = self.ctx, self.registry
        meta = obj["metadata"]
        made = self._made()
        meta.pop("resourceVersion", None)
        link = meta.pop("selfLink", None)
        if link is not None:
            made = None  # plug-ins have seen it, but it is not stored
        if "deletionTimestamp" in old["metadata"] and registry.gone_with_update(obj, old):
            # The update removed the last finalizer of an object being deleted: the object is removed instead of written, and
            # its allocated values are released as they were.
            if not ctx.dry_run:
                await registry.remove(ctx, self.key, old, rec.revision)
            return await step(self.large, registry.not_stored, obj, rec.revision)
        if link is not None and ctx.dry_run:
            meta["selfLink"] = link
            return await step(self.large, registry.not_stored, obj, rec.revision)
        if made is not None:
            encoded = made[0]
        else:
            encoded = await POOL.run(registry.encoded, obj) if self.large else registry.encoded(obj)
        if registry.is_stored(encoded, rec):
            if await self.was_behind(self.read_at):
                raise Conflict(registry.store.get(self.key), self.key)
            return rec
        if ctx.dry_run:
            return await step(self.large, registry.not_stored, obj, rec.revision, made)
        encoded = registry.bounded(ctx, obj, encoded, len(rec.json))
        return await registry.commit(self.key, obj, rec.revision, encoded, old, None if self.subresource else ctx)

    def _check_uid(self, have: str) -> None:
        if self.uid and self.uid != have:
            raise self.registry.conflict(self.name, precondition_failed(self.key, "UID", self.uid, have, self.ctx.dry_run))

    def _check_revision(self, meta: Obj, rec: Shown) -> None:
        text, current = meta.pop("resourceVersion", ""), str(rec.revision)
        if text != current:  # another number, or the same number in another notation
            given = revision_of(text) if text else 0
            if given == 0:
                if not self.unconditional:
                    r = self.registry.resource
                    # As upstream, the error names the resource in the place of the kind.
                    problem = field.invalid("metadata.resourceVersion", 0, "must be specified for an update")
                    raise errors.invalid(r.group, r.resource, self.name, [problem])
            elif given != rec.revision:
                raise self.registry.conflict(self.name)
        meta["resourceVersion"] = current


class UpdateWith(Update):
    """An update by a function of the current object, for the server's own writes."""

    pure = False  # the function belongs to the caller, which runs on the loop

    def __init__(self, registry: Registry, ctx: Context, name: str, change: Change, subresource: str) -> None:
        super().__init__(registry, ctx, name)
        self.change, self.subresource = change, subresource

    def mutate(self, live: Obj | None) -> Obj:
        """Returns the live object as changed by ``change``."""
        assert live is not None  # it never creates
        return self.change(live)


class Delete(Write):
    """``Store.Delete``. Afterwards ``gone`` says whether the object was removed or only marked."""

    gone = False
    read_at = 0

    def __init__(
        self, registry: Registry, ctx: Context, name: str, options: Obj, version: Version | None = None, admission: Admission | None = None
    ) -> None:
        """``options`` are metav1.DeleteOptions; propagation and grace follow upstream's BeforeDelete and the finalizer rules."""
        super().__init__(registry, ctx, version, admission)
        self.name, self.options, self.key = name, options, registry.key(ctx.namespace, name)

    async def run(self) -> Shown:
        """Returns the last state of the object. Raises 404, and 409 if a precondition fails."""
        registry = self.registry
        self.read_at = registry.store.revision
        rec: Record | None = registry.store.get(self.key)
        turn: Turn | None = None
        try:
            for _ in range(MAX_UPDATE_ATTEMPTS):
                try:
                    return await self._attempt(rec)
                except Conflict as e:
                    rec, turn = await self.lost(self.key, e, turn)
                except errors.ApiError:
                    if not await self.was_behind(self.read_at):
                        raise
                    rec = registry.store.get(self.key)
            raise registry.conflict(self.name)
        finally:
            if turn is not None:
                registry.lines.over(self.key, turn)

    async def _attempt(self, rec: Record | None) -> Shown:
        registry = self.registry
        if rec is None:
            raise registry.not_found(self.name)
        self.large = len(rec.json) >= self.least_large
        parse = registry.parse
        obj = await POOL.run(parse, rec) if self.large else parse(rec)
        registry.check_preconditions(self.name, obj, self.options)
        if registry.delete_pending(obj, self.options):
            return await self._unchanged(rec)
        # Admission sees the object, so nothing is admitted when it does not exist (AdmissionToValidateObjectDeleteFunc).
        if self.admission is not None:
            await self._admit(self.admission, obj)
        return await self._commit(rec, obj, dict(self.options))

    async def _unchanged(self, rec: Record) -> Shown:
        if await self.was_behind(self.read_at):
            raise Conflict(self.registry.store.get(self.key), self.key)
        return rec

    async def _admit(self, admission: Admission, obj: Obj) -> None:
        live = obj if self.native else await self.to_request(obj)
        for ask in (admission.admit, admission.validate):
            pending = ask(DELETE, None, live)
            if pending is not None:
                await pending

    async def _commit(self, rec: Record, obj: Obj, options: Obj) -> Shown:
        ctx, registry = self.ctx, self.registry
        step, graceful = registry.begin_delete(ctx, obj, options)
        self.gone = step is Step.REMOVE
        if not self.gone:
            return await self._mark(rec, obj)
        if ctx.dry_run:
            # With a grace period of zero upstream returns the object as it was marked before its removal.
            return await self._not_stored(obj, rec.revision) if graceful else rec
        # Watchers see the same: a graceful deletion marks the object first, even when it is removed at once.
        last: Shown = rec
        if graceful:
            last = await self._mark(rec, obj)
            obj = await POOL.run(object_of, last) if self.large else object_of(last)
        try:
            revision = await registry.remove(ctx, self.key, obj, last.revision)
        except Conflict as e:
            if not graceful or e.current is not None:
                raise
            return last  # another client removed it meanwhile
        obj["metadata"]["resourceVersion"] = str(revision)
        return Decoded(registry.type, obj, revision)

    async def _mark(self, rec: Record, obj: Obj) -> Shown:
        """Stores the object with its deletion marks."""
        registry = self.registry
        obj["metadata"].pop("resourceVersion", None)
        encoded = await POOL.run(registry.encoded, obj) if self.large else registry.encoded(obj)
        if registry.is_stored(encoded, rec):
            return await self._unchanged(rec)
        if self.ctx.dry_run:
            return await self._not_stored(obj, rec.revision)
        return await registry.commit(self.key, obj, rec.revision, encoded)

    async def _not_stored(self, obj: Obj, revision: int) -> Shown:
        """The response to a dry run: for a large object, encoding and decoding it take long."""
        return await step(self.large, self.registry.not_stored, obj, revision)


def revision_of(text: str | None) -> int:
    """``ObjectResourceVersion``: returns the revision in metadata, 0 for an empty one. Raises 500, without a reason, if it is
    no number."""
    if not text:
        return 0
    try:
        return parse_uint64(text)
    except ValueError as e:
        raise errors.ApiError(500, "", str(e)) from None


def precondition_failed(key: str, label: str, wanted: str, have: str, dry_run: bool) -> str:
    """Returns the storage's message for a failed UID precondition. A dry run shows the key without its path prefix in the store."""
    shown = key.removeprefix(STORE_PREFIX) if dry_run else key
    return (
        f"StorageError: invalid object, Code: 4, Key: {shown}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: "
        f"{label} in precondition: {wanted}, {label} in object meta: {have}"
    )


def _fragment(value: Any) -> orjson.Fragment:
    if type(value) is RawJSON:
        return orjson.Fragment(bytes(value))
    raise TypeError


def _template(obj: Obj) -> bytes:
    """Returns the encoded object, from which each further attempt starts."""
    try:
        return orjson.dumps(obj, default=_fragment)
    except TypeError:  # nested deeper than orjson supports
        return json.dumps(obj, default=_parsed).encode()


def _parsed(value: Any) -> Any:
    if type(value) is RawJSON:
        return orjson.loads(bytes(value))  # which takes no subclass
    raise TypeError

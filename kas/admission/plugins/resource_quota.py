"""ResourceQuota: limits what a namespace may contain and use.

Usage is stored in the status of the quotas, as upstream: the quota controller sets it initially, and this plug-in increases it before a
write. All quotas that an object counts against are updated in one commit, with the revisions they were checked at as preconditions, so
that workers never spend the same remainder twice. If the write then fails, its charge is returned when the request has ended; after a
crash in between, the controller's next recount corrects the usage.

The configuration may require a quota for some resources (``_limited``).

Upstream: ``apiserver/pkg/admission/plugin/resourcequota``.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Coroutine
from typing import Any

import orjson

from kas.admission import CREATE, UPDATE, Attributes
from kas.admission import pods as pod_objects
from kas.admission.configuration import Section
from kas.admission.plugins._limited import Limited
from kas.admission.pods import Amounts
from kas.admission.quota_usage import Evaluator, Evaluators, matches
from kas.informers import Informers
from kas.meta import errors
from kas.meta.offload import LARGE, POOL, is_large, step
from kas.meta.quantity import Quantity
from kas.meta.records import NamedTuple
from kas.meta.stored import object_of
from kas.patch.fieldmanager import builtin, update
from kas.registry.registries import Registries
from kas.store import Conflict, Op, RangeResult, Store, StoreError

Obj = dict[str, Any]
MAX_ATTEMPTS = 64
PAGE = 256  # quotas read at once
MOST_KEPT = 100  # names of a quota's limits that are cached
ZERO = Quantity(0)
# Events expire by themselves; the others are answered, not stored.
UNCOUNTED = frozenset((
    ("", "events"), ("events.k8s.io", "events"), ("", "bindings"), ("", "namespaces"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
))  # fmt: skip
COUNTED_PARTS = frozenset((("", "pods", "resize"), ("", "persistentvolumeclaims", "status")))
SELF = "kube-apiserver"


class Charge(NamedTuple):
    """The charge of one write: how much of which quotas, and what identifies the stored object, which is ``large`` or not."""

    attributes: Attributes
    name: str
    uid: str
    usage: Amounts
    taken: dict[str, Amounts]
    large: bool


class _Known(NamedTuple):
    """The cached part of a quota: its resource version, and the names of its limits."""

    version: str
    hard: tuple[str, ...]


UNKNOWN = _Known("", ())


def _known(quota: Obj) -> _Known:
    hard = (quota.get("status") or {}).get("hard") or ()
    if len(hard) > MOST_KEPT:
        return UNKNOWN
    return _Known(quota["metadata"].get("resourceVersion") or "", tuple(hard))


class Plugin:
    """Applies to everything that quotas count; reads the quotas of the namespace."""

    name = "ResourceQuota"
    configured = Limited

    def __init__(self, registries: Registries, informers: Informers, section: Section | None = None) -> None:
        self._registries = registries
        self._limited = self.configured(section) or None
        self._present = informers.lister("", "resourcequotas", _known)
        self._evaluators = Evaluators(registries, informers)
        # Writes of this worker to one namespace wait here, instead of conflicting with each other.
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._open: dict[asyncio.Task[Any], list[Charge]] = {}
        self._refunds: set[asyncio.Task[None]] = set()

    def handles(self, a: Attributes) -> bool:
        """Handle creates and updates of what may be counted."""
        if a.operation not in (CREATE, UPDATE) or (a.group, a.resource) in UNCOUNTED:
            return False
        return not a.subresource or (a.group, a.resource, a.subresource) in COUNTED_PARTS

    def validate(self, a: Attributes) -> Any:
        """Return an awaitable that charges the namespace's quotas and raises 403 if one is exceeded; None if nothing counts."""
        if not a.namespace or not (self._limited or self._present.namespace(a.namespace)):
            return None
        evaluator = self._evaluators.of(a.group, a.resource)
        return self._charge(a, evaluator) if evaluator.handles(a) else None

    def _lock(self, namespace: str) -> asyncio.Lock:
        lock = self._locks.get(namespace)
        if lock is None:
            lock = self._locks[namespace] = asyncio.Lock()
        return lock

    async def _charge(self, a: Attributes, evaluator: Evaluator) -> None:
        task = asyncio.current_task()
        open_ = self._open.get(task, []) if task is not None else []
        # A retry of the same write lost a race; its earlier charge is not used.
        for earlier in [c for c in open_ if c.attributes is a]:
            open_.remove(earlier)
            await asyncio.shield(self._soon(self._give_back(earlier)))
        large = is_large(a.obj)
        usage = await step(large, evaluator.usage, a.obj)
        before = await step(large, evaluator.usage, a.old) if a.operation == UPDATE else {}
        async with self._lock(a.namespace):
            for _ in range(MAX_ATTEMPTS):
                records = await self._records(a.namespace)
                # Thousands of quotas, or of limits in them, are examined in the thread pool.
                changes, ops = await step(large or _large(records), self._charged, a, evaluator, usage, before, records)
                if not changes or a.dry_run:
                    return
                # Keep the name, since the write consumes the object.
                meta = a.obj["metadata"]
                charge = Charge(a, meta.get("name", ""), meta.get("uid", ""), usage, changes, large)
                taking = asyncio.ensure_future(self._take(ops, charge))
                try:
                    await asyncio.shield(taking)
                except Conflict:
                    continue
                except asyncio.CancelledError:
                    self._soon(self._take_back(taking, charge))
                    raise
                break
            else:
                raise errors.conflict("", "resourcequotas", next(iter(changes)), errors.OBJECT_MODIFIED)
        if task is not None:
            if task not in self._open:
                self._open[task] = []
                task.add_done_callback(self._ended)
            self._open[task].append(charge)

    async def _take(self, ops: list[Op], charge: Charge) -> None:
        """Commit in as many transactions as the store needs (etcd takes 128 writes in one); if one fails, the charges of the previous
        ones are returned."""
        store = self._registries.store
        for at in range(0, len(ops), store.most_ops):
            try:
                await store.commit_many(ops[at : at + store.most_ops])
            except StoreError:
                if at:
                    await self._return(charge._replace(taken={name: charge.taken[name] for name in map(_quota, ops[:at])}))
                raise

    async def _records(self, namespace: str) -> list[Any]:
        """Return the records of all quotas of a namespace; a large number is read in pages in the thread pool."""
        registry = self._registries.of("", "resourcequotas")
        store, prefix = registry.store, registry.prefix(namespace)
        page = store.range(prefix, limit=PAGE)
        return page.records + await POOL.run(_rest, store, prefix, page) if page.more else page.records

    def _charged(
        self, a: Attributes, evaluator: Evaluator, usage: Amounts, before: Amounts, records: list[Any]
    ) -> tuple[dict[str, Amounts], list[Op]]:
        """Return the increases by quota name, and the writes that apply them. Raises 403."""
        if not self._limited:
            records = self._about(a.namespace, evaluator, records)
        quotas = [object_of(rec) for rec in records]
        changes = self._check_request(a, evaluator, usage, before, quotas)
        if a.dry_run:
            return changes, []
        pairs = [(rec, obj) for rec, obj in zip(records, quotas, strict=True) if obj["metadata"]["name"] in changes]
        return changes, [self._op(obj, changes[obj["metadata"]["name"]], rec.revision, a.now) for rec, obj in pairs]

    def _about(self, namespace: str, evaluator: Evaluator, records: list[Any]) -> list[Any]:
        """Drop the quotas that are known not to limit this kind, by the cache if that is current: hundreds of quotas may be for other
        kinds, and decoding a quota takes longer than the rest of the check."""
        known = self._present.namespace(namespace)
        asked = ((rec, known.get(rec.key.rpartition("/")[2])) for rec in records)
        return [rec for rec, it in asked if it is None or it.version != str(rec.revision) or evaluator.matching(it.hard)]

    # --- checking

    def _check_request(
        self, a: Attributes, evaluator: Evaluator, usage: Amounts, before: Amounts, quotas: list[Obj]
    ) -> dict[str, Amounts]:
        """Return the increases by quota name. Raises 403 for the first quota without enough left (``CheckRequest``)."""
        pertinent = []
        for quota in quotas:
            if not matches(quota, evaluator, a.obj):
                continue
            name, status = quota["metadata"]["name"], quota.get("status") or {}
            counted = evaluator.matching(status.get("hard") or {})
            unsaid = evaluator.constraints(counted, a.obj)
            if unsaid:
                raise a.forbid(f"failed quota: {name}: {unsaid}")
            if not all(resource in (status.get("used") or {}) for resource in counted):
                raise a.forbid(f"status unknown for quota: {name}, resources: {','.join(sorted(counted))}")
            pertinent.append(quota)
        if not pertinent and not self._limited:
            return {}
        negative = sorted(name for name, need in usage.items() if need < ZERO)
        if negative:
            raise a.forbid(f"quota usage is negative for resource(s): {','.join(negative)}")
        grown = _positive(_growth(usage, before) if a.operation == UPDATE else usage)
        # For a quota whose scope an update moves the object into, the whole usage is new.
        deltas = [
            (quota, grown if a.operation != UPDATE or matches(quota, evaluator, a.old) else _positive(usage)) for quota in pertinent
        ]
        if self._limited and (any(delta for _, delta in deltas) if deltas else grown):
            self._limited.check(a, evaluator, usage, quotas, pertinent)
        return {q["metadata"]["name"]: more for q, delta in deltas if (more := self._fits(a, q, delta))}

    @staticmethod
    def _fits(a: Attributes, quota: Obj, delta: Amounts) -> Amounts:
        hard, used = pod_objects.amounts(quota["status"].get("hard")), pod_objects.amounts(quota["status"].get("used"))
        requested = {name: need for name, need in delta.items() if name in hard}
        # A status reports facts, so it is counted but not checked.
        checked = requested.items() if a.subresource != "status" else ()
        exceeded = [name for name, need in checked if used.get(name, ZERO) + need > hard[name]]
        if exceeded:
            raise a.forbid(
                f"exceeded quota: {quota['metadata']['name']}, requested: {_shown(requested, exceeded)}, "
                f"used: {_shown(used, exceeded)}, limited: {_shown(hard, exceeded)}"
            )
        return requested

    # --- writing

    def _op(self, quota: Obj, more: Amounts, revision: int, now: str) -> Op:
        """Return the write that adds ``more`` to the quota's usage; negative amounts decrease it."""
        registry = self._registries.of("", "resourcequotas")
        before = orjson.loads(orjson.dumps(quota))
        used = pod_objects.amounts(quota["status"].get("used"))
        for name, need in more.items():
            total = used.get(name, ZERO) + need
            used[name] = total if total > ZERO else ZERO
        quota["status"]["used"] = {name: str(used[name]) for name in sorted(used)}
        entries = update(builtin("", "v1", "ResourceQuota"), before, quota, SELF, now=now, subresource="status")
        if entries:
            quota["metadata"]["managedFields"] = entries
        quota["metadata"].pop("resourceVersion", None)
        key = registry.key(quota["metadata"]["namespace"], quota["metadata"]["name"])
        return Op(key, registry.draft(quota), revision)

    # --- giving back

    def _ended(self, task: asyncio.Task[Any]) -> None:
        for charge in self._open.pop(task, ()):
            if charge.large:
                self._soon(self._settle(charge))
            elif not self._stored(charge):
                self._soon(self._give_back(charge))

    async def _settle(self, charge: Charge) -> None:
        """Refund the charge of a large object if it was not stored; the object is read in the thread pool."""
        if not await POOL.run(self._stored, charge):
            await self._give_back(charge)

    def _soon(self, refund: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(refund)
        self._refunds.add(task)
        task.add_done_callback(self._refunds.discard)
        return task

    async def _take_back(self, taking: asyncio.Task[None], charge: Charge) -> None:
        """Refund a charge whose request was cancelled, once it is known to be committed."""
        with contextlib.suppress(StoreError):  # nothing was charged, or the next recount corrects it
            await taking
            await self._give_back(charge)

    def _stored(self, charge: Charge) -> bool:
        """Return whether the object is stored with at least the charged usage; True for kinds without a registry."""
        a = charge.attributes
        try:
            obj = self._registries.get(a.group, a.resource, a.namespace, charge.name)
        except KeyError:
            return True
        if obj is None or obj["metadata"].get("uid") != charge.uid:
            return False
        now = self._evaluators.of(a.group, a.resource).usage(obj)
        return all(name in now and now[name] >= need for name, need in charge.usage.items())

    async def _give_back(self, charge: Charge) -> None:
        async with self._lock(charge.attributes.namespace):
            await self._return(charge)

    async def _return(self, charge: Charge) -> None:
        store, namespace = self._registries.store, charge.attributes.namespace
        charge = charge._replace(taken=dict(charge.taken))  # what is still to be refunded
        for _ in range(MAX_ATTEMPTS):
            records = await self._records(namespace)
            ops = await step(_large(records), self._returned, charge, records)
            try:
                for at in range(0, len(ops), store.most_ops):
                    piece = ops[at : at + store.most_ops]
                    await store.commit_many(piece)
                    for name in map(_quota, piece):
                        del charge.taken[name]
            except Conflict:
                continue
            return

    def _returned(self, charge: Charge, records: list[Any]) -> list[Op]:
        """Return the writes that refund the charge."""
        ops = []
        for rec in records:
            obj = object_of(rec)
            taken = charge.taken.get(obj["metadata"]["name"])
            if taken is not None:
                ops.append(self._op(obj, {name: -need for name, need in taken.items()}, rec.revision, charge.attributes.now))
        return ops


def _rest(store: Store, prefix: str, page: RangeResult) -> list[Any]:
    """Return the records after a page."""
    found = []
    while page.more:
        page = store.range(prefix, page.next_key, PAGE)
        found += page.records
    return found


def _quota(op: Op) -> str:
    return op.key.rpartition("/")[2]


def _large(records: list[Any]) -> bool:
    return sum(len(rec.json) for rec in records) >= LARGE


def _growth(usage: Amounts, before: Amounts) -> Amounts:
    return {name: need - before[name] if name in before else need for name, need in usage.items()}


def _positive(usage: Amounts) -> Amounts:
    return {name: need for name, need in usage.items() if need > ZERO}


def _shown(amounts: Amounts, names: list[str]) -> str:
    return ",".join(f"{name}={amounts.get(name, ZERO)}" for name in sorted(names) if name in amounts)

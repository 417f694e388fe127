"""Follows FlowSchemas and PriorityLevelConfigurations and maintains what is derived from them (apiserver's ``apf_controller.go``)."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from kas.endpoints.respond import too_many_requests
from kas.flowcontrol import limits
from kas.flowcontrol._engine import Board, Flow, Gate, Level, Queue, Stats, Ticket
from kas.flowcontrol.classification import Schema, Schemas, deal, flow_hash
from kas.flowcontrol.dropped import Dropped
from kas.flowcontrol.limits import Demand, Nominal
from kas.flowcontrol.metrics import FlowMetrics
from kas.flowcontrol.work import Work
from kas.informers import Source
from kas.informers.reflector import Reflector, sound, split_key
from kas.kinds.flowcontrol.mandatory import FLOW_SCHEMAS, PRIORITY_LEVELS
from kas.meta.waiting import TimeSlice
from kas.observe.caches import Budget
from kas.observe.metrics import Registry
from kas.request.http import Request, Response
from kas.store import Event, Record
from kas.store.shared import Shared

Obj = dict[str, Any]
T = TypeVar("T")

GROUP = "flowcontrol.apiserver.k8s.io"
SCHEMAS, LEVELS = "flowschemas", "prioritylevelconfigurations"
ADJUST_EVERY_S = 10.0
POLL_EVERY_S = 0.02
LONGEST_WAIT_S = 60.0
FLOWS_BUDGET, LONGEST_FLOW = 8 << 20, 4096
CATCH_ALL = "catch-all"
# With this many levels or more, the seats of unchanged levels are recomputed once an eighth of all levels has changed,
# or at the next adjustment: each level that comes or goes changes the seats of all others.
MANY_LEVELS = 64
MANY_CHANGED = 8  # all schemas are rebuilt if more than one in this many has changed


class FlowControl:
    """Flow control of one worker. Requests pass ``gate``; ``levels`` and ``stats`` are for observers.

    ``server_limit`` is the number of seats of all workers together. Worker 0 computes what levels borrow and
    publishes it in shared memory. The known objects are as new as the hub. Before the first list, and when the
    mandatory objects have been deleted, these apply nevertheless.
    """

    def __init__(self, shared: Shared, run_dir: Path, server_limit: int, work: Work, registry: Registry) -> None:
        self._shared, self.server_limit, self._lock = shared, server_limit, run_dir / "flowcontrol.lock"
        memory = shared.memory
        self.board = Board(memory.common(), [memory.table(i) for i in range(memory.workers)], memory.index)
        self.first = memory.index == 0
        self.work = work
        self.gate = Gate(self._classify, work.estimate, self._waits, self._refused)
        self.levels: dict[str, Level] = {}
        self.nominal: dict[str, Nominal] = {}
        self.demands: dict[str, Demand] = {}
        self.targets: dict[str, float] = {}
        self.fair_fraction = 0.0
        self.stats: dict[tuple[str, str], Stats] = {}
        self.dropped: dict[str, Dropped] = {}
        self._read: dict[str, Schema] = {}  # by name, as in force
        self._schemas = Schemas((), self.levels)
        self._uids: dict[str, str] = {}  # of levels, by name
        self._specs: dict[str, Obj] = {}
        self._stored: dict[str, Schema] = {}
        self._stored_levels: dict[str, Obj] = {}
        self._mandatory = {name: Schema(obj) for name, obj in _mandatory(FLOW_SCHEMAS).items()}
        self._all_levels = self._all_new = True  # whether all levels, or all schemas, may have changed
        self._changed: set[str] = set()  # names of schemas
        self._changed_levels: set[str] = set()
        self._shares: dict[str, int] = {}  # of levels, by name
        self._total_shares = 0
        self._changes_since_sharing = 0  # levels that have changed since the seats of all were computed
        self.leaving: list[Level] = []  # levels whose configuration was deleted, until they are idle
        self._flows: dict[Any, tuple[object, dict[Any, Flow]]] = {}
        what = "which flow requests belong to, by user, verb and resource"
        self._flows_budget = Budget("flow_control_flows", what, FLOWS_BUDGET, LONGEST_FLOW)
        self._polling = False
        self._waiting_levels: set[Level] = set()  # levels in which requests of this worker may wait
        FlowMetrics(registry, self)

    def start(self, source: Source, prefix_of: Callable[[str], str]) -> None:
        """Builds everything from the objects and follows them from here on; ``prefix_of(resource)`` is the prefix of their keys."""
        self._shared.woken.append(self._dispatch)
        for resource in (SCHEMAS, LEVELS):
            prefix = prefix_of(resource)
            Reflector(source, prefix, _Part(self, resource, prefix)).start()
        self.configure()  # there may be hundreds of large ones, and the first request, and all behind it, would wait

    # --- API objects

    def changed(self, resource: str, objects: Mapping[str, Obj | None], all_there_are: bool) -> None:
        """Takes the stored objects by name (None: deleted). ``all_there_are``: there are no others."""
        if resource == SCHEMAS:
            # Compiled as they come, and not all of them with the next request.
            read = {name: None if obj is None else Schema(obj) for name, obj in objects.items()}
            meant = _update(self._stored, read, all_there_are, lambda schema: None if schema is None else schema.says)
            self._all_new |= all_there_are
            self._changed.update(meant)
        else:
            meant = _update(self._stored_levels, objects, all_there_are, _meaning)
            self._all_levels |= all_there_are
            self._changed_levels.update(meant)
        if meant or all_there_are:  # a new status of an existing schema changes no flows
            self._forget()

    def forget(self, group: str, resource: str) -> None:
        """A custom resource definition was deleted: drops the cost of its requests. The flows of all users are
        dropped too; they would lie between the memory that the definition used and keep whole arenas from being
        returned."""
        self.work.forget(group, resource)
        self._forget()

    def _forget(self) -> None:
        self.gate.epoch = object()
        self._flows = {}
        self._flows_budget.size = 0

    def configure(self) -> None:
        """Applies the changes of the objects, without looking at unchanged ones, of which there may be thousands."""
        if self._all_levels or self._changed_levels:
            self._configure_changed_levels()
        # Where thousands come or go at once, one by one takes ten times as long as rebuilding all.
        if self._all_new or len(self._changed) * MANY_CHANGED > len(self._read) + MANY_CHANGED * MANY_CHANGED:
            self._all_new = False
            self._configure_schemas()
        else:
            for name in self._changed:
                self._configure_schema(name)
        self._changed.clear()

    def _configure_changed_levels(self) -> None:
        names, everything = self._changed_levels, self._all_levels
        self._changed_levels, self._all_levels = set(), False
        self._changes_since_sharing += len(names)
        if everything:
            names = {*self.levels, *self._stored_levels, *_mandatory(PRIORITY_LEVELS)}
        before = {name for name in names if name in self.levels}
        for name in names:
            self._update_level(name)
        if everything or len(self.levels) <= MANY_LEVELS or self._changes_since_sharing * 8 >= len(self.levels):
            self._share_out()
        else:
            for name in names & self.levels.keys():
                self._configure_level(name)
                if self.first:
                    self.levels[name].limit = limits.initial(self.nominal[name])
        self._close_idle()
        if before - self.levels.keys():
            self.stats = {key: one for key, one in self.stats.items() if key[1] in self.levels}

    def _update_level(self, name: str) -> None:
        """Creates or ends the level of a name, and counts its shares."""
        obj = self._stored_levels.get(name) or _mandatory(PRIORITY_LEVELS).get(name)
        self._total_shares -= self._shares.pop(name, 0)
        if obj is None:
            level = self.levels.pop(name, None)
            if level is not None:
                level.quiescing = True
                self.leaving.append(level)
            for kept in (self._specs, self._uids, self.nominal, self.demands, self.targets, self.dropped):
                kept.pop(name, None)
            return
        spec = self._specs[name] = obj.get("spec") or {}
        self._uids[name] = obj["metadata"].get("uid") or ""
        self._shares[name] = limits.shares(spec)
        self._total_shares += self._shares[name]
        if name not in self.levels:
            back = next((x for x in self.leaving if x.name == name), None)
            if back is not None:
                self.leaving.remove(back)
                back.quiescing = False
            self.levels[name] = back or self._level(name, spec.get("type") == "Exempt")

    def _share_out(self) -> None:
        """Computes the seats of every level."""
        self._changes_since_sharing = 0
        for name in self.levels:
            self._configure_level(name)
        if self.first:
            self._borrow()
            for level in self.levels.values():
                level.dispatch()

    def _configure_schemas(self) -> None:
        self._read = self._mandatory | self._stored
        self._schemas = Schemas(self._read.values(), self.levels)
        pairs = {(s.name, s.level) for s in self._schemas}
        self.stats = {key: one for key, one in self.stats.items() if key in pairs}

    def _configure_schema(self, name: str) -> None:
        """Applies the change of one schema, while the others stay as they are."""
        old, new = self._read.pop(name, None), self._stored.get(name) or self._mandatory.get(name)
        if old is not None:
            self._schemas.remove(old)
            if new is None or new.level != old.level:
                self.stats.pop((name, old.level), None)
        if new is not None:
            self._read[name] = new
            self._schemas.add(new)

    def _stats_of(self, schema: Schema) -> Stats:
        """The counters of a schema, created with the first request that belongs to it."""
        key = schema.name, schema.level
        found = self.stats.get(key)
        if found is None:
            found = self.stats[key] = Stats(*key)
        return found

    def _configure_level(self, name: str) -> None:
        level, spec = self.levels[name], self._specs[name]
        n = self.nominal[name] = limits.nominal(spec, self._total_shares, self.server_limit)
        level.configure(limits.queuing(spec))
        level.nominal, level.max_seats = n.nominal, n.max_seats
        if not level.is_set:
            level.limit = limits.initial(n)

    def _level(self, name: str, exempt: bool) -> Level:
        # Workers claim rows one at a time.
        with self._lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            row = self.board.claim(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") | 1)
        return Level(self.board, row, name, exempt, None, self)

    def _close_idle(self) -> None:
        for level in [x for x in self.leaving if x.idle]:
            level.close()
            self.leaving.remove(level)

    # --- borrowing

    def adjust(self) -> None:
        """Every ``ADJUST_EVERY_S`` seconds: publishes this worker's demand, and in worker 0 computes the seats of
        each level for the next period."""
        for _ in self._adjusting():
            pass

    async def adjust_in_turns(self) -> None:
        """Like ``adjust``, but lets other tasks run in between: there may be thousands of levels."""
        time_slice = TimeSlice()
        for _ in self._adjusting():
            if time_slice.over:
                await time_slice.pause()

    def _adjusting(self) -> Iterator[None]:
        """The steps of an adjustment, between which levels may come and go."""
        self.configure()
        if self._changes_since_sharing:
            self._changes_since_sharing = 0
            for name, _ in self._current_levels():
                self._configure_level(name)
                yield
        self._close_idle()
        for name, level in self._current_levels():
            level.publish_demand()
            if self.first:
                self.demands[name] = self.demands.get(name, Demand()).next(*level.total_demand())
            yield
        if self.first:
            self._borrow()
            for _, level in self._current_levels():
                level.dispatch()
                yield

    def _current_levels(self) -> Iterator[tuple[str, Level]]:
        """The levels that exist now, as long as they do."""
        return ((name, level) for name, level in list(self.levels.items()) if self.levels.get(name) is level)

    def _borrow(self) -> None:
        """Computes the seats of each level, which may start waiting requests."""
        if not self.demands:
            return
        demands = {name: self.demands.get(name) or Demand() for name in self.levels}
        exempt = {name for name, level in self.levels.items() if level.exempt}
        seats, self.targets, self.fair_fraction = limits.borrowed(self.nominal, exempt, demands)
        for name, level in self.levels.items():
            level.limit = max(1, seats[name])

    # --- requests

    def _classify(self, req: Request) -> Flow:
        """The flow of a request, remembered with its user."""
        self.configure()
        user, info = req.user, req.info
        kept = self._flows.get(user.key)
        if kept is None:
            if not self._flows_budget.take(2 * user.length, 2 + len(user.groups)):
                self._forget()
            kept = self._flows[user.key] = (self.gate.epoch, {})
        user.flows = kept
        key = (info.verb, info.api_group, info.resource, info.subresource, info.namespace) if info.is_resource_request else (
            info.verb, req.path
        )  # fmt: skip
        found = kept[1].get(key)
        if found is not None:
            return found
        found = self._flow_of(req, kept[1])
        length = sum(map(len, key)) + len(found.distinguisher)
        if length <= LONGEST_FLOW:
            if not self._flows_budget.take(length, 2):
                self._forget()  # this flow is the last one with the old epoch
            kept[1][key] = found
        return found

    def _flow_of(self, req: Request, known: dict[Any, Flow]) -> Flow:
        """Returns the flow of a request. Requests with the same schema and distinguisher share one, which is in
        ``known`` if the user has it."""
        schema = self._schemas.first(req)
        if schema is None:  # every user is in one of the two groups, except one whose certificate names a group itself
            schema = next(s for s in self._schemas if s.name == CATCH_ALL)
        distinguisher = schema.distinguisher(req)
        found = known.get((schema, distinguisher))
        if found is not None:
            return found
        level = self.levels[schema.level]
        hand: tuple[int, ...] = ()
        if level.queued:
            hand = deal(flow_hash(schema.name, distinguisher), level.queues, min(level.hand_size, level.queues))
        headers = [
            (b"x-kubernetes-pf-flowschema-uid", schema.uid.encode()),
            (b"x-kubernetes-pf-prioritylevel-uid", self._uids[schema.level].encode()),
        ]
        flow = Flow(level, self._stats_of(schema), distinguisher, hand, headers)
        if len(distinguisher) <= LONGEST_FLOW and self._flows_budget.take(len(distinguisher)):
            known[schema, distinguisher] = flow
        return flow

    def _refused(self, ticket: Ticket) -> Response:
        """429 with upstream's text; the headers name the level that has no room, and when to retry."""
        dropped = self.dropped.setdefault(ticket.flow.level.name, Dropped())
        dropped.note()
        return too_many_requests(dropped.retry_after_s)

    def _waits(self, ticket: Ticket) -> Any:
        loop = asyncio.get_running_loop()
        ticket.future = loop.create_future()
        if not self._polling and self.board.workers > 1:
            self._polling = True
            loop.call_later(POLL_EVERY_S, self._poll)
        # A request is tried when it arrives; the next try is when seats are released, which may have happened by now.
        self._waiting_levels.add(ticket.flow.level)
        ticket.flow.level.dispatch()
        if ticket.future.done():
            self.gate.left_queue(ticket, True)
            return None
        return self._wait(ticket, ticket.request, loop)

    async def _wait(self, ticket: Ticket, req: Request | None, loop: asyncio.AbstractEventLoop) -> Response | None:
        """Waits for the request's turn, for a quarter of the request's time limit and a minute at most."""
        assert req is not None
        limit = min((req.deadline - req.started) / 4, LONGEST_WAIT_S) - (time.monotonic() - req.started)
        timer = loop.call_later(max(0.0, limit), _time_out, ticket)
        runs = False
        try:
            runs = await ticket.future
        except asyncio.CancelledError:
            runs = not ticket.cancel("cancelled")
            raise
        finally:
            timer.cancel()
            self.gate.left_queue(ticket, runs)
            req.waited_s += time.monotonic() - ticket.arrived
        return None if runs else self._refused(ticket)

    # --- callbacks of the engine

    def later(self, seconds: float, level: Level, queue: Queue | None, seats: int) -> None:
        """Schedules the release of seats of a level in so many seconds."""
        loop = _loop()
        if loop is None:
            level.give_back(queue, seats)
        else:
            loop.call_later(seconds, level.give_back, queue, seats)

    def wake(self, worker: int) -> None:
        """Wakes a worker that may get seats now."""
        self._shared.wake(worker)

    def _dispatch(self) -> None:
        for level in [x for x in self._waiting_levels if not x.waits]:
            self._waiting_levels.discard(level)
        for level in list(self._waiting_levels):
            level.dispatch()

    def _poll(self) -> None:
        """Looks for seats that other workers have released every ``POLL_EVERY_S``, in case a wake-up is lost."""
        self._dispatch()
        self._polling = any(level.waits for level in self._waiting_levels)
        if self._polling:
            asyncio.get_running_loop().call_later(POLL_EVERY_S, self._poll)


class _Part:
    """One resource, as a reflector's target. The objects are few and are compiled when the next request comes, which
    must not fail for one of them."""

    def __init__(self, control: FlowControl, resource: str, prefix: str) -> None:
        self._control, self._resource, self._prefix = control, resource, prefix

    def replace(self, records: Sequence[Record]) -> None:
        found = {split_key(self._prefix, rec.key)[1]: obj for rec in records if (obj := sound(rec)) is not None}
        self._control.changed(self._resource, found, True)

    def apply(self, events: Sequence[Event]) -> None:
        there = {split_key(self._prefix, e.key)[1]: e.record for e in events}
        self._control.changed(self._resource, {name: None if rec is None else sound(rec) for name, rec in there.items()}, False)


def _update(known: dict[str, T], objects: Mapping[str, T | None], all_there_are: bool, says: Callable[[T | None], Any]) -> set[str]:
    """Updates ``known`` with the stored objects (None: deleted). Returns the names of those that differ by ``says``;
    the others keep the known object."""
    meant = {name for name, obj in objects.items() if says(known.get(name)) != says(obj)}
    if all_there_are:
        for name in known.keys() - objects.keys():
            del known[name]
    for name in meant:
        obj = objects[name]
        if obj is None:
            known.pop(name, None)
        else:
            known[name] = obj
    return meant


def _meaning(obj: Obj | None) -> tuple[Any, Any] | None:
    """What counts of an object: its identity and its spec."""
    return None if obj is None else (obj["metadata"].get("uid"), obj.get("spec"))


def _loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _time_out(ticket: Ticket) -> None:
    # A request that was cancelled, but has not noticed yet, leaves the queue by itself.
    if not ticket.future.done() and ticket.cancel("time-out"):
        ticket.future.set_result(False)


def _mandatory(specs: Mapping[str, Obj]) -> dict[str, Obj]:
    """The mandatory objects, as they are while they are not stored."""
    return {name: {"metadata": {"name": name}, "spec": spec} for name, spec in specs.items()}

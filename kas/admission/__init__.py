"""The admission chain: mutating plug-ins, then validating ones, look at what is about to be written.

Order is upstream's (``kas/admission/order.py``), mutating before validating. Plug-ins are given what they name in their constructor
(``kas/admission/initializer.py``); they know objects and strategies, never HTTP and never the server.
"""

from __future__ import annotations

from array import array
from collections.abc import Awaitable, Callable, Sequence
from itertools import product
from math import inf
from time import monotonic
from typing import Any, Protocol

from kas._fastpath import PluginChain
from kas.auth.user import UserInfo
from kas.meta import errors
from kas.meta.field import FieldError
from kas.meta.stored import Stored
from kas.meta.waiting import awaited
from kas.registry.admission import Forms, Made

CREATE, UPDATE, DELETE, CONNECT = "CREATE", "UPDATE", "DELETE", "CONNECT"
MUCH = 500  # entries: who adds as many to an object makes what comes next long work


class Reinvocation:
    """Upstream's ``ReinvocationContext``, for plug-ins with ``reinvocationPolicy: IfNeeded``.

    ``values`` keeps, by plug-in, what it wants to know in the second turn (the object as it left it). A plug-in that changed the object
    after such another ran sets ``required``: then all mutating plug-ins run once more, with ``again`` set, and no more than once.
    """

    __slots__ = ("again", "required", "values")

    def __init__(self) -> None:
        self.again = self.required = False
        self.values: dict[str, Any] = {}

    def due(self) -> bool:
        """Whether the mutating plug-ins are to run again; begins that turn."""
        if not self.required or self.again:
            return False
        self.again = True
        return True


def _nobody(who: str, seconds: float) -> None:
    """Nobody counts it."""


class Attributes:
    """What is about to happen. ``obj`` and ``old`` are dicts in ``version``, the one of the request; a mutating plug-in changes ``obj``.

    ``options`` are the decoded options of the verb; ``reinvocation`` is there once a plug-in has asked for it. ``deadline`` is when the
    request has to be answered, by ``time.monotonic``; ``bodies_recorded`` whether the audit log shows what was sent, so that an annotation
    may, too; ``waited(seconds)`` is told how long webhooks took; ``verb`` is the request's, which tells a patch from an update. ``grown``
    says that a plug-in has added ``MUCH`` to ``obj``.

    ``forms``, for validating plug-ins where ``obj`` is small and what will be stored, gives its stored form and, where that is found by the
    way, its JSON; who needs the JSON keeps both in ``made``, and the write goes on with them. ``replaced`` is what holds ``old`` as JSON.
    """

    # None where the operation has none (CREATE has no old, CONNECT and DELETE no obj). A plug-in rules these operations out in
    # ``handles``, which a type checker cannot follow; the Any keeps it from asking each of them again, not from checking the dict.
    obj: dict[str, Any] | Any
    old: dict[str, Any] | Any
    # What most requests do not have set.
    reinvocation: Reinvocation | None = None
    deadline, bodies_recorded, grown, verb = inf, False, False, ""
    waited: Callable[[str, float], None] = staticmethod(_nobody)
    forms: Forms | None = None
    made: Made | None = None
    replaced: Stored | None = None

    def __init__(
        self, operation: str, group: str, version: str, resource: str, subresource: str, kind: str, namespace: str, name: str,
        obj: dict[str, Any] | None, old: dict[str, Any] | None, user: UserInfo, options: dict[str, Any], dry_run: bool, now: str,
        warn: Callable[[str], None], annotate: Callable[[str, str], bool],
    ) -> None:  # fmt: skip
        self.operation, self.group, self.version, self.resource, self.subresource = operation, group, version, resource, subresource
        self.kind, self.namespace, self.name, self.obj, self.old = kind, namespace, name, obj, old
        self.user, self.options, self.dry_run, self.now, self.warn, self.annotate = user, options, dry_run, now, warn, annotate

    def adds(self, entries: int) -> None:
        """A plug-in adds so many list entries or keys to ``obj``: what came small may be large now."""
        if entries >= MUCH:
            self.grown = True

    def reinvoked(self) -> Reinvocation:
        """The state of this request's reinvocation, made when first asked for."""
        if self.reinvocation is None:
            self.reinvocation = Reinvocation()
        return self.reinvocation

    def forbid(self, why: str) -> errors.ApiError:
        """``admission.NewForbidden``: names the object, or its generateName, or neither."""
        meta = (self.obj or {}).get("metadata") or {}
        name = self.name or meta.get("name") or ""
        if not name and meta.get("generateName"):
            name = meta["generateName"]
        return errors.forbidden(self.group, self.resource, name or "Unknown", why)


class Plugin(Protocol):
    """A plug-in: ``admit(attributes)`` changes what is about to be written, ``validate(attributes)`` looks at what it became; it has
    one or both. Each returns None or an awaitable, and refuses by raising ApiError.

    What ``handles`` says may depend on operation, group, resource and subresource only: it is asked once for each. A plug-in that may
    change its mind has ``on_change(changed)`` and calls ``changed`` then: so what nobody has configured costs the requests nothing.

    One that has ``of_storage`` (a true class attribute) looks at what upstream's storage does: it is heard when the kind's own rules refuse
    an object, too, and told of before them.

    One that has ``asks_webhooks`` (a true class attribute) waits for other servers, which can be asked so much at a time.

    ``guard`` is what upstream's storage asks before it looks at the object at all: behind every ``admit``, before the kind's own rules.
    """

    name: str

    def handles(self, a: Attributes) -> bool:
        """Whether the plug-in wants to see this request."""


class Timer(Protocol):
    """Counts what one sort of step took. ``row`` is None until there is something to show of it; then what took no longer than
    ``quick_s`` may be counted in its first and its last number (how often, how long together) without a call."""

    row: array[float] | None
    quick_s: float

    def add(self, seconds: float) -> None:
        """Count one step that took this long."""


# (plug-in or "" for all of them, "admit" or "validate", operation, whether it refused) -> what counts the seconds
Timers = Callable[[str, str, str, bool], Timer]
# (plug-in's name, what it does, what counts the seconds it took without refusing)
Steps = tuple[tuple[str, Callable[[Attributes], Any], Timer | None], ...]
Plan = tuple[Steps, Timer | None]  # and what counts all of them together
Left = tuple[Steps, Awaitable[None], float]  # steps, what the first of them waits for, since when


# Plans that are remembered: 2,000 definitions in use have four each. When there are more, all are made again.
PLANS = 10_000


class Chain(PluginChain):
    """The plug-ins that are on, in order. ``timers`` feeds the metrics."""

    def __init__(self, plugins: Sequence[Plugin], timers: Timers | None = None) -> None:
        self.plugins, self._timers = plugins, timers
        self._cache: dict[tuple[str, str, str, str], tuple[Plan, Plan]] = {}
        for plugin in plugins:
            if hasattr(plugin, "on_change"):
                plugin.on_change(self._cache.clear)

    def _plan(self, a: Attributes) -> tuple[Plan, Plan]:
        key = (a.operation, a.group, a.resource, a.subresource)
        plan = self._cache.get(key)
        if plan is None:
            if len(self._cache) >= PLANS:
                self._cache.clear()
            on = [p for p in self.plugins if p.handles(a)]
            first = self._steps(on, "admit", a) + self._steps(on, "guard", a)
            plan = self._cache[key] = (first, self._whole("admit", a)), (self._steps(on, "validate", a), self._whole("validate", a))
        return plan

    def _whole(self, what: str, a: Attributes) -> Timer | None:
        return self._timers("", what, a.operation, False) if self._timers is not None else None

    def asks_webhooks(self, a: Attributes) -> bool:
        """Whether other servers are asked about such requests."""
        return any(getattr(p, "asks_webhooks", False) and p.handles(a) for p in self.plugins)

    def forget(self, group: str, resource: str) -> None:
        """A resource is no more: definitions that come and go would leave a plan each."""
        for operation, subresource in product((CREATE, UPDATE, DELETE), ("", "status", "scale")):
            self._cache.pop((operation, group, resource, subresource), None)

    def _steps(self, plugins: list[Plugin], what: str, a: Attributes) -> Steps:
        timers, timed = self._timers, "admit" if what == "guard" else what
        return tuple(
            (p.name, getattr(p, what), timers(p.name, timed, a.operation, False) if timers is not None else None)
            for p in plugins
            if hasattr(p, what)
        )

    async def mutate(self, a: Attributes) -> None:
        """``start_mutate`` to its end; ApiError of the plug-in that refuses."""
        pending = self.start_mutate(a)
        if pending is not None:
            await pending

    async def validate(self, a: Attributes) -> None:
        """``start_validate`` to its end; ApiError of the plug-in that refuses."""
        pending = self.start_validate(a)
        if pending is not None:
            await pending

    async def found_by_storage(self, a: Attributes) -> list[FieldError]:
        """The field errors of the plug-ins that upstream has in its storage (``of_storage``). Raises what else they refuse with."""
        found: list[FieldError] = []
        for p in self.plugins:
            if getattr(p, "of_storage", False) and p.handles(a):
                try:
                    await awaited(p.validate(a))  # type: ignore[attr-defined]
                except errors.Invalid as e:
                    found += e.found
        return found

    def start_mutate(self, a: Attributes) -> Awaitable[None] | None:
        """``mutate`` as far as it goes without waiting; None when that was all of it, else the rest, to be awaited."""
        plan = self._cache.get((a.operation, a.group, a.resource, a.subresource)) or self._plan(a)
        return self._all(plan[0], "admit", a)

    def start_validate(self, a: Attributes) -> Awaitable[None] | None:
        """``validate``, likewise."""
        plan = self._cache.get((a.operation, a.group, a.resource, a.subresource)) or self._plan(a)
        return self._all(plan[1], "validate", a)

    def _stopped(self, name: str, what: str, a: Attributes, began: float, error: Exception) -> None:
        """A plug-in has raised this."""
        if isinstance(error, errors.ApiError):
            self._refused(name, what, a, began)

    def _refused(self, name: str, what: str, a: Attributes, began: float) -> None:
        if self._timers is not None:
            self._timers(name, what, a.operation, True).add(monotonic() - began)

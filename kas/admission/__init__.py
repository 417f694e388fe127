"""The admission chain: mutating plug-ins, then validating plug-ins, examine an object before it is written.

The order is upstream's (``kas/admission/order.py``). Plug-ins receive the dependencies that their constructor names
(``kas/admission/initializer.py``). They know objects and strategies, but neither HTTP nor the server.
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
MUCH = 500  # entries; a plug-in that adds this many makes the following steps long work


class Reinvocation:
    """Upstream's ``ReinvocationContext``, for plug-ins with ``reinvocationPolicy: IfNeeded``.

    ``values`` holds, by plug-in, what it needs in the second round (the object as it left it). A plug-in that changes the object after
    another such plug-in ran sets ``required``. Then all mutating plug-ins run once more, with ``again`` set, but never a third time.
    """

    __slots__ = ("again", "required", "values")

    def __init__(self) -> None:
        self.again = self.required = False
        self.values: dict[str, Any] = {}

    def due(self) -> bool:
        """Return whether the mutating plug-ins must run again; if so, begin that round."""
        if not self.required or self.again:
            return False
        self.again = True
        return True


def _nobody(who: str, seconds: float) -> None:
    """Ignore the time: the default of ``Attributes.waited``."""


class Attributes:
    """The operation to be admitted.

    ``obj`` and ``old`` are dicts in ``version``, the version of the request; a mutating plug-in changes ``obj``. ``options`` are the
    decoded options of the verb; ``verb`` is the request's, which tells a patch from an update.

    - ``reinvocation`` is set once a plug-in has called ``reinvoked``.
    - ``deadline`` is when the request must be answered, by ``time.monotonic``.
    - ``bodies_recorded`` says that the audit log records request bodies, so that annotations may contain them, too.
    - ``waited(kind, seconds)`` is called with the time spent in webhooks.
    - ``grown`` says that a plug-in added at least ``MUCH`` entries to ``obj``.
    - ``forms``, set for validating plug-ins if ``obj`` is small and is what will be stored, returns its stored form and, if it is a
      by-product, its JSON. A plug-in that needs the JSON keeps both in ``made``, and the write reuses them.
    - ``replaced`` holds ``old`` as JSON.
    """

    # None if the operation has none (CREATE has no old, CONNECT and DELETE no obj). A plug-in rules such operations out in ``handles``,
    # which a type checker cannot follow. The Any spares the plug-ins further None checks; uses as a dict are still checked.
    obj: dict[str, Any] | Any
    old: dict[str, Any] | Any
    # Defaults for attributes that most requests do not set.
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
        """Record that a plug-in adds this many list entries or keys to ``obj``, which may make a small object large."""
        if entries >= MUCH:
            self.grown = True

    def reinvoked(self) -> Reinvocation:
        """Return the state of this request's reinvocation, created on first use."""
        if self.reinvocation is None:
            self.reinvocation = Reinvocation()
        return self.reinvocation

    def forbid(self, why: str) -> errors.ApiError:
        """Return the 403 of ``admission.NewForbidden``, which names the object, or its generateName, or neither."""
        meta = (self.obj or {}).get("metadata") or {}
        name = self.name or meta.get("name") or ""
        if not name and meta.get("generateName"):
            name = meta["generateName"]
        return errors.forbidden(self.group, self.resource, name or "Unknown", why)


class Plugin(Protocol):
    """A plug-in has ``admit(attributes)``, which may change the object, or ``validate(attributes)``, which examines the result, or both.
    Each returns None or an awaitable, and refuses the request by raising ApiError.

    - The result of ``handles`` may only depend on operation, group, resource and subresource, since it is cached by them. A plug-in whose
      result may change has ``on_change(changed)`` and calls ``changed`` then. So a plug-in without configuration costs requests nothing.
    - ``of_storage`` (a true class attribute) marks what upstream's storage does: it also runs when the kind's own validation fails, and
      its errors come before those.
    - ``asks_webhooks`` (a true class attribute) marks a plug-in that waits for other servers, whose concurrent calls are limited.
    - ``guard`` is what upstream's storage checks before it looks at the object: after every ``admit``, before the kind's own validation.
    """

    name: str

    def handles(self, a: Attributes) -> bool:
        """Return whether the plug-in is called for such requests."""


class Timer(Protocol):
    """Records the duration of one kind of step. ``row`` is None until there is data; then a duration of at most ``quick_s`` may be
    recorded by adding to its first and last number (count and sum) without a call."""

    row: array[float] | None
    quick_s: float

    def add(self, seconds: float) -> None:
        """Record the duration of one step."""


# (plug-in or "" for the whole phase, "admit" or "validate", operation, rejected) -> the Timer that records the duration
Timers = Callable[[str, str, str, bool], Timer]
# (plug-in's name, its method, the Timer of calls that did not reject)
Steps = tuple[tuple[str, Callable[[Attributes], Any], Timer | None], ...]
Plan = tuple[Steps, Timer | None]  # the steps, and the Timer of the whole phase
Left = tuple[Steps, Awaitable[None], float]  # remaining steps, the awaitable of the first of them, its start time


# Maximum of cached plans: 2,000 custom resource definitions in use have four each. When it is reached, the cache is cleared.
PLANS = 10_000


class Chain(PluginChain):
    """The enabled plug-ins, in order. ``timers`` feeds the metrics."""

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
        """Return whether admission of such requests may call other servers."""
        return any(getattr(p, "asks_webhooks", False) and p.handles(a) for p in self.plugins)

    def forget(self, group: str, resource: str) -> None:
        """Drop the plans of a deleted resource; otherwise definitions that are created and deleted would each leave some behind."""
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
        """Run all mutating plug-ins. Raises the ApiError of a plug-in that refuses."""
        pending = self.start_mutate(a)
        if pending is not None:
            await pending

    async def validate(self, a: Attributes) -> None:
        """Run all validating plug-ins. Raises the ApiError of a plug-in that refuses."""
        pending = self.start_validate(a)
        if pending is not None:
            await pending

    async def found_by_storage(self, a: Attributes) -> list[FieldError]:
        """Return the field errors of the plug-ins that are part of upstream's storage (``of_storage``). Raises their other refusals."""
        found: list[FieldError] = []
        for p in self.plugins:
            if getattr(p, "of_storage", False) and p.handles(a):
                try:
                    await awaited(p.validate(a))  # type: ignore[attr-defined]
                except errors.Invalid as e:
                    found += e.found
        return found

    def start_mutate(self, a: Attributes) -> Awaitable[None] | None:
        """Run the mutating plug-ins as far as possible without waiting. Return None if all ran, else an awaitable of the rest."""
        plan = self._cache.get((a.operation, a.group, a.resource, a.subresource)) or self._plan(a)
        return self._all(plan[0], "admit", a)

    def start_validate(self, a: Attributes) -> Awaitable[None] | None:
        """Run the validating plug-ins in the same way."""
        plan = self._cache.get((a.operation, a.group, a.resource, a.subresource)) or self._plan(a)
        return self._all(plan[1], "validate", a)

    def _stopped(self, name: str, what: str, a: Attributes, began: float, error: Exception) -> None:
        """Record the error that a plug-in raised."""
        if isinstance(error, errors.ApiError):
            self._refused(name, what, a, began)

    def _refused(self, name: str, what: str, a: Attributes, began: float) -> None:
        if self._timers is not None:
            self._timers(name, what, a.operation, True).add(monotonic() - began)

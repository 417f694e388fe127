"""The configured webhooks: each configuration compiled once, followed as it changes, in call order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

from kas.admission import Attributes
from kas.admission.lazycompile import LazyCompile
from kas.admission.matching import ANY, GROUP, MOST_STEPS, Equivalents, Matcher, beyond_webhooks
from kas.admission.nameindex import NameIndex
from kas.informers import Informers
from kas.informers.reflector import split_key
from kas.meta.stored import object_of
from kas.store import Event, Record

if TYPE_CHECKING:
    from kas.admission.expressions import MatchConditions
    from kas.admission.webhook.review import Reviews

Obj = dict[str, Any]
REVIEW_VERSIONS = ("v1", "v1beta1")
NO_SIDE_EFFECTS = frozenset(("None", "NoneOnDryRun"))
DEFAULT_TIMEOUT_S = 10
ALL = ""  # the key of all configurations, which is no resource


class Hook:
    """One webhook of a configuration; ``place`` is its position there.

    ``uid`` identifies it among all webhooks. ``version`` is the version of the reviews it receives, "" if it accepts no known one.
    ``dry_run`` says whether it may be called in a dry run, None if it does not say.
    """

    def __init__(self, configuration: str, uid: str, spec: Mapping[str, Any], place: int) -> None:
        self.configuration, self.uid, self.name, self.place = configuration, uid, spec.get("name") or "", place
        self.matcher = Matcher(spec, spec.get("rules") or ())
        self.ignore = spec.get("failurePolicy") == "Ignore"
        self.timeout_s = float(spec.get("timeoutSeconds") or DEFAULT_TIMEOUT_S)
        effects = spec.get("sideEffects")
        self.dry_run: bool | None = None if effects is None else effects in NO_SIDE_EFFECTS
        self.version = next((v for v in spec.get("admissionReviewVersions") or () if v in REVIEW_VERSIONS), "")
        self.client_config: Mapping[str, Any] = spec.get("clientConfig") or {}
        from kas.client.hooks import client_key  # imports the HTTP client: only with a webhook, but before the first request

        self.client_key = client_key(self.client_config)
        self.if_needed = spec.get("reinvocationPolicy") == "IfNeeded"
        self._conditions: Sequence[Mapping[str, Any]] = spec.get("matchConditions") or ()
        self.conditional = bool(self._conditions)
        self._compiled: MatchConditions | None = None
        self.reviews: Reviews | None = None  # set by the caller

    @property
    def conditions(self) -> MatchConditions | None:
        """The match conditions, None without any."""
        if self._conditions and self._compiled is None:
            from kas.admission.expressions import MatchConditions  # CEL is large, and few webhooks have conditions

            self._compiled = MatchConditions(self._conditions)
        return self._compiled


class Hooks:
    """All webhooks of one kind of configuration: those from files first, then by the configurations' names and their order there. A
    reflector's target.

    ``changed`` is called after each change.
    """

    def __init__(self, resource: str, informers: Informers, equivalents: Equivalents) -> None:
        self.equivalents = equivalents
        self._by_name: dict[str, tuple[Hook, ...]] = {}
        self._static: tuple[Hook, ...] = ()
        self._named = NameIndex()  # configurations by the resources that their rules name, and all under ALL
        self._before: dict[str, int] = {}  # number of webhooks before a configuration's, by name; empty if not computed
        self.changed: Callable[[], None] = lambda: None
        self.uncompiled = LazyCompile(_compiled, self._put, self._arranged)
        self._follow = informers.follow(GROUP, resource, self)

    def handle(self, a: Attributes) -> bool:
        """Return whether any webhook may match requests of this operation, group, resource and subresource. Raises the errors of reading
        the store."""
        self._follow()
        if self.uncompiled and not beyond_webhooks(a):
            return True
        if not self._by_name and not self._static:  # as on most servers, at each write
            return False
        left = MOST_STEPS
        for hook in self.of(a):
            if left < 0 or hook.matcher.may_match(a, self.equivalents):  # with that many, the dispatchers yield in between
                return True
            left -= hook.matcher.steps
        return False

    def of(self, a: Attributes) -> Iterator[Hook]:
        """Yield the webhooks of configurations that name the request's resource, in call order; for admission configurations only those
        from files.

        All pending configurations must be read first, and the iteration must not be interrupted: a caller that yields to other tasks
        takes all first.
        """
        yield from self._static
        for name in () if beyond_webhooks(a) else self._named.of(a.resource, ANY):
            yield from self._by_name[name]

    def index(self, hook: Hook) -> int:
        """Return the position of a webhook among all, matching or not."""
        if hook in self._static:
            return self._static.index(hook)
        if not self._before:
            names = self._named.of(ALL)
            ends = accumulate((len(self._by_name[name]) for name in names), initial=len(self._static))
            self._before = dict(zip(names, ends, strict=False))  # the last end is the total
        return self._before.get(hook.configuration, 0) + hook.place

    def use(self, objects: Mapping[str, Sequence[Obj]]) -> Callable[[], None]:
        """Compile the configurations from files, by kind, in any thread; the returned function puts them into effect."""
        static = tuple(hook for of in objects.values() for obj in of for hook in _hooks(obj, "manifest/"))

        def put() -> None:
            self._static = static
            self._arranged()

        return put

    # --- the target

    def replace(self, records: Sequence[Record]) -> None:
        """Start over with these configurations, which are all there are."""
        self._by_name.clear()
        self._named = NameIndex()
        self.uncompiled.clear()
        for record in records:
            self._take(record.key, record)
        self._arranged()
        hooks = chain(self._static, *self._by_name.values())
        if (conditional := next((hook for hook in hooks if hook.conditional), None)) is not None:
            assert conditional.conditions  # imports CEL before requests come

    def apply(self, events: Sequence[Event]) -> None:
        """Apply the changes in order."""
        for e in events:
            self._take(e.key, e.record)
        self._arranged()

    def _take(self, key: str, record: Record | None) -> None:
        name = self.uncompiled.take(key, record)
        if name and record is not None:
            self._put(name, _compiled(record))
        else:
            self._drop(split_key("", key)[1])

    def _put(self, name: str, hooks: tuple[Hook, ...]) -> None:
        self._drop(name)
        self._by_name[name] = hooks
        self._named.put(name, _names(hooks))

    def _drop(self, name: str) -> None:
        if (before := self._by_name.pop(name, None)) is not None:
            self._named.drop(name, _names(before))

    def _arranged(self) -> None:
        self._before = {}
        self.changed()


def _names(hooks: Sequence[Hook]) -> frozenset[str]:
    return frozenset((ALL,)).union(*(hook.matcher.resources for hook in hooks))


def _compiled(record: Record) -> tuple[Hook, ...]:
    return _hooks(object_of(record))


def _hooks(obj: Obj, source: str = "") -> tuple[Hook, ...]:
    configuration = obj["metadata"]["name"]
    seen: Counter[str] = Counter()
    hooks = []
    for place, spec in enumerate(obj.get("webhooks") or ()):
        name = spec.get("name") or ""
        # Objects stored long ago may contain a name twice.
        hooks.append(Hook(configuration, f"{source}{configuration}/{name}/{seen[name]}", spec, place))
        seen[name] += 1
    return tuple(hooks)

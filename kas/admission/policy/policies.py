"""The policies that are configured and bound, followed as they change, and those of them that a request is about."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kas.admission import Attributes
from kas.admission.configuration import DIRECTORY, Section, versioned
from kas.admission.initializer import RESTMapper
from kas.admission.lazycompile import LazyCompile
from kas.admission.matching import ANY, GROUP, MOST_STEPS, Equivalents, Invocation, Namespaces, beyond_policies, is_policy, namespace_of
from kas.admission.nameindex import NameIndex
from kas.admission.policy.params import ParamError, Params
from kas.admission.versioned import Versioned
from kas.informers import Informers, Objects
from kas.informers.reflector import split_key
from kas.meta.errors import ApiError
from kas.meta.records import NamedTuple
from kas.meta.stored import object_of
from kas.meta.waiting import TimeSlice
from kas.observe.metrics import Registry as Metrics
from kas.registry.registries import Registries
from kas.store import Event, Record
from kas.types.configfile import STRING, Struct

if TYPE_CHECKING:
    from kas.admission.manifests import Manifests
    from kas.admission.policy.compiled import Binding, Policy

Obj = dict[str, Any]
T = TypeVar("T")
_Bound = Iterable[tuple["Policy", Iterable["Binding"]]]


def _policy(obj: Obj) -> Policy:
    from kas.admission.policy.compiled import Policy  # CEL is large, and most servers never see a policy

    return Policy(obj)


def _binding(obj: Obj) -> Binding:
    from kas.admission.policy.compiled import Binding

    return Binding(obj)


class _Compiled(Generic[T]):
    """One of the two resources, each object compiled once, and ``named`` by what ``names`` says of it. A reflector's target."""

    def __init__(self, make: Callable[[Obj], T], names: Callable[[T], Iterable[str]], changed: Callable[[], None]) -> None:
        self._make, self._names, self._changed = make, names, changed
        self.by_name: dict[str, T] = {}
        self.named = NameIndex()
        self.unread = LazyCompile(self._compiled, self._put, changed)

    def replace(self, records: Sequence[Record]) -> None:
        """Starts over with these objects, which are all there are."""
        self.by_name.clear()
        self.named = NameIndex()
        self.unread.clear()
        for record in records:
            self._take(record.key, record)
        self._changed()

    def apply(self, events: Sequence[Event]) -> None:
        """Takes in what was written and deleted, in order."""
        for e in events:
            self._take(e.key, e.record)
        self._changed()

    def _take(self, key: str, record: Record | None) -> None:
        name = self.unread.take(key, record)
        if name and record is not None:
            self._put(name, self._compiled(record))
        else:
            self._drop(split_key("", key)[1])

    def _put(self, name: str, made: T) -> None:
        self._drop(name)
        self.by_name[name] = made
        self.named.put(name, self._names(made))

    def _drop(self, name: str) -> None:
        if (before := self.by_name.pop(name, None)) is not None:
            self.named.drop(name, self._names(before))

    def _compiled(self, record: Record) -> T:
        return self._make(object_of(record))


class ConfigurationFault(NamedTuple):
    """Something is wrong with a policy, or with a binding of it, that matches."""

    policy: Policy
    binding: Binding | None
    message: str
    reason: str = ""


class Found(NamedTuple):
    """A policy that is to be evaluated, in which version, with which parameters."""

    policy: Policy
    binding: Binding
    told: Invocation
    param: Obj | None

    @property
    def key(self) -> tuple[str, ...]:
        """What it is known by, as long as a request lasts."""
        meta = (self.param or {}).get("metadata") or {}
        return self.policy.name, self.binding.name, meta.get("namespace") or "", meta.get("name") or ""


class Policies:
    """The policies of one kind (``mutating`` or ``validating``), those from files first. Each request is shown to those that are bound."""

    def __init__(
        self, kind: str, informers: Informers, objects: Objects, mapper: RESTMapper, equivalents: Equivalents
    ) -> None:
        self.kind = kind
        self.resources = f"{kind}admissionpolicies", f"{kind}admissionpolicybindings"
        self.equivalents = equivalents
        self.spaces = Namespaces(informers, objects)
        self._params = Params(objects, informers, mapper, equivalents)
        self.changed: Callable[[], None] = lambda: None
        self._policies = _Compiled(_policy, lambda policy: policy.matcher.resources, self._arranged)
        self._bindings = _Compiled(_binding, lambda binding: (binding.policy,), self._arranged)
        self._static: _Bound = ()
        policies, bindings = self.resources
        self._follow = informers.follow(GROUP, policies, self._policies), informers.follow(GROUP, bindings, self._bindings)

    def handle(self, a: Attributes) -> bool:
        """Whether any policy may be about requests like this one. Raises what the store raises that cannot be read."""
        for follow in self._follow:
            follow()
        if (self._policies.unread or self._bindings.unread) and not beyond_policies(a):
            return True
        if not self._bindings.by_name and not self._static:  # as on most servers, at each write
            return False
        left = MOST_STEPS
        for policy, bindings in self._of(a):
            left -= policy.matcher.steps
            if policy.matcher.may_match(a, self.equivalents):
                for binding in bindings:
                    if left < 0 or binding.matcher.may_match(a, self.equivalents):
                        return True
                    left -= binding.matcher.steps
            if left < 0:  # ``about`` gives way on its way through so many
                return True
        return False

    def _of(self, a: Attributes) -> Iterator[tuple[Policy, Iterable[Binding]]]:
        """Those that may see the request, which their rules name: about policies themselves those from files alone, about reviews none.
        Once all are read, also those that come meanwhile."""
        beyond = beyond_policies(a)
        if not beyond or is_policy(a):
            yield from self._static
        for name in () if beyond else self._policies.named.of(a.resource, ANY):
            policy = self._policies.by_name.get(name)  # others may have had their turn since
            if policy is not None and name in self._bindings.named:
                yield policy, self._bindings_of(name)

    def _bindings_of(self, policy: str) -> Iterator[Binding]:
        found = self._bindings.by_name
        return (found[name] for name in self._bindings.named.of(policy))

    def use(self, objects: Mapping[str, Sequence[Obj]]) -> Callable[[], None]:
        """Reads the policies and bindings from files, by kind, in any thread; what it returns puts them in force."""
        policies, bindings = objects.values()
        static = _bound({obj["metadata"]["name"]: _policy(obj) for obj in policies}, map(_binding, bindings))

        def put() -> None:
            self._static = static
            self.changed()

        return put

    def _arranged(self) -> None:
        self.changed()

    async def about(self, a: Attributes, objects: Versioned) -> AsyncIterator[Found | ConfigurationFault]:
        """What is to be evaluated for a request, in the order of the policies' names, then the bindings', then the parameters'. Raises
        ApiError only for what no policy can answer for."""
        time_slice, each = TimeSlice(), self._of(a)
        while (one := await self._next(each)) is not None:
            policy, bindings = one
            if time_slice.over:  # with what was made of those before
                await time_slice.pause()
            try:
                told = policy.matcher.match(a, objects.obj, objects.old, self.spaces, self.equivalents)
                if told is None:
                    continue
                if policy.param_kind is not None:
                    self._params.resource(policy.param_kind)
            except (ApiError, ParamError) as e:
                yield ConfigurationFault(policy, None, f"failed to configure policy: {_text(e)}")
                continue
            for binding in bindings:
                if time_slice.over:  # each may have looked through many parameters
                    await time_slice.pause()
                try:
                    if binding.matcher.match(a, objects.obj, objects.old, self.spaces, self.equivalents) is None:
                        continue
                    params = await self._params.of(policy.param_kind, binding.param_ref, namespace_of(a))
                except (ApiError, ParamError) as e:
                    yield ConfigurationFault(policy, binding, f"failed to configure binding: {_text(e)}")
                    continue
                for param in params:
                    yield Found(policy, binding, told, param)

    async def _next(self, each: Iterator[tuple[Policy, Iterable[Binding]]]) -> tuple[Policy, Sequence[Binding]] | None:
        """The next one with its bindings, as they are now, whatever is put in their places while they are looked at."""
        while self._policies.unread or self._bindings.unread:  # that may have come while others had their turn, or are read
            for unread in (self._policies.unread, self._bindings.unread):
                if unread:
                    await unread.read()
        found = next(each, None)
        return found and (found[0], tuple(found[1]))

    def namespace(self, a: Attributes) -> Obj | None:
        """``namespaceObject``: the Namespace of the request, None for what is in none. Raises 404."""
        return self.spaces.get(a.namespace) if a.namespace else None


def _bound(policies: Mapping[str, Policy], bindings: Iterable[Binding]) -> _Bound:
    """Those of files that are bound, by name, each with its bindings."""
    by_policy: dict[str, list[Binding]] = {}
    for binding in bindings:
        by_policy.setdefault(binding.policy, []).append(binding)
    return tuple((policy, tuple(by_policy[name])) for name, policy in sorted(policies.items()) if name in by_policy)


def configured(kind: str, section: Section | None) -> dict[str, Any]:
    """What is said for the plug-in of that kind of policies. Raises ConfigurationError; the files of a directory are not looked into."""
    name = f"{kind.title()}AdmissionPolicyConfiguration"
    fields = versioned(section, {("apiserver.config.k8s.io/v1", name): Struct(name, {DIRECTORY: STRING})})
    if fields.get(DIRECTORY):
        from kas.admission.manifests import directory_of  # few servers have any

        directory_of(fields)
    return fields


def static_policies(
    section: Section | None, plugin: str, policies: Policies, registries: Registries, metrics: Metrics, identity: str
) -> Manifests | None:
    """The policies that stand in files, for the plug-in whose configuration says where; None where none does. Raises ConfigurationError."""
    fields = configured(policies.kind, section)
    if not fields.get(DIRECTORY):
        return None
    from kas.admission.manifests import manifests_of  # few servers have any

    return manifests_of(plugin, fields, "policy", policies.resources, policies.use, registries, metrics, identity)


def _text(e: Exception) -> str:
    return e.message if isinstance(e, ApiError) else str(e)

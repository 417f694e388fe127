"""The configured and bound policies, followed as they change, and the search for those that match a request."""

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
    from kas.admission.policy.compiled import Policy  # CEL is large, and most servers never have a policy

    return Policy(obj)


def _binding(obj: Obj) -> Binding:
    from kas.admission.policy.compiled import Binding

    return Binding(obj)


class _Compiled(Generic[T]):
    """One of the two resources, each object compiled once and indexed in ``named`` by ``names``. A reflector's target."""

    def __init__(self, make: Callable[[Obj], T], names: Callable[[T], Iterable[str]], changed: Callable[[], None]) -> None:
        self._make, self._names, self._changed = make, names, changed
        self.by_name: dict[str, T] = {}
        self.named = NameIndex()
        self.uncompiled = LazyCompile(self._compiled, self._put, changed)

    def replace(self, records: Sequence[Record]) -> None:
        """Start over with these objects, which are all there are."""
        self.by_name.clear()
        self.named = NameIndex()
        self.uncompiled.clear()
        for record in records:
            self._take(record.key, record)
        self._changed()

    def apply(self, events: Sequence[Event]) -> None:
        """Apply the changes in order."""
        for e in events:
            self._take(e.key, e.record)
        self._changed()

    def _take(self, key: str, record: Record | None) -> None:
        name = self.uncompiled.take(key, record)
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
    """An error in a matching policy, or in one of its bindings."""

    policy: Policy
    binding: Binding | None
    message: str
    reason: str = ""


class Found(NamedTuple):
    """A policy to evaluate, with the version to show it and its parameter."""

    policy: Policy
    binding: Binding
    invocation: Invocation
    param: Obj | None

    @property
    def key(self) -> tuple[str, ...]:
        """The key of the evaluation within one request."""
        meta = (self.param or {}).get("metadata") or {}
        return self.policy.name, self.binding.name, meta.get("namespace") or "", meta.get("name") or ""


class Policies:
    """The policies of one kind (``mutating`` or ``validating``), those from files first. Only policies with a binding apply."""

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
        """Return whether any policy may match such requests. Raises the errors of reading the store."""
        for follow in self._follow:
            follow()
        if (self._policies.uncompiled or self._bindings.uncompiled) and not beyond_policies(a):
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
            if left < 0:  # ``about`` yields on its way through so many
                return True
        return False

    def _of(self, a: Attributes) -> Iterator[tuple[Policy, Iterable[Binding]]]:
        """Yield the bound policies whose rules name the resource. For policies themselves only those from files, for reviews none.

        Requires that all policies are compiled; includes policies added during the iteration.
        """
        beyond = beyond_policies(a)
        if not beyond or is_policy(a):
            yield from self._static
        for name in () if beyond else self._policies.named.of(a.resource, ANY):
            policy = self._policies.by_name.get(name)  # may have been deleted while other tasks ran
            if policy is not None and name in self._bindings.named:
                yield policy, self._bindings_of(name)

    def _bindings_of(self, policy: str) -> Iterator[Binding]:
        found = self._bindings.by_name
        return (found[name] for name in self._bindings.named.of(policy))

    def use(self, objects: Mapping[str, Sequence[Obj]]) -> Callable[[], None]:
        """Compile the policies and bindings from files, by kind, in any thread; the returned function puts them into effect."""
        policies, bindings = objects.values()
        static = _bound({obj["metadata"]["name"]: _policy(obj) for obj in policies}, map(_binding, bindings))

        def put() -> None:
            self._static = static
            self.changed()

        return put

    def _arranged(self) -> None:
        self.changed()

    async def about(self, a: Attributes, objects: Versioned) -> AsyncIterator[Found | ConfigurationFault]:
        """Yield what to evaluate for a request, ordered by policy name, binding name and parameter. Raises ApiError only for errors that
        concern no single policy."""
        time_slice, each = TimeSlice(), self._of(a)
        while (one := await self._next(each)) is not None:
            policy, bindings = one
            if time_slice.over:  # the caller's evaluations included
                await time_slice.pause()
            try:
                invocation = policy.matcher.match(a, objects.obj, objects.old, self.spaces, self.equivalents)
                if invocation is None:
                    continue
                if policy.param_kind is not None:
                    self._params.resource(policy.param_kind)
            except (ApiError, ParamError) as e:
                yield ConfigurationFault(policy, None, f"failed to configure policy: {_text(e)}")
                continue
            for binding in bindings:
                if time_slice.over:  # each binding may have scanned many parameters
                    await time_slice.pause()
                try:
                    if binding.matcher.match(a, objects.obj, objects.old, self.spaces, self.equivalents) is None:
                        continue
                    params = await self._params.of(policy.param_kind, binding.param_ref, namespace_of(a))
                except (ApiError, ParamError) as e:
                    yield ConfigurationFault(policy, binding, f"failed to configure binding: {_text(e)}")
                    continue
                for param in params:
                    yield Found(policy, binding, invocation, param)

    async def _next(self, each: Iterator[tuple[Policy, Iterable[Binding]]]) -> tuple[Policy, Sequence[Binding]] | None:
        """Return the next policy with a snapshot of its bindings, whatever changes while they are evaluated."""
        while self._policies.uncompiled or self._bindings.uncompiled:  # may have arrived while other tasks ran
            for uncompiled in (self._policies.uncompiled, self._bindings.uncompiled):
                if uncompiled:
                    await uncompiled.read()
        found = next(each, None)
        return found and (found[0], tuple(found[1]))

    def namespace(self, a: Attributes) -> Obj | None:
        """Return ``namespaceObject``: the Namespace of the request, None for cluster-scoped objects. Raises 404."""
        return self.spaces.get(a.namespace) if a.namespace else None


def _bound(policies: Mapping[str, Policy], bindings: Iterable[Binding]) -> _Bound:
    """Return the bound policies from files sorted by name, each with its bindings."""
    by_policy: dict[str, list[Binding]] = {}
    for binding in bindings:
        by_policy.setdefault(binding.policy, []).append(binding)
    return tuple((policy, tuple(by_policy[name])) for name, policy in sorted(policies.items()) if name in by_policy)


def configured(kind: str, section: Section | None) -> dict[str, Any]:
    """Return the configuration of the plug-in for that kind of policies, without reading the files of a manifest directory. Raises
    ConfigurationError."""
    name = f"{kind.title()}AdmissionPolicyConfiguration"
    fields = versioned(section, {("apiserver.config.k8s.io/v1", name): Struct(name, {DIRECTORY: STRING})})
    if fields.get(DIRECTORY):
        from kas.admission.manifests import directory_of  # few servers have any

        directory_of(fields)
    return fields


def static_policies(
    section: Section | None, plugin: str, policies: Policies, registries: Registries, metrics: Metrics, identity: str
) -> Manifests | None:
    """Return the policies from files if the plug-in's configuration names a directory, else None. Raises ConfigurationError."""
    fields = configured(policies.kind, section)
    if not fields.get(DIRECTORY):
        return None
    from kas.admission.manifests import manifests_of  # few servers have any

    return manifests_of(plugin, fields, "policy", policies.resources, policies.use, registries, metrics, identity)


def _text(e: Exception) -> str:
    return e.message if isinstance(e, ApiError) else str(e)

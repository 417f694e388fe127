"""The parameters of a binding: objects of the policy's ``paramKind`` (upstream ``policy/generic/policy_dispatcher.go:
CollectParams``)."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

from kas.admission.initializer import RESTMapper
from kas.admission.matching import GVK, Equivalents
from kas.admission.versioned import shown
from kas.informers import Informers, Objects
from kas.informers.informer import whole
from kas.meta.offload import is_large, step
from kas.meta.selectors import LabelSelector, SelectorError, from_label_selector
from kas.meta.waiting import TimeSlice

Obj = dict[str, Any]


class ParamError(Exception):
    """The parameters of a binding cannot be determined."""


class UnknownParamKindError(ParamError):
    """The kind of a policy's parameters is not served."""


class ParamRef:
    """The ``paramRef`` of a binding, whose selector is parsed once."""

    def __init__(self, ref: Mapping[str, Any]) -> None:
        self.name: str = ref.get("name") or ""
        self.namespace: str = ref.get("namespace") or ""
        self.denies = ref.get("parameterNotFoundAction") == "Deny"
        self._given: Mapping[str, Any] | None = ref.get("selector")
        self._selector: LabelSelector | None = None

    async def selector(self) -> LabelSelector:
        """Return the selector of the parameters. Raises ParamError."""
        if self._given is None:
            raise ParamError("one of name or selector must be provided")
        if self._selector is None:
            try:
                self._selector = await step(is_large(self._given), from_label_selector, self._given)
            except SelectorError as e:
                raise ParamError(str(e)) from None
        return self._selector


class Params:
    """Finds parameters: by name in the store, so that they are as new as the request; by selector in the informer's cache, which keeps
    all objects of such a kind."""

    def __init__(self, objects: Objects, informers: Informers, mapper: RESTMapper, equivalents: Equivalents) -> None:
        self._objects, self._informers, self._mapper, self._equivalents = objects, informers, mapper, equivalents

    def resource(self, kind: GVK) -> Any:
        """Return the record of a kind's resource. Raises UnknownParamKindError."""
        found = next((r for r in self._mapper(*kind) if r.etcd_prefix is not None), None)
        if found is None:
            raise _unknown(kind)
        return found

    async def of(self, kind: GVK | None, ref: ParamRef | None, namespace: str) -> list[Obj | None]:
        """Return the parameters with which the policy is evaluated, once for each.

        The result is [None] for a policy or binding without parameters, and [] if none were found and that is allowed. ``namespace`` is
        the request's. Raises ParamError.
        """
        if kind is None or ref is None:
            return [None]
        record = self.resource(kind)
        if record.namespaced:
            namespace = ref.namespace or namespace
            if not namespace:
                raise ParamError("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
        elif ref.namespace:
            raise ParamError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
        found = await self._found(record, namespace if record.namespaced else "", ref)
        if not found and ref.denies:
            raise ParamError("no params found for policy binding with `Deny` parameterNotFoundAction")
        return [await self._in_version(obj, kind, record) for obj in found]

    async def _found(self, record: Any, namespace: str, ref: ParamRef) -> list[Obj]:
        group, resource = record.group, record.resource
        if ref.name:
            obj = self._objects.get(group, resource, namespace, ref.name)
            return [] if obj is None else [obj]
        selector = await ref.selector()
        lister = self._informers.lister(group, resource, whole)
        objects = lister.namespace(namespace) if record.namespaced else lister.all()
        found, time_slice = [], TimeSlice()
        for obj in list(objects.values()):  # a snapshot, since other tasks run in between
            if selector.matches(obj["metadata"].get("labels")):
                found.append(obj)
            if time_slice.over:
                await time_slice.pause()
        return found

    async def _in_version(self, obj: Obj, kind: GVK, record: Any) -> Obj:
        if obj.get("apiVersion") == record.api_version:
            return obj
        served = self._equivalents(record.group, record.resource).of(record.group, record.version)
        if served is None:  # deleted while other tasks ran
            raise _unknown(kind)
        found: list[Obj] | Awaitable[list[Obj]] = served.converter.convert([obj], kind)
        return (found if isinstance(found, list) else await found)[0]


def _unknown(kind: GVK) -> UnknownParamKindError:
    return UnknownParamKindError(f"failed to find resource referenced by paramKind: '{shown(kind)}'")

"""Which custom resources there are, in this worker: kept like the stored definitions, event by event.

An object of a definition that nobody uses costs some kilobytes: records without types, whose schemas are read when they are first needed.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kas.apiextensions import definition as definitions
from kas.apiextensions.definition import DefinedVersion, Definition
from kas.endpoints.discovery import Version, custom_versions
from kas.informers.reflector import Reflector, left_out
from kas.meta import errors
from kas.meta.stored import Stored, object_of
from kas.registry.registries import Registries
from kas.registry.versions import Converter
from kas.store import PAGE_BYTES, Event, Record
from kas.types.scheme import Resource, Scheme, TypeDesc, lazy_schema_type, schema_type

if TYPE_CHECKING:  # most servers define nothing, and need none of this; ``_install`` loads it
    from kas.endpoints.custom.served import CustomServed, State
    from kas.kinds.apiextensions.customresource.storage import Guard

GROUP, RESOURCE = "apiextensions.k8s.io", "customresourcedefinitions"
PAGE = 64
_WRITES = ("get", "patch", "update")
_LIST: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
# Told with a definition's served versions as they are now, None for one that is not served any more.
Listener = Callable[[Definition, "State | None"], None]


class CustomResources:
    """Follows the definitions from ``start`` on. ``converter_of`` gives what converts the objects of a definition.

    ``changed(old)`` is told of versions that are served no more, or otherwise: their watches are to end; ``refresh()`` that discovery is
    another one; ``gone(group, resource)`` of what is defined no more.
    """

    def __init__(
        self, scheme: Scheme, registries: Registries, changed: Callable[[State], None], refresh: Callable[[], None],
        converter_of: Callable[[Definition], Converter], gone: Callable[[str, str], None] = lambda group, resource: None,
    ) -> None:  # fmt: skip
        self._scheme, self._registries, self._changed, self._refresh = scheme, registries, changed, refresh
        self._converter_of, self._gone = converter_of, gone
        self._root = registries.of(GROUP, RESOURCE).root
        self._reflector = Reflector(registries.store, self._root, self, lists=False)
        self.definitions: dict[str, Definition] = {}
        self._states: dict[str, State] = {}  # by the name of the definition
        self.served: dict[tuple[str, str], dict[str, CustomServed]] = {}  # (group, version) -> plural
        self.groups: dict[str, set[str]] = {}  # group -> names of the definitions that are served

    def start(self) -> None:
        """Read the definitions and follow them."""
        self._reflector.start()

    # --- finding

    def find(self, group: str, version: str, resource: str) -> CustomServed | None:
        """The resource, None when it is not served."""
        found = self.served.get((group, version))
        return found.get(resource) if found is not None else None

    def of_kind(self, group: str, version: str, kind: str) -> list[Resource]:
        """The records of the served resources of a kind."""
        return [served.record for served in (self.served.get((group, version)) or {}).values() if served.kind == kind]

    def equivalents(self, group: str, resource: str) -> list[CustomServed]:
        """The versions of a resource, those in which it is not served, too: a webhook or a policy may ask for them."""
        state = self._states.get(f"{resource}.{group}")
        return list(state.all.values()) if state is not None else []

    def record(self, name: str) -> Stored:
        """A definition as it is stored now. Raises 404."""
        rec = self._registries.store.get(self._root + name)
        if rec is None:
            raise errors.not_found(GROUP, RESOURCE, name)
        return rec

    # --- following

    def replace(self, records: Sequence[Record]) -> None:
        """Read them all, in pages: together they may be hundreds of megabytes."""
        names: set[str] = set()
        start = ""
        while True:
            page = self._registries.store.range(self._root, start, PAGE, max_bytes=PAGE_BYTES)
            names.update(self._put(rec) for rec in page.records)
            if not page.more:
                break
            start = page.next_key
        for name in self.definitions.keys() - names:
            self._delete(name)
        self._refresh()

    def apply(self, events: Sequence[Event]) -> None:
        """What happened to them."""
        for e in events:
            name = e.key[len(self._root) :]
            known = self.definitions.get(name)
            if known is not None and e.revision <= known.revision:
                continue  # it was read before it was told
            if e.record is not None:
                self._put(e.record)
            else:
                self._delete(name)
        self._refresh()

    def _put(self, record: Record) -> str:
        name = record.key[len(self._root) :]
        known = self.definitions.get(name)
        try:
            new = definitions.read(record, record.revision, record.create_revision, known)
        except Exception:  # of whatever kind: it does not expect what cannot be
            if not left_out(record):
                raise
            self._delete(name)
            return name
        self.definitions[name] = new
        state = self._states.get(name)
        if state is not None and state.definition.contents == new.contents:
            state.definition = new  # conditions, at most
        else:
            if state is not None:
                self._remove(name, state)
            if new.served and new.names.get("plural") and new.group not in self._scheme.groups:
                self._install(new)
            if state is not None:
                self._changed(state)
                state.retire()
        return name

    def _delete(self, name: str) -> None:
        self.definitions.pop(name, None)
        state = self._states.get(name)
        if state is not None:
            self._remove(name, state)
            self._changed(state)
            state.retire()
            self._gone(state.definition.group, state.definition.names["plural"])

    # --- installing

    def _install(self, d: Definition) -> None:
        from kas.endpoints.custom.merging import MergeSchemas
        from kas.endpoints.custom.served import CustomServed, State
        from kas.kinds.apiextensions.customresource.storage import CustomRegistry
        from kas.kinds.apiextensions.customresource.strategy import CustomResourceStrategy

        group, plural, kind = d.group, d.names["plural"], d.names["kind"]
        list_kind = d.names.get("listKind") or f"{kind}List"
        types = {v.name: self._type(d, v, kind) for v in d.versions}
        list_type = schema_type(list_kind, _LIST)
        converter = self._converter_of(d)
        state = State(d, types, self._is_clean(d), MergeSchemas(group, kind, types, d.keeps_unknown, converter))
        stored = d.stored.name
        records: dict[str, Resource] = {}
        for v in d.versions:
            kinds = {kind: types[v.name], list_kind: list_type}
            records[v.name] = self._scheme.put(group, v.name, kinds, record(d, v, stored))
        selectable = dict.fromkeys(path for v in d.versions for path in v.selectable)
        store, now = self._registries.store, self._registries.now
        registry = CustomRegistry(records[stored], store, now, tuple(selectable), lambda: self._guard(state))
        self._registries.put(registry, records)
        for v in d.versions:
            records[v.name].strategy = CustomResourceStrategy(records[v.name], v)
            shown = CustomServed(records[v.name], registry, converter, state, v)
            if v.served:
                self.served.setdefault((group, v.name), {})[plural] = shown
        self._states[d.name] = state
        self.groups.setdefault(group, set()).add(d.name)

    def _guard(self, state: State) -> Guard | None:
        d = state.definition
        from kas.kinds.apiextensions.customresource.storage import Guard

        return Guard(self._root + d.name, d.revision, not d.deleting) if self._states.get(d.name) is state else None

    def _type(self, d: Definition, v: DefinedVersion, kind: str) -> TypeDesc:
        name = f"{'.'.join(reversed(d.group.split('.')))}.{v.name}.{kind}"
        return lazy_schema_type(name, functools.partial(self._schema, d.name, v.name))

    def _schema(self, name: str, version: str) -> dict[str, Any]:
        return definitions.schema(self.record(name), version)

    def _is_clean(self, d: Definition) -> bool:
        """Whether nothing stored can be older than today's spec."""
        if d.generation == 1:
            return True
        prefix = f"/registry/{d.group}/{d.names['plural']}/"
        return not self._registries.store.range(prefix, limit=1).records

    async def look_for_clean(self) -> None:
        """Finds out of which definitions in use nothing old is stored any more, so that bytes can be served; for now and then."""
        for state in [s for s in self._states.values() if s.asked and not s.clean]:
            state.asked = False
            d = state.definition
            prefix, start = f"/registry/{d.group}/{d.names['plural']}/", ""
            while True:
                page = self._registries.store.range(prefix, start, PAGE, max_bytes=PAGE_BYTES)
                if any(rec.revision <= d.since for rec in page.records):
                    break
                if not page.more:
                    state.became_clean()
                    break
                start = page.next_key
                await asyncio.sleep(0)

    def _remove(self, name: str, state: State) -> None:
        d = state.definition
        del self._states[name]
        for served in state.versions.values():
            found = self.served[served.group, served.version]
            del found[served.resource]
            if not found:
                del self.served[served.group, served.version]
        plural = d.names["plural"]
        for v in d.versions:
            record = self._scheme.resource(d.group, v.name, plural)
            if record is not None:
                self._scheme.drop(record)
        self._registries.drop(d.group, plural)
        self.groups[d.group].discard(name)
        if not self.groups[d.group]:
            del self.groups[d.group]

    def parts(self) -> Iterator[tuple[str, str, str, Callable[[], Any]]]:
        """What OpenAPI shows of them: group, version, a tag that changes with what is shown, and what reads that from the store. Those in
        Kubernetes' own groups are shown, too, but for what has the path of a resource of Kubernetes' own."""
        for d in (*self.all_served(), *self.all_in_builtin_groups()):
            if d.is_true("Established"):
                for v in d.versions:
                    taken = d.group in self._scheme.groups and self._scheme.resource(d.group, v.name, d.names.get("plural", "")) is not None
                    if v.served and not taken:
                        tag = f"{d.name} {d.uid} {d.generation} {d.names!r}"
                        yield d.group, v.name, tag, functools.partial(self._described, d.name, v.name)

    def _described(self, name: str, version: str) -> Any:
        from kas.endpoints.openapi import custom  # large, and rarely asked for
        from kas.kinds.apiextensions.conversion import to_v1

        rec = self._registries.store.get(self._root + name)
        if rec is None:
            return [], {}  # it was deleted while a document is made, the next one will be another
        return custom.describe(to_v1(object_of(rec)), version)

    def all_served(self) -> Iterable[Definition]:
        """The definitions whose objects are served."""
        return (state.definition for state in self._states.values())

    def all_in_builtin_groups(self) -> Iterable[Definition]:
        """The definitions whose objects nobody can reach: their group is one of Kubernetes' own, which is answered for already."""
        return (d for d in self.definitions.values() if d.group in self._scheme.groups)

    def versions(self) -> list[Version]:
        """What discovery shows of all."""
        return [*custom_versions(self.all_served()), *custom_versions(self.all_in_builtin_groups(), answered=False)]


def record(d: Definition, v: DefinedVersion, stored: str) -> dict[str, Any]:
    """The record of the resource table for a version."""
    names = d.names
    home = {"group": d.group, "version": v.name, "kind": names["kind"], "verbs": _WRITES}
    subresources = []
    if v.status:
        subresources.append({"name": "status", "reset": ("metadata", "spec"), **home})
    if v.scale is not None:
        subresources.append({"name": "scale", **home, "group": "autoscaling", "version": "v1", "kind": "Scale"})
    return {
        "resource": names["plural"], "singular": names.get("singular") or "", "kind": names["kind"], "namespaced": d.namespaced,
        "listKind": names.get("listKind") or f"{names['kind']}List", "shortNames": names.get("shortNames") or (),
        "categories": names.get("categories") or (), "type": names["kind"], "etcdPrefix": f"/registry/{d.group}/{names['plural']}",
        "storageGVK": (d.group, stored, names["kind"]), "gcDefault": "background", "subresources": subresources,
        "fieldSelectors": ("metadata.name", *(("metadata.namespace",) if d.namespaced else ()), *v.selectable),
        "resetOnSpecWrite": ("status",) if v.status else (),
    }  # fmt: skip

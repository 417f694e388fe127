"""The custom resources of this worker process, kept up to date from the events of the stored definitions.

A definition whose objects are not used costs a few kilobytes: its records have no types, and its schemas are read when first needed.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kas.apiextensions import definition as definitions
from kas.apiextensions.definition import DefinedVersion, Definition
from kas.endpoints.discovery import Version, custom_resources, custom_versions
from kas.informers.reflector import Reflector, left_out
from kas.meta import errors
from kas.meta.stored import Stored, object_of
from kas.registry.registries import Registries
from kas.registry.versions import Converter, Family
from kas.store import PAGE_BYTES, Event, Record
from kas.types.scheme import Resource, Scheme, TypeDesc, lazy_schema_type, schema_type

if TYPE_CHECKING:  # most servers have no definitions and need none of this; ``_install`` imports it
    from kas.endpoints.custom.served import CustomServed, State
    from kas.kinds.apiextensions.customresource.storage import Guard
    from kas.registry.generic import Registry

GROUP, RESOURCE = "apiextensions.k8s.io", "customresourcedefinitions"
PAGE = 64
MANY_VERSIONS = 32
NOBODY = Family()
_WRITES = ("get", "patch", "update")
_LIST: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
# Called with a definition and its served versions, or None if it is no longer served.
Listener = Callable[[Definition, "State | None"], None]


class CustomResources:
    """Follows the definitions from ``start`` on. ``converter_of`` returns the converter of a definition's objects.

    Callbacks:

    - ``changed(old)``: versions are no longer served, or differently, so their watches have to end.
    - ``refresh()``: the discovery documents have changed.
    - ``gone(group, resource)``: a resource is no longer defined.
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
        self._states: dict[str, State] = {}  # by name of the definition
        self.served: dict[str, dict[str, State]] = {}  # group -> plural
        # entries of discovery, by name of the definition
        self._shown: dict[str, tuple[Definition, list[tuple[str, list[dict[str, Any]]]]]] = {}
        self._versions: list[Version] | None = None  # discovery of all definitions, until one of them changes
        self._last_read: tuple[str, int, Any, dict[str, Any]] | None = None
        self.groups: dict[str, set[str]] = {}  # group -> names of the definitions that are served

    def start(self) -> None:
        """Read the definitions and follow them."""
        self._reflector.start()

    # --- finding

    def find(self, group: str, version: str, resource: str) -> CustomServed | None:
        """Return the resource, or None if it is not served."""
        found = self.served.get(group)
        state = found.get(resource) if found is not None else None
        return state.find(version) if state is not None else None

    def of_kind(self, group: str, version: str, kind: str) -> list[Resource]:
        """Return the records of the served resources of a kind."""
        states = [s for s in (self.served.get(group) or {}).values() if s.definition.names["kind"] == kind]
        return [served.record for s in states if (served := s.find(version)) is not None]

    def equivalents(self, group: str, resource: str) -> Family:
        """Return all versions of a resource, including those that are not served: webhooks and policies may match them."""
        state = self._states.get(f"{resource}.{group}")
        return state.family if state is not None else NOBODY

    def record(self, name: str) -> Stored:
        """Return the definition as currently stored. Raises 404."""
        rec = self._registries.store.get(self._root + name)
        if rec is None:
            raise errors.not_found(GROUP, RESOURCE, name)
        return rec

    # --- following

    def replace(self, records: Sequence[Record]) -> None:
        """Read all definitions, in pages: together they may have hundreds of megabytes."""
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
        self._versions = None
        self._refresh()

    def apply(self, events: Sequence[Event]) -> None:
        """Apply events to the definitions."""
        for e in events:
            name = e.key[len(self._root) :]
            known = self.definitions.get(name)
            if known is not None and e.revision <= known.revision:
                continue  # read from the store before its event arrived
            if e.record is not None:
                self._put(e.record)
            else:
                self._delete(name)
        self._versions = None
        self._refresh()

    def _put(self, record: Record) -> str:
        name = record.key[len(self._root) :]
        known = self.definitions.get(name)
        try:
            new = definitions.read(record, record.revision, record.create_revision, known)
        except Exception:  # any kind: the parser does not expect an invalid stored definition
            if not left_out(record):
                raise
            self._delete(name)
            return name
        self.definitions[name] = new
        state = self._states.get(name)
        if state is not None and state.definition.contents == new.contents:
            state.definition = new  # at most its conditions changed
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
        self._shown.pop(name, None)
        state = self._states.get(name)
        if state is not None:
            self._remove(name, state)
            self._changed(state)
            state.retire()
            self._gone(state.definition.group, state.definition.names["plural"])

    # --- installing

    def _install(self, d: Definition) -> None:
        from kas.endpoints.custom.merging import MergeSchemas
        from kas.endpoints.custom.served import State, Types
        from kas.kinds.apiextensions.customresource.storage import CustomRegistry

        group, plural, kind = d.group, d.names["plural"], d.names["kind"]
        stored = d.stored
        names = f"{'.'.join(reversed(group.split('.')))}.", f".{kind}"
        types = Types({v.name for v in d.versions}, lambda v: lazy_schema_type(v.join(names), functools.partial(self._schema, d.name, v)))
        converter = self._converter_of(d)
        merging = MergeSchemas(group, kind, types, d.keeps_unknown, converter)
        state = State(d, types, self._is_clean(d), merging, lambda state, v: self._build_version(state, v, registry, converter))
        selectable = dict.fromkeys(path for v in d.versions for path in v.selectable)
        store, now = self._registries.store, self._registries.now
        row = self._put_record(d, stored, types[stored.name], stored.name)
        registry = CustomRegistry(row, store, now, tuple(selectable), lambda: self._guard(state))
        self._registries.put(registry, types)
        state.one(stored.name)
        self.served.setdefault(group, {})[plural] = self._states[d.name] = state
        self.groups.setdefault(group, set()).add(d.name)

    def _put_record(self, d: Definition, v: DefinedVersion, type_: TypeDesc, stored: str) -> Resource:
        """Register the version with the scheme."""
        kind, list_kind = d.names["kind"], d.names.get("listKind") or f"{d.names['kind']}List"
        kinds = {kind: type_, list_kind: schema_type(list_kind, _LIST)}
        return self._scheme.put(d.group, v.name, kinds, record(d, v, stored))

    def _build_version(self, state: State, v: DefinedVersion, registry: Registry, converter: Converter) -> CustomServed:
        """Build a requested version of a definition."""
        from kas.endpoints.custom.served import CustomServed
        from kas.kinds.apiextensions.customresource.strategy import CustomResourceStrategy

        d = state.definition
        row = registry.resource if v.storage else self._put_record(d, v, state.types[v.name], registry.resource.version)
        row.strategy = CustomResourceStrategy(row, v)
        return CustomServed(row, registry, converter, state, v)

    def _guard(self, state: State) -> Guard | None:
        d = state.definition
        from kas.kinds.apiextensions.customresource.storage import Guard

        return Guard(self._root + d.name, d.revision, not d.deleting) if self._states.get(d.name) is state else None

    def _schema(self, name: str, version: str) -> dict[str, Any]:
        return definitions.schema(self.record(name), version)

    def _is_clean(self, d: Definition) -> bool:
        """Return whether no stored object can be older than the current spec."""
        if d.generation == 1:
            return True
        prefix = f"/registry/{d.group}/{d.names['plural']}/"
        return not self._registries.store.range(prefix, limit=1).records

    async def look_for_clean(self) -> None:
        """Find the definitions in use without objects from before the current spec, and serve their stored bytes from then on.

        To be called periodically.
        """
        for state in [s for s in self._states.values() if s.requested and not s.clean]:
            state.requested = False
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
        plural = d.names["plural"]
        found = self.served[d.group]
        del found[plural]
        if not found:
            del self.served[d.group]
        for served in state.made.values():
            self._scheme.drop(served.record)
        self._registries.drop(d.group, plural)
        self.groups[d.group].discard(name)
        if not self.groups[d.group]:
            del self.groups[d.group]

    def parts(self) -> Iterator[tuple[str, str, str, Callable[[], Any]]]:
        """Yield the entries for OpenAPI: group, version, a tag that changes with the contents, and a function that loads the contents.

        Definitions in Kubernetes' own groups are included, except those whose path belongs to a built-in resource.
        """
        groups = self._scheme.groups
        for d in (*self.all_served(), *self.all_in_builtin_groups()):
            if d.is_true("Established"):
                tag, builtin, plural = f"{d.name} {d.uid} {d.generation} {d.names!r}", d.group in groups, d.names.get("plural", "")
                for v in d.versions:
                    if v.served and not (builtin and self._scheme.resource(d.group, v.name, plural) is not None):
                        yield d.group, v.name, tag, functools.partial(self._described, d.name, v.name)

    def _described(self, name: str, version: str) -> Any:
        from kas.endpoints.openapi import custom  # large and rarely needed

        crd, versions = self._read_definition(name)
        found = versions.get(version)
        if crd is None or found is None:
            return [], {}  # the definition changed while the document was being built; the document is built again
        return custom.describe({**crd, "spec": {**crd["spec"], "versions": [found]}})

    def _read_definition(self, name: str) -> tuple[Any, dict[str, Any]]:
        """Return a definition in its v1 form, and its versions by name.

        The last definition with many versions is cached, because its other versions are requested next and parsing it for each would take
        quadratic time. Called from threads; a race between them only replaces the cached entry.
        """
        from kas.kinds.apiextensions.conversion import to_v1

        rec = self._registries.store.get(self._root + name)
        if rec is None:
            return None, {}
        known = self._last_read
        if known is not None and known[:2] == (name, rec.revision):
            return known[2:]
        crd = to_v1(object_of(rec))
        versions = {v["name"]: v for v in crd["spec"]["versions"]}
        if len(versions) >= MANY_VERSIONS:
            self._last_read = name, rec.revision, crd, versions
        return crd, versions

    def all_served(self) -> Iterable[Definition]:
        """Return the definitions whose objects are served."""
        return (state.definition for state in self._states.values())

    def all_in_builtin_groups(self) -> Iterable[Definition]:
        """Return the definitions in Kubernetes' own groups, whose objects cannot be reached because those groups are served already."""
        return (d for d in self.definitions.values() if d.group in self._scheme.groups)

    def versions(self) -> list[Version]:
        """Return the discovery entries of all definitions.

        They are cached because every change of an APIService asks for them, and thousands of versions have an APIService each.
        """
        found = self._versions
        if found is None:
            found = custom_versions(self.all_served(), resources_of=self._resources_of)
            found += custom_versions(self.all_in_builtin_groups(), answered=False, resources_of=self._resources_of)
            self._versions = found
        return found

    def _resources_of(self, d: Definition) -> list[tuple[str, list[dict[str, Any]]]]:
        """Return ``custom_resources``, cached per definition, so that a change to one of 10,000 does not rebuild the others."""
        known = self._shown.get(d.name)
        if known is None or known[0] is not d:
            known = self._shown[d.name] = d, custom_resources(d)
        return known[1]


def record(d: Definition, v: DefinedVersion, stored: str) -> dict[str, Any]:
    """Return the record of the resource table for a version."""
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

"""The table of custom resources over a store in this process."""

from __future__ import annotations

import asyncio
import gc
import weakref
from types import SimpleNamespace

import orjson
import pytest

from kas.admission.matching import Matcher
from kas.apiextensions.nopconverter import NopConverter
from kas.endpoints import managedfields
from kas.endpoints.custom import table
from kas.endpoints.custom.table import GROUP, RESOURCE, CustomResources
from kas.kinds.apiextensions import conversion
from kas.meta.errors import ApiError
from kas.registry.registries import Registries
from kas.registry.strategy import Context
from kas.store import Op, build_record, open_store
from kas.types.scheme import Scheme
from tests.endpoints.customs import definition, version

NOW = "2024-01-02T03:04:05Z"
CONDITIONS = [{"type": t, "status": "True"} for t in ("NamesAccepted", "Established")]


class Table:
    """A store with one definition, and the table that follows it."""

    def __init__(self, path: str) -> None:
        self.store = open_store(path, max_size=1 << 30, sync=False)  # valgrind maps only some gigabytes
        self.store.start(asyncio.get_running_loop())
        scheme = Scheme()
        registries = Registries(self.store, lambda: NOW)
        registries.add_stored(scheme.resources, scheme.resource, 3600, {})
        self.root = registries.of(GROUP, RESOURCE).root
        self.changed, self.refreshed = [], 0
        told = lambda state: self.changed.append(dict(state.versions))  # noqa: E731
        self.custom = CustomResources(scheme, registries, told, self._refresh, NopConverter)
        self.registries, self.scheme = registries, scheme

    def _refresh(self) -> None:
        self.refreshed += 1

    async def put(self, crd, generation: int = 1, accepted=None, conditions=CONDITIONS, stored=(), **meta) -> None:
        obj = {**crd, "metadata": {**crd["metadata"], "uid": "u", "generation": generation, **meta}}
        obj["status"] = {"acceptedNames": accepted or crd["spec"]["names"], "conditions": conditions, "storedVersions": list(stored)}
        head, _, tail = orjson.dumps(obj).partition(b'"metadata":{')
        await self.store.commit(Op(self.root + crd["metadata"]["name"], build_record(head + b'"metadata":{', tail)))
        self.store.catch_up()

    async def write(self, name: str, served=None):
        served = served or self.custom.find("example.com", "v1", "widgets")
        obj = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"a": "x"}}
        await served.registry.create(Context(NOW, "ns", {}), obj)


@pytest.fixture
def crd():
    return definition("example.com", version(spec={"a": {"type": "string"}}))


def run(tmp_path, body) -> None:
    async def whole() -> None:
        table = Table(str(tmp_path / "data"))
        try:
            await body(table)
        finally:
            table.store.close()

    asyncio.run(whole())


def test_definitions_are_added_changed_and_removed(tmp_path, crd):
    async def body(t: Table) -> None:
        t.custom.start()
        await t.put(crd)
        first = t.custom.find("example.com", "v1", "widgets")
        assert first.native and t.scheme.kind("example.com", "v1", "Widget") is not None
        assert t.registries.of_kind("example.com/v1", "Widget") is first.registry
        await t.put(crd, labels={"x": "y"})
        assert t.custom.find("example.com", "v1", "widgets") is first and not t.changed
        await t.put(crd, generation=2)
        second = t.custom.find("example.com", "v1", "widgets")
        assert second is not first and [served["v1"] for served in t.changed] == [first] and second.native  # nothing is stored
        await t.store.commit(Op(t.root + "widgets.example.com", None))
        t.store.catch_up()
        assert t.custom.find("example.com", "v1", "widgets") is None and t.scheme.kind("example.com", "v1", "Widget") is None
        assert t.registries.of_kind("example.com/v1", "Widget") is None and not t.custom.groups and len(t.changed) == 2

    run(tmp_path, body)


def test_a_removed_definitions_memory_is_freed(tmp_path, crd):
    """Without the garbage collector of cycles, which runs rarely."""

    async def body(t: Table) -> None:
        t.custom.start()
        spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        spec["x-kubernetes-validations"] = [{"rule": "self.a.size() < 10"}]
        spec["properties"]["b"] = {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string", "pattern": "^a", "default": "a"}}},
        }  # fmt: skip
        await t.put(crd)
        served = t.custom.find("example.com", "v1", "widgets")
        managedfields.schema(served, Context(NOW, "ns", {}))
        await t.write("a")
        strategy, wrong = served.record.strategy, {"metadata": {"name": "a"}, "spec": {"a": 1, "b": [{}]}}
        assert strategy.validate(Context(NOW, "ns", {}), wrong)  # the validators exist
        things = (served, served.state, served.registry, served.state.merging, served.record, strategy)
        gone = [weakref.ref(thing) for thing in things]
        del things
        del served, strategy
        gc.collect()
        gc.disable()
        try:
            await t.store.commit(Op(t.root + "widgets.example.com", None))
            t.store.catch_up()
            t.changed.clear()
            assert [ref() for ref in gone] == [None] * len(gone)
            assert gc.collect() == 0  # objects frozen when the server became ready would stay for ever
        finally:
            gc.enable()

    run(tmp_path, body)


def test_objects_stored_before_the_server_starts(tmp_path, crd):
    async def body(t: Table) -> None:
        for i in range(150):  # more than one page
            await t.put(definition("example.com", plural=f"things{i}", kind=f"Thing{i}"))
        t.custom.start()
        assert len(t.custom.definitions) == 150 and t.refreshed == 1
        assert t.custom.find("example.com", "v1", "things149").type.schema["type"] == "object"

    run(tmp_path, body)


def test_a_write_validated_by_an_old_definition_is_not_stored(tmp_path, crd):
    async def body(t: Table) -> None:
        t.custom.start()
        await t.put(crd)
        old = t.custom.find("example.com", "v1", "widgets")
        await t.write("a")
        await t.put(crd, labels={"x": "y"})
        await t.write("b", old)  # its spec is equal
        await t.put(crd, generation=2)
        with pytest.raises(ApiError) as caught:
            await t.write("c", old)
        assert (caught.value.code, caught.value.message) == (429, "storage is (re)initializing")
        await t.put(crd, generation=2, deletionTimestamp=NOW)
        with pytest.raises(ApiError, match="create not allowed while custom resource definition is terminating"):
            await t.write("d")
        assert [r.key[-1] for r in t.store.range(old.registry.root).records] == ["a", "b"]

    run(tmp_path, body)


def test_stored_bytes_are_served_once_no_old_object_is_left(tmp_path, crd):
    async def body(t: Table) -> None:
        t.custom.start()
        await t.put(crd)
        await t.write("a")
        await t.put(crd, generation=2)
        served = t.custom.find("example.com", "v1", "widgets")
        records = t.store.range(served.registry.root).records
        assert not served.native and served.convert(records)[0] is not records[0]
        await t.custom.look_for_clean()
        assert not served.native
        await t.store.commit(Op(records[0].key, None))
        await t.write("b")
        records = t.store.range(served.registry.root).records
        assert served.convert(records)[0] is records[0]  # it was written under the current definition
        await t.custom.look_for_clean()
        assert served.native

    run(tmp_path, body)


def test_only_requested_versions_are_compiled(tmp_path):
    """All were compiled when the definition was created, on the loop: 50 ms for 1,000, 470 for 9,000."""

    async def body(t: Table) -> None:
        t.custom.start()
        more = [version(f"v{i}", {"a": {"type": "string"}}, storage=False) for i in range(2, 301)]
        more[-1]["served"] = False
        await t.put(definition("example.com", version(spec={"a": {"type": "string"}}), *more))
        first, other = (t.custom.find("example.com", v, "widgets") for v in ("v1", "v200"))
        state = first.state
        assert other is t.custom.find("example.com", "v200", "widgets") and other.state is state and other.registry is first.registry
        assert list(state.made) == ["v1", "v200"] and (first.stores, other.stores, other.native) == (True, False, False)
        assert t.custom.find("example.com", "v300", "widgets") is None and t.custom.find("example.com", "v301", "widgets") is None
        assert t.custom.of_kind("example.com", "v7", "Widget")[0].api_version == "example.com/v7"
        assert not t.custom.of_kind("example.com", "v300", "Widget") and list(state.made) == ["v1", "v200", "v7"]
        obj = {"apiVersion": "example.com/v200", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"a": "x"}}
        assert (await other.to_storage(obj))["apiVersion"] == "example.com/v1"
        assert first.resetting("status") == frozenset() and len(state.types) == 300 and "v300" in state.types
        family = t.custom.equivalents("example.com", "widgets")
        assert [s.version for s in family] == [f"v{i}" for i in range(1, 301)] and family is t.custom.equivalents("example.com", "widgets")
        # A webhook's rules ask for group, version, resource and subresources, and need none compiled.
        assert family.groups == {"example.com"} and [len(found) for found in family.by_version.values()] == [300]
        made = list(state.made)
        a = SimpleNamespace(operation="CREATE", group="example.com", version="v1", resource="widgets", subresource="", namespace="")
        a.name, a.obj, a.old = "a", {"apiVersion": "example.com/v1", "kind": "Widget"}, None
        told = {"operations": ["CREATE"], "apiGroups": ["example.com"], "resources": ["widgets"]}
        hook = Matcher({}, [{**told, "apiVersions": ["v9999"]}])
        assert hook.may_match(a, t.custom.equivalents) and hook.match(a, None, None, None, t.custom.equivalents) is None
        assert "status" not in family[5].subresources and list(state.made) == made
        found = Matcher({}, [{**told, "apiVersions": ["v300", "v200"]}]).match(a, None, None, None, t.custom.equivalents)
        assert found[1] == "v200" and found.kind == ("example.com", "v200", "Widget") and list(state.made) == made
        assert family.of("example.com", "v300").record is state.made["v300"].record and family.of("other", "v1") is None
        await t.store.commit(Op(t.root + "widgets.example.com", None))
        t.store.catch_up()
        assert not any(t.scheme.resource("example.com", f"v{i}", "widgets") for i in range(1, 301)) and state.find("v3") is None

    run(tmp_path, body)


def test_the_documents_of_many_versions_read_their_definition_once(tmp_path, monkeypatch):
    """It was read and converted for each version, which is quadratic: OpenAPI of 9,000 versions timed out."""

    async def body(t: Table) -> None:
        t.custom.start()
        versions = [version(f"v{i}", {"a": {"type": "string"}}, storage=i == 99) for i in range(1, 100)]
        await t.put(definition("example.com", *versions))
        looks: list[object] = []
        monkeypatch.setattr(conversion, "to_v1", lambda obj, to_v1=conversion.to_v1: looks.append(obj) or to_v1(obj))
        parts = {v: load for _, v, _, load in t.custom.parts()}
        shown = [parts[f"v{i}"]() for i in range(1, 100)]
        assert len(looks) == 1
        assert [next(iter(schemas)) for _, schemas in shown] == [f"com.example.v{i}.Widget" for i in range(1, 100)]
        await t.put(definition("example.com", *versions[50:]), generation=2)
        assert parts["v1"]() == ([], {}) and parts["v60"]()[1] and len(looks) == 2
        await t.store.commit(Op(t.root + "widgets.example.com", None))
        assert parts["v60"]() == ([], {})

    run(tmp_path, body)


def test_versions_of_a_definition_share_their_discovery_data(tmp_path, crd):
    """It was built for each version, with a search for the stored one, which may be the last."""

    async def body(t: Table) -> None:
        t.custom.start()
        more = [version(f"v{i}", storage=False) for i in range(2, 50)]
        await t.put(definition("example.com", version(), version("v50", storage=False, subresources={"status": {}}), *more))
        found = {v.version: v.resources for v in t.custom.versions()}
        assert len(found) == 50 and len({id(shown[0]) for version, shown in found.items() if version != "v50"}) == 1
        assert [r["name"] for r in found["v50"]] == ["widgets", "widgets/status"] and found["v50"][0] == found["v1"][0]

    run(tmp_path, body)


def test_discovery_is_updated_only_where_something_changed(tmp_path, monkeypatch):
    """A change of one of 2,000 definitions held the loop for 60 ms at the next discovery request, and 10,000 for 300."""

    async def body(t: Table) -> None:
        told: list[str] = []
        own = table.custom_resources
        monkeypatch.setattr(table, "custom_resources", lambda d: told.append(d.name) or own(d))
        t.custom.start()
        for i in range(9):
            await t.put(definition("example.com", plural=f"things{i}", kind=f"Thing{i}"))
        (before,) = t.custom.versions()
        assert len(told) == 9 and len(before.resources) == 9
        assert t.custom.versions()[0] is before  # for a changed APIService, of which thousands of versions have one each
        told.clear()
        await t.put(definition("example.com", plural="things3", kind="Thing3"), labels={"a": "b"})
        assert t.custom.versions() == [before] and told == ["things3.example.com"]
        told.clear()
        terminating = [*CONDITIONS, {"type": "Terminating", "status": "True"}]
        await t.put(definition("example.com", plural="things4", kind="Thing4"), conditions=terminating)
        (now,) = t.custom.versions()
        assert told == ["things4.example.com"] and next(r for r in now.resources if r not in before.resources)["name"] == "things4"
        await t.store.commit(Op(t.root + "things5.example.com", None))
        t.store.catch_up()
        assert len(t.custom.versions()[0].resources) == 8 and len(t.custom._shown) == 8

    run(tmp_path, body)

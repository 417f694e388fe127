"""The controller that accepts names of definitions, over a store in this process."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from kas.controllers.definitions import DefinitionConditions, _Group, _Names
from kas.store import Op
from tests.endpoints.customs import definition
from tests.endpoints.test_custom_table import Table, run
from tests.growth.counting import CONFIRMED_S, Spent, confirmed


def test_a_freed_name_affects_only_definitions_that_lack_one(tmp_path):
    """However many others the group has: checking one means reading all of it."""

    async def body(t: Table) -> None:
        for i in range(10):
            await t.put(definition("example.com", plural=f"things{i}", kind=f"Thing{i}", shortNames=[f"t{i}"]))
        waits = definition("example.com", plural="others", kind="Other", shortNames=["t3"])
        loop = DefinitionConditions(t.registries)
        task = asyncio.create_task(loop.run())

        def names(name: str):
            return t.registries.get("apiextensions.k8s.io", "customresourcedefinitions", "", name)["status"]["acceptedNames"]

        async def caught_up() -> None:
            while len(loop.queue):
                await asyncio.sleep(0.01)
                t.store.catch_up()

        await asyncio.sleep(0)
        await caught_up()
        accepted = {k: v for k, v in waits["spec"]["names"].items() if k != "shortNames"}
        await t.put(waits, accepted=accepted)
        await caught_up()
        before = loop.queue.adds
        await t.store.commit(Op(t.root + "things5.example.com", None))
        t.store.catch_up()
        await caught_up()
        assert loop.queue.adds == before + 1
        assert names("others.example.com") == accepted
        await t.store.commit(Op(t.root + "things3.example.com", None))
        t.store.catch_up()
        await caught_up()
        assert names("others.example.com") == waits["spec"]["names"]
        task.cancel()

    run(tmp_path, body)


def test_a_webhook_without_a_usable_ca_bundle_prevents_serving(tmp_path):
    """Until it has one."""
    crd = definition("example.com")
    crd["spec"]["conversion"] = {"strategy": "Webhook", "webhookClientConfig": {"url": "https://a.example", "caBundle": "Zm9v"}}

    async def body(t: Table) -> None:
        loop = DefinitionConditions(t.registries)

        async def established() -> dict:
            await loop._sync("widgets.example.com")
            t.store.catch_up()
            status = t.registries.get("apiextensions.k8s.io", "customresourcedefinitions", "", "widgets.example.com")["status"]
            return next(c for c in status["conditions"] if c["type"] == "Established")

        await t.put(crd, conditions=[], accepted={"plural": "widgets"})
        t.custom.start()
        found = await established()
        assert (found["status"], found["reason"]) == ("False", "InvalidCABundle")
        assert found["message"] == "The conversion webhook CABundle is invalid"
        assert t.custom.find("example.com", "v1", "widgets") is None
        del crd["spec"]["conversion"]["webhookClientConfig"]["caBundle"]
        await t.put(crd, generation=2, conditions=[{"type": "NamesAccepted", "status": "True"}, found])
        assert (await established())["status"] == "True"
        assert t.custom.find("example.com", "v1", "widgets") is not None

    run(tmp_path, body)


def test_accepted_names_are_not_written_again(tmp_path):
    """Whatever the status says."""
    crd = definition("example.com")

    async def body(t: Table) -> None:
        loop = DefinitionConditions(t.registries)
        for conditions in [], [{"type": "Established", "status": "False", "reason": "X"}], [{"type": "NamesAccepted", "status": "False"}]:
            await t.put(crd, conditions=conditions)
            await loop._sync("widgets.example.com")
            t.store.catch_up()
            found = t.registries.get("apiextensions.k8s.io", "customresourcedefinitions", "", "widgets.example.com")["status"]
            assert found["conditions"] == conditions

    run(tmp_path, body)


def test_nonstructural_schemas_of_old_definitions_are_reported(tmp_path):
    crd = definition("example.com")
    crd["spec"]["preserveUnknownFields"] = True
    crd["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"a": {"properties": {"b": {}}}}}}
    violation = "type: Required value: must not be empty for specified object fields"
    at = "spec.versions[0].schema.openAPIV3Schema.properties[a]"

    async def body(t: Table) -> None:
        loop = DefinitionConditions(t.registries)

        async def told(obj: dict) -> dict | None:
            await t.put(obj, conditions=[{"type": "NonStructuralSchema", "status": "True"}])
            await loop._sync("widgets.example.com")
            t.store.catch_up()
            status = t.registries.get("apiextensions.k8s.io", "customresourcedefinitions", "", "widgets.example.com")["status"]
            return next((c for c in status["conditions"] if c["type"] == "NonStructuralSchema"), None)

        found = await told(crd)
        assert (found["status"], found["reason"]) == ("True", "Violations")
        preserved = "spec.preserveUnknownFields: Invalid value: true: must be false"
        assert found["message"] == f"[{preserved}, {at}.properties[b].{violation}, {at}.{violation}]"
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["definitions"] = {"x": {}}
        found = await told(crd)
        assert (found["status"], found["reason"]) == ("Unknown", "StructuralError")
        assert found["message"] == "failed to check validation schema for version v1: OpenAPIV3Schema 'definitions' is not supported"
        del crd["spec"]["versions"][0]["schema"]
        crd["spec"]["preserveUnknownFields"] = False
        assert await told(crd) is None

    run(tmp_path, body)


def test_short_names_are_looked_up_without_a_scan(tmp_path):
    compared = []

    class Name(str):
        __hash__ = str.__hash__

        def __eq__(self, other):
            compared.append(1)
            return str.__eq__(self, other)

    async def body(t: Table) -> None:
        def named(n: int) -> dict:
            return {"plural": "a", "kind": "A", "shortNames": [Name(f"s{i}") for i in range(n)]}

        names = SimpleNamespace(group="example.com", requested=named(500), accepted=named(499))
        found, problem = DefinitionConditions(t.registries)._accept(names)
        assert found["shortNames"] == names.requested["shortNames"] and problem is None

    run(tmp_path, body)
    assert len(compared) <= 4 * 500


@pytest.mark.timeout(CONFIRMED_S)
def test_names_are_looked_up_without_scanning_the_group(request, tmp_path):
    """Each resource of a group that was defined after the others was compared with all of them."""
    costs: list[float] = []

    def cost(loop: DefinitionConditions, n: int) -> float:
        for i in range(n):
            crd = definition("example.com", plural=f"p{i}", kind=f"K{i}", shortNames=[f"s{i}"])
            crd["metadata"]["name"] = f"p{i}.example.com"
            crd["status"] = {"acceptedNames": crd["spec"]["names"], "conditions": []}
            loop._look(crd["metadata"]["name"], crd)
        new = definition("example.com", plural="new", kind="New", shortNames=["s7"])
        with Spent() as spent:
            for _ in range(200):
                found, problem = loop._accept(_Names(new))
                loop._look("new.example.com", new)
        assert "shortNames" not in found and problem == ("ShortNamesConflict", '"s7" is already in use')
        return spent.seconds

    async def body(t: Table) -> None:
        costs.extend(cost(DefinitionConditions(t.registries), n) for n in (100, 3000))

    run(tmp_path, body)
    fault = "" if costs[1] < 5 * costs[0] else f"30 times as many: {costs}"
    assert not confirmed(request.node.nodeid, fault)


def test_a_group_knows_which_names_are_used():
    def names(**accepted: object) -> _Names:
        return _Names({"spec": {"group": "g", "names": {"plural": "a"}}, "status": {"acceptedNames": accepted}})

    group = _Group()
    assert not group.put("a", names(plural="a", singular="a", kind="A", shortNames=["x"]))
    assert not group.put("b", names(plural="b", kind="B"))
    resources, kinds = group.used()
    assert resources("a") and resources("x") and resources("b") and not resources("c") and kinds("A") and kinds("B") and not kinds("a")
    assert not group.put("a", names(plural="a", kind="A", shortNames=["x", "y"], singular="a"))  # no name becomes free that was not
    assert group.put("a", names(plural="a", kind="A", shortNames=["y"]))
    assert not group.used()[0]("x") and group.wanting == {"a", "b"}
    assert group.put("a", None) and not group.used()[0]("a") and set(group.members) == {"b"} and group.wanting == {"b"}
    assert not group.put("a", None)

"""The steps of a write: what admission sees and when, reinvocation, conflicts, and writes that store nothing."""

from __future__ import annotations

import asyncio
import copy
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from kas.admission import CREATE, DELETE, UPDATE, Attributes
from kas.auth.attributes import NO_OPINION
from kas.endpoints.served import Served
from kas.meta import errors, field
from kas.registry.generic import Registry
from kas.registry.strategy import Context
from kas.store import Op
from kas.types.scheme import BUILTIN
from tests.endpoints.inprocess import NOW, V1, V2, Api, WaitingConverter, autoscaler

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
MAPS = "/api/v1/namespaces/ns/configmaps"


def run(tmp_path, test, **options):
    async def main():
        api = Api(tmp_path, **options)
        try:
            await test(api)
        finally:
            api.close()

    asyncio.run(main())


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


class Plugin:
    """``admits(attributes)`` in the mutating step, ``validates`` in the other; with ``waits`` both happen in a later loop iteration."""

    def __init__(self, name: str, admits=None, validates=None, waits: bool = False) -> None:
        self.name, self._waits = name, waits
        if admits is not None:
            self.admit = lambda a: self._step(admits, a)
        if validates is not None:
            self.validate = lambda a: self._step(validates, a)

    def handles(self, a: Attributes) -> bool:
        return True

    def _step(self, step, a: Attributes):
        if self._waits:
            return self._later(step, a)
        step(a)
        return None

    @staticmethod
    async def _later(step, a: Attributes) -> None:
        await asyncio.sleep(0)
        step(a)


class Seen:
    """Records what a plug-in was shown."""

    def __init__(self) -> None:
        self.admitted: list[tuple] = []
        self.validated: list[tuple] = []

    def plugin(self, waits: bool) -> Plugin:
        def note(to: list):
            return lambda a: to.append((a.operation, a.subresource, a.name, copy.deepcopy(a.obj), copy.deepcopy(a.old)))

        return Plugin("Seen", note(self.admitted), note(self.validated), waits)


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("converter", [None, WaitingConverter])
def test_admission_sees_the_version_of_the_request(tmp_path, waits, converter):
    seen = Seen()

    def target(obj) -> int:
        assert obj["apiVersion"] == "autoscaling/v1"
        return obj["spec"]["targetCPUUtilizationPercentage"]

    async def test(api: Api):
        await api("POST", V1, autoscaler("a", "v1"))
        await api("PATCH", V1 + "/a", {"spec": {"targetCPUUtilizationPercentage": 70}}, MERGE)
        await api("PATCH", V1 + "/a/status", {"status": {"currentReplicas": 1}}, MERGE)
        await api("PATCH", V1 + "/b?fieldManager=m", autoscaler("b", "v1"), APPLY)
        await api("DELETE", V1 + "/a")
        for rows in (seen.admitted, seen.validated):
            create, patch, status, applied, delete = rows
            assert create[:3] == (CREATE, "", "a") and target(create[3]) == 60 and create[4] is None
            assert patch[:3] == (UPDATE, "", "a") and (target(patch[3]), target(patch[4])) == (70, 60)
            assert status[:3] == (UPDATE, "status", "a") and status[3]["status"]["currentReplicas"] == 1
            assert applied[:3] == (CREATE, "", "b") and target(applied[3]) == 60 and applied[4] is None
            assert delete[:3] == (DELETE, "", "a") and delete[3] is None and target(delete[4]) == 70
        # Validating plug-ins see what is about to be stored, including its identity.
        assert "uid" not in seen.admitted[0][3]["metadata"] and seen.validated[0][3]["metadata"]["uid"]

    run(tmp_path, test, plugins=[seen.plugin(waits)], **({"converter": converter()} if converter else {}))


@pytest.mark.parametrize("waits", [False, True])
def test_changes_by_mutating_admission_are_stored_in_the_storage_version(tmp_path, waits):
    def lower(a: Attributes) -> None:
        if a.obj is not None:
            a.obj["spec"]["targetCPUUtilizationPercentage"] = 5

    async def test(api: Api):
        for method, path, body, ctype in (
            ("POST", V1, autoscaler("a", "v1"), "application/json"),
            ("PUT", V1 + "/a", autoscaler("a", "v1", 7), "application/json"),
            ("PATCH", V1 + "/b?fieldManager=m", autoscaler("b", "v1"), APPLY),
        ):
            status, answer = await api(method, path, body, ctype)
            assert status in (200, 201) and answer["spec"]["targetCPUUtilizationPercentage"] == 5
            metrics = api.stored(answer["metadata"]["name"])["spec"]["metrics"]
            assert metrics[0]["resource"]["target"]["averageUtilization"] == 5

    run(tmp_path, test, plugins=[Plugin("Lower", lower, waits=waits)])


class Webhooks:
    """Acts as mutating webhooks with ``reinvocationPolicy: IfNeeded``: remembers the object as they left it."""

    name = "Webhooks"

    def __init__(self, ran: list[str]) -> None:
        self.ran = ran

    def handles(self, a: Attributes) -> bool:
        return True

    def admit(self, a: Attributes) -> None:
        state = a.reinvoked()
        self.ran.append("webhooks again" if state.again else "webhooks")
        data = a.obj.setdefault("data", {})
        data["seen"] = ",".join(sorted(k for k in data if k != "seen"))
        state.values[self.name] = copy.deepcopy(a.obj)


class Sidecar:
    """Changes the object after ``Webhooks`` ran, every time."""

    name = "Sidecar"

    def __init__(self, ran: list[str], waits: bool, changes: bool) -> None:
        self.ran, self.waits, self.changes = ran, waits, changes

    def handles(self, a: Attributes) -> bool:
        return True

    def admit(self, a: Attributes):
        return self._later(a) if self.waits else self._step(a)

    async def _later(self, a: Attributes) -> None:
        await asyncio.sleep(0)
        self._step(a)

    def _step(self, a: Attributes) -> None:
        self.ran.append("sidecar")
        if self.changes:
            a.obj["data"][f"added{self.ran.count('sidecar')}"] = "x"
        state = a.reinvoked()
        if state.values["Webhooks"] != a.obj:
            state.required = True


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(
    ("method", "path", "ctype"),
    [("POST", MAPS, "application/json"), ("PUT", MAPS + "/a", "application/json"), ("PATCH", MAPS + "/a", MERGE),
     ("PATCH", MAPS + "/a?fieldManager=m&force=1", APPLY)],
)  # fmt: skip
def test_plugins_are_reinvoked_at_most_once(tmp_path, waits, method, path, ctype):
    ran: list[str] = []

    async def test(api: Api):
        if method != "POST":
            await api.config_maps.create(Context(NOW, "ns"), config_map("a"))
        status, answer = await api(method, path, config_map("a", own="x"), ctype)
        assert status in (200, 201)
        assert ran == ["webhooks", "sidecar", "webhooks again", "sidecar"]
        # The second round saw what the first one added; what the last plug-in then adds is seen by none.
        assert answer["data"]["seen"] == "added1,own" and answer["data"]["added2"] == "x"

    run(tmp_path, test, plugins=[Webhooks(ran), Sidecar(ran, waits, changes=True)])


def test_each_attempt_may_reinvoke_them(tmp_path):
    ran: list[str] = []
    rival = Rival(1)

    async def test(api: Api):
        rival.api = api
        await api.config_maps.create(Context(NOW, "ns"), config_map("a", first="x"))
        assert (await api("PATCH", MAPS + "/a", {"data": {"own": "x"}}, MERGE))[0] == 200
        assert ran == ["webhooks", "sidecar", "webhooks again", "sidecar"] * 2

    run(tmp_path, test, plugins=[Webhooks(ran), Sidecar(ran, waits=True, changes=True), rival])


def test_plugins_are_not_reinvoked_without_need(tmp_path):
    ran: list[str] = []

    async def test(api: Api):
        assert (await api("POST", MAPS, config_map("a", own="x")))[0] == 201
        assert ran == ["webhooks", "sidecar"]

    run(tmp_path, test, plugins=[Webhooks(ran), Sidecar(ran, waits=False, changes=False)])


def test_managed_fields_broken_by_a_plugin_are_restored(tmp_path):
    def break_them(a: Attributes) -> None:
        a.obj["metadata"]["managedFields"] = [{"manager": "x"}]

    async def test(api: Api):
        resp = await api("POST", MAPS + "?fieldManager=me", config_map("a", x="y"))
        assert [e["manager"] for e in resp[1]["metadata"]["managedFields"]] == ["me"]

    run(tmp_path, test, plugins=[Plugin("Breaks", break_them)])


class Rival:
    """Writes to the object while the first ``times`` requests for it are in admission."""

    name = "Rival"

    def __init__(self, times: int) -> None:
        self.times, self.asked = times, 0
        self.api: Any = None

    def handles(self, a: Attributes) -> bool:
        return a.operation in (UPDATE, DELETE)

    async def validate(self, a: Attributes) -> None:
        self.asked += 1
        if self.asked <= self.times:
            maps = self.api.config_maps
            rec = maps.find("ns", a.name)
            obj = maps.object(rec)
            del obj["metadata"]["resourceVersion"]
            obj["data"] = {**obj.get("data", {}), f"rival{self.asked}": "x"}
            await self.api.store.commit(Op(rec.key, maps.draft(obj), rec.revision))


def raced(tmp_path, times: int, test) -> Rival:
    rival = Rival(times)

    async def main(api: Api):
        rival.api = api
        await api("POST", MAPS, config_map("a", first="x"))
        await test(api)

    run(tmp_path, main, plugins=[rival])
    return rival


@pytest.mark.parametrize(
    ("body", "ctype"),
    [({"data": {"mine": "x"}}, MERGE), ([{"op": "add", "path": "/data/mine", "value": "x"}], "application/json-patch+json"),
     ({"data": {"mine": "x"}}, "application/strategic-merge-patch+json"), (config_map("a", mine="x"), APPLY)],
)  # fmt: skip
def test_a_patch_is_recomputed_on_a_conflict(tmp_path, body, ctype):
    async def test(api: Api):
        query = "?fieldManager=m" if ctype == APPLY else ""
        status, answer = await api("PATCH", MAPS + "/a" + query, body, ctype)
        assert status == 200 and answer["data"] == {"first": "x", "mine": "x", "rival1": "x", "rival2": "x"}

    assert raced(tmp_path, 2, test).asked == 3


def test_a_put_without_a_revision_is_retried(tmp_path):
    async def test(api: Api):
        status, answer = await api("PUT", MAPS + "/a", config_map("a", mine="x"))
        assert status == 200 and answer["data"] == {"mine": "x"}

    assert raced(tmp_path, 2, test).asked == 3


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_write_with_an_old_revision_conflicts(tmp_path, method):
    async def test(api: Api):
        _, now = await api("GET", MAPS + "/a")
        body = config_map("a", mine="x")
        body["metadata"]["resourceVersion"] = now["metadata"]["resourceVersion"]
        status, answer = await api(method, MAPS + "/a", body, "application/json" if method == "PUT" else MERGE)
        assert (status, answer["reason"]) == (409, "Conflict") and "the object has been modified" in answer["message"]
        assert (await api("GET", MAPS + "/a"))[1]["data"] == {"first": "x", "rival1": "x"}

    assert raced(tmp_path, 1, test).asked == 1


def test_a_delete_checks_its_preconditions_again(tmp_path):
    async def test(api: Api):
        _, now = await api("GET", MAPS + "/a")
        version = now["metadata"]["resourceVersion"]
        status, _ = await api("DELETE", MAPS + "/a", {"preconditions": {"resourceVersion": version}})
        assert status == 409 and (await api("GET", MAPS + "/a"))[0] == 200
        assert (await api("DELETE", MAPS + "/a", {"preconditions": {"uid": now["metadata"]["uid"]}}))[0] == 200
        assert (await api("GET", MAPS + "/a"))[0] == 404

    assert raced(tmp_path, 2, test).asked == 3


def test_an_object_deleted_during_an_update_is_not_found(tmp_path):
    async def vanish(a: Attributes) -> None:
        apis[0].store.commit_now(Op(apis[0].config_maps.key("ns", a.name), None, None))

    apis: list[Api] = []
    plugin = Plugin("Vanish")
    plugin.validate = lambda a: vanish(a) if a.operation == UPDATE else None

    async def test(api: Api):
        apis.append(api)
        await api("POST", MAPS, config_map("a"))
        status, answer = await api("PATCH", MAPS + "/a", {"data": {"x": "y"}}, MERGE)
        assert (status, answer["reason"]) == (404, "NotFound")

    run(tmp_path, test, plugins=[plugin])


@pytest.mark.parametrize("step", ["admits", "validates"])
@pytest.mark.parametrize("waits", [False, True])
def test_a_refusal_at_either_step_stores_nothing(tmp_path, step, waits):
    def refuse(a: Attributes) -> None:
        if refusing[0]:
            raise errors.forbidden("", "configmaps", a.name, f"{step} says no")

    refusing = [False]

    async def test(api: Api):
        await api("POST", MAPS, config_map("a", first="x"))
        revision = api.store.revision
        refusing[0] = True
        for method, path, body, ctype in (
            ("POST", MAPS, config_map("b"), "application/json"),
            ("PUT", MAPS + "/a", config_map("a"), "application/json"),
            ("PATCH", MAPS + "/a", {"data": {"x": "y"}}, MERGE),
            ("PATCH", MAPS + "/b?fieldManager=m", config_map("b"), APPLY),
            ("DELETE", MAPS + "/a", None, ""),
        ):
            status, answer = await api(method, path, body, ctype)
            assert status == 403 and answer["message"].endswith(f"{step} says no")
        assert api.store.revision == revision

    run(tmp_path, test, plugins=[Plugin("Refuse", **{step: refuse}, waits=waits)])


def test_a_dry_run_does_everything_but_the_commit(tmp_path):
    seen = Seen()

    async def test(api: Api):
        await api("POST", V2, autoscaler("a"))
        seen.admitted.clear()
        seen.validated.clear()
        revision, before = api.store.revision, api.stored("a")
        for method, path, body, ctype, code in (
            ("POST", V1 + "?dryRun=All", autoscaler("b", "v1"), "application/json", 201),
            ("PUT", V1 + "/a?dryRun=All", autoscaler("a", "v1", 9), "application/json", 200),
            ("PATCH", V1 + "/a?dryRun=All", {"spec": {"maxReplicas": 9}}, MERGE, 200),
            ("PATCH", V1 + "/c?dryRun=All&fieldManager=m", autoscaler("c", "v1"), APPLY, 201),
            ("DELETE", V1 + "/a?dryRun=All", None, "", 200),
        ):
            status, answer = await api(method, path, body, ctype)
            assert status == code, answer
            assert answer["apiVersion"] in ("autoscaling/v1", "v1")
        assert len(seen.admitted) == len(seen.validated) == 5
        assert api.store.revision == revision and api.stored("a") == before

    run(tmp_path, test, plugins=[seen.plugin(waits=False)])


def test_unknown_query_parameters_of_a_write_are_ignored(tmp_path):
    """UpdateOptions and others have no resourceVersion: apimachinery's ParameterCodec skips unknown parameters. The precondition of a PUT
    is in its body alone."""

    async def test(api: Api):
        _, made = await api("POST", MAPS + "?resourceVersion=77&limit=x&timeoutSeconds=1", config_map("a"))
        assert made["kind"] == "ConfigMap"
        for query in ("resourceVersion=1", "resourceVersion=99999", "resourceVersion=abc", "limit=x&watch=1&resourceVersionMatch=Exact"):
            for method, ctype in (("PUT", "application/json"), ("PATCH", MERGE)):
                status, answer = await api(method, f"{MAPS}/a?{query}", config_map("a", q=query + method), ctype)
                assert status == 200 and answer["data"]["q"] == query + method, answer
        assert (await api("DELETE", MAPS + "/a?resourceVersion=1"))[0] == 409  # that is a precondition
        assert (await api("DELETE", MAPS + "/a?resourceVersionMatch=Exact&limit=3"))[0] == 200

    run(tmp_path, test)


def test_a_second_delete_of_a_terminating_pod_skips_admission(tmp_path):
    """Upstream's pendingGraceful: plug-ins see the delete that starts the grace period and one that shortens it, and no other;
    preconditions are checked for all."""
    asked: list[str] = []
    path = "/api/v1/namespaces/ns/pods/p"

    async def test(api):
        pods = BUILTIN.resource("", "v1", "pods")
        api.rest.add(Served(pods, Registry(pods, api.store, lambda: NOW)))
        spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 30}
        status, _ = await api("POST", path[:-2], {"metadata": {"name": "p"}, "spec": spec})
        assert status == 201
        _, going = await api("DELETE", path)
        assert going["metadata"]["deletionGracePeriodSeconds"] == 30 and len(asked) == 2
        for options in (None, {"gracePeriodSeconds": 30}, {"gracePeriodSeconds": 60}):
            status, again = await api("DELETE", path, options)
            assert (status, again["metadata"]) == (200, going["metadata"]) and len(asked) == 2
        assert (await api("DELETE", path, {"preconditions": {"uid": "another"}}))[0] == 409
        _, sooner = await api("DELETE", path, {"gracePeriodSeconds": 5})
        assert sooner["metadata"]["deletionGracePeriodSeconds"] == 5 and len(asked) == 4
        assert (await api("DELETE", path, {"gracePeriodSeconds": 0}))[0] == 200 and len(asked) == 6
        assert (await api("GET", path))[0] == 404

    def note(a):
        if a.operation == DELETE:
            asked.append(a.name)

    run(tmp_path, test, plugins=[Plugin("Notes", note, note)])


def test_a_pod_deleted_without_grace_is_marked_first(tmp_path):
    """``updateForGracefulDeletionAndFinalizers``: watchers, and a concurrent delete, see the deletion time and a grace period of 0."""

    async def test(api):
        pods = BUILTIN.resource("", "v1", "pods")
        registry = Registry(pods, api.store, lambda: NOW)
        api.rest.add(Served(pods, registry))
        path = "/api/v1/namespaces/ns/pods"
        remove = registry.remove

        async def slower(ctx, key, obj, expected):
            await api.store.commit(Op(key))
            return await remove(ctx, key, obj, expected)

        for name, node, asked, by_another in (("a", "", None, False), ("b", "n", 30, False), ("c", "n", None, True)):
            spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}
            assert (await api("POST", path, {"metadata": {"name": name}, "spec": spec}))[0] == 201
            if asked:
                assert (await api("DELETE", f"{path}/{name}", {"gracePeriodSeconds": asked}))[0] == 200
            before = api.store.revision
            dry = {"gracePeriodSeconds": 0, "dryRun": ["All"]}
            assert (await api("DELETE", f"{path}/{name}", dry))[0] == 200 and api.store.revision == before
            if by_another:
                registry.remove = slower
            status, gone = await api("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0})
            marked, deleted = api.store.events(f"/registry/pods/ns/{name}", before)[0]
            shown = orjson.loads(marked.record.json)["metadata"]
            assert deleted.record is None and deleted.previous.json == marked.record.json
            assert (shown["deletionTimestamp"], shown["deletionGracePeriodSeconds"], shown["generation"]) == (NOW, 0, 2)
            revision = marked.revision if by_another else deleted.revision
            assert (status, gone["metadata"]) == (200, shown | {"resourceVersion": str(revision)})

    run(tmp_path, test)


class OfStorage(Plugin):
    of_storage = True


@pytest.mark.parametrize("waits", [False, True])
def test_storage_errors_come_before_the_kinds_validation(tmp_path, waits):
    """Later plug-ins do not see an object that validation refuses."""
    seen: list[tuple[str, str, int, bool]] = []
    refuse = errors.invalid

    def judge(a: Attributes) -> None:
        seen.append((a.operation, a.version, a.obj["spec"]["maxReplicas"], a.old is not None))
        if a.obj["spec"].get("minReplicas") == 13:
            raise refuse(a.group, a.kind, a.name, [field.forbidden("spec.minReplicas", "unlucky")])
        if a.obj["spec"].get("minReplicas") == 14:
            raise a.forbid("it is another's")

    unheard = Plugin("later", validates=lambda a: seen.append(("later", "", 0, False)))

    def hpa(least: int, most: int, version: str) -> dict[str, Any]:
        obj = autoscaler("h", version, most)
        obj["spec"]["minReplicas"] = least
        return obj

    async def test(api: Api):
        for path, version in ((V2, "v2"), (V1, "v1")):
            seen.clear()
            status, body = await api("POST", path, hpa(13, 5, version))
            assert status == 422 and [c["field"] for c in body["details"]["causes"]] == ["spec.minReplicas", "spec.maxReplicas"]
            assert body["message"].startswith('HorizontalPodAutoscaler.autoscaling "h" is invalid: [spec.minReplicas: Forbidden: unlucky, ')
            status, body = await api("POST", path, hpa(7, 5, version))
            assert status == 422 and [c["field"] for c in body["details"]["causes"]] == ["spec.maxReplicas"]
            assert (await api("POST", path, hpa(14, 5, version)))[0] == 403
            assert seen == [(CREATE, version, 5, False)] * 3
        assert (await api("POST", V2, autoscaler("h")))[0] == 201
        for path, version in ((V2, "v2"), (V1, "v1")):
            seen.clear()
            status, body = await api("PUT", f"{path}/h", hpa(13, 5, version))
            assert status == 422 and [c["field"] for c in body["details"]["causes"]] == ["spec.minReplicas", "spec.maxReplicas"]
            assert (await api("PUT", f"{path}/h", hpa(14, 5, version)))[0] == 403
            assert seen == [(UPDATE, version, 5, True)] * 2
            # A valid object is validated once.
            seen.clear()
            assert (await api("PUT", f"{path}/h", hpa(13, 20, version)))[0] == 422
            assert seen == [(UPDATE, version, 20, True)]

    run(tmp_path, test, plugins=[OfStorage("judge", validates=judge, waits=waits), unheard])


def test_an_apply_without_the_right_to_create_is_refused_as_by_authorization(tmp_path):
    async def test(api):
        said = ""
        api.writer.authorizer = SimpleNamespace(authorize=lambda a: (NO_OPINION, said, ""))
        for said in ("", 'RBAC: role.rbac.authorization.k8s.io "r" not found'):
            code, status = await api("PATCH", f"{MAPS}/a?fieldManager=m", config_map("a"), APPLY)
            why = 'User "admin" cannot create resource "configmaps" in API group "" in the namespace "ns"' + (f": {said}" if said else "")
            assert (code, status["message"]) == (403, f'configmaps "a" is forbidden: {why}')
            assert status["details"] == {"name": "a", "kind": "configmaps"}

    run(tmp_path, test)

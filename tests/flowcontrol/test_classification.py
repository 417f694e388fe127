"""Which FlowSchema a request matches."""

from __future__ import annotations

import asyncio
import hashlib
import random
from typing import Any

import pytest

from kas._fastpath import parse
from kas.auth.user import UserInfo
from kas.flowcontrol import classification, controller, dumps, limits
from kas.flowcontrol.classification import FEW, Schema, Schemas, deal, flow_hash
from kas.flowcontrol.controller import FlowControl
from kas.flowcontrol.limits import Nominal
from kas.flowcontrol.work import Work
from kas.meta import waiting
from kas.observe.metrics import Registry
from kas.request.http import Request
from kas.request.requestinfo import Query
from kas.store.shared import Shared

PODS = "/api/v1/namespaces/a/pods"


def request(user: str, groups: tuple[str, ...] = (), path: str = PODS, method: str = "GET") -> Request:
    req = Request(method, path, "", [])
    req.params, req.info, req.user = Query(""), parse(method, path), UserInfo(user, groups)
    return req


def schema(name: str = "s", precedence: int = 1000, by: str = "", **rule: object) -> dict:
    spec = {"matchingPrecedence": precedence, "priorityLevelConfiguration": {"name": "l"}, "rules": [rule] if rule else []}
    if by:
        spec["distinguisherMethod"] = {"type": by}
    return {"metadata": {"name": name, "uid": "1"}, "spec": spec}


ANY = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
ALL = {"resourceRules": [ANY], "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}


LEVEL = {"metadata": {"name": "own", "uid": "2"}, "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 3}}}


def user(name: str) -> dict:
    return {"kind": "User", "user": {"name": name}}


def group(name: str) -> dict:
    return {"kind": "Group", "group": {"name": name}}


def account(namespace: str, name: str) -> dict:
    return {"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": name}}


@pytest.mark.parametrize(("subject", "who", "groups", "matches"), [
    (user("alice"), "alice", (), True), (user("alice"), "bob", (), False), (user("*"), "bob", (), True),
    (group("dev"), "bob", ("ops", "dev"), True), (group("dev"), "dev", (), False), (group("*"), "bob", (), True),
    (account("team", "bot"), "system:serviceaccount:team:bot", (), True),
    (account("team", "bot"), "system:serviceaccount:team:other", (), False),
    (account("team", "*"), "system:serviceaccount:team:other", (), True),
    (account("team", "*"), "system:serviceaccount:teams:other", (), False),
    (account("team", "*"), "team", (), False),
    (account("team", "*"), "system:serviceaccount:team", (), False),
    (account("team", "*"), "system:serviceaccount:team:a:B", (), True), (account("team", "a"), "system:serviceaccount:team:a:b", (), False),
])  # fmt: skip
def test_subjects(subject, who, groups, matches):
    assert Schema(schema(subjects=[subject], **ALL)).matches(request(who, groups)) is matches


@pytest.mark.parametrize(("changed", "method", "path", "matches"), [
    ({}, "GET", PODS, True), ({"verbs": ["list"]}, "GET", PODS, True), ({"verbs": ["get"]}, "GET", PODS, False),
    ({"apiGroups": [""]}, "GET", PODS, True), ({"apiGroups": ["apps"]}, "GET", PODS, False),
    ({"resources": ["pods"]}, "GET", PODS + "/x", True), ({"resources": ["pods"]}, "PUT", PODS + "/x/status", False),
    ({"resources": ["pods/status"]}, "PUT", PODS + "/x/status", True), ({"resources": ["*/status"]}, "PUT", PODS + "/x/status", False),
    ({"namespaces": ["a"]}, "GET", PODS, True), ({"namespaces": ["b"]}, "GET", PODS, False),
    ({"namespaces": []}, "GET", PODS, False), ({"clusterScope": False}, "GET", "/api/v1/pods", False),
    ({"namespaces": [], "clusterScope": True}, "GET", "/api/v1/pods", True),
])  # fmt: skip
def test_resource_rules(changed, method, path, matches):
    made = schema(subjects=[user("u")], resourceRules=[{**ANY, **changed}])
    assert Schema(made).matches(request("u", (), path, method)) is matches


@pytest.mark.parametrize(("urls", "path", "matches"), [
    (["*"], "/x", True), (["/healthz"], "/healthz", True), (["/healthz"], "/healthz/etcd", True), (["/healthz"], "/healthzz", False),
    (["/version/*"], "/version", False),
    (["/"], "/version", True), (["/apis/"], "/apis", False), (["/apis/"], "/apis/x", True), (["/ver*"], "/version", False),
    (["/ver*"], "/ver/x", True), (["/version/*"], "/version/x", True), (["/a", "/b"], "/b", True), (["*"], PODS, False),
])  # fmt: skip
def test_paths(urls, path, matches):
    made = schema(subjects=[user("u")], nonResourceRules=[{"verbs": ["get"], "nonResourceURLs": urls}])
    assert Schema(made).matches(request("u", (), path)) is matches
    assert not Schema(made).matches(request("u", (), path, "POST"))


def test_precedence_and_then_the_name_decide():
    objects = {n: schema(n, p) for n, p in (("b", 10), ("a", 10), ("z", 1), ("c", 9000))}
    assert [s.name for s in sorted(map(Schema, objects.values()), key=lambda s: s.order)] == ["z", "a", "b", "c"]


def test_flows_are_distinguished_by_user_or_namespace():
    req = request("u")
    assert [Schema(schema(by=by)).distinguisher(req) for by in ("ByUser", "ByNamespace", "")] == ["u", "a", ""]


def test_a_hand_has_different_queues_and_every_queue_is_dealt():
    rng = random.Random(1)
    hands = [deal(rng.getrandbits(64), 64, 6) for _ in range(2000)]
    assert all(len(set(h)) == 6 and 0 <= min(h) <= max(h) < 64 for h in hands)
    assert {i for h in hands for i in h} == set(range(64))
    assert deal(7, 1, 1) == (0,) and sorted(deal(12345, 5, 5)) == [0, 1, 2, 3, 4]
    assert flow_hash("s", "u") != flow_hash("s", "v") != flow_hash("t", "v")


def test_a_flow_has_upstreams_queues():
    """The dumps show them: the first eight bytes of the SHA-256 of schema, NUL, distinguisher, dealt from the low end."""
    value = int.from_bytes(hashlib.sha256(b"service-accounts\x00system:serviceaccount:a:b").digest()[:8], "little")
    assert flow_hash("service-accounts", "system:serviceaccount:a:b") == value
    first = value % 128
    second = value // 128 % 127
    assert deal(value, 128, 2) == (first, second + (second >= first))


def test_updating_one_schema_equals_reading_all(tmp_path):
    """Thousands of others are not examined again."""
    rng, made = random.Random(7), FlowControl(Shared.private(), tmp_path, 600, Work(lambda *_: None, {}, 1, True), Registry())
    made.configure()
    stored: dict[str, dict] = {}
    for _ in range(300):
        name = rng.choice(["global-default", "exempt", *(f"s{i}" for i in range(12))])
        if rng.random() < 0.3:
            stored.pop(name, None)
        else:
            stored[name] = schema(name, rng.randrange(1, 4), "", subjects=[])
            stored[name]["spec"]["priorityLevelConfiguration"]["name"] = rng.choice(["exempt", "catch-all", "none", "own"])
        made.changed("flowschemas", {name: stored.get(name)}, False)
        if rng.random() < 0.3:  # a level is created, or deleted
            made.changed("prioritylevelconfigurations", {"own": rng.choice([None, LEVEL])}, False)
        if rng.random() < 0.5:
            continue  # several at once
        kept = dict(made.stats)
        made.configure()
        there = {(s.name, s.level) for s in made._schemas}
        assert {*made.stats} == {*kept} & there  # the counts of the remaining ones
        for one in made._schemas:  # a request matches each
            made._stats_of(one)
        found = [(s.name, s.level, s.order) for s in made._schemas], dict(made.stats)
        assert {*made.stats} == there and all(made.stats[key] is kept[key] for key in {*kept} & there)
        made.changed("flowschemas", stored, True)
        made.configure()
        assert ([(s.name, s.level, s.order) for s in made._schemas], made.stats) == found


def test_a_changed_level_reads_no_schema_again(tmp_path, monkeypatch):
    """Nor does a new one, except for those that name it; and a dump of the levels iterates over schemas once."""
    made = FlowControl(Shared.private(), tmp_path, 600, Work(lambda *_: None, {}, 1, True), Registry())
    made.changed("flowschemas", {f"s{i}": schema(f"s{i}", subjects=[user("u")]) for i in range(20)}, True)
    waits = schema("waits", subjects=[user("u")])
    waits["spec"]["priorityLevelConfiguration"]["name"] = "own"
    made.changed("flowschemas", {"waits": waits}, False)
    made.configure()
    read = list[str]()

    class Read(Schema):
        def __init__(self, obj: dict) -> None:
            read.append(obj["metadata"]["name"])
            super().__init__(obj)

    monkeypatch.setattr(controller, "Schema", Read)
    monkeypatch.setattr(controller, "Schemas", None)  # all of them created again
    assert ("waits", "own") not in made.stats
    other = {**LEVEL, "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 7}}}
    for level, there in ((LEVEL, True), (other, True), (None, False)):
        made.changed("prioritylevelconfigurations", {"own": level}, False)
        made.configure()
        assert there or ("waits", "own") not in made.stats
        for one in made._schemas:
            made._stats_of(one)
        assert (("waits", "own") in made.stats) is there is ("waits" in [s.name for s in made._schemas])
    assert read == []


def test_creating_and_deleting_a_level_moves_none_of_its_schemas(tmp_path, monkeypatch):
    """Each of 1,500 was removed and inserted again before the next request was classified."""
    made = FlowControl(Shared.private(), tmp_path, 600, Work(lambda *_: None, {}, 1, True), Registry())
    stored = {f"s{i}": schema(f"s{i}", 1, subjects=[user("u")], **ALL) for i in range(300)}
    for obj in stored.values():
        obj["spec"]["priorityLevelConfiguration"]["name"] = "own"
    made.changed("flowschemas", stored, True)
    made.configure()
    moved = list[str]()
    for name in ("add", "remove"):
        monkeypatch.setattr(Schemas, name, lambda self, one: moved.append(one.name))
    for level, first in ((LEVEL, "s0"), (None, "catch-all"), (LEVEL, "s0")):
        made.changed("prioritylevelconfigurations", {"own": level}, False)
        assert made._classify(request("u")).schema == first
    assert moved == [] and len(made.stats) == 2


def test_levels_no_longer_named_leave_nothing(tmp_path):
    made = FlowControl(Shared.private(), tmp_path, 600, Work(lambda *_: None, {}, 1, True), Registry())
    made.configure()

    def kept() -> int:
        return sum(len(x) for x in vars(made).values() if isinstance(x, (dict, list, set)))

    before = kept()
    for i in range(50):
        obj = schema("s", 1, subjects=[user("u")], **ALL)
        obj["spec"]["priorityLevelConfiguration"]["name"] = f"none{i}"
        made.changed("flowschemas", {"s": obj}, False)
        made.configure()
    made.changed("flowschemas", {"s": None}, False)
    made.configure()
    assert kept() == before


def test_many_changed_schemas_are_sorted_once(tmp_path, monkeypatch):
    """Deleting 10,000 one by one held the loop for 90 ms."""
    made = FlowControl(Shared.private(), tmp_path, 600, Work(lambda *_: None, {}, 1, True), Registry())
    made.configure()
    monkeypatch.setattr(made, "_configure_schema", None)  # one of them
    many = {f"s{i}": schema(f"s{i}", subjects=[user(f"u{i}")], **ALL) for i in range(200)}
    for each in many.values():
        each["spec"]["priorityLevelConfiguration"]["name"] = "catch-all"
    for told, there in ((many, 200), (dict.fromkeys(many), 0)):
        made.changed("flowschemas", told, False)
        made.configure()
        assert sum(s.name in many for s in made._schemas) == there


@pytest.mark.parametrize("few", [FEW, 1, 0])
def test_the_first_match_of_many_is_found_by_subject(few, monkeypatch):
    monkeypatch.setattr(classification, "FEW", few)
    rng = random.Random(3)
    accounts = [account("a", "b"), account("a", "*"), account("a", "b:c")]
    subjects = [user("u"), user("v"), user("*"), group("g"), group("h"), group("*"), *accounts]
    names = [("u", ()), ("v", ("g",)), ("w", ("h", "g", "u")), ("w", ()), ("system:serviceaccount:a:b", ("g",)),
             ("system:serviceaccount:a:b:c", ()), ("system:serviceaccount:a", ())]  # fmt: skip
    for _ in range(200):
        there = {}
        made = Schemas()
        for _ in range(rng.randrange(30)):
            name = f"s{rng.randrange(12)}"
            if name in there:
                made.remove(there.pop(name))
            else:
                verbs = [{**ANY, "verbs": [rng.choice(["get", "list", "*"])]}]
                one = schema(name, rng.randrange(3), subjects=rng.sample(subjects, rng.randrange(4)), resourceRules=verbs)
                made.add(there.setdefault(name, Schema(one)))
        ordered = sorted(there.values(), key=lambda s: s.order)
        assert list(made) == ordered == list(Schemas(there.values()))
        for who, groups in names:
            req = request(who, groups, rng.choice([PODS, PODS + "/x"]))
            assert made.first(req) is next((s for s in ordered if s.matches(req)), None)


def test_schemas_for_other_subjects_are_not_examined(monkeypatch):
    made = Schemas([*(Schema(schema(f"s{i}", 1, subjects=[user("nobody"), group("none")], **ALL)) for i in range(5000)),
                    Schema(schema("mine", 2, subjects=[group("g"), group("h")], **ALL))])  # fmt: skip
    asked = []
    real = Schema.matches
    monkeypatch.setattr(Schema, "matches", lambda self, req: asked.append(self) or real(self, req))
    assert made.first(request("u", ("a", "g", "h"))).name == "mine" and len(asked) == 1
    assert made.first(request("u")) is None and len(asked) == 1


def test_a_schema_of_many_subjects_is_inserted_in_one_step():
    """Inserting each of its subjects held the loop for 400 ms at the first request, with 300 schemas of 1,400 users each."""
    large = [Schema(schema(f"s{i}", i, subjects=[user(f"u{i}-{j}") for j in range(FEW + 1)], **ALL)) for i in range(20)]
    few = Schema(schema("few", 15, subjects=[user(f"u17-{j}") for j in range(FEW)], **ALL))
    made = Schemas(large)
    assert not made._by_subject and made._large == large
    made.add(few)
    assert len(made._by_subject) == FEW
    assert [made.first(request(f"u{i}-3")).name for i in (0, 9, 17, 19)] == ["s0", "s9", "few", "s19"]
    assert made.first(request("nobody")) is None
    made.remove(few), made.remove(large[17])
    assert not made._by_subject and made.first(request("u17-3")) is None


def test_a_schema_is_compiled_when_it_arrives(tmp_path, monkeypatch):
    """And not at the next request. A status write does not compile it again; the objects themselves are not kept."""
    made = FlowControl(Shared.private(), tmp_path, 600, Work(lambda *_: None, {}, 1, True), Registry())
    placed = list[str]()
    real = Schemas.add

    def add(self: Schemas, one: Schema) -> None:
        placed.append(one.name)
        real(self, one)

    monkeypatch.setattr(Schemas, "add", add)
    stored = {f"s{i}": schema(f"s{i}", 1, subjects=[user("u")], **ALL) for i in range(300)}
    for obj in stored.values():
        obj["spec"]["priorityLevelConfiguration"]["name"] = "catch-all"
    made.changed("flowschemas", stored, True)
    made.configure()
    monkeypatch.setattr(controller, "Schemas", None)  # all of them created again
    made.changed("flowschemas", {"s7": {**stored["s7"], "status": {"conditions": [{"type": "Dangling"}]}}}, False)
    made.configure()
    assert placed == []
    made.changed("flowschemas", {"more": {**stored["s7"], "metadata": {"name": "more"}}}, False)
    monkeypatch.setattr(controller, "Schema", None)
    made.configure()
    assert placed == ["more"]


def test_changes_without_effect_on_flows_keep_the_cache(tmp_path):
    """The server writes the status of each new schema and level, and there may be thousands."""
    made = FlowControl(Shared.private(), tmp_path, 600, Work(lambda *_: None, {}, 1, True), Registry())
    made.changed("flowschemas", {"s": schema("s", 1, subjects=[user("u")], **ALL)}, False)
    made.configure()
    epoch = made.gate.epoch
    made.changed("flowschemas", {"s": {**schema("s", 1, subjects=[user("u")], **ALL), "status": {"conditions": []}}}, False)
    assert made.gate.epoch is epoch
    made.configure()
    made.changed("flowschemas", {"s": schema("s", 2, subjects=[user("u")], **ALL)}, False)
    assert made.gate.epoch is not epoch


def test_a_changed_level_of_many_costs_only_its_own_part(tmp_path, monkeypatch):
    """Each change affects the others' seats, so these are recomputed once an eighth of the levels has changed, and at the next adjustment.
    """
    made = FlowControl(Shared.private(), tmp_path, 600, Work(lambda *_: None, {}, 1, True), Registry())
    calls, real = [0], limits.nominal

    def counted(*args: Any) -> Nominal:
        calls[0] += 1
        return real(*args)

    monkeypatch.setattr(limits, "nominal", counted)

    def change(name: str, asked: int | None) -> None:
        spec = {"type": "Limited", "limited": {"nominalConcurrencyShares": asked}}
        obj = None if asked is None else {"metadata": {"name": name}, "spec": spec}
        made.changed("prioritylevelconfigurations", {name: obj}, False)
        made.configure()

    def right() -> bool:
        total = sum(limits.shares(spec) for spec in made._specs.values())
        wanted = {name: real(spec, total, 600) for name, spec in made._specs.items()}
        return made.nominal == wanted and made.levels.keys() == wanted.keys()

    for i in range(50):
        change(f"l{i}", 1)
        assert right()  # a few are always correct
    costs = []
    for most in (100, 200, 400):
        calls[0] = 0
        for i in range(most, 2 * most):
            change(f"l{i}", 1)
            assert 0 < made.nominal[f"l{i}"].nominal == made.levels[f"l{i}"].limit < 12
        costs.append(calls[0] / most)
    assert max(costs) < 20  # each costs the same, however many there are: it used to be proportional
    change("l110", 1000)
    assert made.nominal["l110"].nominal == made.levels["l110"].limit > 200 and not right()
    made.adjust()
    assert right()
    for i in range(100, 150):
        change(f"l{i}", None)
    assert "l110" not in made.levels and "l110" not in made.demands and not made.leaving
    made.adjust()
    assert right()


def test_adjusting_many_levels_yields_the_loop(tmp_path, monkeypatch):
    """10,000 held the loop for 200 ms every ten seconds, and for 160 each second. Some may be deleted meanwhile."""
    registry = Registry()
    made = FlowControl(Shared.private(), tmp_path, 600, Work(lambda *_: None, {}, 1, True), registry)
    names = [f"l{i}" for i in range(200)]

    def change(names: list[str], there: bool) -> None:
        spec = {"type": "Limited", "limited": {"nominalConcurrencyShares": 1}}
        made.changed("prioritylevelconfigurations", {n: {"metadata": {"name": n}, "spec": spec} if there else None for n in names}, False)
        made.configure()

    change(names, True)
    monkeypatch.setattr(waiting, "TIME_SLICE_S", 0.0)

    async def turns_beside(work: Any, after: int = 0, gone: str = "") -> int:
        turns, running = 0, asyncio.ensure_future(work)
        while not running.done():
            turns += 1
            if turns == after:
                change([gone], False)
            await asyncio.sleep(0)
        await running
        return turns

    def told(gauge: str) -> set[str]:
        return {name for (name,) in registry.metrics[f"apiserver_flowcontrol_{gauge}"].values}

    assert asyncio.run(turns_beside(made.adjust_in_turns(), 20, "l150")) > 300
    assert "l150" not in made.levels and "l150" not in made.demands and made.demands.keys() == made.levels.keys()
    assert asyncio.run(turns_beside(registry.paced(), 2, "l199")) > len(names) // 64
    asyncio.run(registry.paced())
    assert told("nominal_limit_seats") == made.levels.keys() > told("target_seats") >= set(names) - {"l150", "l199"}


def test_dumps_of_unused_queues_are_bounded(tmp_path, monkeypatch):
    """A level may have ten million queues: their table took all memory. Thousands of levels are dumped over several iterations."""
    monkeypatch.setattr(dumps, "MOST_QUEUES", 30, raising=False)
    made = FlowControl(Shared.private(), tmp_path, 600, Work(lambda *_: None, {}, 1, True), Registry())
    for name, queues in (("a", 20), ("b", 1000), ("c", 5)):
        queuing = {"queues": queues, "handSize": 1, "queueLengthLimit": 1}
        response = {"type": "Queue", "queuing": queuing}
        spec = {"type": "Limited", "limited": {"nominalConcurrencyShares": 1, "limitResponse": response}}
        made.changed("prioritylevelconfigurations", {name: {"metadata": {"name": name}, "spec": spec}}, False)
    shown = asyncio.run(dumps.Dumps(made).queues(None))  # type: ignore[arg-type]
    rows = [line.split(",")[0] for line in shown.body.decode().splitlines()[1:]]
    assert rows == ["a"] * 20 + ["b"] * 10
    monkeypatch.setattr(waiting, "TIME_SLICE_S", 0.0)
    paused: list[None] = []
    pause = waiting.TimeSlice.pause
    monkeypatch.setattr(waiting.TimeSlice, "pause", lambda self: paused.append(None) or pause(self))
    page = asyncio.run(dumps.Dumps(made).priority_levels(None))  # type: ignore[arg-type]
    assert len(page.body.decode().splitlines()) == 1 + len(made.levels) == 1 + len(paused)

"""Reflectors and informers over a real store, whose hub learns of writes only at ``catch_up``, as of those of another worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kas.informers.informer import Informer, InformerFactory, whole
from kas.informers.reflector import Handlers, Reflector
from kas.store import Op, StoreError, TransformError, build_record, open_store

PREFIX = "/registry/things/"


class World:
    """A store, and what a target was notified of."""

    def __init__(self, path: Path) -> None:
        self.store = open_store(str(path), sync=False)
        self.told: list[tuple] = []

    def put(self, key: str, **fields: object) -> int:
        namespace, _, name = key.rpartition("/")
        obj = {"metadata": {"name": name, "namespace": namespace}, **fields}
        head, _, tail = orjson.dumps(obj).partition(b'"metadata":{')
        self.store.commit_now(Op(PREFIX + key, build_record(head + b'"metadata":{', tail)))
        return self.store.revision

    def drop(self, key: str) -> int:
        self.store.commit_now(Op(PREFIX + key, None))
        return self.store.revision

    def catch_up(self) -> None:
        self.store.hub.catch_up()

    def lose(self) -> None:
        """Drops the history up to now without the hub's knowledge."""
        while not self.store.compact(self.store.revision, 1000):
            pass

    def reflector(self, lists: bool = True) -> Reflector:
        def replace(records) -> None:
            self.told.append(("replace", [(r.key[len(PREFIX) :], r.revision) for r in records]))

        def apply(events) -> None:
            self.told += [("gone" if e.record is None else "there", e.key[len(PREFIX) :], e.revision) for e in events]

        reflector = Reflector(self.store, PREFIX, Handlers(replace, apply), lists)
        reflector.start()
        return reflector

    def seen(self) -> list[tuple]:
        told, self.told = self.told, []
        return told


@pytest.fixture
def world(tmp_path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.store.close()


def names(informer: Informer, namespace: str = "n") -> list[str]:
    return list(informer.namespace(namespace))


# --- the reflector


def test_a_reflector_lists_and_then_follows(world):
    a = world.put("n/a")
    reflector = world.reflector()
    assert world.seen() == [("replace", [("n/a", a)])] and reflector.has_synced and reflector.revision == a
    b, gone = world.put("n/b"), world.drop("n/a")
    assert world.seen() == []
    world.catch_up()
    assert world.seen() == [("there", "n/b", b), ("gone", "n/a", gone)]


def test_listed_events_are_not_repeated(world):
    """The list is ahead of the hub by writes of another worker that the hub has not dispatched."""
    world.put("n/a")
    world.drop("n/a")
    again = world.put("n/a")
    assert world.store.hub.revision == 0
    world.reflector()
    assert world.seen() == [("replace", [("n/a", again)])]
    world.catch_up()
    assert world.seen() == []
    after = world.put("n/b")
    world.catch_up()
    assert world.seen() == [("there", "n/b", after)]


def test_a_batch_that_was_partly_listed(world):
    world.put("n/a")
    reflector = world.reflector()
    world.seen()
    one = world.put("n/b")
    two = world.put("n/c")
    reflector.revision = one  # as if the list had come between the two
    world.catch_up()
    assert world.seen() == [("there", "n/c", two)]


def test_after_lost_history_everything_is_replaced(world):
    world.put("n/a")
    world.put("n/b")
    world.reflector()
    world.catch_up()
    world.seen()
    world.drop("n/a")
    changed, new = world.put("n/b", x=1), world.put("n/c")
    world.lose()
    last = world.put("n/d")
    world.catch_up()
    assert world.seen() == [("replace", [("n/b", changed), ("n/c", new), ("n/d", last)])]
    more = world.put("n/e")
    world.catch_up()
    assert world.seen() == [("there", "n/e", more)]


def test_a_reflector_without_a_list_is_notified_of_lost_history(world):
    world.put("n/a")
    world.catch_up()
    reflector = world.reflector(lists=False)
    assert world.seen() == [("replace", [])] and reflector.has_synced
    b = world.put("n/b")
    world.catch_up()
    assert world.seen() == [("there", "n/b", b)]
    world.drop("n/b")
    world.lose()
    world.catch_up()
    assert world.seen() == [("replace", [])]


def test_a_reflector_starts_once_and_stops(world):
    reflector = world.reflector()
    reflector.start()
    assert len(world.seen()) == 1
    reflector.stop()
    reflector.stop()
    world.put("n/a")
    world.catch_up()
    assert world.seen() == [] and not reflector.has_synced
    reflector.start()
    assert len(world.seen()[0][1]) == 1 and reflector.has_synced


def test_a_failed_list_leaves_nothing_behind(world, monkeypatch):
    def broken(*_: object) -> None:
        raise StoreError("no")

    with monkeypatch.context() as m:
        m.setattr(world.store, "range", broken, raising=False)
        reflector = Reflector(world.store, PREFIX, Handlers(world.told.append, world.told.append))
        with pytest.raises(StoreError):
            reflector.start()
    world.put("n/a")
    world.catch_up()
    assert world.told == [] and not reflector.has_synced


def test_other_resources_are_ignored(world):
    world.reflector()
    world.seen()
    world.store.commit_now(Op("/registry/thingsmore/n/a", build_record(b'{"metadata":{', b"}}")))
    world.catch_up()
    assert world.seen() == []


# --- the informer


def test_objects_are_available_at_the_first_lookup(world):
    world.put("n/b", x=1)
    informer = Informer(world.store, PREFIX, lambda obj: obj.get("x"))
    assert not informer.has_synced
    assert informer.namespace("n") == {"b": 1} and informer.has_synced
    world.put("n/c", x=3)
    world.put("n/a", x=2)
    world.put("m/a", x=4)
    assert names(informer) == ["b"]
    world.catch_up()
    assert (informer.namespace("n"), names(informer)) == ({"a": 2, "b": 1, "c": 3}, ["a", "b", "c"])
    assert informer.namespace("m") == {"a": 4} and informer.namespace("nobody") == {}
    world.drop("m/a")
    world.put("n/b", x=5)
    world.catch_up()
    assert informer.namespace("m") == {} and informer.namespace("n")["b"] == 5


def test_everything_is_read_before_the_first_lookup(world, monkeypatch):
    """The first write of a worker held its loop while 20,000 namespaces were decoded, three times, or 300 webhooks with 64 conditions
    each: objects that no one has counted may be many or large, and come through another worker before this one is asked."""
    factory = InformerFactory(world.store, lambda group, resource: f"/registry/{resource}/")
    some, others = (factory.lister("", resource, lambda obj: obj.get("x")) for resource in ("things", "y"))
    told = []
    followed = factory.follow("", "things", Handlers(lambda records: told.append(len(records)), lambda events: told.append(len(events))))
    world.put("n/a", x=1)
    assert not some.has_synced and told == []
    factory.fill()
    assert some.has_synced and others.has_synced and told == [1]
    world.put("n/d", x=4)
    world.catch_up()
    monkeypatch.setattr(world.store, "range", None)  # nothing is read any more
    followed()
    assert some.namespace("n") == {"a": 1, "d": 4} and others.namespace("n") == {} and told == [1, 1]


def test_unreadable_objects_are_left_to_the_first_lookup(world, monkeypatch, caplog):
    factory = InformerFactory(world.store, lambda group, resource: PREFIX)
    lister = factory.lister("", "x", lambda obj: obj.get("x"))
    told = []
    followed = factory.follow("", "x", Handlers(lambda records: told.append(len(records)), lambda events: None))
    world.put("n/a", x=1)

    def sealed(prefix):
        raise TransformError("n/a", "no key")

    with monkeypatch.context() as m:
        m.setattr(world.store, "range", sealed)
        factory.fill()
        assert caplog.text.count("no key") == 2 and not lister.has_synced
        for _ in range(2):  # and it does not count as shown
            with pytest.raises(TransformError):
                followed()
    assert lister.namespace("n") == {"a": 1}
    followed()
    assert told == [1]


def test_objects_are_sorted_at_a_lookup(world):
    """And not with every event: 10,000 in another order took quadratic time."""
    informer = Informer(world.store, PREFIX, whole)
    assert not informer.namespace("ns")
    for name in ("c", "b", "d", "a"):
        world.put(f"ns/{name}", n=name)
    world.catch_up()
    space = informer.namespace("ns")
    assert space["b"]["n"] == "b" and list(dict.keys(space)) == ["c", "b", "d", "a"]
    assert list(space) == ["a", "b", "c", "d"] == [o["n"] for o in space.values()] == list(dict.keys(space))
    world.put("ns/aa", n="aa")
    world.catch_up()
    assert [name for name, _ in informer.namespace("ns").items()] == ["a", "aa", "b", "c", "d"] and list(space.keys())[1] == "aa"


def test_cluster_scoped_objects_have_no_namespace(world):
    world.put("b")
    world.put("a")
    informer = Informer(world.store, PREFIX, whole)
    assert list(informer.all()) == ["a", "b"]
    assert informer.all()["a"]["metadata"]["name"] == "a"


def test_objects_deleted_during_lost_history_are_removed(world):
    informer = Informer(world.store, PREFIX, whole)
    informer.add_indexers({"color": lambda obj: [obj["color"]]})
    world.put("n/a", color="red")
    world.put("n/b", color="red")
    assert names(informer) == ["a", "b"]
    world.drop("n/a")
    world.put("n/b", color="blue")
    world.lose()
    world.catch_up()
    assert names(informer) == ["b"]
    assert informer.by_index("color", "red") == {} and list(informer.by_index("color", "blue")) == [("n", "b")]


def test_indexes_follow_their_objects(world):
    informer = Informer(world.store, PREFIX, whole)
    world.put("n/a", tags=["x", "y"])
    world.put("m/b", tags=["y"])
    informer.add_indexers({"tag": lambda obj: obj["tags"]})
    assert set(informer.by_index("tag", "y")) == {("n", "a"), ("m", "b")}
    assert set(informer.by_index("tag", "x")) == {("n", "a")}
    world.put("n/a", tags=["z"])
    world.drop("m/b")
    world.catch_up()
    assert informer.by_index("tag", "y") == informer.by_index("tag", "x") == {}
    assert set(informer.by_index("tag", "z")) == {("n", "a")}
    with pytest.raises(KeyError):
        informer.by_index("nothing", "x")


def test_an_index_may_be_added_later(world):
    world.put("n/a", tags=["x"])
    informer = Informer(world.store, PREFIX, whole)
    assert names(informer) == ["a"]
    informer.add_indexers({"tag": lambda obj: obj["tags"]})
    assert set(informer.by_index("tag", "x")) == {("n", "a")}


def test_equal_requests_share_one_informer(world):
    def prefix_of(group: str, resource: str) -> str:
        if (group, resource) != ("", "things"):
            raise KeyError(resource)
        return PREFIX

    factory = InformerFactory(world.store, prefix_of)
    world.put("n/a", color="red")
    first = factory.lister("", "things", whole)
    assert first.namespace("n").keys() == {"a"}
    second = factory.lister("", "things", whole, {"color": lambda obj: [obj["color"]]})
    assert second is first and set(second.by_index("color", "red")) == {("n", "a")}
    assert factory.lister("", "things", lambda obj: 1) is not first
    with pytest.raises(KeyError):
        factory.lister("", "others", whole)


def test_a_new_target_gets_all_objects_at_once(world):
    told = []
    world.put("n/a")
    factory = InformerFactory(world.store, lambda group, resource: PREFIX)
    handlers = Handlers(lambda records: told.append(len(records)), lambda events: told.extend(e.key for e in events))
    factory.follow("", "things", handlers)()
    assert told == [1]
    world.put("n/b")
    world.catch_up()
    assert told == [1, PREFIX + "n/b"]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(("n/a", "n/b", "m/a", "m/c")), st.integers(0, 2)),
        st.tuples(st.just("drop"), st.sampled_from(("n/a", "n/b", "m/a", "m/c"))),
        st.tuples(st.just("catch_up")),
        st.tuples(st.just("lose")),
        st.tuples(st.just("read")),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_random_events_lead_to_the_stores_state(tmp_path_factory, steps):
    world = World(tmp_path_factory.mktemp("store"))
    try:
        informer = Informer(world.store, PREFIX, lambda obj: obj["x"])
        informer.add_indexers({"x": lambda x: [str(x)]})
        there: dict[str, int] = {}
        for step in steps:
            if step[0] == "put":
                world.put(step[1], x=step[2])
                there[step[1]] = step[2]
            elif step[0] == "drop" and step[1] in there:
                world.drop(step[1])
                del there[step[1]]
            elif step[0] == "catch_up":
                world.catch_up()
            elif step[0] == "lose":
                world.lose()
            elif step[0] == "read":
                informer.namespace("n")
        world.catch_up()
        for namespace in ("n", "m"):
            expected = {k[2:]: x for k, x in sorted(there.items()) if k.startswith(namespace)}
            assert list(informer.namespace(namespace).items()) == list(expected.items())
        for x in range(3):
            assert set(informer.by_index("x", str(x))) == {tuple(k.split("/")) for k, v in there.items() if v == x}
    finally:
        world.store.close()

"""The node graph over the store: built at the first request of a node, updated, and correct again after missed events."""

import asyncio

import orjson
import pytest

from kas.auth.attributes import ALLOW, NO_OPINION, Attributes
from kas.auth.authz import node_informer
from kas.auth.authz.node import NodeAuthorizer
from kas.auth.authz.node_graph import SOURCES
from kas.auth.authz.node_informer import NodeGraphInformer
from kas.auth.user import UserInfo
from kas.meta import waiting
from kas.observe.metrics import Registry
from kas.store import Op, Unavailable, build_record, open_store

PREFIXES = {resource: f"/registry/{resource}/" for resource in SOURCES}


@pytest.fixture
def store(tmp_path):
    store = open_store(str(tmp_path), sync=False)
    yield store
    store.close()


def put(store, resource, key, spec):
    namespace, _, name = key.rpartition("/")
    obj = {"metadata": {"name": name, **({"namespace": namespace} if namespace else {})}, "spec": spec}
    head, _, tail = orjson.dumps(obj).partition(b'"metadata":{')
    store.commit_now(Op(PREFIXES[resource] + key, build_record(head + b'"metadata":{', tail)))


def pod(store, name, node):
    put(store, "pods", f"ns/{name}", {"nodeName": node, "volumes": [{"name": "v", "secret": {"secretName": name}}]})


def test_the_graph_is_built_at_the_first_request_and_updated(store):
    pod(store, "a", "n1")
    put(store, "pods", "ns/free", {"volumes": [{"name": "v", "secret": {"secretName": "free"}}]})
    graph = NodeGraphInformer(store, PREFIXES, Registry())
    assert not graph.has_synced
    assert graph.reaches("n1", "secrets", "ns", "a") and graph.has_synced
    assert not graph.reaches("n1", "secrets", "ns", "free")
    pod(store, "free", "n1")
    put(store, "volumeattachments", "va", {"nodeName": "n1"})
    store.commit_now(Op(PREFIXES["pods"] + "ns/a", None))
    assert graph.reaches("n1", "secrets", "ns", "a")
    store.hub.catch_up()
    assert not graph.reaches("n1", "secrets", "ns", "a")
    assert graph.reaches("n1", "secrets", "ns", "free") and graph.reaches("n1", "volumeattachments", "", "va")


def large(store, name, node, *more):
    """Returns a pod that refers to thousands of objects."""
    volumes = [{"name": "v", "secret": {"secretName": n}} for n in (name, *more, *(f"filler-{i}" for i in range(1500)))]
    volumes += [{"name": "c", "persistentVolumeClaim": {"claimName": f"claim-of-{name}"}}]
    put(store, "pods", f"ns/{name}", {"nodeName": node, "serviceAccountName": "sa", "volumes": volumes})


def test_a_large_pod_grants_the_same_rights_and_is_read_off_the_loop(store, monkeypatch):
    soon = []
    monkeypatch.setattr(node_informer.POOL, "soon", soon.append)
    put(store, "persistentvolumes", "pv", {"claimRef": {"namespace": "ns", "name": "claim-of-a"}})
    large(store, "a", "n1", "x")
    pod(store, "b", "n1")
    graph = NodeGraphInformer(store, PREFIXES, Registry())

    def seen(node, *names):
        return [graph.reaches(node, "secrets", "ns", name) for name in names]

    assert seen("n1", "a", "x", "b", "none") == [True, True, True, False] and seen("n2", "a", "b") == [False, False]
    assert graph.reaches("n1", "pods", "ns", "a") and graph.reaches("n1", "serviceaccounts", "ns", "sa")
    assert graph.reaches("n1", "persistentvolumes", "", "pv") and not graph.reaches("n2", "persistentvolumes", "", "pv")
    large(store, "a", "n2", "y")
    store.hub.catch_up()
    assert len(soon) == 2
    soon[1]()
    assert seen("n1", "a", "x") == [False, False] and seen("n2", "a", "x", "y") == [True, False, True]
    pod(store, "a", "n1")  # a small one now
    large(store, "b", "n1", "z")  # and a large one
    store.hub.catch_up()
    assert seen("n2", "a", "y") == [False, False] and seen("n1", "a", "b", "z") == [True, True, True]
    for name in "ab":
        store.commit_now(Op(PREFIXES["pods"] + f"ns/{name}", None))
    store.hub.catch_up()
    assert seen("n1", "a", "b", "z") == [False] * 3 and not graph._graph._large and not graph._graph._nodes


def test_a_large_pod_deleted_during_missed_events_grants_nothing(store, monkeypatch):
    monkeypatch.setattr(node_informer.POOL, "soon", lambda work: None)
    large(store, "a", "n1")
    graph = NodeGraphInformer(store, PREFIXES, Registry())
    assert graph.reaches("n1", "secrets", "ns", "a")
    store.hub.catch_up()
    store.commit_now(Op(PREFIXES["pods"] + "ns/a", None))
    store.compact(store.revision, 1000)
    pod(store, "c", "n1")
    store.hub.catch_up()
    assert [graph.reaches("n1", "secrets", "ns", name) for name in "ac"] == [False, True]


def test_a_pod_deleted_during_missed_events_grants_nothing(store):
    pod(store, "a", "n1")
    pod(store, "b", "n1")
    graph = NodeGraphInformer(store, PREFIXES, Registry())
    assert graph.reaches("n1", "secrets", "ns", "a")
    store.hub.catch_up()
    store.commit_now(Op(PREFIXES["pods"] + "ns/a", None))
    pod(store, "c", "n1")
    store.compact(store.revision, 1000)
    store.hub.catch_up()
    assert [graph.reaches("n1", "secrets", "ns", name) for name in "abc"] == [False, True, True]


def test_changes_of_the_graph_are_counted(store):
    metrics = Registry()
    graph = NodeGraphInformer(store, PREFIXES, metrics)
    pod(store, "a", "n1")
    graph.reaches("n1", "secrets", "ns", "a")
    put(store, "persistentvolumes", "pv", {"claimRef": {"namespace": "ns", "name": "claim"}})
    store.commit_now(Op(PREFIXES["pods"] + "ns/a", None))
    store.hub.catch_up()
    shown = metrics.expose().decode()
    for operation in ("AddPod", "AddPV", "DeletePod"):
        assert f'node_authorizer_graph_actions_duration_seconds_count{{operation="{operation}"}} 1' in shown


def test_many_pods_are_read_in_pages_while_others_have_their_turns(store, monkeypatch):
    """10,000 held the loop for 0.3 s when the first node asked. What is written meanwhile counts, and whoever asks waits for the same."""
    monkeypatch.setattr(node_informer, "MANY", 20)
    monkeypatch.setattr(node_informer, "PAGE", 8)
    monkeypatch.setattr(waiting, "TIME_SLICE_S", 0.0)
    for i in range(19):
        pod(store, f"p{i:02}", "n1")
    graph = NodeGraphInformer(store, PREFIXES, Registry())
    assert graph.ready() is None and not graph.has_synced
    for i in range(19, 40):
        pod(store, f"p{i:02}", "n1")
    put(store, "volumeattachments", "va", {"nodeName": "n1"})
    pages, limits, real = [], set(), store.range

    def counted(prefix, start="", limit=0, **more):
        pages.append(len(real(prefix, start, limit, **more).records))
        limits.add(limit)
        if len(pages) == 2:  # of pods: what is behind and what is before goes, comes and changes
            for name in ("p01", "p39"):
                store.commit_now(Op(PREFIXES["pods"] + f"ns/{name}", None))
            pod(store, "p02", "n2"), pod(store, "p38", "n2"), pod(store, "p00a", "n1"), pod(store, "p99", "n1")
            store.hub.catch_up()
        return real(prefix, start, limit, **more)

    monkeypatch.setattr(store, "range", counted)

    async def ask():
        leaves, stays = (asyncio.ensure_future(graph.ready()) for _ in range(2))
        turns = 0
        while not stays.done():
            turns += 1
            if turns == 3:
                leaves.cancel()
            await asyncio.sleep(0)
        await stays
        return turns

    assert asyncio.run(ask()) >= 5 and graph.has_synced and graph.ready() is None
    assert max(pages) <= 8 and limits == {8}
    store.hub.catch_up()
    here = {name for name in (*(f"p{i:02}" for i in range(40)), "p00a", "p99") if graph.reaches("n1", "secrets", "ns", name)}
    assert here == {*(f"p{i:02}" for i in range(40)), "p00a", "p99"} - {"p01", "p02", "p38", "p39"}
    assert graph.reaches("n2", "secrets", "ns", "p38") and graph.reaches("n1", "volumeattachments", "", "va")
    store.commit_now(Op(PREFIXES["pods"] + "ns/p03", None))
    store.compact(store.revision, 1000)  # and it is right again after a gap
    store.hub.catch_up()
    assert not graph.reaches("n1", "secrets", "ns", "p03") and graph.reaches("n1", "secrets", "ns", "p04")


def test_a_node_waits_for_the_graph_and_is_answered_by_it(store, monkeypatch):
    monkeypatch.setattr(node_informer, "MANY", 1)
    pod(store, "a", "n1")
    authorizer = NodeAuthorizer(NodeGraphInformer(store, PREFIXES, Registry()), list)
    node = UserInfo("system:node:n1", ["system:nodes"])

    async def asked(name):
        pending = authorizer.authorize(Attributes(node, "get", "ns", "", "v1", "secrets", "", name))
        return pending if isinstance(pending, tuple) else await pending

    assert [asyncio.run(asked(name))[0] for name in ("a", "b")] == [ALLOW, NO_OPINION]


def test_after_a_failed_read_the_next_request_reads_again(store, monkeypatch):
    """And nothing of what was deleted meanwhile is left."""
    monkeypatch.setattr(node_informer, "MANY", 1)
    monkeypatch.setattr(node_informer, "PAGE", 1)
    pod(store, "a", "n1"), pod(store, "b", "n1")
    graph = NodeGraphInformer(store, PREFIXES, Registry())

    real = store.range

    def unavailable(prefix, start="", *args, **more):
        if start:
            raise Unavailable("etcd")
        return real(prefix, start, *args, **more)

    async def ask():
        await graph.ready()

    with monkeypatch.context() as m:
        m.setattr(store, "range", unavailable)
        with pytest.raises(Unavailable):
            asyncio.run(ask())
    assert not graph.has_synced
    store.commit_now(Op(PREFIXES["pods"] + "ns/a", None))
    store.hub.catch_up()
    asyncio.run(ask())
    assert not graph.reaches("n1", "secrets", "ns", "a") and graph.reaches("n1", "secrets", "ns", "b")

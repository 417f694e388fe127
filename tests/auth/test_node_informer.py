"""The node graph over the store: built when a node asks, followed, and right again after a gap."""

import orjson
import pytest

from kas.auth.authz.node_graph import SOURCES
from kas.auth.authz.node_informer import NodeGraphInformer
from kas.store import Op, build_record, open_store

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


def test_it_is_built_when_a_node_asks_and_follows(store):
    pod(store, "a", "n1")
    put(store, "pods", "ns/free", {"volumes": [{"name": "v", "secret": {"secretName": "free"}}]})
    graph = NodeGraphInformer(store, PREFIXES)
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


def test_a_pod_deleted_during_a_gap_gives_nothing(store):
    pod(store, "a", "n1")
    pod(store, "b", "n1")
    graph = NodeGraphInformer(store, PREFIXES)
    assert graph.reaches("n1", "secrets", "ns", "a")
    store.hub.catch_up()
    store.commit_now(Op(PREFIXES["pods"] + "ns/a", None))
    pod(store, "c", "n1")
    store.compact(store.revision, 1000)
    store.hub.catch_up()
    assert [graph.reaches("n1", "secrets", "ns", name) for name in "abc"] == [False, True, True]

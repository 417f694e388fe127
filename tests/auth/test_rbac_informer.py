"""The RBAC index over the store: it loads, follows events, and is correct again after missed events."""

import orjson
import pytest

from kas.auth.attributes import ALLOW, Attributes
from kas.auth.authz import rbac_informer
from kas.auth.authz.rbac import RbacIndex
from kas.auth.user import UserInfo
from kas.store import Op, build_record, open_store

BOB = UserInfo("bob")
PREFIXES = {resource: f"/registry/{resource}/" for resource in rbac_informer.RESOURCES}
RULES = {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}
BINDING = {"roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": [{"kind": "User", "name": "bob"}]}


@pytest.fixture
def store(tmp_path):
    store = open_store(str(tmp_path), sync=False)
    yield store
    store.close()


def put(store, resource, key, obj):
    namespace, _, name = key.rpartition("/")
    whole = {"metadata": {"name": name, **({"namespace": namespace} if namespace else {})}, **obj}
    head, _, tail = orjson.dumps(whole).partition(b'"metadata":{')
    store.commit_now(Op(PREFIXES[resource] + key, build_record(head + b'"metadata":{', tail)))


def may(index, namespace="ns"):
    return index.authorize(Attributes(BOB, "get", namespace, "", "v1", "pods", "", "p"))[0] == ALLOW


def test_the_index_loads_and_follows_events(store):
    put(store, "clusterroles", "r", RULES)
    put(store, "rolebindings", "ns/b", BINDING)
    index = RbacIndex()
    for reflector in rbac_informer.reflectors(index, store, PREFIXES):
        reflector.start()
    assert may(index) and not may(index, "other")
    store.commit_now(Op(PREFIXES["rolebindings"] + "ns/b", None))
    put(store, "clusterrolebindings", "b", BINDING)
    assert may(index)
    store.hub.catch_up()
    assert may(index, "other")
    store.commit_now(Op(PREFIXES["clusterrolebindings"] + "b", None))
    store.hub.catch_up()
    assert not may(index)


def test_a_binding_deleted_during_missed_events_grants_nothing(store):
    put(store, "clusterroles", "r", RULES)
    put(store, "rolebindings", "ns/b", BINDING)
    put(store, "rolebindings", "kept/b", BINDING)
    index = RbacIndex()
    for reflector in rbac_informer.reflectors(index, store, PREFIXES):
        reflector.start()
    store.hub.catch_up()
    store.commit_now(Op(PREFIXES["rolebindings"] + "ns/b", None))
    store.compact(store.revision, 1000)
    store.hub.catch_up()
    assert not may(index) and may(index, "kept")


def test_large_bindings_grant_like_others(store):
    put(store, "clusterroles", "r", RULES)
    many = [{"kind": "User", "name": f"u{i}" + "x" * 100} for i in range(600)]
    index = RbacIndex()
    for reflector in rbac_informer.reflectors(index, store, PREFIXES):
        reflector.start()
    for resource, key in (("rolebindings", "ns/b"), ("clusterrolebindings", "b")):
        put(store, resource, key, {**BINDING, "subjects": [*many, *BINDING["subjects"]]})
        store.hub.catch_up()
        assert may(index)
        store.commit_now(Op(PREFIXES[resource] + key, None))
        store.hub.catch_up()
        assert not may(index)

"""The node graph: what the pods of a node refer to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kas.auth.authz.node_graph import NodeGraph


def test_mirror_pods_grant_nothing():
    graph = NodeGraph()
    spec = {"nodeName": "n1", "volumes": [{"name": "v", "secret": {"secretName": "vol"}}]}
    meta = {"name": "p", "namespace": "ns", "annotations": {"kubernetes.io/config.mirror": "x"}}
    graph.put("pods", {"metadata": meta, "spec": spec})
    assert graph.reaches("n1", "pods", "ns", "p") and not graph.reaches("n1", "secrets", "ns", "vol")


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 2), st.integers(0, 2)), max_size=30))
def test_the_graph_agrees_with_a_search(steps):
    graph, pods = NodeGraph(), {}
    for put, pod, node, secret in steps:
        if put:
            spec = {"nodeName": f"n{node}", "volumes": [{"name": "v", "secret": {"secretName": f"s{secret}"}}]}
            pods[pod] = (f"n{node}", f"s{secret}")
            graph.put("pods", {"metadata": {"name": f"p{pod}", "namespace": "ns"}, "spec": spec})
        else:
            pods.pop(pod, None)
            graph.delete("pods", "ns", f"p{pod}")
    for n in ("n0", "n1", "n2"):
        for s in ("s0", "s1", "s2"):
            assert graph.reaches(n, "secrets", "ns", s) == ((n, s) in pods.values())
    for pod in list(pods):
        graph.delete("pods", "ns", f"p{pod}")
    assert not graph._nodes and not graph._given


def test_removed_pods_grant_nothing():
    graph = NodeGraph()
    volumes = [{"name": "v", "secret": {"secretName": "s"}}, {"name": "d", "persistentVolumeClaim": {"claimName": "pvc"}}]
    for name in ("a", "b"):
        graph.put("pods", {"metadata": {"name": name, "namespace": "ns"}, "spec": {"nodeName": name, "volumes": volumes}})
    for name in ("v1", "v2"):
        graph.put("persistentvolumes", {"metadata": {"name": name}, "spec": {"claimRef": {"namespace": "ns", "name": "pvc"}}})
    graph.put("volumeattachments", {"metadata": {"name": "a"}, "spec": {"nodeName": "a"}})
    graph.keep_only("pods", {("ns", "b")})
    graph.keep_only("persistentvolumes", {("", "v2")})
    assert not graph.reaches("a", "secrets", "ns", "s") and graph.reaches("b", "secrets", "ns", "s")
    assert not graph.reaches("b", "persistentvolumes", "", "v1") and graph.reaches("b", "persistentvolumes", "", "v2")
    assert graph.reaches("a", "volumeattachments", "", "a")
    graph.keep_only("volumeattachments", set())
    assert not graph.reaches("a", "volumeattachments", "", "a")


SOURCES = ("cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos")


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("said", ["", "other"])
def test_the_namespace_of_the_secret_of_a_volume(kind, said):
    """``VisitPVSecretNames``: all but two kinds of volumes mean the claim's namespace if they name none."""
    graph = NodeGraph()
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "pvc"}}]
    graph.put("pods", {"metadata": {"name": "p", "namespace": "ns"}, "spec": {"nodeName": "n", "volumes": volumes}})
    source = {"secretRef": {"name": "s", **({"namespace": said} if said else {})}}
    spec = {"claimRef": {"namespace": "ns", "name": "pvc"}, kind: source}
    graph.put("persistentvolumes", {"metadata": {"name": "pv"}, "spec": spec})
    assert graph.reaches("n", "secrets", "other", "s") is bool(said)
    assert graph.reaches("n", "secrets", "ns", "s") is (not said and kind not in ("cinder", "storageos"))


@pytest.mark.parametrize("said", [None, "", "other"])
def test_the_secret_of_an_azure_file_and_those_of_csi(said):
    graph = NodeGraph()
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "pvc"}}]
    graph.put("pods", {"metadata": {"name": "p", "namespace": "ns"}, "spec": {"nodeName": "n", "volumes": volumes}})
    azure = {"secretName": "s", **({} if said is None else {"secretNamespace": said})}
    claim = {"claimRef": {"namespace": "ns", "name": "pvc"}}
    graph.put("persistentvolumes", {"metadata": {"name": "pv"}, "spec": {**claim, "azureFile": azure}})
    assert graph.reaches("n", "secrets", said or "ns", "s")
    refs = ("controllerExpandSecretRef", "controllerPublishSecretRef", "nodeExpandSecretRef", "nodePublishSecretRef", "nodeStageSecretRef")
    csi = {ref: {"namespace": "x", "name": ref} for ref in refs}
    graph.put("persistentvolumes", {"metadata": {"name": "pv"}, "spec": {**claim, "csi": csi}})
    assert [ref for ref in refs if graph.reaches("n", "secrets", "x", ref)] == list(refs[2:])

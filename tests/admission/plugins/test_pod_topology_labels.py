"""The PodTopologyLabels plug-in alone."""

from __future__ import annotations

from kas.admission.plugins import pod_topology_labels
from kas.config import features
from tests.admission.admission_fakes import Request, pod


def test_topology_labels(server):
    server.add("", "nodes", {"metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "z", "other": "x"}}})
    plugin = server.plugin(pod_topology_labels)
    binding = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}}
    assert Request(plugin, subresource="binding", obj=binding).run()["metadata"]["labels"] == {"topology.kubernetes.io/zone": "z"}
    assert Request(plugin, obj=pod(nodeName="n")).run()["metadata"]["labels"] == {"topology.kubernetes.io/zone": "z"}
    assert "labels" not in Request(plugin, obj=pod(nodeName="gone")).run()["metadata"]
    with features.DEFAULT.overridden(PodTopologyLabelsAdmission=False):
        assert "labels" not in Request(plugin, obj=pod(nodeName="n")).run()["metadata"]


def test_the_node_of_a_binding_is_not_decoded(server):
    server.add("", "nodes", {"metadata": {"name": "n", "labels": {"topology.kubernetes.io/region": "r"}}})
    server.store.get(server.registries.of("", "nodes").key("", "n")).json = b"not JSON"
    binding = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}}
    plugin = server.plugin(pod_topology_labels)
    assert Request(plugin, subresource="binding", obj=binding).run()["metadata"]["labels"] == {"topology.kubernetes.io/region": "r"}

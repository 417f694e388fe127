"""The RuntimeClass plug-in alone."""

from __future__ import annotations

from kas.admission.plugins import runtime_class
from tests.admission.admission_fakes import Request, pod, refused


def test_runtime_class(server):
    server.add("node.k8s.io", "runtimeclasses", {
        "metadata": {"name": "r"}, "handler": "h", "overhead": {"podFixed": {"cpu": "1"}},
        "scheduling": {"nodeSelector": {"k": "v"}, "tolerations": [{"key": "t", "operator": "Exists"}]},
    })  # fmt: skip
    plugin = server.plugin(runtime_class)
    spec = Request(plugin, obj=pod(runtimeClassName="r", tolerations=[{"key": "t", "operator": "Equal", "value": "x"}])).run()["spec"]
    assert spec["overhead"] == {"cpu": "1"} and spec["nodeSelector"] == {"k": "v"}
    assert spec["tolerations"] == [{"key": "t", "operator": "Exists"}]
    assert 'RuntimeClass "x" not found' in refused(Request(plugin, obj=pod(runtimeClassName="x"))).message
    assert "conflict: runtimeClass.scheduling.nodeSelector[k] = v; pod.spec.nodeSelector[k] = w" in refused(
        Request(plugin, obj=pod(runtimeClassName="r", nodeSelector={"k": "w"}))
    ).message  # fmt: skip
    assert "Pod Overhead set without corresponding RuntimeClass" in refused(Request(plugin, obj=pod(overhead={"cpu": "1"}))).message


def test_an_empty_overhead_counts_as_one(server):
    server.add("node.k8s.io", "runtimeclasses", {"metadata": {"name": "r"}, "handler": "h", "overhead": {}})
    plugin = server.plugin(runtime_class)
    assert "Pod Overhead set without corresponding RuntimeClass" in refused(Request(plugin, obj=pod(overhead={}))).message
    assert "doesn't match RuntimeClass's" in refused(Request(plugin, obj=pod(runtimeClassName="r", overhead={"cpu": "1"}))).message
    assert "overhead" not in Request(plugin, obj=pod(runtimeClassName="r", overhead={})).run()["spec"]

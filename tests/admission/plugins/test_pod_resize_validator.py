"""The PodResizeValidator plug-in alone."""

from __future__ import annotations

from kas.admission.plugins import pod_resize_validator
from tests.admission.admission_fakes import Request, pod, refused


def test_resize_validator(server):
    status = {"allocatable": {"cpu": "1", "memory": "1Gi"}}
    server.add("", "nodes", {"metadata": {"name": "n", "labels": {"kubernetes.io/os": "linux"}}, "status": status})
    plugin = server.plugin(pod_resize_validator)

    def resize(cpu):
        new = pod(nodeName="n", containers=[{"name": "c", "resources": {"requests": {"cpu": cpu}}}])
        new["metadata"]["generation"] = 2
        return Request(plugin, operation="UPDATE", subresource="resize", obj=new, old=pod(nodeName="n"))

    resize("1").run()
    e = refused(resize("2"))
    assert "Node didn't have enough allocatable resources: cpu, requested: 2000, allocatable: 1000" in e.message
    assert e.details["causes"] == [{"reason": "NodeCapacity"}]

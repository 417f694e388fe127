"""The PodResizeValidator plug-in alone."""

from __future__ import annotations

import pytest

from kas.admission.plugins import pod_resize_validator
from tests.admission.admission_fakes import Request, pod, refused

STATUS = {"allocatable": {"cpu": "1", "memory": "1Gi"}}
SHORT = 'pods "p" is forbidden: node didn\'t have enough allocatable resources: '


@pytest.fixture
def resize(server):
    """Resizes a pod on a node with these labels."""
    plugin = server.plugin(pod_resize_validator)

    def request(cpu: str, memory: str = "1Gi", generation: int = 2, node: str = "n", **labels: str) -> Request:
        said = {k.replace("_", "/"): v for k, v in labels.items()}
        server.add("", "nodes", {"metadata": {"name": "n", "labels": said}, "status": STATUS})
        old = pod(name="p", nodeName=node)
        old["metadata"]["generation"] = 1
        new = pod(name="p", nodeName=node, containers=[{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}])
        new["metadata"]["generation"] = generation
        return Request(plugin, operation="UPDATE", subresource="resize", name="p", obj=new, old=old)

    return request


def test_requests_beyond_the_nodes_capacity_are_refused(resize):
    resize("1").run()
    e = refused(resize("2"))
    assert e.message == f"{SHORT}cpu, requested: 2000, allocatable: 1000"
    assert e.details["causes"] == [{"reason": "NodeCapacity"}]
    both = f"{SHORT}cpu, requested: 2000, allocatable: 1000; memory, requested: 2147483648, allocatable: 1073741824"
    assert refused(resize("2", "2Gi")).message == both
    assert refused(resize("1000.1m")).message == f"{SHORT}cpu, requested: 1001, allocatable: 1000"
    resize("2", generation=1).run()  # unchanged
    resize("2", node="").run()
    assert refused(resize("1", node="gone")).message.endswith('node "gone" not found')


def test_only_linux_nodes_resize(resize):
    """A node that does not report its OS is not refused."""
    resize("1", **{"kubernetes.io_os": "linux"}).run()
    resize("1").run()
    e = refused(resize("2", **{"kubernetes.io_os": "windows"}))
    assert e.message.endswith('pod resize is only supported on linux nodes, node "n" is "windows"')
    assert e.details["causes"] == [{"reason": "UnsupportedPlatform"}]

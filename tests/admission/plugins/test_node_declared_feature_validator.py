"""The NodeDeclaredFeatureValidator plug-in alone."""

from __future__ import annotations

from typing import Any

import pytest

from kas.admission.plugins import node_declared_feature_validator
from kas.config import features
from tests.admission.admission_fakes import Request, pod, refused

POD, INIT = "InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers"


def container(name: str = "c", cpu: str = "1", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "i", "resources": {"requests": {"cpu": cpu}}, **more}


def update(
    server, new: dict[str, Any], old: dict[str, Any], subresource: str = "resize", generation: int = 2
) -> Request:
    plugin = server.plugin(node_declared_feature_validator)
    after, before = (pod(**{"nodeName": "n", **spec}) for spec in (new, old))
    after["metadata"]["generation"], before["metadata"]["generation"] = generation, 1
    return Request(plugin, operation="UPDATE", subresource=subresource, obj=after, old=before)


@pytest.mark.parametrize(
    ("new", "old", "needed"),
    [
        ({"containers": [container(cpu="2")]}, {"containers": [container()]}, []),
        ({"containers": [container(cpu="1000m")]}, {"containers": [container()]}, []),
        ({"resources": {"limits": {"cpu": "2"}}}, {"resources": {"limits": {"cpu": "1"}}}, [POD]),
        ({"resources": {"limits": {"cpu": "1000m"}}}, {"resources": {"limits": {"cpu": "1"}}}, []),
        ({"initContainers": [container(cpu="2")]}, {"initContainers": [container()]}, [INIT]),
        ({"initContainers": [container(cpu="2", restartPolicy="Always")]}, {"initContainers": [container(restartPolicy="Always")]}, []),
        (
            {"containers": [container(cpu="2")], "initContainers": [container("i", "2")], "resources": {"requests": {"cpu": "2"}}},
            {"containers": [container()], "initContainers": [container("i")]},
            [POD, INIT],
        ),
        ({"tolerations": [{"operator": "Exists"}]}, {}, []),
    ],
)
@pytest.mark.parametrize("subresource", ["", "resize"])
def test_an_update_needs_features_of_its_node(server, subresource, new, old, needed):
    server.add("", "nodes", {"metadata": {"name": "n"}, "status": {"declaredFeatures": ["Other"]}})
    request = update(server, new, old, subresource)
    if not needed:
        request.run()
        return
    what = ", ".join(needed)
    assert refused(request).message == f'pods "a" is forbidden: pod update requires features {what} which are not available on node "n"'
    server.add("", "nodes", {"metadata": {"name": "n"}, "status": {"declaredFeatures": needed[:-1]}})
    assert f"features {needed[-1]} which" in refused(request).message
    server.add("", "nodes", {"metadata": {"name": "n"}, "status": {"declaredFeatures": needed}})
    request.run()


def test_other_requests_are_not_checked(server):
    new, old = {"initContainers": [container(cpu="2")]}, {"initContainers": [container()]}
    update(server, new, old, generation=1).run()
    update(server, new | {"nodeName": ""}, old).run()
    assert refused(update(server, new, old)).message == 'pods "a" is forbidden: node "n" not found'
    with features.DEFAULT.overridden(NodeDeclaredFeatures=False):
        update(server, new, old).run()

"""The PodNodeSelector plug-in alone."""

from __future__ import annotations

from typing import Any

import pytest

from kas.admission.configuration import Section
from kas.admission.plugins import pod_node_selector
from tests.admission.admission_fakes import FakeServer, Request, pod, refused


def test_pod_node_selector(server):
    server.add("", "namespaces", {"metadata": {"name": "ns1", "annotations": {pod_node_selector.ANNOTATION: "a=b, c=d"}}})
    plugin = server.plugin(pod_node_selector)
    assert Request(plugin, obj=pod(nodeSelector={"x": "y"})).run()["spec"]["nodeSelector"] == {"a": "b", "c": "d", "x": "y"}
    assert pod_node_selector.CONFLICT in refused(Request(plugin, obj=pod(nodeSelector={"a": "z"}))).message


def selector(server: FakeServer, annotation: str | None = None, **config: str) -> pod_node_selector.Plugin:
    meta: dict[str, Any] = {"name": "ns1"}
    if annotation is not None:
        meta["annotations"] = {pod_node_selector.ANNOTATION: annotation}
    server.add("", "namespaces", {"metadata": meta})
    return server.plugin(pod_node_selector, Section("x", embedded={"podNodeSelectorPluginConfig": config}) if config else None)


def test_cluster_default_node_selector(server):
    plugin = selector(server, clusterDefaultNodeSelector="env=prod")
    assert Request(plugin, obj=pod()).run()["spec"]["nodeSelector"] == {"env": "prod"}
    assert Request(plugin, obj=pod(nodeSelector={"a": "b"})).run()["spec"]["nodeSelector"] == {"env": "prod", "a": "b"}
    e = refused(Request(plugin, obj=pod(nodeSelector={"env": "test"})))
    assert e.message == f'pods "a" is forbidden: {pod_node_selector.CONFLICT}'
    # An annotation, even an empty one, wins.
    assert "nodeSelector" not in Request(selector(server, "", clusterDefaultNodeSelector="env=prod"), obj=pod()).run()["spec"]
    Request(selector(server, "env=test", clusterDefaultNodeSelector="env=prod"), obj=pod(nodeSelector={"env": "test"})).run()


def test_allowed_node_selectors_per_namespace(server):
    plugin = selector(server, ns1="env=prod,zone=a", other="x=y")
    Request(plugin, obj=pod()).run()
    Request(plugin, obj=pod(nodeSelector={"env": "prod"})).run()
    for bad in ({"env": "test"}, {"disk": "ssd"}):
        e = refused(Request(plugin, obj=pod(nodeSelector=bad)))
        assert e.message == f'pods "a" is forbidden: {pod_node_selector.NOT_LISTED}'


@pytest.mark.parametrize(
    ("annotation", "says"),
    [
        ("a", "invalid selector: [a]"),
        ("a==b", "invalid selector: [a  b]"),
        ("a=b c", '[a]: Invalid value: "b c": a valid label must be'),
        ("/=b", '<nil>: Invalid value: "/": '),
    ],
)
def test_invalid_annotations(server, annotation, says):
    e = refused(Request(selector(server, annotation), obj=pod()))
    assert (e.code, e.reason) == (500, "") and e.message.startswith(says)


def test_a_missing_namespace(server):
    e = refused(Request(server.plugin(pod_node_selector), obj=pod()))
    assert (e.code, e.message) == (500, "Internal error occurred: namespace ns1 does not exist")

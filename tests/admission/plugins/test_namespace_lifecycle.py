"""The NamespaceLifecycle plug-in alone."""

from __future__ import annotations

import pytest

from kas.admission.plugins import namespace_lifecycle
from tests.admission.admission_fakes import Request, pod, refused


def namespace(server, phase: str) -> None:
    server.add("", "namespaces", {"metadata": {"name": "ns1"}, "status": {"phase": phase}})


def test_creating_in_a_missing_namespace_is_refused(server):
    plugin = server.plugin(namespace_lifecycle)
    assert refused(Request(plugin, obj=pod())).message == 'namespaces "ns1" not found'
    namespace(server, "Active")
    Request(plugin, obj=pod()).run()
    server.store.drop("/registry/namespaces/ns1")
    assert refused(Request(plugin, obj=pod())).code == 404


@pytest.mark.parametrize("subresource", ["", "status"])
def test_objects_of_a_missing_namespace_cannot_be_updated(server, subresource):
    """They can only be deleted."""
    plugin = server.plugin(namespace_lifecycle)
    e = refused(Request(plugin, operation="UPDATE", subresource=subresource, obj=pod(), old=pod()))
    assert (e.code, e.message) == (404, 'namespaces "ns1" not found')
    Request(plugin, operation="DELETE", old=pod()).run()
    Request(plugin, operation="UPDATE", resource="nodes", namespace="", obj={"metadata": {"name": "n"}}, old={"metadata": {}}).run()
    namespace(server, "Active")
    Request(plugin, operation="UPDATE", subresource=subresource, obj=pod(), old=pod()).run()


def test_creating_in_a_terminating_namespace_is_refused(server):
    plugin = server.plugin(namespace_lifecycle)
    namespace(server, "Active")
    Request(plugin, obj=pod()).run()
    namespace(server, "Terminating")
    e = refused(Request(plugin, obj=pod()))
    assert e.message.endswith("unable to create new content in namespace ns1 because it is being terminated")
    assert [c["reason"] for c in e.details["causes"]] == ["NamespaceTerminating"]
    Request(plugin, operation="UPDATE", obj=pod(), old=pod()).run()
    Request(plugin, group="authorization.k8s.io", resource="localsubjectaccessreviews", obj={"metadata": {}}).run()


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_three_namespaces_cannot_be_deleted(server, name):
    plugin = server.plugin(namespace_lifecycle)
    going = {"operation": "DELETE", "resource": "namespaces", "namespace": ""}
    e = refused(Request(plugin, name=name, old={"metadata": {"name": name}}, **going))
    assert e.message == f'namespaces "{name}" is forbidden: this namespace may not be deleted'
    Request(plugin, name="ns1", old={"metadata": {"name": "ns1"}}, **going).run()


@pytest.mark.parametrize("resource", ["namespaces", "localsubjectaccessreviews"])
def test_custom_resources_named_namespaces_are_checked(server, resource):
    plugin = server.plugin(namespace_lifecycle)
    assert refused(Request(plugin, group="x.io", resource=resource, obj={"metadata": {"name": "x"}})).code == 404

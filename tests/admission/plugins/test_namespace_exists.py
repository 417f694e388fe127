"""The NamespaceExists plug-in alone."""

from __future__ import annotations

from kas.admission.plugins import namespace_exists
from tests.admission.admission_fakes import Request, pod, refused


def test_namespace_exists(server):
    plugin = server.plugin(namespace_exists)
    assert refused(Request(plugin, obj=pod())).code == 404
    server.add("", "namespaces", {"metadata": {"name": "ns1"}})
    Request(plugin, obj=pod()).run()


def test_custom_resources_named_namespaces_are_checked(server):
    plugin = server.plugin(namespace_exists)
    assert refused(Request(plugin, group="x.io", resource="namespaces", obj={"metadata": {"name": "x"}})).code == 404

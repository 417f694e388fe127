"""The NamespaceAutoProvision plug-in alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kas.admission.plugins import namespace_auto_provision
from kas.meta.errors import ApiError, already_exists
from tests.admission.admission_fakes import Request, pod, refused


@pytest.fixture
def made(server, monkeypatch):
    """Returns the namespaces that were created, in place of a store that can write."""
    names: list[str] = []

    async def create(ctx, obj):
        if obj["metadata"]["name"] == "taken":
            raise already_exists("", "namespaces", "taken")
        if obj["metadata"]["name"] == "bad":
            raise ApiError(422, "Invalid", "bad")
        names.append(obj["metadata"]["name"])
        return SimpleNamespace(), []

    monkeypatch.setattr(server.registries.of("", "namespaces"), "create", create)
    return names


def test_a_namespace_is_created_with_its_first_object(server, made):
    plugin = server.plugin(namespace_auto_provision)
    Request(plugin, obj=pod()).run()
    assert made == ["ns1"]
    server.add("", "namespaces", {"metadata": {"name": "ns1"}})
    Request(plugin, obj=pod()).run()
    Request(plugin, obj=pod(), namespace="other", dry_run=True).run()
    Request(plugin, resource="nodes", namespace="", obj={"metadata": {"name": "n"}}).run()
    assert made == ["ns1"]


def test_another_client_may_create_it_first(server, made):
    plugin = server.plugin(namespace_auto_provision)
    Request(plugin, obj=pod(), namespace="taken").run()
    e = refused(Request(plugin, obj=pod(), namespace="bad"))
    assert (e.code, e.message) == (403, 'pods "a" is forbidden: bad')


def test_custom_resources_named_namespaces_create_their_namespace(server, made):
    plugin = server.plugin(namespace_auto_provision)
    Request(plugin, group="x.io", resource="namespaces", obj={"metadata": {"name": "x"}}).run()
    assert made == ["ns1"]

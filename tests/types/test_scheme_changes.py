"""A server's scheme: group versions that are added and removed while it serves, and notifications of this."""

import gc
import weakref

import pytest

from kas.types import kindloader
from kas.types.defaults import apply_defaults
from kas.types.scheme import BUILTIN, Scheme, schema_type

WIDGETS = {"resource": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList", "namespaced": True, "type": "Widget"}


def widget(**properties):
    return {"Widget": schema_type("com.example.v1.Widget", {"type": "object", "properties": properties})}


def test_the_built_in_kinds_are_there():
    scheme = Scheme()
    assert scheme.kind("", "v1", "Pod") is BUILTIN.kind("", "v1", "Pod") is not None
    assert scheme.resource("apps", "v1", "deployments") is BUILTIN.resource("apps", "v1", "deployments")
    assert scheme.resources == BUILTIN.resources and scheme.groups is BUILTIN.groups


def test_a_group_version_is_added_changed_and_removed():
    scheme, told = Scheme(), []
    end = scheme.on_change(lambda change: told.append((change.what, [r.resource for r in change.resources])))
    (first,) = scheme.add("example.com", "v1", widget(a={"type": "string"}), [WIDGETS])
    assert (first.api_version, first.kind, first.namespaced, first.etcd_prefix) == ("example.com/v1", "Widget", True, None)
    assert first.kind_record is scheme.kind("example.com", "v1", "Widget") and first.type.by_name.keys() == {"a"}
    assert scheme.kind("example.com", "v1", "DeleteOptions").type is BUILTIN.known("", "v1", "DeleteOptions").type
    (second,) = scheme.add("example.com", "v1", widget(b={"type": "string"}), [WIDGETS])
    assert scheme.resource("example.com", "v1", "widgets") is second and scheme.resources[-1] is second
    assert first.type.by_name.keys() == {"a"}  # who still holds the old one keeps all of it
    scheme.remove("example.com", "v1")
    scheme.remove("example.com", "v1")
    assert scheme.kind("example.com", "v1", "Widget") is None and scheme.resource("example.com", "v1", "widgets") is None
    assert told == [("added", ["widgets"]), ("changed", ["widgets"]), ("removed", [])]
    end()
    scheme.add("example.com", "v1", {}, [])
    assert len(told) == 3


def test_servers_do_not_share_added_versions():
    one, two = Scheme(), Scheme()
    one.add("example.com", "v1", widget(), [WIDGETS])
    assert two.kind("example.com", "v1", "Widget") is None and BUILTIN.kind("example.com", "v1", "Widget") is None


def test_common_kinds_are_created_on_demand():
    """A definition may have thousands of versions, which are added one by one: half of that time went into these kinds, most of which are
    never used."""
    scheme = Scheme()
    scheme.put("example.com", "v1", widget(), WIDGETS)
    own = scheme._own["example.com", "v1"]
    assert [kind for _, _, kind in own.kinds] == ["Widget"]
    asked = scheme.kind("example.com", "v1", "PatchOptions")
    assert asked is scheme.kind("example.com", "v1", "PatchOptions") is not None and asked.api_version == "example.com/v1"
    assert len(own.kinds) == 2 and scheme.kind("example.com", "v1", "Status") is None


def test_built_in_groups_cannot_be_changed():
    with pytest.raises(ValueError, match="is built in"):
        Scheme().add("apps", "v9", widget(), [])


def test_removed_versions_are_freed():
    scheme = Scheme()
    scheme.add("example.com", "v1", widget(), [WIDGETS])
    kind = scheme.kind("example.com", "v1", "Widget")

    class Mark:
        pass

    mark = kind.type.derived["mark"] = Mark()
    gone = weakref.ref(mark)
    scheme.remove("example.com", "v1")
    del kind, mark
    gc.collect()
    assert gone() is None


def test_defaulting_is_planned_on_the_kind():
    kind = BUILTIN.known("", "v1", "Service")
    obj = {"spec": {"ports": [{"port": 80}]}}
    apply_defaults(kind, obj)
    assert kind.plan is not None and obj["spec"]["sessionAffinity"] == "None"


def test_kinds_must_be_installed(monkeypatch):
    monkeypatch.setattr(kindloader, "_loaders", [])
    monkeypatch.setattr(kindloader, "_loaded", set())
    with pytest.raises(RuntimeError, match="no kinds are installed"):
        kindloader.load("apps")
    seen = []
    loader = seen.append
    kindloader.install(loader)
    kindloader.load("apps")
    kindloader.install(loader)
    kindloader.load("apps")
    assert seen == ["apps"]

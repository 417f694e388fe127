"""The DefaultStorageClass plug-in alone."""

from __future__ import annotations

from kas.admission.plugins import default_storage_class
from tests.admission.admission_fakes import FakeServer, Request


def classes(server: FakeServer, group: str, resource: str, annotation: str) -> None:
    for name, born in (("old", "2020-01-01T00:00:00Z"), ("z", "2021-01-01T00:00:00Z"), ("b", "2021-01-01T00:00:00Z")):
        server.add(group, resource, {"metadata": {"name": name, "creationTimestamp": born, "annotations": {annotation: "true"}}})


def test_default_storage_class(server):
    plugin = server.plugin(default_storage_class)
    claim = {"metadata": {"name": "c"}, "spec": {}}
    assert "storageClassName" not in Request(plugin, resource="persistentvolumeclaims", obj=claim).run()["spec"]
    classes(server, "storage.k8s.io", "storageclasses", default_storage_class.DEFAULT[0])
    assert Request(plugin, resource="persistentvolumeclaims", obj=claim).run()["spec"]["storageClassName"] == "b"
    none = {"metadata": {"name": "c"}, "spec": {"storageClassName": ""}}
    assert Request(plugin, resource="persistentvolumeclaims", obj=none).run()["spec"]["storageClassName"] == ""

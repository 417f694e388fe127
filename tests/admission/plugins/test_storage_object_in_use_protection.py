"""The StorageObjectInUseProtection plug-in alone."""

from __future__ import annotations

from kas.admission.plugins import storage_object_in_use_protection
from tests.admission.admission_fakes import Request


def test_finalizers(server):
    out = Request(server.plugin(storage_object_in_use_protection), resource="persistentvolumes", obj={"metadata": {"name": "v"}}).run()
    assert out["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]

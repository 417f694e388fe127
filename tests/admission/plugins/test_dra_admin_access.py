"""The DRAAdminAccess plug-in alone."""

from __future__ import annotations

from kas.admission.plugins import dra_admin_access
from tests.admission.admission_fakes import Request, refused


def test_admin_access_to_devices_needs_a_labelled_namespace(server):
    plugin = server.plugin(dra_admin_access)
    at = {"group": "resource.k8s.io", "namespace": "ns"}
    wanted = {"requests": [{"name": "a"}, {"name": "b", "exactly": {"deviceClassName": "c", "adminAccess": True}}]}
    claim = {"metadata": {"name": "c"}, "spec": {"devices": wanted}}
    template = {"metadata": {"name": "t"}, "spec": {"spec": {"devices": wanted}}}
    server.add("", "namespaces", {"metadata": {"name": "ns", "labels": {"resource.kubernetes.io/admin-access": "yes"}}})
    for resource, obj in (("resourceclaims", claim), ("resourceclaimtemplates", template)):
        e = refused(Request(plugin, **at, resource=resource, obj=obj)).status()
        assert (e["code"], e["details"]["causes"][0]["field"]) == (422, "spec.devices.requests[1].adminAccess")
    granted = claim | {"status": {"allocation": {"devices": {"results": [{"adminAccess": True}]}}}}
    status = at | {"resource": "resourceclaims", "operation": "UPDATE", "subresource": "status"}
    e = refused(Request(plugin, **status, obj=granted, old=claim)).status()
    assert e["details"]["causes"][0]["field"] == "status.allocation.devices.results[0].adminAccess"
    Request(plugin, **status, obj=granted, old=granted).run()
    Request(plugin, **at, resource="resourceclaims", obj={"metadata": {"name": "c"}, "spec": {}}).run()
    server.add("", "namespaces", {"metadata": {"name": "ns", "labels": {"resource.kubernetes.io/admin-access": "true"}}})
    Request(plugin, **at, resource="resourceclaims", obj=claim).run()
    Request(plugin, **status, obj=granted, old=claim).run()

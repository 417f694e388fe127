"""The PersistentVolumeClaimResize plug-in alone."""

from __future__ import annotations

from kas.admission.plugins import persistent_volume_claim_resize
from tests.admission.admission_fakes import Request, refused


def test_claims_grow_only_where_they_may(server):
    plugin = server.plugin(persistent_volume_claim_resize)

    def claim(size, phase="Bound"):
        spec = {"storageClassName": "s", "resources": {"requests": {"storage": size}}}
        return {"metadata": {"name": "c"}, "spec": spec, "status": {"phase": phase}}

    def grow(phase="Bound"):
        return Request(plugin, operation="UPDATE", resource="persistentvolumeclaims", obj=claim("2Gi"), old=claim("1Gi", phase))

    assert "Only bound persistent volume claims can be expanded" in refused(grow("Pending")).message
    assert "only dynamically provisioned pvc can be resized" in refused(grow()).message
    server.add("storage.k8s.io", "storageclasses", {"metadata": {"name": "s"}, "allowVolumeExpansion": True})
    grow().run()

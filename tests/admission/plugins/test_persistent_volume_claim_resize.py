"""The PersistentVolumeClaimResize plug-in alone."""

from __future__ import annotations

from kas.admission.plugins import persistent_volume_claim_resize
from tests.admission.admission_fakes import Request, refused


def test_claims_grow_only_if_their_class_allows_it(server):
    plugin = server.plugin(persistent_volume_claim_resize)

    def claim(size, phase="Bound", **annotations):
        spec = {"storageClassName": "s", "resources": {"requests": {"storage": size}}}
        return {"metadata": {"name": "c", "annotations": annotations}, "spec": spec, "status": {"phase": phase}}

    def grow(phase="Bound", **annotations):
        new = claim("2Gi", **annotations)
        return Request(plugin, operation="UPDATE", resource="persistentvolumeclaims", obj=new, old=claim("1Gi", phase, **annotations))

    assert "Only bound persistent volume claims can be expanded" in refused(grow("Pending")).message
    assert "only dynamically provisioned pvc can be resized" in refused(grow()).message
    server.add("storage.k8s.io", "storageclasses", {"metadata": {"name": "s"}, "allowVolumeExpansion": True})
    grow().run()
    # The old annotation wins if it exists, even if it is empty.
    empty = {"volume.beta.kubernetes.io/storage-class": ""}
    assert "only dynamically provisioned pvc can be resized" in refused(grow(**empty)).message


def test_a_claim_cannot_grow_while_it_gets_a_class(server):
    """The class of its volume is not known then."""
    plugin = server.plugin(persistent_volume_claim_resize)
    server.add("storage.k8s.io", "storageclasses", {"metadata": {"name": "s"}, "allowVolumeExpansion": True})

    def claim(size, **more):
        spec = {**more, "resources": {"requests": {"storage": size}}}
        return {"metadata": {"name": "c"}, "spec": spec, "status": {"phase": "Bound"}}

    for before in ({}, {"storageClassName": "other"}):
        old, new = claim("1Gi", **before), claim("2Gi", storageClassName="s")
        request = Request(plugin, operation="UPDATE", resource="persistentvolumeclaims", obj=new, old=old)
        assert "only dynamically provisioned pvc can be resized" in refused(request).message

"""The OwnerReferencesPermissionEnforcement plug-in alone."""

from __future__ import annotations

from types import SimpleNamespace

from kas.admission.plugins import owner_references_permission_enforcement
from kas.auth.user import UserInfo
from tests.admission.admission_fakes import Request, refused

BOB = UserInfo("bob", ("system:authenticated",))


def test_owner_references(server):
    plugin = server.plugin(owner_references_permission_enforcement)
    server.kinds["apps", "v1", "ReplicaSet"] = [SimpleNamespace(namespaced=True, resource="replicasets")]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u"}
    owned = {"metadata": {"name": "a", "ownerReferences": [owner]}}
    blocked = {"metadata": {"name": "a", "ownerReferences": [{**owner, "blockOwnerDeletion": True}]}}
    Request(plugin, obj=owned, user=BOB).run()
    e = refused(Request(plugin, operation="UPDATE", obj=owned, old={"metadata": {"name": "a"}}, user=BOB))
    assert "cannot set an ownerRef on a resource you can't delete" in e.message
    e = refused(Request(plugin, obj=blocked, user=BOB))
    assert "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on" in e.message
    server.grants.add(("bob", "update", "replicasets/finalizers", "r"))
    Request(plugin, obj=blocked, user=BOB).run()

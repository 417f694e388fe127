"""The OwnerReferencesPermissionEnforcement plug-in alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kas.admission.plugins import owner_references_permission_enforcement
from kas.auth.user import UserInfo
from kas.meta import waiting
from tests.admission.admission_fakes import Request, refused, turns_beside

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


def ref(uid: str, block: bool | None = None, kind: str = "ReplicationController", api_version: str = "v1") -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "name": uid, "uid": uid} | ({} if block is None else {"blockOwnerDeletion": block})


ONE, BLOCKING, OPEN = [ref("1")], [ref("1", True)], [ref("1", False)]
DELETE, FINALIZERS = "an ownerRef on a resource you can't delete", "an ownerReference refers to a resource you can't set finalizers on"
# Whether the user may delete the pod, and set finalizers on the owner; owners before (None for a create) and after; the reason.
ROWS = [
    (True, True, None, BLOCKING, ""), (True, True, ONE, BLOCKING, ""), (True, True, BLOCKING, [], ""),
    (False, False, None, [], ""), (False, False, None, ONE, ""), (False, False, None, OPEN, ""), (False, False, None, BLOCKING, FINALIZERS),
    (False, True, [], ONE, DELETE), (False, True, ONE, [], DELETE), (False, True, ONE, ONE, ""), (False, True, ONE, [ref("2")], DELETE),
    (False, True, ONE, OPEN, DELETE), (False, False, BLOCKING, BLOCKING, ""),
    (True, False, ONE, [*ONE, ref("2")], ""), (True, False, ONE, BLOCKING, FINALIZERS), (True, False, BLOCKING, OPEN, ""),
    (True, False, BLOCKING, [*BLOCKING, ref("2", False)], ""), (True, False, BLOCKING, [*BLOCKING, ref("2", True)], FINALIZERS),
    (True, False, BLOCKING, [ref("2", True)], FINALIZERS), (True, False, [ref("1", True), ref("2", True)], BLOCKING, ""),
    (True, False, None, [ref("node", True, "Node")], FINALIZERS), (True, True, None, [ref("node", True, "Node")], ""),
]  # fmt: skip


@pytest.mark.parametrize(("deletes", "finalizes", "before", "then", "why"), ROWS)
def test_changing_owners(server, deletes, finalizes, before, then, why):
    server.kinds["", "v1", "ReplicationController"] = [SimpleNamespace(namespaced=True, resource="replicationcontrollers")]
    server.kinds["", "v1", "Node"] = [SimpleNamespace(namespaced=False, resource="nodes")]
    if deletes:
        server.grants.add(("bob", "delete", "pods", "a"))
    if finalizes:
        server.grants |= {("bob", "update", f"{r}/finalizers", n) for r in ("replicationcontrollers", "nodes") for n in ("1", "2", "node")}
    operation, old = ("CREATE", None) if before is None else ("UPDATE", {"metadata": {"name": "a", "ownerReferences": before}})
    plugin, obj = server.plugin(owner_references_permission_enforcement), {"metadata": {"name": "a", "ownerReferences": then}}
    request = Request(plugin, operation=operation, obj=obj, old=old, user=BOB)
    if not why:
        request.run()
    else:
        assert why in refused(request).message
    if operation == "UPDATE":  # a kubelet's list of owners is ignored
        Request(plugin, operation=operation, subresource="status", obj=obj, old=old, user=BOB).run()


@pytest.mark.parametrize(("api_version", "why"), [
    ("apps/v9", 'no matches for kind "Foo" in version "apps/v9"'), ("v1", 'no matches for kind "Foo" in version "v1"'),
    ("", 'no matches for kind "Foo" in version ""'), ("a/b/c", "unexpected GroupVersion string: a/b/c"),
])  # fmt: skip
def test_owners_of_unknown_kinds_cannot_block_deletion(server, api_version, why):
    obj = {"metadata": {"name": "a", "ownerReferences": [ref("1", True, "Foo", api_version)]}}
    e = refused(Request(server.plugin(owner_references_permission_enforcement), obj=obj, user=BOB))
    said = f"cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {api_version} Kind Foo: {why}"
    assert e.message == f'pods "a" is forbidden: {said}'


def test_a_right_to_all_finalizers_includes_unknown_kinds(server):
    """The kind is not looked up then: discovery may not work before a pod that is being created runs."""
    server.grants.add(("bob", "update", "*/finalizers", "*"))
    obj = {"metadata": {"name": "a", "ownerReferences": [ref("1", True, "Foo", "apps/v9"), ref("2", True)]}}
    plugin = server.plugin(owner_references_permission_enforcement)
    Request(plugin, obj=obj, user=BOB).run()
    # A right to delete only the changed object is used.
    assert DELETE in refused(Request(plugin, operation="UPDATE", obj=obj, old={"metadata": {"name": "a"}}, user=BOB)).message


def test_checks_of_owners_yield_the_loop(server, monkeypatch):
    """There may be as many owners as fit into a body, and each is authorized: 20,000 held the loop for half a second."""
    monkeypatch.setattr(waiting, "TIME_SLICE_S", 0.0)
    server.kinds["", "v1", "Node"] = [SimpleNamespace(namespaced=False, resource="nodes")]
    obj = {"metadata": {"name": "a", "ownerReferences": [ref(str(i), True, "Node") for i in range(5)]}}
    server.grants |= {("bob", "update", "nodes/finalizers", str(i)) for i in range(5)}
    request = Request(server.plugin(owner_references_permission_enforcement), obj=obj, user=BOB)
    turns = turns_beside(request)
    assert turns >= 5

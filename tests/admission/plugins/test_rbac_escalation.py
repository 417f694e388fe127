"""The RBACEscalation plug-in alone."""

from __future__ import annotations

from kas.admission.plugins import rbac_escalation
from kas.auth.authz.rbac import GROUP
from kas.auth.user import UserInfo
from tests.admission.admission_fakes import Request, refused

BOB = UserInfo("bob", ("system:authenticated",))
RULE = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}


def role(**fields) -> dict:
    return {"metadata": {"name": "r", "namespace": "ns1"}, "rules": [RULE], **fields}


def test_granting_more_than_one_has_is_refused(server):
    plugin = server.plugin(rbac_escalation)
    create = {"group": GROUP, "resource": "roles", "kind": "Role"}
    e = refused(Request(plugin, obj=role(), user=BOB, **create))
    assert 'user "bob"' in e.message and "is attempting to grant RBAC permissions not currently held" in e.message
    server.initializer.rules.put("roles", role())
    subject = {"kind": "User", "apiGroup": GROUP, "name": "bob"}
    ref = {"apiGroup": GROUP, "kind": "Role", "name": "r"}
    server.initializer.rules.put("rolebindings", {"metadata": {"name": "b", "namespace": "ns1"}, "roleRef": ref, "subjects": [subject]})
    Request(plugin, obj=role(), user=BOB, **create).run()
    refused(Request(plugin, obj=role(rules=[{**RULE, "verbs": ["delete"]}]), user=BOB, **create))


def test_an_update_is_authorized_for_the_named_role(server):
    plugin = server.plugin(rbac_escalation)
    update = {"operation": "UPDATE", "group": GROUP, "resource": "roles", "kind": "Role", "user": BOB}
    old = role(rules=[])
    refused(Request(plugin, obj=role(), old=old, **update))
    server.grants.add(("bob", "escalate", "roles", "r"))
    Request(plugin, obj=role(), old=old, **update).run()
    refused(Request(plugin, obj=role(), group=GROUP, resource="roles", user=BOB))


def test_a_create_is_authorized_with_the_name_in_its_body(server):
    plugin = server.plugin(rbac_escalation)
    server.grants.add(("bob", "escalate", "roles", "r"))
    for verb in ("update", "patch", "create"):
        request = Request(plugin, obj=role(), group=GROUP, resource="roles", user=BOB)
        request.attributes.verb = verb
        if verb == "create":  # the path has no name
            refused(request)
        else:
            request.run()

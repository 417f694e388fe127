"""Users, roles and bindings for the tests of RBAC."""

from __future__ import annotations

from kas.auth.user import MASTERS, UserInfo

BOB = UserInfo("bob", ("system:authenticated",))
READ = [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]
ROOT = UserInfo("root", (MASTERS,))


def role(name, rules, namespace="", **more):
    return {"metadata": {"name": name, **({"namespace": namespace} if namespace else {})}, "rules": rules, **more}


def binding(name, kind, ref, *users, namespace=""):
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": ref}
    return {"metadata": meta, "roleRef": ref, "subjects": [{"kind": "User", "name": u} for u in users]}

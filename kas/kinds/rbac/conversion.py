"""Bindings stored as rbac.authorization.k8s.io/v1alpha1, which is no longer served (``pkg/apis/rbac/v1alpha1/conversion.go``)."""

from __future__ import annotations

from kas.types.conversion import Obj, converts

GROUP = "rbac.authorization.k8s.io"


def _subject(old: Obj) -> Obj:
    out = {key: value for key, value in old.items() if key != "apiVersion"}
    kind, version = old.get("kind"), old.get("apiVersion") or ""
    group = {"ServiceAccount": "", "User": GROUP, "Group": GROUP}.get(kind or "", version.rpartition("/")[0])
    if kind == "User" and old.get("name") == "*":  # all that are authenticated, and only there
        out |= {"kind": "Group", "name": "system:authenticated"}
    return {**out, "apiGroup": group} if group else out


@converts((GROUP, "v1alpha1", "ClusterRoleBinding"), (GROUP, "v1", "ClusterRoleBinding"))
@converts((GROUP, "v1alpha1", "RoleBinding"), (GROUP, "v1", "RoleBinding"))
def binding(obj: Obj) -> Obj:
    """Convert subjects, which had a version instead of a group."""
    return {**obj, "subjects": [_subject(subject) for subject in obj["subjects"]]} if obj.get("subjects") else obj

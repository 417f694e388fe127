"""Computed defaults of rbac.authorization.k8s.io (upstream ``pkg/apis/rbac/v1/defaults.go``)."""

from __future__ import annotations

from typing import Any

from kas.api.defaults import defaults_for

GROUP = "rbac.authorization.k8s.io"


def _default_subjects(obj: dict[str, Any]) -> None:
    """A user or group without apiGroup belongs to RBAC; a service account's stays empty."""
    for subject in obj.get("subjects") or ():
        if not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
            subject["apiGroup"] = GROUP


@defaults_for(GROUP, "v1", "RoleBinding")
def default_role_binding(obj: dict[str, Any]) -> None:
    _default_subjects(obj)


@defaults_for(GROUP, "v1", "ClusterRoleBinding")
def default_cluster_role_binding(obj: dict[str, Any]) -> None:
    _default_subjects(obj)

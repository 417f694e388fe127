"""Strategies of RoleBinding and ClusterRoleBinding (upstream ``pkg/registry/rbac/{rolebinding,clusterrolebinding}``)."""

from __future__ import annotations

from typing import Any

from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.kinds.rbac import validation as rbac
from kas.meta.age import age
from kas.meta.field import FieldError
from kas.registry.printing.cells import kind_slash_name, part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.defaults import defaults_for


class _BindingStrategy(Strategy):
    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        namespaced = self.resource.namespaced
        return object_meta(obj["metadata"], namespaced, rbac.minimal_name) + rbac.binding(obj, namespaced)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        errs = self.validate(ctx, obj) + object_meta_update(obj["metadata"], old["metadata"])
        return errs + rbac.role_ref_unchanged(obj, old)


@strategy_for(rbac.GROUP, "rolebindings")
class RoleBindingStrategy(_BindingStrategy):
    """RoleBindings; roleRef is immutable, so a binding has to be deleted and created anew instead."""


@strategy_for(rbac.GROUP, "clusterrolebindings")
class ClusterRoleBindingStrategy(_BindingStrategy):
    """As RoleBinding, with ClusterRole as the only kind of role and a required namespace of service accounts."""


GROUP = "rbac.authorization.k8s.io"


def _default_subjects(obj: dict[str, Any]) -> None:
    """Set the RBAC group for users and groups without apiGroup; a service account's stays empty."""
    for subject in obj.get("subjects") or ():
        if not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
            subject["apiGroup"] = GROUP


@defaults_for(GROUP, "v1", "RoleBinding")
def default_role_binding(obj: dict[str, Any]) -> None:
    """Computed defaults: the API group of each subject by its kind."""
    _default_subjects(obj)


@defaults_for(GROUP, "v1", "ClusterRoleBinding")
def default_cluster_role_binding(obj: dict[str, Any]) -> None:
    """Computed defaults: the API group of each subject by its kind."""
    _default_subjects(obj)


@printer("rbac.authorization.k8s.io", "RoleBinding")
@printer("rbac.authorization.k8s.io", "ClusterRoleBinding")
def role_binding_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, role, age, users, groups, service accounts."""
    names: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in obj.get("subjects") or ():
        kind, name = subject.get("kind"), subject.get("name", "")
        if kind in names:
            names[kind].append(f"{subject.get('namespace', '')}/{name}" if kind == "ServiceAccount" else name)
    columns = [", ".join(found) for found in names.values()]
    return [obj["metadata"].get("name", ""), kind_slash_name(part(obj, "roleRef")), age(obj, now), *columns]

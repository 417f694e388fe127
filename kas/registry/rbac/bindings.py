"""Strategies of RoleBinding and ClusterRoleBinding (upstream ``pkg/registry/rbac/{rolebinding,clusterrolebinding}``)."""

from __future__ import annotations

from kas.api.field import FieldError
from kas.api.validation import rbac
from kas.api.validation.coremeta import object_meta, object_meta_update
from kas.registry.strategy import Context, Obj, Strategy, strategy_for


class _BindingStrategy(Strategy):
    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        namespaced = self.resource.namespaced
        return object_meta(obj["metadata"], namespaced, rbac.minimal_name) + rbac.binding(obj, namespaced)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        errs = self.validate(ctx, obj) + object_meta_update(obj["metadata"], old["metadata"])
        return errs + rbac.role_ref_unchanged(obj, old)


@strategy_for(rbac.GROUP, "rolebindings")
class RoleBindingStrategy(_BindingStrategy):
    """The role named by roleRef can never change; delete and create the binding instead."""


@strategy_for(rbac.GROUP, "clusterrolebindings")
class ClusterRoleBindingStrategy(_BindingStrategy):
    """As RoleBinding, with ClusterRole as the only kind of role and a namespace demanded of service accounts."""

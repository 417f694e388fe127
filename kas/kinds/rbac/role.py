"""Strategies of Role and ClusterRole (upstream ``pkg/registry/rbac/{role,clusterrole}``)."""

from __future__ import annotations

from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.kinds.rbac import validation as rbac
from kas.meta import field
from kas.meta.field import FieldError
from kas.meta.labelselectors import converted, label_selector
from kas.registry.strategy import Context, Obj, Strategy, strategy_for


@strategy_for(rbac.GROUP, "roles")
class RoleStrategy(Strategy):
    """Roles; their rules are about resources only, as URLs have no namespace."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateRole``: the name is any path segment, and no rule is about URLs."""
        errs = object_meta(obj["metadata"], True, rbac.minimal_name)
        return errs + rbac.policy_rules(obj, namespaced=True)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateRoleUpdate``: the whole new object, and immutable metadata."""
        return self.validate(ctx, obj) + object_meta_update(obj["metadata"], old["metadata"])


@strategy_for(rbac.GROUP, "clusterroles")
class ClusterRoleStrategy(Strategy):
    """ClusterRoles: rules about resources and URLs, their own or aggregated from other roles by label."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateClusterRole`` without tolerance for selector values that are now refused."""
        return self._validate(obj, allow_invalid_values=False)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """Validate an update, tolerating invalid label values in a stored selector (compatibility with objects from before 1.24)."""
        tolerated = any(_selector_errors(old, allow_invalid_values=False))
        return self._validate(obj, tolerated) + object_meta_update(obj["metadata"], old["metadata"])

    def _validate(self, obj: Obj, allow_invalid_values: bool) -> list[FieldError]:
        errs = object_meta(obj["metadata"], False, rbac.minimal_name)
        errs += rbac.policy_rules(obj, namespaced=False)
        aggregation = obj.get("aggregationRule")
        if aggregation is not None:
            if not aggregation.get("clusterRoleSelectors"):
                text = "at least one clusterRoleSelector required if aggregationRule is non-nil"
                errs.append(field.required("aggregationRule.clusterRoleSelectors", text))
            errs += _selector_errors(obj, allow_invalid_values, convert=True)
        return errs


def _selector_errors(obj: Obj, allow_invalid_values: bool, convert: bool = False) -> list[FieldError]:
    """Return the errors of the selectors; ``convert`` also checks that each one can be used."""
    errs: list[FieldError] = []
    for i, selector in enumerate((obj.get("aggregationRule") or {}).get("clusterRoleSelectors") or ()):
        path = field.index("aggregationRule.clusterRoleSelectors", i)
        errs += label_selector(selector, path, allow_invalid_values)
        if convert and converted(selector) is None:
            errs.append(field.invalid(path, None, "invalid label selector."))
    return errs

"""ServiceAccounts (upstream ``pkg/registry/core/serviceaccount/strategy.go``)."""

from __future__ import annotations

from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.meta import names
from kas.meta.field import FieldError
from kas.registry.strategy import Context, Obj, Strategy, strategy_for

ENFORCE = "kubernetes.io/enforce-mountable-secrets"
ENFORCE_WARNING = (
    f"metadata.annotations[{ENFORCE}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
)


def _clean_references(obj: Obj) -> None:
    """Of the object references in ``secrets`` only the names mean anything."""
    if obj.get("secrets"):
        obj["secrets"] = [{"name": ref["name"]} if ref.get("name") else {} for ref in obj["secrets"]]


@strategy_for("", "serviceaccounts")
class ServiceAccountStrategy(Strategy):
    """Only metadata is validated; references to secrets are cut to their names."""

    validates_metadata = True

    def prepare_for_create(self, ctx: Context, obj: Obj) -> None:
        """Keep only the names of referenced secrets."""
        super().prepare_for_create(ctx, obj)
        _clean_references(obj)

    def prepare_for_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Keep only the names of referenced secrets."""
        super().prepare_for_update(ctx, obj, old)
        _clean_references(obj)

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateServiceAccount``, which looks at metadata alone."""
        return object_meta(obj["metadata"], True, names.dns_subdomain)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateServiceAccountUpdate``, which looks at metadata alone."""
        return object_meta_update(obj["metadata"], old["metadata"]) + self.validate(ctx, obj)

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """One warning for the deprecated annotation that confines an account to its secrets."""
        return [ENFORCE_WARNING] if ENFORCE in (obj["metadata"].get("annotations") or {}) else []

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """One warning for the deprecated annotation, where the stored account does not have it."""
        # Only who sets the annotation is told, not who keeps or changes it.
        return [] if ENFORCE in (old["metadata"].get("annotations") or {}) else self.warnings_on_create(ctx, obj)

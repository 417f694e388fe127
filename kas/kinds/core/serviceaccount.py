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
    """Keep only the names of the object references in ``secrets``, as nothing else of them is used."""
    if obj.get("secrets"):
        obj["secrets"] = [{"name": ref["name"]} if ref.get("name") else {} for ref in obj["secrets"]]


@strategy_for("", "serviceaccounts")
class ServiceAccountStrategy(Strategy):
    """ServiceAccounts; only metadata is validated, and references to secrets are reduced to their names."""

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
        """``ValidateServiceAccount``, which only validates metadata."""
        return object_meta(obj["metadata"], True, names.dns_subdomain)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateServiceAccountUpdate``, which only validates metadata."""
        return object_meta_update(obj["metadata"], old["metadata"]) + self.validate(ctx, obj)

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """Return a warning for the deprecated annotation that restricts an account to its secrets."""
        return [ENFORCE_WARNING] if ENFORCE in (obj["metadata"].get("annotations") or {}) else []

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """Return a warning for the deprecated annotation if the stored account does not have it."""
        # Adding the annotation gives a warning, keeping or changing it does not.
        return [] if ENFORCE in (old["metadata"].get("annotations") or {}) else self.warnings_on_create(ctx, obj)

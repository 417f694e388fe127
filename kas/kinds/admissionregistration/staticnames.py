"""Names reserved for admission configurations from files, which the API does not manage (upstream ``validation/static_suffix.go``)."""

from __future__ import annotations

from kas.config import features
from kas.meta import field
from kas.meta.field import FieldError
from kas.registry.strategy import Context, Obj, Strategy

SUFFIX = ".static.k8s.io"
RESERVED = f'names ending with "{SUFFIX}" are reserved for static manifest-based configurations and cannot be managed via the API'


class ConfigurationStrategy(Strategy):
    """The common strategy of admission configurations: reserved names are refused if files may be configured, and warned about if not."""

    def rules(self, obj: Obj) -> list[FieldError]:
        """Return the errors of a new object, apart from its name."""
        raise NotImplementedError

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """Check the rules, and that the name is not reserved."""
        errs = self.rules(obj)
        if _reserved(obj) and features.DEFAULT.enabled("ManifestBasedAdmissionControlConfig"):
            errs.append(field.invalid("metadata.name", obj["metadata"]["name"], RESERVED))
        return errs

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """Return a warning for a reserved name."""
        return [] if features.DEFAULT.enabled("ManifestBasedAdmissionControlConfig") else self.warnings_on_update(ctx, obj, obj)

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """Return a warning for a reserved name."""
        return [f"metadata.name: {RESERVED}"] if _reserved(obj) else []


def _reserved(obj: Obj) -> bool:
    name: str = obj["metadata"].get("name") or ""
    return name.endswith(SUFFIX)

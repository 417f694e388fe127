"""Names that belong to configurations of admission from files, which the API does not manage (upstream ``validation/static_suffix.go``)."""

from __future__ import annotations

from kas.config import features
from kas.meta import field
from kas.meta.field import FieldError
from kas.registry.strategy import Context, Obj, Strategy

SUFFIX = ".static.k8s.io"
RESERVED = f'names ending with "{SUFFIX}" are reserved for static manifest-based configurations and cannot be managed via the API'


class ConfigurationStrategy(Strategy):
    """What all configurations of admission have in common: such a name is refused where there may be files, and warned of elsewhere."""

    def rules(self, obj: Obj) -> list[FieldError]:
        """What is wrong with a new object, wherever it comes from."""
        raise NotImplementedError

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """The rules, and those of its name."""
        errs = self.rules(obj)
        if _reserved(obj) and features.DEFAULT.enabled("ManifestBasedAdmissionControlConfig"):
            errs.append(field.invalid("metadata.name", obj["metadata"]["name"], RESERVED))
        return errs

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """Of a name that would be refused."""
        return [] if features.DEFAULT.enabled("ManifestBasedAdmissionControlConfig") else self.warnings_on_update(ctx, obj, obj)

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """Of a name that could not be given any more."""
        return [f"metadata.name: {RESERVED}"] if _reserved(obj) else []


def _reserved(obj: Obj) -> bool:
    name: str = obj["metadata"].get("name") or ""
    return name.endswith(SUFFIX)

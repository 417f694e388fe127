"""Deleting namespaces: two steps and two kinds of finalizers (upstream ``pkg/registry/core/namespace/storage``)."""

from __future__ import annotations

from typing import Any

from kas.api import errors
from kas.registry.generic import Registry
from kas.registry.strategy import Context, Obj


class NamespaceRegistry(Registry):
    """The first delete begins the termination; the object goes when spec.finalizers and metadata.finalizers are empty."""

    def check_preconditions(self, name: str, obj: Obj, options: dict[str, Any]) -> None:
        """Namespaces judge them themselves, in words of their own."""
        wanted = options.get("preconditions") or {}
        for member, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            have = obj["metadata"].get(member, "")
            if wanted.get(member) is not None and wanted[member] != have:
                why = f"Precondition failed: {label} in precondition: {wanted[member]}, {label} in object meta: {have}"
                raise errors.conflict("", "namespaces", name, why)

    async def _delete_once(self, ctx: Context, key: str, rec: Any, obj: Obj, options: dict[str, Any]) -> tuple[Any, bool]:
        meta = obj["metadata"]
        if not meta.get("deletionTimestamp"):
            meta["deletionTimestamp"] = ctx.now
            obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
            finalizers = self._deletion_finalizers(obj, options)
            if finalizers:
                meta["finalizers"] = finalizers
            else:
                meta.pop("finalizers", None)
            meta.pop("resourceVersion", None)
            if ctx.dry_run:
                return self._unstored(obj, rec.revision), False
            return await self._commit(key, obj, rec.revision), False
        if (obj.get("spec") or {}).get("finalizers"):
            return rec, False
        return await super()._delete_once(ctx, key, rec, obj, options)

    def _delete_instead(self, obj: Obj, old: Obj) -> bool:
        return not (obj.get("spec") or {}).get("finalizers") and super()._delete_instead(obj, old)

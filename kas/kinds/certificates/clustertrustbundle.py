"""Strategy of ClusterTrustBundle (upstream ``pkg/registry/certificates/clustertrustbundle``)."""

from __future__ import annotations

from typing import Any

from kas.kinds.certificates.pem import trust_bundle
from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.kinds.core.signers import bundle_name_check, signer_name
from kas.meta.checks import immutable
from kas.meta.field import FieldError
from kas.registry.printing.cells import NONE, part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for


@strategy_for("certificates.k8s.io", "clustertrustbundles")
class ClusterTrustBundleStrategy(Strategy):
    """Bundles of certificates, each of one signer or of none."""

    costly = True  # parses certificates, and imports the parser

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateClusterTrustBundle``: a name that matches the signer, and certificates that can be parsed."""
        return self._validate(obj, parse=True)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """Validate an update; an unchanged bundle is not parsed again, so it stays valid if the parser becomes stricter."""
        new, before = obj.get("spec") or {}, old.get("spec") or {}
        errs = self._validate(obj, parse=(new.get("trustBundle") or "") != (before.get("trustBundle") or ""))
        errs += object_meta_update(obj["metadata"], old["metadata"])
        return errs + immutable(new.get("signerName") or "", before.get("signerName") or "", "spec.signerName")

    def _validate(self, obj: Obj, parse: bool) -> list[FieldError]:
        spec = obj.get("spec") or {}
        signer = spec.get("signerName") or ""
        errs = object_meta(obj["metadata"], False, bundle_name_check(signer))
        if signer:
            errs += signer_name(signer, "spec.signerName")
        if parse:
            errs += trust_bundle(spec.get("trustBundle") or "", "spec.trustBundle")
        return errs


@printer("certificates.k8s.io", "ClusterTrustBundle")
def cluster_trust_bundle_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, signer."""
    return [obj["metadata"].get("name", ""), part(obj, "spec").get("signerName") or NONE]

"""Priority levels stored by the beta versions, which are no longer served (``pkg/apis/flowcontrol/v1beta*/conversion.go``)."""

from __future__ import annotations

from kas.kinds.flowcontrol.prioritylevelconfiguration import KEPT_ZERO
from kas.types.conversion import Obj, converts

GROUP, KIND = "flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"
V1 = (GROUP, "v1", KIND)
SHARES = 30  # the betas' default


def _with_shares(obj: Obj, shares: int) -> Obj:
    spec = obj["spec"]
    limited = {key: value for key, value in spec["limited"].items() if key != "assuredConcurrencyShares"}
    return {**obj, "spec": {**spec, "limited": {**limited, "nominalConcurrencyShares": shares}}}


@converts((GROUP, "v1beta1", KIND), V1)
@converts((GROUP, "v1beta2", KIND), V1)
def renamed(obj: Obj) -> Obj:
    """Rename the field of the shares."""
    limited = (obj.get("spec") or {}).get("limited")
    return obj if limited is None else _with_shares(obj, limited.get("assuredConcurrencyShares") or SHARES)


@converts((GROUP, "v1beta3", KIND), V1)
def kept_zero(obj: Obj) -> Obj:
    """Use the annotation that tells whether shares of zero were intended, rather than the default."""
    limited = (obj.get("spec") or {}).get("limited")
    annotations = dict(obj["metadata"].get("annotations") or {})
    meant = annotations.pop(KEPT_ZERO, None) is not None
    meta = {key: value for key, value in obj["metadata"].items() if key != "annotations"}
    out = {**obj, "metadata": {**meta, "annotations": annotations} if annotations else meta}
    return out if limited is None else _with_shares(out, limited.get("nominalConcurrencyShares") or (0 if meant else SHARES))

"""Workloads stored before apps/v1, in versions that are no longer served (``pkg/apis/apps/v1/conversion.go``)."""

from __future__ import annotations

from kas.kinds.apps.daemonset import TEMPLATE_GENERATION
from kas.types.conversion import Obj, converts

ROLLBACK_TO = "deprecated.deployment.rollback.to"


def _annotated(obj: Obj, key: str, value: int) -> Obj:
    meta = obj["metadata"]
    return {**obj, "metadata": {**meta, "annotations": {**(meta.get("annotations") or {}), key: str(value)}}}


@converts(("apps", "v1beta1", "Deployment"), ("apps", "v1", "Deployment"))
@converts(("extensions", "v1beta1", "Deployment"), ("apps", "v1", "Deployment"))
def deployment(obj: Obj) -> Obj:
    """Move a requested rollback to an annotation."""
    to = (obj.get("spec") or {}).get("rollbackTo")
    return obj if to is None else _annotated(obj, ROLLBACK_TO, to.get("revision") or 0)


@converts(("extensions", "v1beta1", "DaemonSet"), ("apps", "v1", "DaemonSet"))
def daemon_set(obj: Obj) -> Obj:
    """Move the template's generation to an annotation."""
    return _annotated(obj, TEMPLATE_GENERATION, (obj.get("spec") or {}).get("templateGeneration") or 0)


@converts(("extensions", "v1beta1", "ReplicaSet"), ("apps", "v1", "ReplicaSet"))
def replica_set(obj: Obj) -> Obj:
    """Rename the version; the contents are the same."""
    return obj

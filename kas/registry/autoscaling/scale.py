"""Scale, the body of every workload's /scale (upstream ``pkg/apis/autoscaling/validation``)."""

from __future__ import annotations

from kas.api import field
from kas.api.field import FieldError
from kas.api.validation import names
from kas.api.validation.coremeta import object_meta
from kas.registry.strategy import Obj


def validate_scale(scale: Obj) -> list[FieldError]:
    """``ValidateScale``."""
    errs = object_meta(scale.get("metadata") or {}, True, names.dns_subdomain)
    replicas = (scale.get("spec") or {}).get("replicas") or 0
    if replicas < 0:
        errs.append(field.invalid("spec.replicas", replicas, "must be greater than or equal to 0"))
    return errs

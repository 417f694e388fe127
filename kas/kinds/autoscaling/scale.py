"""Scale, the body of every workload's /scale (upstream ``pkg/apis/autoscaling/validation``)."""

from __future__ import annotations

from typing import Any

from kas.kinds.core.objectmeta import object_meta
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.field import FieldError
from kas.registry.printing.cells import part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Obj


def validate_scale(scale: Obj) -> list[FieldError]:
    """``ValidateScale``."""
    errs = object_meta(scale.get("metadata") or {}, True, names.dns_subdomain)
    replicas = (scale.get("spec") or {}).get("replicas") or 0
    if replicas < 0:
        errs.append(field.invalid("spec.replicas", replicas, "must be greater than or equal to 0"))
    return errs


@printer("autoscaling", "Scale")
def scale_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, wanted and present replicas, age."""
    replicas = part(obj, "spec").get("replicas", 0)
    return [obj["metadata"].get("name", ""), replicas, part(obj, "status").get("replicas", 0), age(obj, now)]

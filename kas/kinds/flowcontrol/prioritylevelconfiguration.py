"""Strategy of PriorityLevelConfiguration (upstream ``pkg/registry/flowcontrol/prioritylevelconfiguration``)."""

from __future__ import annotations

import math
from typing import Any

from kas.kinds.core.objectmeta import object_meta
from kas.kinds.flowcontrol.flowschema import FlowControlStrategy, status_conditions
from kas.kinds.flowcontrol.mandatory import PRIORITY_LEVELS
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import unsupported
from kas.meta.equality import semantic_equal
from kas.meta.field import FieldError
from kas.registry.printing.cells import NONE, part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, strategy_for
from kas.types.gostruct import render
from kas.types.scheme import builtin_type

EXEMPT = "exempt"
TYPES = ("Exempt", "Limited")
RESPONSES = ("Queue", "Reject")
MAX_QUEUES = 10_000_000
MAX_HASH_BITS = 60  # of the shuffle-sharding hash
KEPT_ZERO = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"  # only allowed in v1beta3, which is not served


@strategy_for("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations")
class PriorityLevelConfigurationStrategy(FlowControlStrategy):
    """PriorityLevelConfigurations; the mandatory ones must equal their fixed specs."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidatePriorityLevelConfiguration``: mandatory levels equal their fixed spec; the annotation for zero shares is refused."""
        errs = object_meta(obj["metadata"], False, names.dns_subdomain)
        if KEPT_ZERO in (obj["metadata"].get("annotations") or ()):
            errs.append(field.forbidden("metadata.annotations", f"annotation '{KEPT_ZERO}' is forbidden"))
        name, spec = obj["metadata"].get("name") or "", obj.get("spec") or {}
        return errs + _spec(name, spec) + _fixed(name, spec) + status_conditions(obj)


def _fixed(name: str, spec: dict[str, Any]) -> list[FieldError]:
    wanted = PRIORITY_LEVELS.get(name)
    if wanted is None:
        return []
    if name == EXEMPT:
        have, want = ({k: v for k, v in s.items() if k != EXEMPT} for s in (spec, wanted))
        text = f"spec of '{name}' except the 'spec.exempt' field must equal the fixed value"
    else:
        have, want, text = spec, wanted, f"spec of '{name}' must equal the fixed value"
    if semantic_equal(have, want, builtin_type("flowcontrol.v1.PriorityLevelConfigurationSpec")):
        return []
    return [field.invalid("spec", render("flowcontrol.PriorityLevelConfigurationSpec", spec), text)]


def _spec(name: str, spec: dict[str, Any]) -> list[FieldError]:
    errs: list[FieldError] = []
    kind, limited, exempt = spec.get("type") or "", spec.get("limited"), spec.get(EXEMPT)
    if (name == EXEMPT) != (kind == "Exempt"):
        errs.append(field.invalid("spec.type", kind, "must be 'Exempt' if and only if `name` is 'exempt'"))
    if kind == "Exempt":
        if limited is not None:
            errs.append(field.forbidden("spec.limited", "must be nil if the type is not Limited"))
        if exempt is not None:
            errs += _shares(exempt, "spec.exempt") + _lendable(exempt, "spec.exempt")
    elif kind == "Limited":
        if exempt is not None:
            errs.append(field.forbidden("spec.exempt", "must be nil if the type is Limited"))
        if limited is None:
            errs.append(field.required("spec.limited", "must not be empty when type is Limited"))
        else:
            errs += _limited(limited, "spec.limited")
    else:
        errs.append(unsupported("spec.type", kind, TYPES))
    return errs


def _shares(level: dict[str, Any], path: str) -> list[FieldError]:
    shares = level.get("nominalConcurrencyShares") or 0
    if shares < 0:
        return [field.invalid(field.child(path, "nominalConcurrencyShares"), shares, "must be a non-negative integer")]
    return []


def _lendable(level: dict[str, Any], path: str) -> list[FieldError]:
    percent = level.get("lendablePercent")
    if percent is not None and not 0 <= percent <= 100:
        return [field.invalid(field.child(path, "lendablePercent"), percent, "must be between 0 and 100, inclusive")]
    return []


def _limited(limited: dict[str, Any], path: str) -> list[FieldError]:
    errs = _shares(limited, path)
    errs += _limit_response(limited.get("limitResponse") or {}, field.child(path, "limitResponse"))
    errs += _lendable(limited, path)
    borrow = limited.get("borrowingLimitPercent")
    if borrow is not None and borrow < 0:
        errs.append(field.invalid(field.child(path, "borrowingLimitPercent"), borrow, "if specified, must be a non-negative integer"))
    return errs


def _limit_response(response: dict[str, Any], path: str) -> list[FieldError]:
    kind, queuing, at = response.get("type") or "", response.get("queuing"), field.child(path, "queuing")
    if kind == "Reject":
        return [] if queuing is None else [field.forbidden(at, "must be nil if limited.limitResponse.type is not Limited")]
    if kind == "Queue":
        if queuing is None:
            return [field.required(at, "must not be empty if limited.limitResponse.type is Limited")]
        return _queuing(queuing, at)
    return [unsupported(field.child(path, "type"), kind, RESPONSES)]


def _queuing(queuing: dict[str, Any], path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    length, queues, hand = (queuing.get(name) or 0 for name in ("queueLengthLimit", "queues", "handSize"))
    if length <= 0:
        errs.append(field.invalid(field.child(path, "queueLengthLimit"), length, "must be positive"))
    if queues <= 0:
        errs.append(field.invalid(field.child(path, "queues"), queues, "must be positive"))
    elif queues > MAX_QUEUES:
        errs.append(field.invalid(field.child(path, "queues"), queues, f"must not be greater than {MAX_QUEUES}"))
    at = field.child(path, "handSize")
    if hand <= 0:
        errs.append(field.invalid(at, hand, "must be positive"))
    elif hand > queues:
        errs.append(field.invalid(at, hand, f"should not be greater than queues ({queues})"))
    elif math.ceil(math.log2(queues) * hand) > MAX_HASH_BITS:
        text = f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {MAX_HASH_BITS}"
        errs.append(field.invalid(at, hand, text))
    return errs


@printer("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration")
def priority_level_configuration_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, type, nominal shares, queues, hand size, queue length, age."""
    spec = part(obj, "spec")
    shares, queues = NONE, [NONE, NONE, NONE]
    limited = spec.get("limited")
    if limited is not None:
        shares = limited.get("nominalConcurrencyShares", 0)
        queuing = part(limited, "limitResponse").get("queuing")
        if queuing is not None:
            queues = [queuing.get(key, 0) for key in ("queues", "handSize", "queueLengthLimit")]
    return [obj["metadata"].get("name", ""), spec.get("type", ""), shares, *queues, age(obj, now)]

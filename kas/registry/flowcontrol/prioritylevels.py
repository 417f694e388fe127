"""Strategy of PriorityLevelConfiguration (upstream ``pkg/registry/flowcontrol/prioritylevelconfiguration``)."""

from __future__ import annotations

import math
from typing import Any

from kas.api import field
from kas.api.equality import semantic_equal
from kas.api.field import FieldError
from kas.api.validation import names
from kas.api.validation.checks import go_struct, unsupported
from kas.api.validation.coremeta import object_meta
from kas.registry.flowcontrol.flowschemas import status_conditions
from kas.registry.flowcontrol.mandatory import PRIORITY_LEVELS
from kas.registry.strategy import Context, Obj, Strategy, strategy_for

EXEMPT = "exempt"
TYPES = ("Exempt", "Limited")
RESPONSES = ("Queue", "Reject")
MAX_QUEUES = 10_000_000
MAX_HASH_BITS = 60  # of the shuffle-sharding hash
KEPT_ZERO = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"  # only v1beta3, not served, may say so


@strategy_for("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations")
class PriorityLevelConfigurationStrategy(Strategy):
    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        errs = object_meta(obj["metadata"], False, names.dns_subdomain)
        if KEPT_ZERO in (obj["metadata"].get("annotations") or ()):
            errs.append(field.forbidden("metadata.annotations", f"annotation '{KEPT_ZERO}' is forbidden"))
        name, spec = obj["metadata"].get("name") or "", obj.get("spec") or {}
        return errs + _spec(name, spec) + _fixed(name, spec) + status_conditions(obj)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        return self.validate(ctx, obj)

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        return status_conditions(obj)


def _fixed(name: str, spec: dict[str, Any]) -> list[FieldError]:
    wanted = PRIORITY_LEVELS.get(name)
    if wanted is None:
        return []
    if name == EXEMPT:
        have, want = ({k: v for k, v in s.items() if k != EXEMPT} for s in (spec, wanted))
        text = f"spec of '{name}' except the 'spec.exempt' field must equal the fixed value"
    else:
        have, want, text = spec, wanted, f"spec of '{name}' must equal the fixed value"
    return [] if semantic_equal(have, want) else [field.invalid("spec", _shown(spec), text)]


def _spec(name: str, spec: dict[str, Any]) -> list[FieldError]:
    errs: list[FieldError] = []
    kind, limited, exempt = spec.get("type") or "", spec.get("limited"), spec.get(EXEMPT)
    if (name == EXEMPT) != (kind == "Exempt"):
        errs.append(field.invalid("spec.type", kind, "type must be 'Exempt' if and only if name is 'exempt'"))
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


def _shown(spec: dict[str, Any]) -> dict[str, Any] | None:
    """The internal PriorityLevelConfigurationSpec as it prints in an error."""

    def queuing(value: dict[str, Any]) -> dict[str, Any] | None:
        return go_struct(value, ("Queues", "queues", 0), ("HandSize", "handSize", 0), ("QueueLengthLimit", "queueLengthLimit", 0))

    def response(value: dict[str, Any]) -> dict[str, Any] | None:
        return go_struct(value, ("Type", "type", ""), ("Queuing", "queuing", None, queuing))

    def limited(value: dict[str, Any]) -> dict[str, Any] | None:
        return go_struct(
            value, ("NominalConcurrencyShares", "nominalConcurrencyShares", 0), ("LimitResponse", "limitResponse", response({}), response),
            ("LendablePercent", "lendablePercent", None), ("BorrowingLimitPercent", "borrowingLimitPercent", None),
        )  # fmt: skip

    def exempt(value: dict[str, Any]) -> dict[str, Any] | None:
        shares = ("NominalConcurrencyShares", "nominalConcurrencyShares", None)
        return go_struct(value, shares, ("LendablePercent", "lendablePercent", None))

    return go_struct(spec, ("Type", "type", ""), ("Limited", "limited", None, limited), ("Exempt", "exempt", None, exempt))

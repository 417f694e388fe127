"""Building blocks of resource.k8s.io validation: names, selectors, configuration, tolerations, taints, request policies.

Upstream: ``pkg/apis/resource/validation``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kas.kinds.core.resources import amount, value
from kas.meta import field, names
from kas.meta.checks import csi_driver_name, dns_label, dns_subdomain, invalid_each, qualified_name, repeats, unsupported
from kas.meta.compilebudget import CompileBudget
from kas.meta.field import FieldError
from kas.meta.quantity import parse

Check = Callable[[Any, str], list[FieldError]]

MAX_REQUESTS = MAX_CONSTRAINTS = MAX_CONFIGS = MAX_SELECTORS = 32
MAX_EXPRESSION = MAX_PARAMETERS = 10 * 1024
MAX_POOL_NAME = 253
MAX_DOMAIN, MAX_ID = 63, 32
MAX_BINDING_CONDITIONS = 4
MAX_POLICY_VALUES = 10
TAINT_EFFECTS = ("NoExecute", "NoSchedule", "None")
TOLERATION_OPERATORS = ("Equal", "Exists")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def each(items: Sequence[Any] | None, maximum: int, check: Check, path: str) -> list[FieldError]:
    """Validate a bounded list: too many items are the only error, so that they cost no further work."""
    items = items or []
    if 0 <= maximum < len(items):
        return [field.too_many(path, len(items), maximum)]
    errs: list[FieldError] = []
    for i, item in enumerate(items):
        errs += check(item, field.index(path, i))
    return errs


def each_unique(items: Sequence[Any] | None, maximum: int, check: Check, key: Callable[[Any], Any], path: str) -> list[FieldError]:
    """As ``each``, with unique keys; a repetition is reported at the item. A named tuple is printed as Go's struct."""
    items = items or []
    errs = each(items, maximum, check, path)
    if 0 <= maximum < len(items):
        return errs
    seen: set[Any] = set()
    for i, item in enumerate(items):
        one = key(item)
        if one in seen:
            errs.append(field.duplicate(field.index(path, i), one._asdict() if hasattr(one, "_asdict") else one))
        seen.add(one)
    return errs


def each_entry(
    items: Mapping[str, Any] | None, maximum: int, key_length: int, key_check: Check, check: Check, path: str
) -> list[FieldError]:
    """Validate a bounded map in key order: invalid keys are reported at the map, invalid values at their entry, with long keys abridged."""
    items = items or {}
    if 0 <= maximum < len(items):
        return [field.too_many(path, len(items), maximum)]
    errs: list[FieldError] = []
    for name in sorted(items):
        errs += key_check(name, path) + check(items[name], field.key(path, _shortened(name, key_length)))
    return errs


def _shortened(text: str, length: int) -> str:
    length = max(length, 16)
    if len(text) <= length:
        return text
    rest = length - 3
    return text[: (rest + 1) // 2] + "..." + text[len(text) - rest // 2 :]


# -- names ---------------------------------------------------------------------------------------------------------------


def pool_name(name: str, path: str) -> list[FieldError]:
    """``validatePoolName``: DNS subdomains separated by slashes, limited in bytes."""
    if not name:
        return [field.required(path)]
    errs = [field.too_long(path, MAX_POOL_NAME)] if len(name.encode()) > MAX_POOL_NAME else []
    for part in name.split("/"):
        errs += dns_subdomain(part, path)
    return errs


def _identifier(text: str, path: str) -> list[FieldError]:
    errs = [field.too_long(path, MAX_ID)] if len(text.encode()) > MAX_ID else []
    return errs + invalid_each(path, text, names.is_c_identifier(text))


def device_qualified_name(name: str, path: str) -> list[FieldError]:
    """Check ``[domain/]identifier``, the name of an attribute or capacity. As upstream, more than one slash is accepted."""
    domain, slash, rest = name.partition("/")
    if not slash:
        return _identifier(name, path)
    if "/" in rest:
        return []
    errs = csi_driver_name(domain, path) if domain else [field.invalid(path, "", "the domain must not be empty")]
    return errs + (_identifier(rest, path) if rest else [field.invalid(path, "", "the name must not be empty")])


def fully_qualified_name(name: str, path: str) -> list[FieldError]:
    """``validateFullyQualifiedName``: a domain, a slash and a C identifier."""
    errs = device_qualified_name(name, path)
    if "/" not in name:
        text = "a fully qualified name must be a domain and a name separated by a slash"
        errs.append(field.invalid(path, name, text))
    return errs


def share_id(value: str | None, path: str) -> list[FieldError]:
    """Check a UUID in lower case (RFC 4122), or None; another spelling gives another error than an invalid UUID."""
    if value is None or _UUID.fullmatch(value):
        return []
    problem = _not_a_uuid(value)
    if problem:
        return [field.invalid(path, value, f"error validating uid: {problem}")]
    text = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters"
    return [field.invalid(path, value, text)]


def _not_a_uuid(text: str) -> str:
    """Return the error for a UUID in any of its four spellings (``uuid.Validate`` of github.com/google/uuid); "" if it is valid."""
    length, bare = len(text.encode()), text
    if length == 45:
        if text[:9].lower() != "urn:uuid:":
            return f"invalid urn prefix: {field.go_quote(text[:9])}"
        bare = text[9:]
    elif length == 38:
        if text[0] != "{" or text[-1] != "}":
            return "invalid bracketed UUID format"
        bare = text[1:-1]
    elif length not in (32, 36):
        return f"invalid UUID length: {length}"
    form = r"[0-9a-fA-F]{32}" if length == 32 else r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
    return "" if re.fullmatch(form, bare) else "invalid UUID format"


def request_reference(name: str, path: str, known: Mapping[str, frozenset[str]]) -> list[FieldError]:
    """Check a reference to ``request`` or ``request/subrequest`` of the same claim."""
    text = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
    parts = name.split("/")
    if len(parts) > 2:
        return [field.invalid(path, name, text)]
    errs: list[FieldError] = []
    for part in parts:
        errs += dns_label(part, path)
    if parts[0] not in known or (len(parts) == 2 and parts[1] not in known[parts[0]]):
        errs.append(field.invalid(path, name, text))
    return errs


# -- selectors and configuration -----------------------------------------------------------------------------------------


def selectors(items: Sequence[dict[str, Any]] | None, path: str, allowance: CompileBudget | None) -> list[FieldError]:
    """Check the number of selectors, which are CEL expressions, and compile them unless they are stored (no ``allowance``)."""
    return each(items, MAX_SELECTORS, lambda item, at: _selector(item, at, allowance), path)


def _selector(selector: dict[str, Any], path: str, allowance: CompileBudget | None) -> list[FieldError]:
    cel = selector.get("cel")
    if cel is None:
        return [field.required(field.child(path, "cel"))]
    if allowance is None:
        return []
    expression, at = cel.get("expression") or "", field.child(path, "cel", "expression")
    if len(expression.encode()) > MAX_EXPRESSION:
        return [field.too_long(at, MAX_EXPRESSION)]
    from kas.cel.expressions import device_selector  # rarely needed

    return device_selector(expression, at, allowance)


def configuration(config: dict[str, Any], path: str, stored: bool) -> list[FieldError]:
    """``validateDeviceConfiguration``: opaque parameters for a driver, a JSON object limited in bytes; ``stored`` ones may be larger."""
    opaque = config.get("opaque")
    if opaque is None:
        return [field.required(field.child(path, "opaque"))]
    errs = csi_driver_name(opaque.get("driver") or "", field.child(path, "opaque", "driver"))
    return errs + raw_object(opaque.get("parameters"), field.child(path, "opaque", "parameters"), stored, MAX_PARAMETERS)


def raw_object(value: Any, path: str, stored: bool, maximum: int) -> list[FieldError]:
    """Validate a RawExtension that must hold a JSON object; the size limit does not apply to ``stored`` ones."""
    if value is None:
        return [field.required(path)]
    if not stored and len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()) > maximum:
        return [field.too_long(path, maximum)]
    return [] if isinstance(value, dict) else [field.invalid(path, "<value omitted>", "must be a valid JSON object")]


# -- taints and binding --------------------------------------------------------------------------------------------------


def taint(item: dict[str, Any], path: str, old_effect: str | None = None) -> list[FieldError]:
    """Validate a taint; a stored unknown effect is tolerated."""
    errs = qualified_name(item.get("key") or "", field.child(path, "key"))
    value, effect = item.get("value") or "", item.get("effect") or ""
    if value:
        errs += invalid_each(field.child(path, "value"), value, names.is_label_value(value))
    if effect != old_effect or old_effect is None:
        if not effect:
            errs.append(field.required(field.child(path, "effect")))
        elif effect not in TAINT_EFFECTS:
            errs.append(unsupported(field.child(path, "effect"), effect, TAINT_EFFECTS))
    return errs


def tolerations(items: Iterable[dict[str, Any]] | None, path: str) -> list[FieldError]:
    """``validateDeviceToleration`` of each."""
    errs: list[FieldError] = []
    for i, item in enumerate(items or ()):
        errs += _toleration(item, field.index(path, i))
    return errs


def _toleration(item: dict[str, Any], path: str) -> list[FieldError]:
    key, operator, value, effect = (item.get(name) or "" for name in ("key", "operator", "value", "effect"))
    errs = qualified_name(key, field.child(path, "key")) if key else []
    at = field.child(path, "operator")
    if operator == "Exists":
        if value:
            errs.append(field.invalid(field.child(path, "value"), value, "must be empty for operator `Exists`"))
    elif operator == "Equal":
        errs += invalid_each(field.child(path, "value"), value, names.is_label_value(value))
    else:
        errs.append(unsupported(at, operator, TOLERATION_OPERATORS) if operator else field.required(at))
    if effect and effect not in TAINT_EFFECTS:
        errs.append(unsupported(field.child(path, "effect"), effect, TAINT_EFFECTS))
    return errs


def binding_conditions(obj: dict[str, Any], path: str) -> list[FieldError]:
    """Validate bindingConditions and bindingFailureConditions: both or neither, disjoint, at most four each."""
    wanted, failures = obj.get("bindingConditions") or [], obj.get("bindingFailureConditions") or []
    at, at_failures = field.child(path, "bindingConditions"), field.child(path, "bindingFailureConditions")
    errs = each(wanted, MAX_BINDING_CONDITIONS, qualified_name, at)
    errs += each(failures, MAX_BINDING_CONDITIONS, qualified_name, at_failures)
    errs += [field.duplicate(field.index(at, i), wanted[i]) for i in repeats(wanted)]
    again, succeeding = set(repeats(failures)), set(wanted)
    for i, condition in enumerate(failures):
        here = field.index(at_failures, i)
        if i in again:
            errs.append(field.duplicate(here, condition))
        if condition in succeeding:
            errs.append(field.invalid(here, condition, "bindingFailureConditions must not overlap with bindingConditions"))
    if failures and not wanted:
        text = "bindingConditions are required to use bindingFailureConditions"
        errs.append(field.invalid(at, obj.get("bindingConditions"), text))
    if wanted and not failures:
        text = "bindingFailureConditions are required to use bindingConditions"
        errs.append(field.invalid(at_failures, obj.get("bindingFailureConditions"), text))
    return errs


# -- consumable capacity -------------------------------------------------------------------------------------------------


def request_policy(policy: dict[str, Any], capacity: str, path: str) -> list[FieldError]:
    """Check that the default is an allowed amount, and that no amount exceeds the device's capacity."""
    values, span, preset = policy.get("validValues") or [], policy.get("validRange"), policy.get("default")
    if values and span is not None:
        text = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        return [field.forbidden(path, text)]
    if values:
        if preset is None:
            return [field.required(field.child(path, "default"), "required when validValues is defined")]
        return _valid_values(values, preset, capacity, field.child(path, "validValues"))
    if span is not None:
        if preset is None:
            return [field.required(field.child(path, "default"), "required when validRange is defined")]
        return _valid_range(span, preset, capacity, field.child(path, "validRange"))
    return []


def _valid_values(values: list[str], preset: str, capacity: str, path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    for i in range(1, len(values)):
        if amount(values[i - 1]) > amount(values[i]):
            errs.append(field.invalid(field.index(path, i), values[i], "values must be sorted in ascending order"))

    def option(text: str, at: str) -> list[FieldError]:
        if amount(text) > amount(capacity):
            return [field.invalid(at, text, f"option is larger than capacity value: {capacity}")]
        return []

    errs += each_unique(values, MAX_POLICY_VALUES, option, lambda v: str(value(v)), path)
    if amount(preset) not in map(amount, values):
        errs.append(field.invalid(path, preset, "default value is not valid according to the requestPolicy"))
    return errs


def _valid_range(span: dict[str, Any], preset: str, capacity: str, path: str) -> list[FieldError]:
    low, high, step = span.get("min"), span.get("max"), span.get("step")
    if low is None:
        return [field.required(field.child(path, "min"), "required when validRange is defined")]
    errs: list[FieldError] = []
    if amount(low) > amount(capacity):
        errs.append(field.invalid(field.child(path, "min"), low, f"min is larger than capacity value: {capacity}"))
    if amount(preset) < amount(low):
        errs.append(field.invalid(field.child(path, "min"), preset, f"default is less than min: {low}"))
    if high is not None:
        if amount(low) > amount(high):
            errs.append(field.invalid(field.child(path, "max"), low, f"min is larger than max: {high}"))
        if amount(high) > amount(capacity):
            errs.append(field.invalid(field.child(path, "max"), high, f"max is larger than capacity value: {capacity}"))
        if amount(preset) > amount(high):
            errs.append(field.invalid(field.child(path, "max"), preset, f"default is more than max: {high}"))
    if step is None:
        return errs
    at = field.child(path, "step")
    if amount(step) <= 0:
        return [*errs, field.invalid(at, step, "must be greater than zero")]
    if amount(low) + amount(step) > amount(capacity):
        first = parse(low) + parse(step)
        errs.append(field.invalid(at, step, f"one step {first} is larger than capacity value: {capacity}"))
    for text in (preset, high):  # in whole units, fractions rounded up
        if text is not None and (value(text) - value(low)) % value(step):
            errs.append(field.invalid(at, text, f"value is not a multiple of a given step ({step}) from ({low})"))
    return errs

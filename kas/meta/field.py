"""Field paths and field errors of validation: apimachinery's ``pkg/util/validation/field``.

A path is a plain ``str`` ("spec.containers[0].name"); ``child``, ``index`` and ``key`` extend it. A ``FieldError``
prints exactly as upstream prints it, because its text is part of the API.
"""

from __future__ import annotations

from typing import Any

from kas._codecs import write_json
from kas._fastpath import go_quote

REQUIRED = "FieldValueRequired"
DUPLICATE = "FieldValueDuplicate"
INVALID = "FieldValueInvalid"
NOT_SUPPORTED = "FieldValueNotSupported"
FORBIDDEN = "FieldValueForbidden"
TOO_LONG = "FieldValueTooLong"
TOO_MANY = "FieldValueTooMany"
NOT_FOUND = "FieldValueNotFound"
INTERNAL = "InternalError"
TYPE_INVALID = "FieldValueTypeInvalid"

_TITLES = {
    REQUIRED: "Required value", DUPLICATE: "Duplicate value", INVALID: "Invalid value", NOT_SUPPORTED: "Unsupported value",
    FORBIDDEN: "Forbidden", TOO_LONG: "Too long", TOO_MANY: "Too many", NOT_FOUND: "Not found", INTERNAL: "Internal error",
    TYPE_INVALID: "Invalid value",
}  # fmt: skip

OMIT_VALUE = object()
# The path without a name: Go prints the empty element as an index.
ROOT = "[]"

# The characters that Go's strings.TrimSpace removes; Python's strip() would remove four more control characters.
GO_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"


# Longer paths are not extended: a long key must not be copied for each of the fields below it.
MAX_PATH = 8_192


def child(path: str, *names: str) -> str:
    """``path.name.name``; an empty path is the root."""
    if len(path) > MAX_PATH:
        return path
    return ".".join((path, *names)) if path else ".".join(names)


def index(path: str, i: int) -> str:
    """``path[3]``, an item of a list."""
    if len(path) > MAX_PATH:
        return path
    return f"{path}[{i}]"


def key(path: str, k: str) -> str:
    """``path[name]``, an entry of a map."""
    if len(path) > MAX_PATH:
        return path
    return f"{path}[{k}]" if len(k) <= MAX_PATH else f"{path}[{k[:MAX_PATH]}...]"


def go_value(value: Any) -> str:
    """A value as ``field.Error`` prints it: strings quoted, null, anything else as compact JSON."""
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, str):
        return go_quote(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return go_float(value)
    return write_json(value, sort_keys=False).decode()


def go_float(value: float) -> str:
    """Go's ``%v`` of a finite number: the shortest digits that round-trip, with an exponent below 1e-04 and from 1e+06 on."""
    from decimal import Decimal  # rarely needed

    digits = Decimal(repr(value)).normalize()
    exponent = digits.adjusted()
    if value and not -4 <= exponent < 6:
        return f"{digits.scaleb(-exponent):f}e{exponent:+03d}"
    return f"{digits:f}"


def in_go_order(value: Any) -> Any:
    """A JSON value as Go writes it after decoding: sorted keys, whole numbers without a point."""
    out = [value]
    pending: list[Any] = [out]  # values may be nested deeper than functions
    while pending:
        part = pending.pop()
        for at, item in part.items() if isinstance(part, dict) else enumerate(part):
            if isinstance(item, dict):
                part[at] = {key: item[key] for key in sorted(item)}
                pending.append(part[at])
            elif isinstance(item, list):
                part[at] = list(item)
                pending.append(part[at])
            elif isinstance(item, float) and item.is_integer() and abs(item) < 1e16:
                part[at] = int(item)
    return out[0]


def as_read(value: Any) -> Any:
    """A decoded JSON value for the ``value`` of an error, as Go prints it: a bare float is not printed as JSON."""
    return value if isinstance(value, float) else in_go_order(value)


class FieldError:
    """A validation error: ``type`` is the metav1.CauseType, ``field`` the path, ``value`` the invalid value."""

    __slots__ = ("detail", "field", "type", "value")

    def __init__(self, type: str, field: str, value: Any, detail: str) -> None:
        self.type, self.field, self.value, self.detail = type, field, value, detail

    def error_body(self) -> str:
        """The message without the field path, as in a StatusCause."""
        title = _TITLES[self.type]
        if self.type in (REQUIRED, FORBIDDEN, TOO_LONG, INTERNAL) or self.value is OMIT_VALUE:
            text = title
        else:
            text = f"{title}: {go_value(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.field}: {self.error_body()}"

    def __repr__(self) -> str:
        return f"FieldError({self})"


def required(path: str, detail: str = "") -> FieldError:
    """"Required value": the field must be set."""
    return FieldError(REQUIRED, path, "", detail)


def duplicate(path: str, value: Any) -> FieldError:
    """"Duplicate value": the value occurs in the list already."""
    return FieldError(DUPLICATE, path, value, "")


def invalid(path: str, value: Any, detail: str) -> FieldError:
    """"Invalid value": ``detail`` says what is wrong with it."""
    return FieldError(INVALID, path, value, detail)


def not_supported(path: str, value: Any, valid: list[str] | tuple[str, ...]) -> FieldError:
    """"Unsupported value": lists ``valid`` sorted, like the sets that upstream passes. Where upstream passes a list, create the FieldError
    directly.
    """
    detail = "supported values: " + ", ".join(go_quote(v) for v in sorted(valid)) if valid else ""
    return FieldError(NOT_SUPPORTED, path, value, detail)


def forbidden(path: str, detail: str) -> FieldError:
    """"Forbidden": the field may not be set or changed here."""
    return FieldError(FORBIDDEN, path, "", detail)


def too_long(path: str, max_length: int) -> FieldError:
    """"Too long": more than ``max_length`` bytes; a negative limit is not mentioned."""
    detail = f"may not be more than {max_length} byte{'' if max_length == 1 else 's'}" if max_length >= 0 else "value is too long"
    return FieldError(TOO_LONG, path, "", detail)


def too_many(path: str, actual: int, maximum: int) -> FieldError:
    """"Too many": ``actual`` items where ``maximum`` are allowed; negative numbers are not mentioned."""
    detail = f"must have at most {maximum} item{'' if maximum == 1 else 's'}" if maximum >= 0 else "has too many items"
    return FieldError(TOO_MANY, path, actual if actual >= 0 else OMIT_VALUE, detail)


def not_found(path: str, value: Any) -> FieldError:
    """"Not found": the value names something that does not exist."""
    return FieldError(NOT_FOUND, path, value, "")


def internal(path: str, message: str) -> FieldError:
    """"Internal error": validation itself failed."""
    return FieldError(INTERNAL, path, None, message)

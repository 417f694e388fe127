"""Errors for request bodies that cannot be decoded, for any kind.

The messages are those of apiserver's ``transformDecodeError`` and of the JSON and YAML serializers.
"""

from __future__ import annotations

from typing import Any

from kas.meta import errors, gojson
from kas.types.strict import read_json

JSON_ERROR_STRUCT = gojson.TYPE_META
_QUOTED = 30  # bytes of the body
_GO_KINDS = {list: "array", str: "string", bool: "bool", int: "number", float: "number"}


class BodyError(errors.ApiError):
    """A 400 for a body that cannot be decoded as the expected kind; ``why`` is the decoder's message alone."""

    __slots__ = ("why",)

    def __init__(self, message: str, why: str) -> None:
        super().__init__(400, "BadRequest", message)
        self.why = why


def from_yaml(kind, body: bytes) -> tuple[Any, list[str]]:
    """Decode YAML and return the value and the findings of strict decoding. Raises 400."""
    found = read_json(body)
    if found is not None:
        return found, []
    from kas.types import yaml_codec  # PyYAML is large and few clients send YAML

    try:
        return yaml_codec.decode(body)
    except yaml_codec.YAMLError as e:
        raise unrecognized(kind, f"{e}", body) from None


def check_texts(value: dict[str, Any], kind, body: bytes) -> None:
    """Raise 400 if apiVersion or kind is present but not a string."""
    for name in ("apiVersion", "kind"):
        v = value.get(name)
        if v is not None and not isinstance(v, str):
            why = f"json: cannot unmarshal {_GO_KINDS.get(type(v), 'object')} into Go struct field .{name} of type string"
            raise unrecognized(kind, f"couldn't get version/kind; json parse error: {why}", body)


def no_object(kind, value: Any, body: bytes) -> errors.ApiError:
    """Return a 400 for a body that is valid JSON but not an object."""
    why = f"json: cannot unmarshal {_GO_KINDS.get(type(value), 'object')} into Go value of type {JSON_ERROR_STRUCT}"
    return unrecognized(kind, f"couldn't get version/kind; json parse error: {why}", body)


def unrecognized(kind, why: str, body: bytes) -> errors.ApiError:
    """Return a 400 for a body whose kind could not be read."""
    return BodyError(f"the object provided is unrecognized (must be of type {kind.kind}): {why} ({summary(body)})", why)


def summary(body: bytes) -> str:
    """Return the beginning of a body as upstream quotes it: a JSON object as text, anything else in hex."""
    if not body:
        return "<empty>"
    cut = body[:_QUOTED]
    text = cut.decode("utf-8", "replace") if body.startswith(b"{") else cut.hex()
    return text + " ..." if len(body) > _QUOTED else text

"""A request's objects, converted to the versions that webhooks and policies expect (upstream's ``admission.VersionedAttributes``)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import orjson

from kas._codecs import outweighs
from kas.admission import Attributes
from kas.admission.matching import GVK, Equivalents, Invocation, kind_of
from kas.meta import errors, gojson
from kas.meta.offload import LARGE, POOL, is_large
from kas.types.defaults import apply_defaults
from kas.types.scheme import (
    DecodeError,
    Kind,
    apply_schema_defaults,
    decode,
    encode_json,
    find_builtin_kind,
    unknown_conversion,
    write_json,
)

Obj = dict[str, Any]


class UnknownKindError(LookupError):
    """No served resource or built-in type has this kind."""


class Versioned:
    """``obj`` and ``old`` of a request as ``kind``; each is None if the request has none.

    The objects are never modified but may be replaced (``replace``). ``finish`` writes the object back to the request, in the request's
    version.
    """

    def __init__(self, a: Attributes, equivalents: Equivalents) -> None:
        self._a, self._equivalents = a, equivalents
        self.own: GVK = kind_of(a)
        self.kind, self.obj, self.old = self.own, a.obj, a.old
        self.dirty = False
        self._other: Kind | None = None  # the kind of ``obj`` if a patch changed it
        self._json: tuple[bytes | None, bytes | None] | None = None
        self._values: tuple[tuple[bytes | None, bytes | None], tuple[Obj | None, Obj | None]] | None = None

    async def to(self, kind: GVK) -> None:
        """Convert the objects to this kind. Raises ApiError if they cannot be converted, and UnknownKindError."""
        if kind == self.kind:
            return
        self.obj, old = await self._converted(self.obj, kind), self.old
        # The request's own objects need no conversion back.
        self.old = self._a.old if kind == self.own else await self._converted(old, kind)
        self.kind, self._other, self._json = kind, None, None

    async def show(self, invocation: Invocation) -> None:
        """Convert the objects to the version of an invocation. Raises ApiError."""
        try:
            await self.to(invocation.kind)
        except UnknownKindError as e:
            raise errors.internal(str(e)) from None

    async def _converted(self, obj: Obj | None, kind: GVK) -> Obj | None:
        if obj is None:
            return None
        a, other = self._a, self._other
        if obj is self.obj and other is not None and (other.group, other.kind) != (kind[0], kind[2]):
            raise errors.ApiError(500, "", unknown_conversion(other.version, other.kind, kind))
        served = self._equivalents(a.group, a.resource).of(a.group, a.version)
        if served is None:
            raise UnknownKindError(f"unable to convert to {shown(kind)}: unknown kind")
        if served.record.kind_record.type.schema is not None:
            _check_group(obj, kind)
        convert = served.converter.convert
        if served.converter.total and is_large(obj):
            (converted,) = await POOL.run(convert, [obj], kind)
            return converted
        found: list[Obj] | Awaitable[list[Obj]] = convert([obj], kind)
        return (found if isinstance(found, list) else await found)[0]

    def kind_record(self) -> Kind:
        """Return the scheme's record of ``kind``. Raises UnknownKindError."""
        served = self._equivalents(self._a.group, self._a.resource).of(*self.kind[:2])
        if served is not None and served.kind == self.kind[2]:
            found: Kind = served.record.kind_record
            return found
        builtin = find_builtin_kind(*self.kind)
        if builtin is None:
            raise UnknownKindError(f"no kind is registered for {shown(self.kind)}")
        return builtin

    def encoded(self) -> tuple[bytes | None, bytes | None]:
        """Return the objects as JSON, cached."""
        if self._json is None:
            a, obj, old = self._a, self.obj, self.old
            if a.forms is not None and obj is a.obj and old is a.old and self.kind == self.own:
                a.made = a.made or a.forms(obj)
                one, other = a.made[1], a.replaced.json if a.replaced is not None else None
                if one is not None and (other is None) == (old is None):
                    self._json = one, other
                    return self._json
            kind = self.kind_record()
            one = encode_json((self._other or kind).type, obj) if obj is not None else None
            self._json = one, encode_json(kind.type, old) if old is not None else None
        return self._json

    def small(self) -> tuple[bytes | None, bytes | None] | None:
        """Return ``encoded()`` if it is cached or the objects are small enough to encode at once, else None."""
        old = self.old
        if self._json is None and self._a.forms is None and (outweighs(self.obj, LARGE) or (old is not None and outweighs(old, LARGE))):
            return None
        return self.encoded()

    async def ready(self, values: bool) -> None:
        """Compute ``encoded`` (and ``values`` if so requested) in the thread pool if the objects are large, so that they are cached."""
        made = self._json is not None and (not values or (self._values is not None and self._values[0] is self._json))
        if not made and (is_large(self.obj) or is_large(self.old)):
            await POOL.run(self.values if values else self.encoded)

    def plain(self) -> tuple[Obj | None, Obj | None]:
        """Return the objects decoded from their JSON, as new dicts."""
        one, other = (orjson.loads(text) if text is not None else None for text in self.encoded())
        return one, other

    def values(self) -> tuple[Obj | None, Obj | None]:
        """Return the objects decoded from their JSON, cached; do not modify them."""
        text = self.encoded()
        if self._values is None or self._values[0] is not text:
            self._values = text, self.plain()
        return self._values[1]

    def replace(self, value: Any, strict: bool = False) -> bool:
        """Replace the object by this JSON value, decoded as the kind it names, and defaulted. Return whether that changed it.

        An object of another kind is shown to the following webhooks, and refused when the request continues with it. Raises DecodeError
        for an invalid object; with ``strict`` also for fields that a built-in kind does not have.
        """
        kind = self.kind_record()
        before = self.encoded()[0]
        is_, obj = decoded(kind, value, strict)
        self.obj, self.dirty, self._other = obj, True, is_ if is_ is not kind else None
        self._json = encode_json(is_.type, obj), self.encoded()[1]
        return before != self._json[0]

    async def finish(self) -> None:
        """Continue the request with the current object."""
        if self.dirty:
            await self.to(self.own)
            await self._named()
            if self._other is not None:
                self.obj = await self._converted(self.obj, self.own)
                self._other = self._json = None
            self._a.obj, self.dirty = self.obj, False


    async def _named(self) -> None:
        """Convert a custom object whose apiVersion a patch changed from that version. Raises ApiError if that is not possible."""
        obj, own = self.obj, self.kind_record()
        if obj is not None and own.type.schema is not None and obj.get("apiVersion") != own.api_version:
            self.obj = await self._converted(obj, self.own)
            self._json = None


def decoded(kind: Kind, value: Any, strict: bool = False) -> tuple[Kind, Obj]:
    """Decode a JSON value; return its kind and the defaulted object.

    The kind is the one the value names, or ``kind`` if it names none. Custom objects always have ``kind``, and validation reports a wrong
    name. Unknown fields are dropped (for custom kinds when the object is stored); with ``strict`` they are an error in a built-in kind.
    Raises DecodeError.
    """
    if not isinstance(value, dict):
        raise DecodeError(f"couldn't get version/kind; json parse error: {gojson.cannot_unmarshal(value, gojson.TYPE_META)}")
    if kind.type.schema is not None:
        if not value.get("kind"):
            raise DecodeError(f"Object 'Kind' is missing in '{orjson.dumps(value).decode()}'")
        obj = _custom(kind, value)
    else:
        version, name = value.get("apiVersion") or kind.api_version, value.get("kind") or kind.kind
        if (version, name) != (kind.api_version, kind.kind):
            named = find_builtin_kind(*version.rpartition("/")[::2], name)
            if named is None:
                raise DecodeError(f'no kind "{name}" is registered for version "{version}" in scheme "pkg/api/legacyscheme/scheme.go:30"')
            kind = named
        obj, unknown = decode(kind.type, value)
        if strict and unknown:  # reported in the order of the sorted keys of a patched document
            raise DecodeError("strict decoding error: " + ", ".join(decode(kind.type, orjson.loads(write_json(value)))[1]))
        obj["kind"], obj["apiVersion"] = kind.kind, kind.api_version
        apply_defaults(kind, obj)
    obj.setdefault("metadata", {})
    return kind, obj


def _custom(kind: Kind, obj: Obj) -> Obj:
    from kas.apiextensions import customtypes  # imports CEL, which servers without custom resources never load
    # Decode as unstructured: types are enforced only when the object is stored. Invalid metadata is treated as absent, and validation
    # sees nulls that have no defaults.
    text = write_json(obj)
    obj = orjson.loads(text)
    if not isinstance(obj.get("metadata"), dict):
        obj["metadata"] = {}
    customtypes.decode_metadata(kind.type, obj, stored=True)
    if not obj["metadata"].get("managedFields"):
        obj["metadata"].pop("managedFields", None)
    customtypes.as_floats(obj, text)
    apply_schema_defaults(kind.type, obj)
    return obj


def _check_group(obj: Obj, kind: GVK) -> None:
    """Check that a custom object is converted within its own group. Raises ApiError."""
    group, _, version = (obj.get("apiVersion") or "").rpartition("/")
    if group != kind[0]:
        wanted = f"{kind[0]}/{kind[1]}"
        said = f'{shown((group, version, obj["kind"]))} is unstructured and is not suitable for converting to "{wanted}"'
        raise errors.ApiError(500, "", said)


def shown(kind: GVK) -> str:
    """Return ``GroupVersionKind.String``."""
    return f"{kind[0]}/{kind[1]}, Kind={kind[2]}"

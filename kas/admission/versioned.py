"""The objects of a request in the versions that webhooks and policies want to see (upstream's ``admission.VersionedAttributes``)."""

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
    """Nobody serves objects of this kind."""


class Versioned:
    """``obj`` and ``old`` of a request, in ``kind``; both are None where there are none. They are not changed, but may be replaced
    (``replace``); ``finish`` gives the object back to the request, in its version."""

    def __init__(self, a: Attributes, equivalents: Equivalents) -> None:
        self._a, self._equivalents = a, equivalents
        self.own: GVK = kind_of(a)
        self.kind, self.obj, self.old = self.own, a.obj, a.old
        self.dirty = False
        self._other: Kind | None = None  # what ``obj`` is, where a patch has made something else of it
        self._json: tuple[bytes | None, bytes | None] | None = None
        self._values: tuple[tuple[bytes | None, bytes | None], tuple[Obj | None, Obj | None]] | None = None

    async def to(self, kind: GVK) -> None:
        """Show the objects as this kind. Raises ApiError for what does not convert, UnknownKindError."""
        if kind == self.kind:
            return
        self.obj, old = await self._converted(self.obj, kind), self.old
        # What is there already was converted from the request's objects.
        self.old = self._a.old if kind == self.own else await self._converted(old, kind)
        self.kind, self._other, self._json = kind, None, None

    async def show(self, told: Invocation) -> None:
        """Show the objects in the version somebody is told about. Raises ApiError."""
        try:
            await self.to(told.kind)
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
        """The scheme's record of ``kind``. Raises UnknownKindError."""
        served = self._equivalents(self._a.group, self._a.resource).of(*self.kind[:2])
        if served is not None and served.kind == self.kind[2]:
            found: Kind = served.record.kind_record
            return found
        builtin = find_builtin_kind(*self.kind)
        if builtin is None:
            raise UnknownKindError(f"no kind is registered for {shown(self.kind)}")
        return builtin

    def encoded(self) -> tuple[bytes | None, bytes | None]:
        """The objects as JSON, made once."""
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
        """What is ``encoded``, where that is there already or the objects are small enough to be encoded at once, else None."""
        old = self.old
        if self._json is None and self._a.forms is None and (outweighs(self.obj, LARGE) or (old is not None and outweighs(old, LARGE))):
            return None
        return self.encoded()

    async def ready(self, values: bool) -> None:
        """Makes what is ``encoded``, and for ``values`` those, beside the loop where the objects are large: they are at hand then."""
        made = self._json is not None and (not values or (self._values is not None and self._values[0] is self._json))
        if not made and (is_large(self.obj) or is_large(self.old)):
            await POOL.run(self.values if values else self.encoded)

    def plain(self) -> tuple[Obj | None, Obj | None]:
        """The objects as their JSON says, as new dicts."""
        one, other = (orjson.loads(text) if text is not None else None for text in self.encoded())
        return one, other

    def values(self) -> tuple[Obj | None, Obj | None]:
        """The objects as their JSON says, made once; not to be changed."""
        text = self.encoded()
        if self._values is None or self._values[0] is not text:
            self._values = text, self.plain()
        return self._values[1]

    def replace(self, value: Any, strict: bool = False) -> bool:
        """Take this JSON value for the object, read as the kind it names and defaulted; whether that changed it. What is of another
        kind goes to those asked next, and is refused when the request is to go on with it.

        Raises DecodeError for what is no object of its kind, a ``strict`` one also for fields that a built-in kind does not know.
        """
        kind = self.kind_record()
        before = self.encoded()[0]
        is_, obj = decoded(kind, value, strict)
        self.obj, self.dirty, self._other = obj, True, is_ if is_ is not kind else None
        self._json = encode_json(is_.type, obj), self.encoded()[1]
        return before != self._json[0]

    async def finish(self) -> None:
        """The request goes on with the object as it is now."""
        if self.dirty:
            await self.to(self.own)
            await self._named()
            if self._other is not None:
                self.obj = await self._converted(self.obj, self.own)
                self._other = self._json = None
            self._a.obj, self.dirty = self.obj, False


    async def _named(self) -> None:
        """A custom object that a patch has put into another version comes from there. Raises ApiError where it cannot."""
        obj, own = self.obj, self.kind_record()
        if obj is not None and own.type.schema is not None and obj.get("apiVersion") != own.api_version:
            self.obj = await self._converted(obj, self.own)
            self._json = None


def decoded(kind: Kind, value: Any, strict: bool = False) -> tuple[Kind, Obj]:
    """A JSON value as a defaulted object, and its kind: the one it names, ``kind`` where it names none; custom objects are always
    ``kind``, and validation says what they name wrongly. What the kind does not know is dropped, of custom kinds when it is stored, or
    is an error where a ``strict`` one is built in. Raises DecodeError."""
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
        if strict and unknown:  # told in the order of the keys, in which a patched document is written
            raise DecodeError("strict decoding error: " + ", ".join(decode(kind.type, orjson.loads(write_json(value)))[1]))
        obj["kind"], obj["apiVersion"] = kind.kind, kind.api_version
        apply_defaults(kind, obj)
    obj.setdefault("metadata", {})
    return kind, obj


def _custom(kind: Kind, obj: Obj) -> Obj:
    from kas.apiextensions import customtypes  # brings CEL, which servers without custom resources never load
    # As an unstructured object, which is coerced only when it is stored: what is wrong in its metadata is as if it were not there, and
    # validation sees the nulls that have no defaults.
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
    """Custom objects convert to what is of their own group. Raises ApiError."""
    group, _, version = (obj.get("apiVersion") or "").rpartition("/")
    if group != kind[0]:
        wanted = f"{kind[0]}/{kind[1]}"
        said = f'{shown((group, version, obj["kind"]))} is unstructured and is not suitable for converting to "{wanted}"'
        raise errors.ApiError(500, "", said)


def shown(kind: GVK) -> str:
    """``GroupVersionKind.String``."""
    return f"{kind[0]}/{kind[1]}, Kind={kind[2]}"

"""Request bodies: from bytes in any media type to a checked, defaulted object of the served version.

Error messages follow apiserver's ``transformDecodeError`` and the JSON, YAML and protobuf serializers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kas.endpoints.bodyerrors import BodyError, check_texts, from_yaml, no_object, unrecognized
from kas.meta import errors, gojson
from kas.meta.offload import LARGE
from kas.request.http import Request
from kas.request.negotiation import PROTOBUF, YAML, body_media_type
from kas.types.defaults import apply_defaults, plan_of
from kas.types.repeated import read_repeated
from kas.types.scheme import (
    DecodeError,
    TypeDesc,
    decode,
    decode_plain,
    decode_protobuf,
    find_builtin_kind,
    open_envelope,
    strict_fields,
    unknown_conversion,
    write_json,
)
from kas.types.strict import duplicates, warning_texts

# Limit on the number of structs in an object. A body of three megabytes has more only if they are nearly empty.
MOST_PARTS = 100_000
_TYPE_META = {"kind": "kind", "apiversion": "apiVersion"}
_LENGTHS = frozenset(map(len, _TYPE_META))
EXTENSIONS_SCHEME = "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:55"
_ANY_VERSION = frozenset({"CreateOptions", "UpdateOptions"})  # registered in every version of the options' scheme
_OTHER_OPTIONS = frozenset({"GetOptions", "ListOptions", "PatchOptions"})
OPTIONS_SCHEME = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27"


def decode_body(
    req: Request, kind, *, field_validation: str = "", allow_empty: bool = False, any_version: bool = False,
    type_of: Callable[[str], TypeDesc] | None = None,
) -> dict[str, Any] | None:  # fmt: skip
    """Return the body as an object of ``kind`` (a scheme Kind), with constant and computed defaults applied.

    - ``field_validation`` is fieldValidation: Strict rejects unknown and duplicate fields, Warn (and "") adds warnings, Ignore accepts
      them.
    - With ``any_version`` the body may declare any group and version.
    - ``type_of`` returns the types of a custom resource's other versions.

    Returns None for an empty body if ``allow_empty``. Raises 400 (``BodyError``) and 415.
    """
    body = req.body
    if allow_empty and not body:
        return None
    form = body_media_type(req.header(b"content-type"))
    if kind.type.custom:
        from kas.endpoints.custom.bodies import decode_custom

        custom = decode_custom(body, form, kind, field_validation, req.warn, type_of or (lambda _: kind.type))
        if req.audit is not None:
            req.audit.decoded(kind.type, custom["kind"], kind.api_version, custom)
        return custom
    if form == PROTOBUF:
        return _decode_protobuf(req, body, kind, any_version)
    if form == YAML:
        value, findings = from_yaml(kind, body)
        text = write_json(value)  # from here on YAML is JSON with sorted keys and Go's formatting of numbers
        return _typed(req, gojson.loads(text), kind, field_validation, findings, body, text, any_version, yaml=True)
    if len(body) >= LARGE and body.count(b"{") > 3 * MOST_PARTS:  # the factor allows for braces in strings
        raise errors.request_entity_too_large(f"limit is {MOST_PARTS} parts of an object")
    filled = (kind.plan or plan_of(kind))[0] is None  # otherwise a rule has to see the object without its constant defaults
    obj = decode_plain(kind.type, body, filled)
    if obj is not None:
        # It has no unknown and no duplicate fields, so field_validation does not matter.
        check_type_meta(obj, kind, body, any_version)
        obj["kind"], obj["apiVersion"] = kind.kind, kind.api_version
        _complete(req, kind, obj, filled)
        return obj
    try:
        value = gojson.loads(body)
    except gojson.NumberError as e:
        if not isinstance(e.value, dict):
            raise no_object(kind, e.value, body) from None
        given_kind, given_version = check_type_meta(_type_meta(e.value), kind, body, any_version)
        raise _cannot(given_kind, given_version.rpartition("/")[2], kind.kind, str(e)) from None
    except gojson.JSONError as e:
        raise unrecognized(kind, f"couldn't get version/kind; json parse error: {e}", body) from None
    findings = duplicates(body)
    return _typed(req, value, kind, field_validation, findings, body, body, any_version)


def _typed(
    req: Request, value: Any, kind, field_validation: str, findings: list[str], body: bytes, text: bytes, any_version: bool,
    yaml: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Return a parsed body as an object of ``kind``; ``text`` is the body as JSON. As in Go, null leaves every field unset."""
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise no_object(kind, value, body)
    given_kind, given_version = check_type_meta(_type_meta(value), kind, body, any_version)
    try:
        if findings and not yaml:
            obj, unknown = decode(kind.type, read_repeated(kind.type, text, value))
        else:
            obj, unknown = decode(kind.type, value, text)
    except DecodeError as e:
        raise _cannot(given_kind, given_version.rpartition("/")[2], kind.kind, str(e)) from None
    if field_validation != "Ignore":
        if unknown or findings:
            # Unknown and duplicate fields in document order. The findings of the YAML decoder come first.
            if not yaml:
                unknown = strict_fields(text, kind.type)
            else:
                unknown = findings + (strict_fields(text, kind.type) if unknown else [])
            if unknown and field_validation == "Strict":
                why = "strict decoding error: " + ", ".join(unknown)
                raise _cannot(given_kind, given_version.rpartition("/")[2], kind.kind, why)
            for found in unknown:
                for line in warning_texts(found):
                    req.warn(line)
    obj["kind"], obj["apiVersion"] = kind.kind, kind.api_version
    _complete(req, kind, obj)
    return obj


def _type_meta(value: dict[str, Any]) -> dict[str, Any]:
    """Return the type meta of a body. It is read separately from the object, and there Go matches field names case-insensitively."""
    out = {}
    for key, said in value.items():
        name = _TYPE_META.get(key.casefold()) if len(key) in _LENGTHS else None
        if name is not None and (said is not None or name not in out):
            out[name] = said
    return out


def bound_parts(obj: dict[str, Any]) -> None:
    """Raise 413 if an object has more than ``MOST_PARTS`` structs.

    A struct can be two bytes in the request and a kilobyte once it has defaults and validation errors.
    """
    left, waiting = MOST_PARTS, [iter((obj,))]
    while waiting:
        for item in waiting[-1]:
            if isinstance(item, dict):
                left -= 1
                if left < 0:
                    raise errors.request_entity_too_large(f"limit is {MOST_PARTS} parts of an object")
                waiting.append(iter(item.values()))
                break
            if isinstance(item, list):
                waiting.append(iter(item))
                break
        else:
            waiting.pop()


def _complete(req: Request, kind, obj: dict[str, Any], filled: bool = False) -> None:
    """Apply defaults and pass the object to the audit event; ``filled`` as in ``apply_defaults``."""
    if len(req.body) >= LARGE:
        bound_parts(obj)
    try:
        apply_defaults(kind, obj, filled=filled)
    except DecodeError as e:  # annotations that hold fields of other versions may fail to convert
        raise _cannot(kind.kind, kind.version, kind.kind, str(e)) from None
    if req.audit is not None:
        req.audit.decoded(kind.type, kind.kind, kind.api_version, obj)


def check_type_meta(value: dict[str, Any], kind, body: bytes, any_version: bool = False) -> tuple[str, str]:
    """Return a body's kind and apiVersion; missing ones default to the expected. Raises 400 if they differ."""
    given_kind, given_version = value.get("kind"), value.get("apiVersion")
    if given_kind == kind.kind and given_version == kind.api_version:
        return given_kind, given_version
    check_texts(value, kind, body)
    given_kind, given_version = given_kind or kind.kind, given_version or kind.api_version
    if given_kind == kind.kind and (any_version or given_version == kind.api_version):
        return given_kind, given_version
    why = another_kind(given_kind, given_version, kind)
    if why:
        raise _cannot(given_kind, given_version.rpartition("/")[2], kind.kind, why)
    raise errors.bad_request(f"the API version in the data ({given_version}) does not match the expected API version ({kind.api_version})")


def another_kind(given_kind: str, given_version: str, kind) -> str:
    """Return why an object of ``given_kind`` cannot be converted to ``kind``, or "" if it is the same kind in any version."""
    group, _, version = given_version.rpartition("/")
    options = kind.group == "meta.k8s.io"  # decoded with a scheme that has only options
    extensions = kind.group == "apiextensions.k8s.io"  # decoded with a scheme that has only this group
    if options and (given_kind in _ANY_VERSION or (given_kind in _OTHER_OPTIONS and given_version == kind.api_version)):
        return f"converting (v1.{given_kind}) to (v1.{kind.kind}): unknown conversion"
    if options or find_builtin_kind(group, version, given_kind) is None or (extensions and group != kind.group):
        scheme = OPTIONS_SCHEME if options else EXTENSIONS_SCHEME if extensions else "pkg/api/legacyscheme/scheme.go:30"
        return f'no kind "{given_kind}" is registered for version "{given_version}" in scheme "{scheme}"'
    if given_kind != kind.kind:
        return unknown_conversion(version, given_kind, (kind.group, kind.version, kind.kind))
    return ""


def _decode_protobuf(req: Request, body: bytes, kind, any_version: bool) -> dict[str, Any]:
    try:
        api_version, given_kind, raw, _ = open_envelope(body)
    except DecodeError as e:
        raise unrecognized(kind, str(e), body) from None
    given_kind, api_version = check_type_meta({"kind": given_kind, "apiVersion": api_version}, kind, body, any_version)
    try:
        obj = decode_protobuf(kind.type, raw)
    except DecodeError as e:
        raise _cannot(given_kind, api_version.rpartition("/")[2], kind.kind, str(e)) from None
    obj["kind"], obj["apiVersion"] = kind.kind, kind.api_version
    _complete(req, kind, obj)
    return obj


def _cannot(given: str, version: str, wanted: str, why: str) -> errors.ApiError:
    return BodyError(f'{given} in version "{version}" cannot be handled as a {wanted}: {why}', why)



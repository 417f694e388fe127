"""Request bodies and patch results of custom resources, decoded as objects of the served version.

Upstream: apiextensions-apiserver ``pkg/apiserver/customresource_handler.go`` (schemaCoercingDecoder, unstructuredDefaulter).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import orjson

from kas.apiextensions import customtypes
from kas.apiextensions.embeddedmeta import MetadataError, coerce_own
from kas.endpoints.bodyerrors import BodyError, check_texts, from_yaml, no_object, unrecognized
from kas.meta import errors, field, gojson
from kas.request.negotiation import PROTOBUF, SUPPORTED, YAML, unsupported
from kas.types.scheme import DecodeError, TypeDesc, apply_schema_defaults, write_json
from kas.types.strict import duplicates, warning_texts

Obj = dict[str, Any]
Warn = Callable[[str], None]
TypeOf = Callable[[str], TypeDesc]  # by apiVersion


def decode_custom(body: bytes, form: str, kind: Any, field_validation: str, warn: Warn, type_of: TypeOf) -> Obj:
    """Return the body as an object of ``kind``, pruned and defaulted.

    ``field_validation`` is fieldValidation; ``type_of`` returns the type for a body that declares another version. An object that
    declares another kind is returned as sent except for its metadata, because validation rejects it. Raises 400 and 415.
    """
    if form == PROTOBUF:
        raise unsupported(SUPPORTED)
    repeated: list[str] = []
    if form == YAML:
        value, repeated = from_yaml(kind, body)
    else:
        try:
            value = gojson.loads(body)
        except gojson.NumberError as e:
            raise _number_error(kind, e.value, body, str(e)) from None
        except gojson.JSONError as e:
            raise unrecognized(kind, f"couldn't get version/kind; json parse error: {e}", body) from None
        if field_validation != "Ignore":
            repeated = duplicates(body)
    if value is None:
        value = {}  # as in Go, where null leaves every field unset
    if not isinstance(value, dict):
        raise no_object(kind, value, body)
    customtypes.as_floats(value, b"" if form == YAML else body)  # numbers in YAML have other spellings
    given_version = check_type(value, kind, body, field_validation)
    same = given_version == kind.api_version
    try:
        unknown = _decoded(kind.type if same else type_of(given_version), value, kind)
    except (MetadataError, DecodeError) as e:
        raise _cannot(kind, _error_text(e), value["kind"], given_version) from None
    findings = [*repeated, *_unknown(unknown)]
    if findings and field_validation != "Ignore":
        if field_validation == "Strict":
            raise _not_strict(value, given_version, findings)
        for text in chain.from_iterable(map(warning_texts, findings)):
            warn(text)
    if not same:
        why = f"the API version in the data ({given_version}) does not match the expected API version ({kind.api_version})"
        raise errors.bad_request(why)
    if value["kind"] == kind.kind:
        customtypes.bound_defaults(kind.type, value, body, form != YAML)
        customtypes.default(kind.type, value)
    return value


def _number_error(kind: Any, value: Any, body: bytes, why: str) -> errors.ApiError:
    """Return the 400 for a number outside the range of float64, which depends on whether the body names its type."""
    if not isinstance(value, dict):
        return no_object(kind, value, body)
    check_texts(value, kind, body)
    try:
        given = _canonical_version(value.get("apiVersion") or kind.api_version)
    except ValueError as e:
        return unrecognized(kind, str(e), body)
    return _cannot(kind, why, value.get("kind") or "", given)


def _decoded(type_: TypeDesc, value: Obj, kind: Any) -> list[str]:
    """Prune the object and return the paths of unknown fields. The schema applies only to objects of its own kind and group."""
    if value.get("kind") == kind.kind and value.get("apiVersion", "").rpartition("/")[0] == kind.group:
        return customtypes.decode(type_, value)
    return coerce_own(value)


def _unknown(paths: Sequence[str]) -> list[str]:
    return [f'unknown field "{path}"' for path in paths]  # the path is not quoted as Go's %q would do


def _error_text(e: MetadataError | DecodeError) -> str:
    """Return the error text. Upstream reports the decoder's message for an object's own metadata, and a path for embedded metadata."""
    return e.error.detail if isinstance(e, MetadataError) and e.error.field == "metadata" else str(e)


def _not_strict(value: Obj, given_version: str, findings: Sequence[str]) -> errors.ApiError:
    """Return the 400 of strict decoding, which names the declared type because the object has been decoded by then."""
    if not given_version:
        return errors.bad_request("Object 'apiVersion' is missing in 'object has no apiVersion field'")
    kind, version = value["kind"], given_version.rpartition("/")[2]
    return errors.bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: strict decoding error: {", ".join(findings)}')


def _cannot(kind: Any, why: str, said: str = "", given_version_text: str | None = None) -> errors.ApiError:
    """Return a 400. ``said`` and ``given_version_text`` are the kind and apiVersion that the body declares, if any."""
    version = kind.version if given_version_text is None else given_version_text.rpartition("/")[2]
    return errors.bad_request(f'{said or kind.kind} in version "{version}" cannot be handled as a {kind.kind}: {why}')


def check_type(value: Obj, kind: Any, body: bytes, field_validation: str) -> str:
    """Return the declared apiVersion; a missing type raises 400. Other versions are rejected after decoding, other kinds by validation."""
    given_kind, given_version = value.get("kind"), value.get("apiVersion")
    if given_version == kind.api_version and given_kind and isinstance(given_kind, str):
        return kind.api_version
    check_texts(value, kind, body)
    try:
        given = _canonical_version(given_version or "")
    except ValueError as e:
        raise unrecognized(kind, str(e), body) from None
    if not given_kind:
        why = f"Object 'Kind' is missing in '{body.decode('utf-8', 'replace')}'"
        raise _cannot(kind, why) if field_validation == "Ignore" else unrecognized(kind, why, body)
    if given_version is None and "apiVersion" in value:
        why = ".apiVersion accessor error: <nil> is of the type <nil>, expected string"
        raise errors.bad_request(f'{given_kind} in version "" cannot be handled as a {kind.kind}: {why}')
    return given


def _canonical_version(api_version: str) -> str:
    """Return an apiVersion as Go prints the parsed one. Raises ValueError."""
    if api_version.count("/") > 1:
        raise ValueError(f"unexpected GroupVersion string: {api_version}")
    return api_version.removeprefix("/")


def decode_custom_patched(served: Any, patched: Any, field_validation: str, repeated: Sequence[str], warn: Warn) -> Obj:
    """Return the patched document as an object of the served version, pruned and defaulted. Raises 422."""
    def invalid(why: str) -> errors.ApiError:
        return errors.invalid("", "", "", [field.invalid("patch", write_json(patched).decode("utf-8", "replace"), why)])

    text = write_json(patched, as_it_is=True)
    if isinstance(patched, dict):
        try:
            check_texts(patched, served, text)
            given_version = _canonical_version(patched.get("apiVersion") or "")
        except BodyError as e:
            raise invalid(e.why) from None
        except ValueError as e:
            raise invalid(str(e)) from None
        if not patched.get("kind"):
            raise invalid(f"Object 'Kind' is missing in '{write_json(patched).decode('utf-8', 'replace')}'")
    value = orjson.loads(text)  # a copy, because ``patched`` shares parts with the stored object
    if not isinstance(value, dict):
        raise invalid("not an object")
    customtypes.as_floats(value, text)
    if not given_version.rpartition("/")[2]:
        raise errors.internal("Object 'apiVersion' is missing in 'object has no apiVersion field'")
    value["apiVersion"] = given_version
    # A document that declares another version is decoded as that version; validation rejects it.
    type_ = served.type if value["apiVersion"] == served.api_version else served.type_of(value["apiVersion"])
    try:
        unknown = _decoded(type_, value, served)
    except (MetadataError, DecodeError) as e:
        raise invalid(_error_text(e)) from None
    findings = [*repeated, *_unknown(unknown)]
    if findings and field_validation != "Ignore":
        if field_validation == "Strict":
            raise invalid("strict decoding error: " + ", ".join(findings))
        for found in findings:
            warn(found)
    if value.get("kind") == served.kind:
        customtypes.bound_defaults(served.type, value, text)
        customtypes.default(served.type, value)
    return value


def decode_custom_merged(served: Any, merged: Obj) -> Obj:
    """Return the result of server-side apply as an object of the served version, defaulted.

    Metadata fields of a wrong type are dropped, as in stored objects.
    """
    text = write_json(merged)
    value: Obj = orjson.loads(text)
    customtypes.decode(served.type, value, stored=True)
    customtypes.as_floats(value, text)
    customtypes.bound_defaults(served.type, value, text)
    apply_schema_defaults(served.type, value)  # validation rejects a null that was applied
    return value

"""The four patch types, each as a function from the current object to the object wanted (apiserver's ``handlers/patch.go``).

Patches work on the object in the version of the URL. The result is decoded and defaulted like a body.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from kas._fast_types import reads_alike
from kas.api import errors, field, gojson, jsonpatch, mergepatch, strategicmerge
from kas.api.defaults import apply_defaults
from kas.api.errors import ApiError
from kas.api.fieldmanager import apply
from kas.api.negotiation import APPLY_PATCH as APPLY
from kas.api.negotiation import JSON_PATCH, MERGE_PATCH, patch_media_type
from kas.api.scheme import DecodeError, decode, duplicate_fields, write_json
from kas.edge.http import Request
from kas.endpoints import managedfields
from kas.endpoints.codec import another_kind
from kas.endpoints.options import META, WriteOptions, manager_errors
from kas.endpoints.served import Served
from kas.registry.strategy import Context, Obj


def patch_type(req: Request) -> str:
    """The patch's type from Content-Type. Raises 415."""
    return patch_media_type(req.header(b"content-type"))


def check_options(kind: str, o: WriteOptions) -> None:
    """ValidatePatchOptions. Raises 422."""
    found = []
    if kind == APPLY:
        if not o.field_manager:
            found.append(field.required("fieldManager", "is required for apply patch"))
    elif o.force is not None:
        found.append(field.forbidden("force", "may not be specified for non-apply patch"))
    found += manager_errors(o.field_manager)
    if found:
        raise errors.invalid(META, "PatchOptions", "", found)


def patcher(req: Request, served: Served, ctx: Context, name: str, kind: str, o: WriteOptions) -> Callable[[Obj | None], Obj]:
    """A JSON, merge or strategic merge patch as a function of the current object (in the storage version)."""
    manager = managedfields.manager_name(o.field_manager, req)
    apply_patch = _parse(req, served, kind, o)

    def wanted(current: Obj | None) -> Obj:
        assert current is not None  # patch creates nothing
        live = served.to_served(current)
        patched = apply_patch(live)
        obj = decode_patched(req, served, patched, o)
        _check_name(obj, name, ctx.namespace if served.record.namespaced else "")
        managedfields.on_update(served, live, obj, manager, ctx)
        return served.to_storage(obj)

    return wanted


def plain_patcher(req: Request, served: Any, kind: str, o: WriteOptions) -> Callable[[Obj], Obj]:
    """A patch of a view (Scale): the document in, the decoded result out; no managed fields."""
    apply_patch = _parse(req, served, kind, o)
    return lambda live: decode_patched(req, served, apply_patch(live), o)


def _parse(req: Request, served: Served, kind: str, o: WriteOptions) -> Callable[[Obj], Any]:
    body = req.body
    if kind == JSON_PATCH:
        try:
            operations = jsonpatch.decode(body)
        except jsonpatch.TooManyOperationsError as e:
            raise errors.request_entity_too_large(str(e)) from None
        except jsonpatch.DecodeError as e:
            raise errors.bad_request(str(e)) from None

        def run(doc: Obj) -> Any:
            try:
                return _still(served, jsonpatch.apply(doc, operations))
            except jsonpatch.ApplyError:
                raise unprocessable() from None

        return run
    if o.field_validation != "Ignore":
        _check_duplicates(req, body, o)
    if kind == MERGE_PATCH:

        def merge(doc: Obj) -> Any:
            try:
                return _still(served, mergepatch.apply(doc, body))
            except mergepatch.MergePatchError as e:
                raise errors.bad_request(str(e)) from None

        return merge
    try:
        patch = gojson.loads(body)
    except gojson.JSONError as e:
        raise errors.bad_request(str(e)) from None
    if not isinstance(patch, dict):
        raise errors.bad_request(gojson.cannot_unmarshal(patch, "map[string]interface {}"))

    def strategic(doc: Obj) -> Any:
        try:
            return strategicmerge.apply(doc, patch, served.type)
        except strategicmerge.StrategicMergeError as e:
            if e.code == 400:
                raise errors.bad_request(str(e)) from None
            raise (unprocessable() if e.code == 422 else ApiError(500, "", str(e))) from None

    return strategic


def _check_duplicates(req: Request, body: bytes, o: WriteOptions) -> None:
    repeated = [_duplicate(p) for p in duplicate_fields(body)]
    if repeated and o.field_validation == "Strict":
        why = "strict decoding error: " + ", ".join(repeated)
        raise errors.invalid("", "", "", [field.invalid("patch", body.decode("utf-8", "replace"), why)])
    for text in repeated:
        req.warn(text)


def unprocessable() -> ApiError:
    """``NewGenericServerResponse(422)``: what a patch that cannot be applied is answered with."""
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def decode_patched(req: Request, served: Served, patched: Any, o: WriteOptions) -> Obj:
    """The patched document as an object of the kind, defaulted."""
    if not isinstance(patched, dict):
        raise errors.bad_request(gojson.cannot_unmarshal(patched, served.kind))
    try:
        obj, unknown = decode(served.type, patched)
    except DecodeError as e:
        text = write_json(patched).decode("utf-8", "replace")
        raise errors.invalid("", "", "", [field.invalid("patch", text, str(e))]) from None
    if unknown and o.field_validation != "Ignore":
        if o.field_validation == "Strict":
            text = write_json(patched).decode("utf-8", "replace")
            raise errors.invalid("", "", "", [field.invalid("patch", text, "strict decoding error: " + ", ".join(unknown))])
        for w in unknown:
            req.warn(w)
    obj["kind"], obj["apiVersion"] = served.kind, served.api_version
    apply_defaults(served.kind_record, obj)
    return obj


def _still(served: Served, patched: Any) -> Any:
    """A patched document that is still of the kind; without kind or apiVersion it is. Raises 422. A strategic merge patch works on
    the typed object, where both say nothing."""
    if not isinstance(patched, dict):
        return patched
    kind, version = patched.get("kind") or served.kind, patched.get("apiVersion") or served.api_version
    if (kind == served.kind and version == served.api_version) or not isinstance(kind, str) or not isinstance(version, str):
        return patched  # what is no string is the decoder's to refuse
    why = another_kind(kind, version, served.kind_record)
    if why:
        text = write_json(patched).decode("utf-8", "replace")
        raise errors.invalid("", "", "", [field.invalid("patch", text, why)])
    return patched


def applier(req: Request, served: Served, ctx: Context, name: str, o: WriteOptions) -> Callable[[Obj | None], Obj]:
    """Server-side apply as a function of the current object, None when it does not exist yet."""
    value, repeated = _applied(req.body)
    if not isinstance(value, dict):
        raise errors.bad_request(
            f"error decoding YAML: json: cannot unmarshal {gojson.go_type(value)} into Go value of type map[string]interface {{}}"
        )
    if repeated and o.field_validation == "Strict":
        raise errors.bad_request("error strict decoding YAML: " + ", ".join(repeated))
    for text in repeated if o.field_validation != "Ignore" else ():
        req.warn(text)

    def wanted(current: Obj | None) -> Obj:
        live = served.to_served(current) if current is not None else None
        merged = apply(
            managedfields.schema(served), live, value, o.field_manager, now=ctx.now, subresource=ctx.subresource, force=bool(o.force),
            reset_fields=managedfields.reset_fields(served, ctx.subresource),
        )  # fmt: skip
        obj = decode_patched(req, served, merged, o)
        meta = obj.setdefault("metadata", {})
        if live is None and not meta.get("name"):
            meta["name"] = name
        namespace = ctx.namespace if served.record.namespaced else ""
        if live is None and namespace and not meta.get("namespace"):
            meta["namespace"] = namespace
        _check_name(obj, name, namespace)
        return served.to_storage(obj)

    return wanted


def _applied(body: bytes) -> tuple[Any, list[str]]:
    """The configuration, and what strict decoding objects to. Most clients send JSON, which need not go through YAML. Raises 400."""
    if reads_alike(body):
        try:
            value = orjson.loads(body)
        except orjson.JSONDecodeError:
            pass
        else:
            if not duplicate_fields(body):
                return value, []
    from kas.api import yaml_codec  # PyYAML is large and few clients need it

    try:
        return yaml_codec.decode(body)
    except yaml_codec.YAMLError as e:
        text = str(e)
        raise errors.bad_request(f"error decoding YAML: {'error converting YAML to JSON: ' * text.startswith('yaml: ')}{text}") from None


def _check_name(obj: Obj, name: str, namespace: str) -> None:
    from kas.endpoints.write import check_name

    check_name(obj, namespace, name)


def _duplicate(path: str) -> str:
    return f"duplicate field {path if path.startswith(chr(34)) else field.go_quote(path)}"

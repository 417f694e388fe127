"""JSON, merge and strategic merge patches of the current object (apiserver's ``handlers/patch.go``).

A patch is applied to the object in the version of the URL. The result is decoded and defaulted like a request body. Server-side apply is
in ``applying.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kas._codecs import go_numbers
from kas.admission import UPDATE
from kas.endpoints import managedfields, respond
from kas.endpoints.admission import RequestAdmission
from kas.endpoints.applying import ApplyUpdate
from kas.endpoints.bodyerrors import JSON_ERROR_STRUCT
from kas.endpoints.codec import another_kind, bound_parts
from kas.endpoints.options import WriteOptions, write_options
from kas.endpoints.served import Served
from kas.endpoints.write import Update, Writer, answer, check_name, options_dict
from kas.meta import errors, field, gojson, largejson
from kas.meta.errors import ApiError
from kas.meta.offload import LARGE, LOOP_BUDGET, POOL
from kas.meta.records import NamedTuple
from kas.patch import jsonpatch, mergepatch, strategicmerge
from kas.patch.strict import json_patch_errors, with_repeated_members
from kas.registry.strategy import Context, Obj
from kas.request.http import Request, Response
from kas.request.negotiation import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, PATCH_TYPES, patch_media_type
from kas.types.defaults import apply_defaults
from kas.types.scheme import DecodeError, EncodeError, decode, encode_json, strict_fields, write_json
from kas.types.strict import duplicates
from kas.types.unstructured import conversion_error

STATUS = "status"


def patch_type(req: Request) -> str:
    """Return the patch type from Content-Type. Like upstream's router, raises 415 if no part of the header is a patch type."""
    content_type = req.header(b"content-type")
    if content_type not in PATCH_TYPES and not any(t.partition(";")[0].strip() in PATCH_TYPES for t in content_type.split(",")):
        length = req.header(b"content-length")
        if length == "0":  # upstream's router accepts an empty body here and fails at Accept instead
            raise ApiError(406, "NotAcceptable", "406: Not Acceptable\n\nAvailable representations: ", {})
        more = "" if length else "\n\nAvailable representations: "
        raise ApiError(415, "UnsupportedMediaType", f"415: Unsupported Media Type{more}", {})
    return patch_media_type(content_type)


class Patch(NamedTuple):
    """A parsed patch.

    - ``apply`` returns the patched document.
    - ``findings`` are the errors of strict decoding in the patch itself.
    - ``shown`` returns the patch as error messages about its result quote it. If None, they quote the result, encoded by ``text``.
    - ``repeats`` is whether values of the patch repeat members: if the result has one, its text repeats it, too.
    """

    apply: Callable[[Obj], Any]
    findings: list[str]
    shown: Callable[[], str] | None = None
    text: Callable[[Any], bytes] | None = None
    repeats: bool = False


class Patcher:
    """The patch verb, for all four patch types."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    async def patch(self, req: Request, served: Served, namespace: str, name: str, subresource: str = "") -> Response:
        """Serve PATCH of every type: 200, or 201 for an apply that created the object. Raises 415 for another type."""
        kind = patch_type(req)
        respond.media(req)
        if req.audit is not None:
            req.audit.patched(req.body)
        o = write_options(req.params, "PatchOptions", kind)
        ctx = self.writer.context(req, namespace, o.dry_run, subresource)
        admission = self.writer.admission_of(req, served, UPDATE, ctx, name, options_dict("UpdateOptions", o))
        write: Update
        if kind == APPLY_PATCH:
            what = req, served, ctx, name, admission, o
            write = await POOL.run(ApplyUpdate, *what) if served.large(req) else ApplyUpdate(*what)
        else:
            write = PatchUpdate(req, served, ctx, name, admission, kind, o)
        rec = await write.run()
        return await answer(req, served, write, rec, 201 if write.created else 200)


class PatchUpdate(Update):
    """A JSON, merge or strategic merge patch of the current object. Errors in the patch are reported after a missing object."""

    def __init__(
        self, req: Request, served: Served, ctx: Context, name: str, admission: RequestAdmission, kind: str, o: WriteOptions
    ) -> None:
        super().__init__(req, served, ctx, name, admission)
        self.kind, self.options = kind, o
        self.manager = managedfields.manager_name(o.field_manager, req)
        self._patch: Patch | None = None

    def mutate(self, live: Obj | None) -> Obj:
        """Return the live object patched and decoded. Raises ApiError if the patch cannot be applied."""
        assert live is not None  # a patch of these types creates nothing
        served = self.served
        patch = self._patch
        if patch is None:
            patch = self._patch = parse(served, self.kind, self.req.body, self.options)
        # A few copy operations can turn a small object into a large one.
        patched = LOOP_BUDGET.within(patch.apply, live) if self.kind == JSON_PATCH and not self.large else patch.apply(live)
        kept = _unchanged_members(live, patched) if self.subresource == STATUS else None
        obj = decode_patched(self.req, served, patched, self.options, patch, kept)
        check_name(obj, self.ctx.namespace if served.record.namespaced else "", self.name)
        return obj

    def managed(self, live: Obj | None, obj: Obj) -> Obj:
        """Return the patched object with its managed fields updated."""
        assert live is not None
        managedfields.on_update(self.served, live, obj, self.manager, self.ctx)
        return obj


def _unchanged_members(live: Obj, patched: Any) -> Obj:
    """Return the members that a status patch left as stored.

    They are typed and defaulted already, and no status write changes them, so both objects may share them. Metadata is excluded because
    managed fields are added to it.
    """
    if not isinstance(patched, dict):
        return {}
    return {k: v for k, v in patched.items() if k != "metadata" and isinstance(v, dict) and v is live.get(k)}


def parse(served: Any, kind: str, body: bytes, o: WriteOptions) -> Patch:
    """Parse a patch. Raises 400 if it is malformed and 413 if it has too many operations."""
    strict = o.field_validation != "Ignore"
    if kind == JSON_PATCH:
        return _json_patch(served, body, strict)
    if kind == MERGE_PATCH:
        return _merge_patch(served, body, strict)
    return _strategic_patch(served, body, strict)


def _json_patch(served: Served, body: bytes, strict: bool) -> Patch:
    try:
        operations = jsonpatch.decode(body, strict)
    except jsonpatch.TooManyOperationsError as e:
        raise errors.request_entity_too_large(str(e)) from None
    except jsonpatch.DecodeError as e:
        raise errors.bad_request(str(e)) from None

    findings = json_patch_errors(body) if strict else []
    repeats = any(text.startswith("json patch duplicate") and "].value" in text for text in findings)
    try:
        texts = _TextEncoder(served, operations, with_repeated_members(body) if repeats else operations)
    except RecursionError:
        raise errors.bad_request("exceeded max depth") from None

    def run(doc: Obj) -> Any:
        texts.document = doc
        try:
            try:
                patched = jsonpatch.apply(doc, operations)
            except jsonpatch.ApplyError as e:
                if served.type.custom or isinstance(e, jsonpatch.TooMuchCopiedError):
                    raise
                # The JSON form has null for an unset list or map that Go always writes, and operations can address it.
                texts.document = largejson.parse(encode_json(served.type, doc))
                patched = jsonpatch.apply(texts.document, operations)
        except jsonpatch.ApplyError:
            raise unprocessable() from None
        return _check_kind(served, patched, texts)

    return Patch(run, findings, text=texts, repeats=repeats)


def _merge_patch(served: Served, body: bytes, strict: bool) -> Patch:
    try:
        patch = mergepatch.checked(_map(body)) if strict else mergepatch.decode(body)
    except gojson.JSONError as e:
        raise errors.bad_request(f"error decoding patch: {e}") from None
    except mergepatch.MergePatchError as e:
        raise errors.bad_request(str(e)) from None

    texts = _TextEncoder(served)

    def merge(doc: Obj) -> Any:
        texts.document = doc
        try:
            return _check_kind(served, mergepatch.merged(doc, patch), texts)
        except mergepatch.MergePatchError as e:
            raise errors.bad_request(str(e)) from None

    return Patch(merge, duplicates(body) if strict else [], text=texts)


def _strategic_patch(served: Served, body: bytes, strict: bool) -> Patch:
    try:
        patch = _map(body) or {}
    except gojson.JSONError as e:
        raise errors.bad_request(str(e)) from None

    merged: list[Obj] = []

    def strategic(doc: Obj) -> Any:
        merged[:] = [doc]
        try:
            return strategicmerge.apply(doc, patch, served.type)
        except strategicmerge.StrategicMergeError as e:
            if e.code == 400:
                raise errors.bad_request(str(e)) from None
            raise (unprocessable() if e.code == 422 else ApiError(500, "", str(e))) from None

    def shown() -> str:
        return strategicmerge.go_text(strategicmerge.left_of(merged[0], patch, served.type))

    return Patch(strategic, duplicates(body) if strict else [], shown)


def _map(body: bytes) -> Obj | None:
    """Parse a JSON object or null, as Go reads a map. Raises JSONError."""
    value = gojson.loads(body)
    if value is not None and not isinstance(value, dict):
        raise gojson.JSONError(gojson.cannot_unmarshal(value, "map[string]interface {}"))
    return value


def unprocessable() -> ApiError:
    """Return ``NewGenericServerResponse(422)``, the answer to a patch that cannot be applied."""
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def decode_patched(req: Request, served: Any, patched: Any, o: WriteOptions, patch: Patch, kept: Obj | None = None) -> Obj:
    """Decode the patched document as an object of the kind and apply defaults.

    ``kept`` are members that need no decoding; the result shares them. Raises 422 with the text for the patch's type.
    """
    strategic = patch.shown is not None
    if served.type.custom:
        from kas.endpoints.custom.bodies import decode_custom_patched

        repeated = duplicates(patch.text(patched)) if patch.repeats and patch.text is not None else []
        return decode_custom_patched(served, patched, o.field_validation, patch.findings + repeated, req.warn)
    written = patch.text or _text

    def invalid(why: str) -> ApiError:
        text = patch.shown() if patch.shown is not None else written(patched).decode("utf-8", "replace")
        return errors.invalid("", "", "", [field.invalid("patch", text, why)])

    if patched is None:
        patched = {}  # like Go, which leaves every field unset for null
    if not isinstance(patched, dict):
        why = gojson.cannot_unmarshal(patched, JSON_ERROR_STRUCT)
        raise invalid(f"couldn't get version/kind; json parse error: {why}")
    new = {k: v for k, v in patched.items() if k not in kept} if kept else patched
    if not strategic:
        for name in ("apiVersion", "kind"):
            if new.get(name) is not None and not isinstance(new[name], str):
                why = f"json: cannot unmarshal {gojson.go_type(new[name])} into Go struct field .{name} of type string"
                raise invalid(f"couldn't get version/kind; json parse error: {why}")
    try:
        try:
            obj, unknown = decode(served.type, new, keyless=strategic)
        except DecodeError:
            if strategic:
                obj, unknown = decode(served.type, go_numbers(served.type, new), keyless=True)
            else:  # the first error in the text's order
                obj, unknown = decode(served.type, gojson.loads(written(patched)), written(patched))
    except DecodeError as e:
        raise invalid(conversion_error(served.type, e) if strategic else str(e)) from None
    if o.field_validation != "Ignore":
        if unknown or patch.repeats:
            # In the order in which Go reads the document, or sorted for a strategic merge patch.
            unknown = sorted(unknown) if strategic else strict_fields(written(patched), served.type)
        found = patch.findings + unknown
        if found and o.field_validation == "Strict":
            raise invalid("strict decoding error: " + ", ".join(found))
        for text in found:
            req.warn(text)
    obj["kind"], obj["apiVersion"] = served.kind, served.api_version
    if len(req.body) >= LARGE:
        bound_parts(obj)
    try:
        apply_defaults(served.kind_record, obj, kept)
    except DecodeError as e:
        # Upstream converts the result of a strategic merge patch in a separate step, and that of the other types while decoding it.
        raise (ApiError(500, "", str(e)) if strategic else invalid(str(e))) from None
    return obj


def _text(patched: Any, as_it_is: bool = False) -> bytes:
    try:
        return write_json(patched, as_it_is=as_it_is)
    except EncodeError:
        raise errors.bad_request("exceeded max depth") from None


class _TextEncoder:
    """Encodes a patched document as upstream's patch library does.

    Values that the patch did not descend into keep their original text, from the server or from an operation's value. All others are
    written with sorted keys.
    """

    def __init__(
        self, served: Served, operations: Sequence[jsonpatch.Operation] = (), as_written: Sequence[jsonpatch.Operation] = ()
    ) -> None:
        """``as_written``: the operations, with repeated members."""
        self.served, self.operations, self.as_written = served, operations, as_written
        self.document: Obj = {}
        # the last document and its text: an error message quotes the text that was just decoded
        self._last: tuple[Any, bytes] = (None, b"")

    def __call__(self, patched: Any) -> bytes:
        if self._last[0] is not patched or patched is None:
            self._last = (patched, self._written(patched))
        return self._last[1]

    def _written(self, patched: Any) -> bytes:
        as_is: dict[int, Any] = {}
        try:
            for operation, original in zip(self.operations, self.as_written, strict=True):
                _map_originals(operation.get("value"), original.get("value") if original else None, as_is)
            if not self.served.type.custom:
                _map_originals(self.document, largejson.parse(encode_json(self.served.type, self.document)), as_is)
            as_is.pop(id(patched), None)  # the document itself is always descended into
            return _text(_in_order(patched, as_is), as_it_is=True)
        except RecursionError:
            raise errors.bad_request("exceeded max depth") from None


def _map_originals(value: Any, written: Any, out: dict[int, Any]) -> None:
    """Map the id of each map and list below ``value`` to its counterpart in ``written``."""
    if isinstance(value, dict) and isinstance(written, dict):
        out[id(value)] = written
        for key, one in value.items():
            if isinstance(one, (dict, list)) and key in written:
                _map_originals(one, written[key], out)
    elif isinstance(value, list) and isinstance(written, list):
        out[id(value)] = written
        for one, other in zip(value, written, strict=False):
            if isinstance(one, (dict, list)):
                _map_originals(one, other, out)


def _in_order(value: Any, as_is: dict[int, Any]) -> Any:
    if not isinstance(value, (dict, list)):
        return value
    found = as_is.get(id(value))
    if found is not None:
        return found
    if isinstance(value, dict):
        return {k: _in_order(value[k], as_is) for k in sorted(value)}
    return [_in_order(v, as_is) for v in value]


def _check_kind(served: Served, patched: Any, texts: _TextEncoder) -> Any:
    """Return the patched document if it is still of the kind; a missing kind or apiVersion is accepted. Raises 422.

    A strategic merge patch works on the typed object, where the two fields have no effect.
    """
    if not isinstance(patched, dict) or served.type.custom:
        return patched  # for custom resources the strategy checks it
    kind, version = patched.get("kind") or served.kind, patched.get("apiVersion") or served.api_version
    if (kind == served.kind and version == served.api_version) or not isinstance(kind, str) or not isinstance(version, str):
        return patched  # values that are not strings are rejected by the decoder
    why = another_kind(kind, version, served.kind_record)
    if why:
        text = texts(patched).decode("utf-8", "replace")
        raise errors.invalid("", "", "", [field.invalid("patch", text, why)])
    return patched

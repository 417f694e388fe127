"""Server-side apply (apiserver's ``handlers/patch.go: applyPatcher``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kas._codecs import go_numbers
from kas.endpoints import managedfields
from kas.endpoints.admission import RequestAdmission
from kas.endpoints.codec import bound_parts
from kas.endpoints.options import WriteOptions
from kas.endpoints.served import Served
from kas.endpoints.write import Update, check_name
from kas.meta import errors, gojson
from kas.meta.errors import ApiError
from kas.meta.offload import LARGE
from kas.patch.fieldmanager import apply, shown_name
from kas.registry.strategy import Context, Obj
from kas.request.http import Request
from kas.types.defaults import apply_defaults
from kas.types.scheme import DecodeError, decode
from kas.types.strict import read_json, warning_texts
from kas.types.unstructured import conversion_error


class Applied:
    """An applied configuration, parsed when it is constructed (in the thread pool if it is large).

    A parse error is raised only when the value is used, because a missing object is reported first for a subresource.
    """

    def __init__(self, req: Request, o: WriteOptions) -> None:
        self.req, self.options = req, o
        self._value: Obj = {}
        self._repeated: list[str] = []
        self._wrong = ""
        try:
            self._value, self._repeated = _configuration(req.body)
        except ApiError as e:
            # the message only: the error's traceback refers to self, and that cycle would keep the body until the next collection
            self._wrong = e.message

    @property
    def value(self) -> Obj:
        """The configuration. Raises 400 if it could not be parsed."""
        if self._wrong:
            raise errors.bad_request(self._wrong)
        return self._value

    def onto(
        self, served: Any, live: Obj | None, name: str, ctx: Context, check: Callable[[Obj, Obj, Obj], None] | None = None
    ) -> Obj:
        """Return ``live`` with the configuration applied, or a new object if ``live`` is None.

        ``check`` is called with ``live``, the merged object and the configuration. Raises 400, 409 and 500.
        """
        o, req, value = self.options, self.req, self.value
        merged = apply(
            managedfields.schema(served, ctx), live, value, o.field_manager, now=ctx.now, subresource=ctx.subresource,
            force=bool(o.force), reset_fields=managedfields.reset_fields(served, ctx.subresource),
        )  # fmt: skip
        if check is not None and live is not None:
            check(live, merged, value)
        if len(req.body) >= LARGE:
            bound_parts(merged)
        obj = _of_merged(served, merged, value)
        for found in self._repeated if o.field_validation != "Ignore" else ():
            if o.field_validation == "Strict":
                raise errors.bad_request(f"error strict decoding YAML: error converting YAML to JSON: {found}")
            for text in warning_texts(found):
                req.warn(text)
        meta = obj.setdefault("metadata", {})
        namespace = ctx.namespace if served.record.namespaced else ""
        if live is None:
            if meta.get("uid"):
                why = f"uid mismatch: the provided object specified uid {meta['uid']}, and no existing object was found"
                raise errors.conflict(served.group, served.resource, name, why)
            if namespace and not meta.get("namespace"):
                meta["namespace"] = namespace
        check_name(obj, namespace, name)
        return obj


class ApplyUpdate(Update):
    """An apply patch. It creates a missing object, except through a subresource."""

    def __init__(self, req: Request, served: Served, ctx: Context, name: str, admission: RequestAdmission, o: WriteOptions) -> None:
        super().__init__(req, served, ctx, name, admission)
        ctx.apply = True
        self.allow_create = not ctx.subresource
        self._applied = Applied(req, o)

    def mutate(self, live: Obj | None) -> Obj:
        """Return the live object, or a new one, with the configuration applied. Raises 409 on conflicts with other field managers."""
        return self._applied.onto(self.served, live, self.name, self.ctx)


def _of_merged(served: Any, merged: Obj, applied: Obj) -> Obj:
    """Decode the merged object as its kind and apply defaults. Raises 500 for a value that fits the schema but not the type."""
    if served.type.custom:
        from kas.endpoints.custom.bodies import decode_custom_merged

        return decode_custom_merged(served, merged)
    try:
        obj, _ = decode(served.type, go_numbers(served.type, merged))
    except DecodeError as e:
        gvk = f"{served.group}/{served.version}, Kind={served.kind}"
        why = f"unable to convert unstructured object to {gvk}: {conversion_error(served.type, e)}"
        raise ApiError(500, "", f"failed to convert new object ({shown_name(applied)}) to proper version: {why}") from None
    obj["kind"], obj["apiVersion"] = served.kind, served.api_version
    try:
        apply_defaults(served.kind_record, obj)
    except DecodeError as e:
        raise ApiError(500, "", f"failed to convert to unversioned ({shown_name(applied)}): {e}") from None
    return obj


def _configuration(body: bytes) -> tuple[Obj, list[str]]:
    """Parse a configuration that must be an object; null counts as an empty one. Raises 400."""
    value, repeated = _read(body)
    if value is None:
        value = {}
    if not isinstance(value, dict):
        why = f"json: cannot unmarshal {gojson.go_type(value)} into Go value of type map[string]interface {{}}"
        raise errors.bad_request(f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {why}")
    return value, repeated


def _read(body: bytes) -> tuple[Any, list[str]]:
    """Return the parsed configuration and the findings of strict decoding. Raises 400."""
    found = read_json(body)
    if found is not None:
        return found, []
    from kas.types import yaml_codec  # PyYAML is large and few clients need it

    try:
        return yaml_codec.decode(body)
    except yaml_codec.YAMLError as e:
        raise errors.bad_request(f"error decoding YAML: error converting YAML to JSON: {e}") from None

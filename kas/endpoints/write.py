"""create and update: from a request body to a write (apiserver's ``handlers/{create,update}.go``).

The steps of a write are in ``kas.registry.write``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kas.admission import CREATE, UPDATE, Chain
from kas.auth import attributes as authz
from kas.endpoints import managedfields, respond
from kas.endpoints.admission import RequestAdmission
from kas.endpoints.codec import decode_body
from kas.endpoints.options import NO_WRITE_OPTIONS, WriteOptions, write_options
from kas.endpoints.served import Served
from kas.meta import errors
from kas.meta.offload import LARGE_YAML, POOL
from kas.registry import pipeline
from kas.registry import write as steps
from kas.registry.admission import dedup_owner_references
from kas.registry.strategy import Context, Obj
from kas.registry.versions import Shown
from kas.registry.write import Create, Write
from kas.request.http import Request, Response
from kas.request.negotiation import body_media_type

_NO_OPTIONS = {kind: {"kind": kind, "apiVersion": "meta.k8s.io/v1"} for kind in ("CreateOptions", "UpdateOptions")}
NAMESPACE_MISMATCH = "the namespace of the provided object does not match the namespace sent on the request"


class Writer:
    """The create and update verbs of every stored resource, and what they need from the server."""

    def __init__(self, admission: Chain, clock: Callable[[], str], authorizer: authz.Authorizer) -> None:
        self.admission, self.clock, self.authorizer = admission, clock, authorizer

    def context(self, req: Request, namespace: str, dry_run: bool, subresource: str = "") -> Context:
        """Return the strategies' view of the request, with the current time."""
        return Context(self.clock(), namespace, req.user.to_dict(), subresource, dry_run)

    def admission_of(
        self, req: Request, served: Any, operation: str, ctx: Context, name: str, options: Obj, kind: str = ""
    ) -> RequestAdmission:
        """Return the admission of a request. ``kind`` is given if admission plug-ins see another kind than the resource's."""
        return RequestAdmission(self.admission, self.authorizer, req, served, operation, ctx, name, options, kind)

    async def create(self, req: Request, served: Served, namespace: str) -> Response:
        """Serve POST: 201 with the new object as stored.

        If the write is refused and the local store was behind the shared one, the refusal may be outdated, so the create is retried once.
        """
        respond.media(req)  # in every verb, a request whose Accept cannot be satisfied changes nothing
        if req.query:
            body_media_type(req.header(b"content-type"))  # only a create checks this before the options
        o = write_options(req.params, "CreateOptions") if req.query else NO_WRITE_OPTIONS
        store, large = served.registry.store, served.large(req)
        read_at: int | None = store.revision
        while True:
            try:
                ctx = self.context(req, namespace, o.dry_run)
                obj = await POOL.run(self._posted, req, served, ctx, o) if large else self._posted(req, served, ctx, o)
                admission = self.admission_of(req, served, CREATE, ctx, obj["metadata"].get("name", ""), options_dict("CreateOptions", o))
                write = Create(served.registry, ctx, served, admission)
                write.large = large
                rec = await write.run(obj)
                break
            except errors.ApiError:
                if read_at is None or not await store.behind(read_at):
                    raise
                read_at = None  # retry only once
        return await answer(req, served, write, rec, 201)  # a failure here does not undo the write

    @staticmethod
    def _posted(req: Request, served: Served, ctx: Context, o: WriteOptions) -> Obj:
        """Decode the body as a new object, owned by its field manager."""
        obj = decode_body(req, served.kind_record, field_validation=o.field_validation, type_of=served.type_of)
        assert obj is not None
        meta = _metadata(obj)
        pipeline.wipe_system_fields(meta)  # before managed fields are computed: system fields have no manager
        pipeline.match_namespace(served.record, meta, ctx.namespace)
        dedup_owner_references(meta, req.warn)
        managedfields.on_create(served, obj, managedfields.manager_name(o.field_manager, req), ctx)
        return obj

    async def update(self, req: Request, served: Served, namespace: str, name: str, subresource: str = "") -> Response:
        """Serve PUT: 200 with the object as stored, or 201 if it was created."""
        respond.media(req)
        o = write_options(req.params, "UpdateOptions") if req.query else NO_WRITE_OPTIONS
        large = served.large(req)
        decode = partial(decode_body, req, served.kind_record, field_validation=o.field_validation, type_of=served.type_of)
        given = await POOL.run(decode) if large else decode()
        assert given is not None
        check_name(given, namespace if served.record.namespaced else "", name)
        ctx = self.context(req, namespace, o.dry_run, subresource)
        admission = self.admission_of(req, served, UPDATE, ctx, name, options_dict("UpdateOptions", o))
        write = Replace(req, given, served, ctx, name, admission, managedfields.manager_name(o.field_manager, req))
        write.allow_create = served.record.allow_create_on_update and not subresource
        rec = await write.run()
        return await answer(req, served, write, rec, 201 if write.created else 200)


class Update(steps.Update):
    """An update that originates from a request."""

    def __init__(self, req: Request, served: Served, ctx: Context, name: str, admission: RequestAdmission) -> None:
        super().__init__(served.registry, ctx, name, served, admission)
        self.req, self.served = req, served
        self.large = served.large(req)
        self.unconditional = served.record.allow_unconditional_update


class Replace(Update):
    """PUT: replaces the object with the request body and updates its managed fields."""

    def __init__(
        self, req: Request, given: Obj, served: Served, ctx: Context, name: str, admission: RequestAdmission, manager: str
    ) -> None:
        super().__init__(req, served, ctx, name, admission)
        self.manager, self.uid = manager, given["metadata"].get("uid") or ""
        self._given: Obj | None = given
        self.anew = not given["metadata"].get("resourceVersion")

    def mutate(self, live: Obj | None) -> Obj:
        """Return the decoded body."""
        # Strategies modify the object they are given, so a retry after a conflict decodes the body again.
        obj, self._given = self._given, None
        if obj is None:
            obj = decode_body(self.req, self.served.kind_record, field_validation="Ignore", type_of=self.served.type_of)
            assert obj is not None
        dedup_owner_references(_metadata(obj), self.req.warn)
        return obj

    def managed(self, live: Obj | None, obj: Obj) -> Obj:
        """Return the body with its managed fields updated."""
        if live is not None:
            managedfields.on_update(self.served, live, obj, self.manager, self.ctx)
        else:
            managedfields.on_create(self.served, obj, self.manager, self.ctx)
        return obj


async def answer(req: Request, served: Served, done: Write, rec: Shown, status: int) -> Response:
    """Return a response with the written object in the version and form of the request, and add the strategy's warnings."""
    for text in done.warnings:
        req.warn(text)
    shown = rec if served.native else await served.converted_one(rec)
    form = respond.obj
    in_thread = done.large or (served.columns is not None and respond.prints_long(req, served))
    if not in_thread:  # otherwise the JSON, which may have to be encoded first, is encoded in the thread pool as well
        size = len(shown.json)
        in_thread = size >= LARGE_YAML and respond.long_to_write(respond.media(req), size)
    return await POOL.run(form, req, served, shown, status) if in_thread else form(req, served, shown, status)


def options_dict(kind: str, o: WriteOptions) -> dict[str, Any]:
    """Return the options as the metav1 object that admission shows to webhooks. Callers must not modify it."""
    if o is NO_WRITE_OPTIONS:
        return _NO_OPTIONS[kind]
    out: dict[str, Any] = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    if o.dry_run:
        out["dryRun"] = ["All"]
    if o.field_manager:
        out["fieldManager"] = o.field_manager
    if o.field_validation:
        out["fieldValidation"] = o.field_validation
    return out


def _metadata(obj: Obj) -> Obj:
    meta: Obj | None = obj.get("metadata")
    if meta is None:
        meta = obj["metadata"] = {}
    return meta


def check_name(obj: Obj, namespace: str, name: str) -> None:
    """Raise 400 unless the body names the same object as the URL (``EnsureObjectNamespaceMatchesRequestNamespace`` and ``checkName``)."""
    meta = _metadata(obj)
    if namespace and meta.get("namespace") and meta["namespace"] != namespace:
        raise errors.bad_request(NAMESPACE_MISMATCH)
    have = meta.get("name") or ""
    if not have:
        raise errors.bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if have != name:
        raise errors.bad_request(f"the name of the object ({have}) does not match the name on the URL ({name})")

"""create and update: from a body to a write (apiserver's ``handlers/{create,update}.go``). The steps are in ``kas.registry.write``."""

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
    """The writing verbs of every stored resource; holds what they need of the server."""

    def __init__(self, admission: Chain, clock: Callable[[], str], authorizer: authz.Authorizer) -> None:
        self.admission, self.clock, self.authorizer = admission, clock, authorizer

    def context(self, req: Request, namespace: str, dry_run: bool, subresource: str = "") -> Context:
        """What the strategies are told of the request, with the time of now."""
        return Context(self.clock(), namespace, req.user.to_dict(), subresource, dry_run)

    def asked(
        self, req: Request, served: Any, operation: str, ctx: Context, name: str, options: Obj, kind: str = ""
    ) -> RequestAdmission:
        """The admission of a request; ``kind`` where the plug-ins see another than the resource's."""
        return RequestAdmission(self.admission, self.authorizer, req, served, operation, ctx, name, options, kind)

    async def create(self, req: Request, served: Served, namespace: str) -> Response:
        """Serve POST of a new object: 201 with it as it was stored. A refusal that may come from what other servers changed meanwhile is
        looked at again."""
        respond.media(req)  # who takes no answer of ours changes nothing; so in every verb
        if req.query:
            body_media_type(req.header(b"content-type"))  # on creation alone before the options
        o = write_options(req.params, "CreateOptions") if req.query else NO_WRITE_OPTIONS
        store, large = served.registry.store, served.large(req)
        read_at: int | None = store.revision
        while True:
            try:
                ctx = self.context(req, namespace, o.dry_run)
                obj = await POOL.run(self._posted, req, served, ctx, o) if large else self._posted(req, served, ctx, o)
                admission = self.asked(req, served, CREATE, ctx, obj["metadata"].get("name", ""), options_dict("CreateOptions", o))
                write = Create(served.registry, ctx, served, admission)
                write.large = large
                rec = await write.run(obj)
                break
            except errors.ApiError:
                if read_at is None or not await store.behind(read_at):
                    raise
                read_at = None  # once
        return await answer(req, served, write, rec, 201)  # what fails in it does not undo what was stored

    @staticmethod
    def _posted(req: Request, served: Served, ctx: Context, o: WriteOptions) -> Obj:
        """The body as a new object of the sender's."""
        obj = decode_body(req, served.kind_record, field_validation=o.field_validation, type_of=served.type_of)
        assert obj is not None
        meta = _metadata(obj)
        pipeline.wipe_system_fields(meta)  # which nobody manages
        pipeline.match_namespace(served.record, meta, ctx.namespace)
        dedup_owner_references(meta, req.warn)
        managedfields.on_create(served, obj, managedfields.manager_name(o.field_manager, req), ctx)
        return obj

    async def update(self, req: Request, served: Served, namespace: str, name: str, subresource: str = "") -> Response:
        """Serve PUT: 200 with the object as it was stored, or 201 where that creates one."""
        respond.media(req)
        o = write_options(req.params, "UpdateOptions") if req.query else NO_WRITE_OPTIONS
        large = served.large(req)
        decode = partial(decode_body, req, served.kind_record, field_validation=o.field_validation, type_of=served.type_of)
        given = await POOL.run(decode) if large else decode()
        assert given is not None
        check_name(given, namespace if served.record.namespaced else "", name)
        ctx = self.context(req, namespace, o.dry_run, subresource)
        admission = self.asked(req, served, UPDATE, ctx, name, options_dict("UpdateOptions", o))
        write = Replace(req, given, served, ctx, name, admission, managedfields.manager_name(o.field_manager, req))
        write.allow_create = served.record.allow_create_on_update and not subresource
        rec = await write.run()
        return await answer(req, served, write, rec, 201 if write.created else 200)


class Update(steps.Update):
    """An update that came as a request."""

    def __init__(self, req: Request, served: Served, ctx: Context, name: str, admission: RequestAdmission) -> None:
        super().__init__(served.registry, ctx, name, served, admission)
        self.req, self.served = req, served
        self.large = served.large(req)
        self.unconditional = served.record.allow_unconditional_update


class Replace(Update):
    """PUT: the body as it is, with managed fields."""

    def __init__(
        self, req: Request, given: Obj, served: Served, ctx: Context, name: str, admission: RequestAdmission, manager: str
    ) -> None:
        super().__init__(req, served, ctx, name, admission)
        self.manager, self.uid = manager, given["metadata"].get("uid") or ""
        self._given: Obj | None = given
        self.anew = not given["metadata"].get("resourceVersion")

    def mutate(self, live: Obj | None) -> Obj:
        """The body; decoded again for another attempt, as strategies change it."""
        # The strategies change what they are given, so a lost race starts from the body again.
        obj, self._given = self._given, None
        if obj is None:
            obj = decode_body(self.req, self.served.kind_record, field_validation="Ignore", type_of=self.served.type_of)
            assert obj is not None
        dedup_owner_references(_metadata(obj), self.req.warn)
        return obj

    def managed(self, live: Obj | None, obj: Obj) -> Obj:
        """The body, with the managed fields it leads to."""
        if live is not None:
            managedfields.on_update(self.served, live, obj, self.manager, self.ctx)
        else:
            managedfields.on_create(self.served, obj, self.manager, self.ctx)
        return obj


async def answer(req: Request, served: Served, done: Write, rec: Shown, status: int) -> Response:
    """What was written, in the version and form of the request, with the warnings of its strategy."""
    for text in done.warnings:
        req.warn(text)
    shown = rec if served.native else await served.converted_one(rec)
    form = respond.obj
    aside = done.large or (served.columns is not None and respond.prints_long(req, served))
    if not aside:  # else its text, which may have to be made, is made beside the loop, too
        size = len(shown.json)
        aside = size >= LARGE_YAML and respond.long_to_write(respond.media(req), size)
    return await POOL.run(form, req, served, shown, status) if aside else form(req, served, shown, status)


def options_dict(kind: str, o: WriteOptions) -> dict[str, Any]:
    """The options as the metav1 object admission shows to webhooks; not to be changed."""
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
    """A body must name what the URL names: ``EnsureObjectNamespaceMatchesRequestNamespace`` and ``checkName``."""
    meta = _metadata(obj)
    if namespace and meta.get("namespace") and meta["namespace"] != namespace:
        raise errors.bad_request(NAMESPACE_MISMATCH)
    have = meta.get("name") or ""
    if not have:
        raise errors.bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if have != name:
        raise errors.bad_request(f"the name of the object ({have}) does not match the name on the URL ({name})")

"""create, update and patch: body to object, admission, managed fields, registry (apiserver's ``handlers/{create,update,patch}.go``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from kas.admission import CREATE, UPDATE, Attributes, Chain
from kas.api import errors
from kas.api.equality import semantic_equal
from kas.api.fieldmanager import keep_timestamps, restore_after_admission
from kas.api.negotiation import APPLY_PATCH
from kas.auth import attributes as authz
from kas.edge.http import Request, Response
from kas.endpoints import managedfields, patching, respond
from kas.endpoints.codec import decode_body
from kas.endpoints.options import NO_WRITE_OPTIONS, WriteOptions, write_options
from kas.endpoints.served import Served
from kas.registry import pipeline
from kas.registry.strategy import Context, Obj

NAMESPACE_MISMATCH = "the namespace of the provided object does not match the namespace sent on the request"
ADMITTED = " after mutating admission happens"


class Writer:
    """The writing verbs of every stored resource; holds what they need of the server."""

    def __init__(self, admission: Chain, clock: Callable[[], str], authorizer: authz.Authorizer) -> None:
        self.admission, self.clock, self.authorizer = admission, clock, authorizer

    def context(self, req: Request, namespace: str, dry_run: bool, subresource: str = "") -> Context:
        return Context(self.clock(), namespace, req.user.to_dict(), subresource, dry_run)

    def attributes(
        self, req: Request, served, operation: str, ctx: Context, name: str, obj: Obj | None, old: Obj | None, options: dict[str, Any]
    ) -> Attributes:
        return Attributes(
            operation, served.group, served.version, served.resource, ctx.subresource, served.kind, ctx.namespace, name, obj, old,
            req.user, options, ctx.dry_run, ctx.now, req.warn, req.annotate,
        )  # fmt: skip

    # --- create

    async def create(self, req: Request, served: Served, namespace: str) -> Response:
        respond.media(req)  # who takes no answer of ours changes nothing; so in every verb
        o = write_options(req.params, "CreateOptions") if req.query else NO_WRITE_OPTIONS
        kind = served.kind_record
        obj = decode_body(req, kind, strictness=o.field_validation)
        assert obj is not None
        meta = _metadata(obj)
        pipeline.match_namespace(served.record, meta, namespace)
        dedup_owner_references(req, meta)
        ctx = self.context(req, namespace, o.dry_run)
        manager = managedfields.manager_name(o.field_manager, req)
        managedfields.on_create(served, obj, manager, ctx)
        rec, warnings = await self.create_decoded(req, served, ctx, served.to_storage(obj), options_dict("CreateOptions", o))
        for text in warnings:
            req.warn(text)
        return respond.obj(req, served, rec, 201)

    async def create_decoded(self, req: Request, served: Served, ctx: Context, obj: Obj, options: dict[str, Any]):
        """Admission and the registry's create, for an object in the storage version. Returns (record, warnings)."""
        attrs = self.attributes(req, served, CREATE, ctx, obj["metadata"].get("name", ""), obj, None, options)
        mutated = self._mutated(req, attrs)
        obj = mutated if isinstance(mutated, dict) else await mutated

        def judge(final: Obj, old: Obj | None) -> Awaitable[None] | None:
            attrs.obj, attrs.name = final, final["metadata"].get("name", "")
            return self.admission.start_validate(attrs)

        return await served.registry.create(ctx, obj, judge)

    # --- update

    async def update(self, req: Request, served: Served, namespace: str, name: str, subresource: str = "") -> Response:
        respond.media(req)
        o = write_options(req.params, "UpdateOptions") if req.query else NO_WRITE_OPTIONS
        given = decode_body(req, served.kind_record, strictness=o.field_validation)
        assert given is not None
        check_name(given, namespace if served.record.namespaced else "", name)
        manager = managedfields.manager_name(o.field_manager, req)
        ctx = self.context(req, namespace, o.dry_run, subresource)

        first = True

        def wanted(current: Obj | None) -> Obj:
            nonlocal first
            # The strategies change what they are given, so a lost race starts from the body again.
            obj = given if first else decode_body(req, served.kind_record, strictness="Ignore")
            first = False
            assert obj is not None
            dedup_owner_references(req, _metadata(obj))
            if current is not None:
                managedfields.on_update(served, served.to_served(current), obj, manager, ctx)
            else:
                managedfields.on_create(served, obj, manager, ctx)
            return served.to_storage(obj)

        rec, warnings, created = await self._write(
            req, served, ctx, name, wanted, options_dict("UpdateOptions", o),
            allow_create=served.record.allow_create_on_update and not subresource,
            uid=given["metadata"].get("uid") or "",
        )  # fmt: skip
        for text in warnings:
            req.warn(text)
        return respond.obj(req, served, rec, 201 if created else 200)

    async def _write(
        self, req: Request, served: Served, ctx: Context, name: str, wanted: Callable[[Obj | None], Obj], options: dict[str, Any],
        allow_create: bool, uid: str = "",
    ):  # fmt: skip
        attrs = self.attributes(req, served, UPDATE, ctx, name, None, None, options)
        mutates = self.admission.mutates(attrs)

        def mutate(current: Obj | None):
            obj = wanted(current)
            if current is None or not mutates:
                dedup_owner_references(req, obj.get("metadata") or {}, ADMITTED)
                return obj
            attrs.operation, attrs.obj, attrs.old = UPDATE, obj, current
            return self._mutated(req, attrs)

        def on_create(obj: Obj) -> Awaitable[Obj] | None:
            attrs.operation, attrs.obj, attrs.old = CREATE, obj, None
            mutated = self._mutated(req, attrs)
            return None if isinstance(mutated, dict) else mutated

        def judge(final: Obj, old: Obj | None) -> Awaitable[None] | None:
            attrs.operation = UPDATE if old is not None else CREATE
            attrs.obj, attrs.old = final, old
            if old is None:
                self._check_may_create(req, served, ctx, name)
            return self.admission.start_validate(attrs)

        return await served.registry.update(
            ctx, name, mutate, judge, subresource=ctx.subresource, allow_create=allow_create, on_create=on_create,
            unconditional=served.record.allow_unconditional_update, settle=keep_timestamps, uid=uid,
        )  # fmt: skip

    def _check_may_create(self, req: Request, served: Served, ctx: Context, name: str) -> None:
        """Who may update or patch need not be one who may create: upstream's ``withAuthorization``."""
        question = authz.Attributes(
            req.user, "create", ctx.namespace, served.group, served.version, served.resource, ctx.subresource, name, True, req.info.path
        )
        decision, reason, error = self.authorizer.authorize(question)
        if decision == authz.ALLOW:
            return
        if error:
            raise errors.internal(error)
        raise errors.forbidden(served.group, served.resource, name, reason)

    def _mutated(self, req: Request, attrs: Attributes) -> Obj | Awaitable[Obj]:
        """The object after mutating admission, which must leave usable managed fields behind; to be awaited when a plug-in waits."""
        entries = attrs.obj["metadata"].get("managedFields")
        pending = self.admission.start_mutate(attrs)
        return self._after_mutation(req, attrs, entries) if pending is None else self._mutated_later(req, attrs, entries, pending)

    async def _mutated_later(self, req: Request, attrs: Attributes, entries: Any, pending: Awaitable[None]) -> Obj:
        await pending
        return self._after_mutation(req, attrs, entries)

    @staticmethod
    def _after_mutation(req: Request, attrs: Attributes, entries: Any) -> Obj:
        obj = attrs.obj
        warning = restore_after_admission(entries, obj["metadata"])
        if warning is not None:
            req.warn(warning)
        dedup_owner_references(req, obj["metadata"], ADMITTED)
        return obj

    # --- patch

    async def patch(self, req: Request, served: Served, namespace: str, name: str, subresource: str = "") -> Response:
        kind = patching.patch_type(req)
        respond.media(req)
        o = write_options(req.params, "PatchOptions", kind)
        ctx = self.context(req, namespace, o.dry_run, subresource)
        if kind == APPLY_PATCH:
            ctx.apply = True
            wanted = patching.applier(req, served, ctx, name, o)
        else:
            wanted = patching.patcher(req, served, ctx, name, kind, o)
        rec, warnings, created = await self._write(
            req,
            served,
            ctx,
            name,
            wanted,
            options_dict("PatchOptions", o),
            allow_create=kind == APPLY_PATCH and not subresource,
        )
        for text in warnings:
            req.warn(text)
        return respond.obj(req, served, rec, 201 if created else 200)


def options_dict(kind: str, o: WriteOptions) -> dict[str, Any]:
    """The options as the metav1 object admission shows to webhooks."""
    out: dict[str, Any] = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    if o.dry_run:
        out["dryRun"] = ["All"]
    if o.force is not None and kind == "PatchOptions":
        out["force"] = o.force
    if o.field_manager:
        out["fieldManager"] = o.field_manager
    if o.field_validation:
        out["fieldValidation"] = o.field_validation
    return out


def _metadata(obj: Obj) -> dict[str, Any]:
    meta = obj.get("metadata")
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


def dedup_owner_references(req: Request, meta: dict[str, Any], when: str = "") -> None:
    """Drops ownerReferences that are there already, in all they say, with upstream's warning; ``when`` tells in it who brought them."""
    refs = meta.get("ownerReferences")
    if not refs or len(refs) < 2:
        return
    kept: list[Any] = []
    repeated = []
    for ref in refs:
        if any(ref.get("uid") == k.get("uid") and semantic_equal(ref, k) for k in kept):
            repeated.append(ref.get("uid") or "")
        else:
            kept.append(ref)
    if repeated:
        meta["ownerReferences"] = kept
        req.warn(
            f".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, "
            f"and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {', '.join(repeated)}"
        )

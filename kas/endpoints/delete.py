"""delete and deletecollection (apiserver's ``handlers/delete.go``)."""

from __future__ import annotations

from typing import Any

from kas.admission import DELETE
from kas.api import errors
from kas.api.scheme import SCHEME
from kas.api.validation.options import validate_delete_options
from kas.edge.http import Request, Response
from kas.endpoints import listing, respond
from kas.endpoints.codec import BodyError, decode_body
from kas.endpoints.listing import Listing
from kas.endpoints.options import list_options, number
from kas.endpoints.read import fresh, limit_of, position
from kas.endpoints.selection import matcher_of, with_served_fields
from kas.endpoints.served import Served
from kas.endpoints.write import Writer

OPTIONS = SCHEME.known("meta.k8s.io", "v1", "DeleteOptions")
PAGE = 500  # objects read at once by deletecollection


def delete_options(req: Request) -> dict[str, Any]:
    """DeleteOptions of the body, or of the query when there is none. Raises 400, 415, 422, and 500 for a body that is none."""
    q = req.params
    if req.body:
        try:
            # Clients send them under any group version they know.
            options = decode_body(req, OPTIONS, strictness="Ignore", any_version=True) or {}
        except BodyError as e:
            raise errors.ApiError(500, "", e.why) from None  # upstream hands on what its decoder says as it is
    else:
        options = {}
        if req.query:
            if "gracePeriodSeconds" in q:
                options["gracePeriodSeconds"] = number(q.get("gracePeriodSeconds"))
            if "orphanDependents" in q:
                options["orphanDependents"] = q.flag("orphanDependents")
            if "propagationPolicy" in q:
                options["propagationPolicy"] = q.get("propagationPolicy")
            if q.values("dryRun"):
                options["dryRun"] = q.values("dryRun")
            if "ignoreStoreReadErrorWithClusterBreakingPotential" in q:
                options["ignoreStoreReadErrorWithClusterBreakingPotential"] = q.flag("ignoreStoreReadErrorWithClusterBreakingPotential")
    found = validate_delete_options(options)
    if found:
        raise errors.invalid("meta.k8s.io", "DeleteOptions", "", found)
    return options


class Deleter:
    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    @staticmethod
    def _options(req: Request, served: Served) -> dict[str, Any]:
        options = delete_options(req)
        for text in served.registry.strategy.warnings_on_delete(options):
            req.warn(text)
        return options

    async def delete(self, req: Request, served: Served, namespace: str, name: str) -> Response:
        respond.media(req)
        options = self._options(req, served)
        ctx = self.writer.context(req, namespace, bool(options.get("dryRun")))
        rec, gone = await self._delete(req, served, ctx, name, options)
        if not gone or served.record.delete_returns == "object":
            # 202 only where the client said orphanDependents=false and the object is still there.
            return respond.obj(req, served, rec, 202 if not gone and options.get("orphanDependents") is False else 200)
        obj = served.registry.object(rec)
        details: dict[str, Any] = {"name": name}
        if served.group:
            details["group"] = served.group
        details["kind"] = served.resource
        if obj["metadata"].get("uid"):
            details["uid"] = obj["metadata"]["uid"]
        return respond.success(req, details)

    async def _delete(self, req: Request, served: Served, ctx, name: str, options: dict[str, Any]):
        attrs = self.writer.attributes(req, served, DELETE, ctx, name, None, None, options)

        async def judge(obj: dict[str, Any], old: dict[str, Any] | None) -> None:
            # Both steps see the object, so there is nothing to admit when there is none (AdmissionToValidateObjectDeleteFunc).
            attrs.old = obj
            await admission.mutate(attrs)
            await admission.validate(attrs)

        admission = self.writer.admission
        return await served.registry.delete(ctx, name, options, judge)

    async def delete_collection(self, req: Request, served: Served, namespace: str) -> Response:
        m = respond.media(req)
        o = with_served_fields(served, list_options(req.params))
        options = self._options(req, served)
        registry = served.registry
        revision, start, wanted = position(served, namespace, o)
        if wanted > registry.store.revision:
            await fresh(registry.store, wanted)
        q = Listing(req, served, m, registry.prefix(namespace), matcher_of(o), start, limit_of(o), revision)
        meta, done = None, []
        while True:
            page = registry.store.range(q.prefix, start, q.limit or PAGE, revision, q.matcher, meta is None)
            if meta is None:
                meta = listing.list_meta(q, page) if q.limit else {"resourceVersion": str(page.revision)}
            for rec in page.records:
                found = registry.object(rec)["metadata"]
                ctx = self.writer.context(req, found.get("namespace", ""), bool(options.get("dryRun")))
                try:
                    await self._delete(req, served, ctx, found["name"], options)
                except errors.ApiError as e:
                    if e.code != 404:
                        raise
                done.append(rec)
            if q.limit or not page.more:
                return listing.encode(q, meta, done)
            start, revision = page.next_key, page.revision

"""delete and deletecollection (apiserver's ``handlers/delete.go``)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from kas.admission import DELETE
from kas.config import features
from kas.endpoints import listing, respond, unsafedelete
from kas.endpoints.bodyerrors import BodyError
from kas.endpoints.codec import decode_body
from kas.endpoints.listpages import Listing, many, room
from kas.endpoints.options import number
from kas.endpoints.optionsvalidation import validate_delete_options
from kas.endpoints.postfilter import LONG_QUERY, filtered, parse_list_query
from kas.endpoints.read import fresh, limit_of, no_such_revision, position
from kas.endpoints.served import Served
from kas.endpoints.write import Writer, answer
from kas.meta import errors
from kas.meta.fairqueue import FairSemaphore
from kas.meta.offload import LARGE, step
from kas.meta.waiting import TimeSlice, awaited
from kas.observe import counted
from kas.registry.strategy import Context
from kas.registry.versions import Decoded, Shown
from kas.registry.write import Delete
from kas.request.http import Request, Response
from kas.store import PAGE_BYTES, Compacted, FutureRevision, Record
from kas.types.scheme import builtin_kind

OPTIONS = builtin_kind("meta.k8s.io", "v1", "DeleteOptions")
PAGE = 500  # objects that deletecollection reads at a time
# deletecollection answers with the deleted objects and holds them until then. Only so many requests that delete more than one page run at a
# time, with fair queueing between clients. Above HELD_BYTES the objects are not held; they are read again at the list's revision.
EMPTIED_AT_ONCE, HELD_BYTES = 2, 8 << 20

emptying = FairSemaphore(EMPTIED_AT_ONCE)


def delete_options(req: Request) -> dict[str, Any]:
    """Return the DeleteOptions from the body, or from the query if there is no body. Raises 400, 415 and 422."""
    q = req.params
    if req.body:
        try:
            # Clients send DeleteOptions under any group version that they know.
            options = decode_body(req, OPTIONS, field_validation="Ignore", any_version=True) or {}
        except BodyError as e:
            raise errors.bad_request(e.why) from None  # the decoder's message without a prefix
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
            preconditions = {key: value for key in ("uid", "resourceVersion") if (value := q.get(key))}
            if preconditions:  # they also apply to the objects of a collection, whose list takes the same resourceVersion parameter
                options["preconditions"] = preconditions
            if unsafedelete.OPTION in q:
                options[unsafedelete.OPTION] = q.flag(unsafedelete.OPTION)
    if not features.DEFAULT.enabled("AllowUnsafeMalformedObjectDeletion"):
        options.pop(unsafedelete.OPTION, None)
    found = validate_delete_options(options)
    if found:
        raise errors.invalid("meta.k8s.io", "DeleteOptions", "", found)
    return options


class Deleter:
    """Serves DELETE of objects and collections.

    ``at_once`` is the number of objects of a collection that are deleted concurrently (``--delete-collection-workers``); values below 1
    count as 1.
    """

    def __init__(self, writer: Writer, at_once: int = 1) -> None:
        self.writer, self.at_once = writer, at_once

    @staticmethod
    async def options(req: Request, served: Served) -> dict[str, Any]:
        """Return the DeleteOptions of body and query, and add the kind's warnings to the response. Raises ApiError for invalid options."""
        options = await step(respond.long_to_read(req), delete_options, req)
        for text in served.registry.strategy.warnings_on_delete(options):
            req.warn(text)
        return options

    async def delete(self, req: Request, served: Served, namespace: str, name: str) -> Response:
        """Serve DELETE of one object.

        Answers 200 with a Status if the object is gone, and with the object if it still exists or if the kind always returns it. Answers
        202 if orphanDependents is false and the object still exists.
        """
        respond.media(req)
        options = await self.options(req, served)
        if options.get(unsafedelete.OPTION):
            return await unsafedelete.serve(req, served, namespace, name, self.writer.authorizer)
        served.registry.strategy.refuse_delete(name)
        ctx = self.writer.context(req, namespace, bool(options.get("dryRun")))
        deletion = self.step(req, served, ctx, name, options, name)
        rec = await deletion.run()
        if not deletion.gone or served.record.delete_returns == "object":
            # 202 only if the client sent orphanDependents=false and the object still exists
            return await answer(req, served, deletion, rec, 202 if not deletion.gone and options.get("orphanDependents") is False else 200)
        details: dict[str, Any] = {"name": name}
        if served.group:
            details["group"] = served.group
        details["kind"] = served.resource
        stored = not isinstance(rec, Decoded)  # the result of a dry run is decoded already
        if uid := (await step(stored and len(rec.json) >= LARGE, served.object, rec))["metadata"].get("uid"):
            details["uid"] = uid
        return respond.success(req, details)

    def step(self, req: Request, served: Served, ctx: Context, name: str, options: dict[str, Any], url_name: str = "") -> Delete:
        """Return the delete step. ``url_name`` is the name in the URL, the only name that admission sees; "" for a collection."""
        return Delete(served.registry, ctx, name, options, served, self.writer.admission_of(req, served, DELETE, ctx, url_name, options))

    async def delete_collection(self, req: Request, served: Served, namespace: str) -> Response:
        """Serve DELETE of the objects that a list would return, and answer with that list.

        Objects that are gone already are not an error. After an error no further delete starts; the error is answered once the deletes in
        progress have ended.
        """
        m = respond.media(req)
        o, matcher, sieve = await step(len(req.query) >= LONG_QUERY, parse_list_query, req, served)
        options = await self.options(req, served)
        if options.get(unsafedelete.OPTION):
            raise unsafedelete.not_of_collections()
        registry = served.registry
        revision, start, wanted = position(served, namespace, o, paged=o.limit == 0)
        if wanted > registry.store.revision:
            await fresh(registry.store, wanted)
        q = Listing(req, served, m, registry.prefix(namespace), matcher, start, limit_of(o), revision, sieve, o.shards)
        in_thread = many(registry.store, q.prefix, matcher)
        counted.LISTS.inc((served.group, served.resource))
        left, size, named = q.limit, 0, revision

        async def read_at(at: int) -> Any:
            args: Any = (q.prefix, start, left or PAGE, at, q.matcher, bool(left))
            if in_thread:
                return await asyncio.to_thread(registry.pages.range, *args, max_bytes=PAGE_BYTES)
            return registry.pages.range(*args, max_bytes=PAGE_BYTES)

        async def read() -> Any:
            """Return the next page."""
            try:
                try:
                    return await read_at(revision)
                except Compacted:
                    if named or not revision:
                        raise
                    # The first page was read at the latest revision, and its deletes forced a full store to compact its history. The rest
                    # is read at the latest revision, too.
                    return await read_at(0)
            except (Compacted, FutureRevision) as e:
                raise no_such_revision(e, served, namespace, o, start) from None

        done = list[Shown]()
        async with contextlib.AsyncExitStack() as place:
            while True:
                page = await (read() if sieve is None else filtered(q, sieve, start, revision))
                # Before the deletes: objects that cannot be converted must not be deleted.
                shown = await served.converted(page.records) if sieve is None else page.shown
                before, size = size, size + sum(map(len, page.records))
                left -= len(page.records) if q.limit else 0
                last = not page.more or (q.limit and not left)
                if before < PAGE_BYTES <= size and not last:
                    await place.enter_async_context(emptying)
                await self._each(req, served, page.records, options)
                done += shown
                if size > HELD_BYTES and sieve is None:
                    done.clear()
                start, revision = page.next_key, page.revision
                if last:
                    break
            if m.convert is not None and m.convert.kind == respond.PARTIAL:
                raise respond.no_list_as_one(served)
            if size > HELD_BYTES and sieve is None:
                # the objects are deleted already: wait for memory instead of rejecting the request at once
                await room.enter(req.user.name if req.user else "", 0)
                try:
                    return await awaited(listing.answer(q._replace(revision=revision)))
                except Compacted:  # as above: the deleted objects have been compacted
                    return respond.success(req)
            meta = listing.list_meta(q, page) if q.limit else listing.plain_meta(q, page.revision)
            return await step(size >= LARGE or respond.long_to_write(m, size), listing.encode, q, meta, done)

    async def _each(self, req: Request, served: Served, records: Sequence[Record], options: dict[str, Any]) -> None:
        """Delete the objects, started in order. Several run concurrently so that they share commits; each waits for its own."""
        todo, time_slice, refused = iter(records), TimeSlice(), False

        async def work() -> None:
            nonlocal refused
            for rec in todo:
                if time_slice.over:  # a dry run never waits, so it has to yield
                    await time_slice.pause()
                if refused:
                    return
                try:
                    await self._one(req, served, rec, options)
                except BaseException:
                    refused = True
                    raise

        if (at_once := min(self.at_once, len(records))) <= 1:
            return await work()
        ended = await asyncio.gather(*(work() for _ in range(at_once)), return_exceptions=True)
        if raised := next((e for e in ended if e is not None), None):
            raise raised

    async def _one(self, req: Request, served: Served, rec: Record, options: dict[str, Any]) -> None:
        found = (await step(len(rec.json) >= LARGE, served.registry.object, rec))["metadata"]
        ctx = self.writer.context(req, found.get("namespace", ""), bool(options.get("dryRun")))
        try:
            await self.step(req, served, ctx, found["name"], options).run()
        except errors.ApiError as e:
            if e.code != 404:
                raise

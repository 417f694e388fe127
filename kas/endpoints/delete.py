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
from kas.endpoints.postfilter import LONG_QUERY, asked_of, sifted
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
PAGE = 500  # objects read at once by deletecollection
# What was deleted is answered, and held until then: beyond a page only so many do that at once, by turns of clients. Beyond so many bytes
# it is not held, but read again as it was, as any list at a revision.
EMPTIED_AT_ONCE, HELD_BYTES = 2, 8 << 20

emptying = FairSemaphore(EMPTIED_AT_ONCE)


def delete_options(req: Request) -> dict[str, Any]:
    """DeleteOptions of the body, or of the query when there is none. Raises 400, 415 and 422."""
    q = req.params
    if req.body:
        try:
            # Clients send them under any group version they know.
            options = decode_body(req, OPTIONS, field_validation="Ignore", any_version=True) or {}
        except BodyError as e:
            raise errors.bad_request(e.why) from None  # what the decoder says, as it is
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
            if preconditions:  # of a collection's objects, too, whose list has the same resourceVersion
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
    """Serves DELETE of objects and collections; of a collection ``at_once`` objects (1 for less) are deleted at a time
    (``--delete-collection-workers``)."""

    def __init__(self, writer: Writer, at_once: int = 1) -> None:
        self.writer, self.at_once = writer, at_once

    @staticmethod
    async def options(req: Request, served: Served) -> dict[str, Any]:
        """The DeleteOptions of body and query; what the kind warns about is added to the answer. Raises ApiError for wrong ones."""
        options = await step(respond.long_to_read(req), delete_options, req)
        for text in served.registry.strategy.warnings_on_delete(options):
            req.warn(text)
        return options

    async def delete(self, req: Request, served: Served, namespace: str, name: str) -> Response:
        """Serve DELETE of one object: 200 with a Status, or with the object while it is not gone or where the kind says so; 202 where
        orphanDependents is false and it is not gone.
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
            # 202 only where the client said orphanDependents=false and the object is still there.
            return await answer(req, served, deletion, rec, 202 if not deletion.gone and options.get("orphanDependents") is False else 200)
        details: dict[str, Any] = {"name": name}
        if served.group:
            details["group"] = served.group
        details["kind"] = served.resource
        stored = not isinstance(rec, Decoded)  # of a dry run
        if uid := (await step(stored and len(rec.json) >= LARGE, served.object, rec))["metadata"].get("uid"):
            details["uid"] = uid
        return respond.success(req, details)

    def step(self, req: Request, served: Served, ctx: Context, name: str, options: dict[str, Any], asked: str = "") -> Delete:
        """``asked`` is the name in the URL, which is all that admission knows of names."""
        return Delete(served.registry, ctx, name, options, served, self.writer.asked(req, served, DELETE, ctx, asked, options))

    async def delete_collection(self, req: Request, served: Served, namespace: str) -> Response:
        """Serve DELETE of what a list would show; what is gone already is no error. Answers with that list. After a refusal no other delete
        is begun, and the refusal is answered once those under way have ended."""
        m = respond.media(req)
        o, matcher, sieve = await step(len(req.query) >= LONG_QUERY, asked_of, req, served)
        options = await self.options(req, served)
        if options.get(unsafedelete.OPTION):
            raise unsafedelete.not_of_collections()
        registry = served.registry
        revision, start, wanted = position(served, namespace, o, paged=o.limit == 0)
        if wanted > registry.store.revision:
            await fresh(registry.store, wanted)
        q = Listing(req, served, m, registry.prefix(namespace), matcher, start, limit_of(o), revision, sieve, o.shards)
        aside = many(registry.store, q.prefix, matcher)
        counted.LISTS.inc((served.group, served.resource))
        left, size, named = q.limit, 0, revision

        async def read_at(at: int) -> Any:
            args: Any = (q.prefix, start, left or PAGE, at, q.matcher, bool(left))
            if aside:
                return await asyncio.to_thread(registry.pages.range, *args, max_bytes=PAGE_BYTES)
            return registry.pages.range(*args, max_bytes=PAGE_BYTES)

        async def read() -> Any:
            """A page."""
            try:
                try:
                    return await read_at(revision)
                except Compacted:
                    if named or not revision:
                        raise
                    # The first page was of now, and in a full store its deletes took the room of the history: the rest is of now, too.
                    return await read_at(0)
            except (Compacted, FutureRevision) as e:
                raise no_such_revision(e, served, namespace, o, start) from None

        done = list[Shown]()
        async with contextlib.AsyncExitStack() as place:
            while True:
                page = await (read() if sieve is None else sifted(q, sieve, start, revision))
                # Before they go: what cannot be shown is not deleted.
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
                await room.enter(req.user.name if req.user else "", 0)  # it is too late for a refusal
                try:
                    return await awaited(listing.answer(q._replace(revision=revision)))
                except Compacted:  # as above: they are gone, and what they were is, too
                    return respond.success(req)
            meta = listing.list_meta(q, page) if q.limit else listing.plain_meta(q, page.revision)
            return await step(size >= LARGE or respond.long_to_write(m, size), listing.encode, q, meta, done)

    async def _each(self, req: Request, served: Served, records: Sequence[Record], options: dict[str, Any]) -> None:
        """Deletes the objects, begun in their order. Several are under way at once: they share commits, and each waits for its own."""
        todo, time_slice, refused = iter(records), TimeSlice(), False

        async def work() -> None:
            nonlocal refused
            for rec in todo:
                if time_slice.over:  # a dry run waits for nothing
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

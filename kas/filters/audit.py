"""The record of who did what: the event of a request starts here, before impersonation changes its user.

Without an audit policy (``--audit-policy-file``) nothing is recorded, and ``chain`` does not load this. A failed authentication has an
event of its own, at stage ResponseStarted (``filters.WithFailedAuthenticationAudit``), and so has an unreadable ``?timeout=``; a request
that runs long has entries when its answer starts and when it ends. Upstream: ``apiserver/pkg/endpoints/filters/audit.go``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from time import monotonic
from typing import TYPE_CHECKING

from kas.audit.answers import as_json
from kas.audit.backend import AuditError
from kas.audit.event import COMPLETE, PANIC, RECEIVED, REQUEST_RESPONSE, STARTED, Event
from kas.endpoints.respond import plain_internal_error
from kas.filters.handler import Filter
from kas.meta.errors import ApiError
from kas.observe import latencies
from kas.request.http import Request, Response, Stream, Write
from kas.request.timeout import asked_timeout
from kas.request.websocket import Conversation, Socket, Upgrade

if TYPE_CHECKING:
    from kas.audit.auditor import Auditor  # with its backends, which few servers have

REFUSAL = "failed to store audit event"


def audit(auditor: Auditor) -> Filter:
    """Record requests as the policy of ``auditor`` says."""
    recorder = _Recorder(auditor)
    quick = auditor.recording(recorder.received, recorder.after, recorder.later)
    return Filter("audit", quick.before, quick.after, quick.release)


class _Recorder:
    def __init__(self, auditor: Auditor) -> None:
        self.auditor = auditor
        self._under_way: set[asyncio.Task[None]] = set()

    def received(self, req: Request, event: Event) -> Response | Awaitable[Response | None] | None:
        """The entry of a request that has come; a refusal where it has to be stored and could not be."""
        try:
            pending = self.auditor.record(event, RECEIVED)
        except AuditError:
            return self._refused(req)
        return None if pending is None else self._received(req, pending)

    async def _received(self, req: Request, pending: Awaitable[None]) -> Response | None:
        try:
            await pending
        except AuditError:
            return self._refused(req)
        return None

    def _refused(self, req: Request) -> Response:
        # What could not be recorded does not happen, where the backend is strict.
        req.audit = None
        self.auditor.rejected()
        return plain_internal_error(req, REFUSAL)

    def after(self, req: Request, resp: Response) -> None:
        """The entries of an answer of which there is more to say than its code, or of who has none yet."""
        event = req.audit
        if not isinstance(event, Event):
            if req.user is None and req.info is not None and (resp.status == 401 or (resp.status == 400 and _unreadable_timeout(req))):
                self._unauthenticated(req, resp)
            return
        if event.panicked:
            event.broke()
            _after(self._record(event, PANIC), resp)
        elif isinstance(resp, Upgrade):
            event.answered(resp.status, None)
            self._record(event, STARTED)
            resp.talk = self._conversation(event, resp.talk)
        elif resp.stream is None:
            shown = None if event.handed_on else as_json(resp.headers, resp.body, event.level == REQUEST_RESPONSE)
            event.answered(resp.status, shown)
            if req.long_running:
                self._record(event, STARTED)
            event.ended()
            _after(self._record(event, COMPLETE), resp)
        elif req.long_running:
            event.answered(resp.status, None)
            self._record(event, STARTED)
            resp.stream = self._stream(event, resp.stream)
        else:
            resp.stream = self._list(event, resp, resp.stream)

    def _unauthenticated(self, req: Request, resp: Response) -> None:
        event = self.auditor.begin(req)
        if event is not None:
            event.answered(resp.status, as_json(resp.headers, resp.body, event.level == REQUEST_RESPONSE))
            _after(self._record(event, STARTED), resp)

    def _record(self, event: Event, stage: str) -> asyncio.Task[None] | None:
        """Stores an entry of the answer. A failure has been counted and logged: the request has happened."""
        try:
            pending = self.auditor.record(event, stage)
        except AuditError:
            return None
        return None if pending is None else self._task(pending)

    def later(self, pending: Awaitable[None], resp: Response) -> None:
        """Lets an answer wait until its entry is stored."""
        _after(self._task(pending), resp)

    def _task(self, pending: Awaitable[None]) -> asyncio.Task[None]:
        # A client that leaves does not take its record with it.
        task = asyncio.ensure_future(_stored(pending))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    def _stream(self, event: Event, stream: Stream) -> Stream:
        async def recorded(write: Write) -> None:
            try:
                await stream(write)
            finally:
                event.ended()
                self._record(event, COMPLETE)

        return recorded

    def _list(self, event: Event, resp: Response, stream: Stream) -> Stream:
        """A large answer that is sent in pieces. At level RequestResponse they are kept, as the record holds all of it; of one that breaks
        off, it holds nothing."""
        keep = event.level == REQUEST_RESPONSE and not event.handed_on
        pieces: list[bytes] = []

        async def recorded(write: Write) -> None:
            async def timed(piece: bytes) -> None:
                if keep:
                    pieces.append(piece)
                began = monotonic()
                try:
                    await write(piece)
                finally:
                    latencies.add(event.took, latencies.WRITING, began)

            whole, began = False, monotonic()
            try:
                await stream(timed)
                whole = True
            finally:
                latencies.add(event.took, latencies.SERIALIZATION, began)
                event.answered(resp.status, as_json(resp.headers, b"".join(pieces), keep) if keep and whole else None)
                event.ended()
                self._record(event, COMPLETE)

        return recorded

    def _conversation(self, event: Event, talk: Conversation) -> Conversation:
        async def recorded(socket: Socket) -> int:
            try:
                return await talk(socket)
            finally:
                event.ended()
                self._record(event, COMPLETE)

        return recorded


def _unreadable_timeout(req: Request) -> bool:
    """Whether the request was refused for its ``?timeout=``, which upstream records too (``withFailedRequestAudit``)."""
    if req.long_running or "timeout" not in req.query:
        return False
    try:
        asked_timeout(req)
    except ApiError:
        return True
    return False


async def _stored(pending: Awaitable[None]) -> None:
    try:
        await pending
    except AuditError:
        return  # counted and logged where it happened


def _after(task: asyncio.Task[None] | None, resp: Response) -> None:
    """Lets the body wait until the entry is stored, as mode blocking wants."""
    if task is None:
        return
    body: bytes = resp.body

    async def stream(write: Write) -> None:
        await asyncio.shield(task)  # a client that leaves does not take its record with it
        await write(body)

    resp.headers.append((b"content-length", str(len(body)).encode()))
    resp.stream = stream


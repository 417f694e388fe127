"""Audit records. The event of a request starts here, before impersonation changes its user.

Without an audit policy (``--audit-policy-file``) nothing is recorded, and ``chain`` does not load this module. A
failed authentication has an event of its own, at stage ResponseStarted (``filters.WithFailedAuthenticationAudit``),
and so has an invalid ``?timeout=``. A long-running request has entries when its response starts and when it ends.
Upstream: ``apiserver/pkg/endpoints/filters/audit.go``.
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
    """Records requests as the policy of ``auditor`` says."""
    recorder = _Recorder(auditor)
    quick = auditor.recording(recorder.received, recorder.after, recorder.later)
    return Filter("audit", quick.before, quick.after, quick.release)


class _Recorder:
    def __init__(self, auditor: Auditor) -> None:
        self.auditor = auditor
        self._under_way: set[asyncio.Task[None]] = set()

    def received(self, req: Request, event: Event) -> Response | Awaitable[Response | None] | None:
        """Records that a request was received; returns a refusal if the record must be stored and could not be."""
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
        # With a strict backend, a request that cannot be recorded is not served.
        req.audit = None
        self.auditor.rejected()
        return plain_internal_error(req, REFUSAL)

    def after(self, req: Request, resp: Response) -> None:
        """Writes the entries of a response that needs more than its code recorded, or of a request that has no event yet."""
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
        """Stores an entry of the response. A failure has been counted and logged; the request has happened."""
        try:
            pending = self.auditor.record(event, stage)
        except AuditError:
            return None
        return None if pending is None else self._task(pending)

    def later(self, pending: Awaitable[None], resp: Response) -> None:
        """Delays a response until its entry is stored."""
        _after(self._task(pending), resp)

    def _task(self, pending: Awaitable[None]) -> asyncio.Task[None]:
        # The record is stored even if the client disconnects.
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
        """Records a large response that is sent in pieces. At level RequestResponse the pieces are kept for the
        record; that of a response that breaks off has no body."""
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
    """Delays the body until the entry is stored, as mode blocking requires."""
    if task is None:
        return
    body: bytes = resp.body

    async def stream(write: Write) -> None:
        await asyncio.shield(task)  # the record is stored even if the client disconnects
        await write(body)

    resp.headers.append((b"content-length", str(len(body)).encode()))
    resp.stream = stream


"""Objects as CBOR (gate ``CBORServingAndStorage``): bodies become JSON before they are looked at, answers CBOR after they are made.

So everything between knows JSON, and nothing of this runs while the gate is off. What is stored stays JSON. Connections to somebody else
(``exec``, ``proxy``, ``log``) are left alone, and so are the documents of discovery and OpenAPI, as upstream. A refusal by a filter, which
comes before, is JSON.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson

from kas.endpoints import respond
from kas.meta.errors import ApiError, bad_request, request_entity_too_large
from kas.meta.offload import LARGE, step
from kas.request.http import MAX_BODY_BYTES, Incoming, Request, Response, Result, Stream, Write
from kas.request.negotiation import APPLY_PATCH, BUILT_IN, JSON, Clause, Restrictions, negotiate, parse_accept
from kas.types import cbor

CBOR, CBOR_SEQUENCE = "application/cbor", "application/cbor-seq"
_BODIES = {CBOR: JSON, "application/apply-patch+cbor": APPLY_PATCH}
_OTHERS = frozenset({"attach", "exec", "log", "portforward", "proxy"})

Handler = Callable[[Request], Result | None]


def speaking(handler: Handler, restrictions: Restrictions = BUILT_IN) -> Handler:
    """``handler``, whose answers are as ``restrictions`` says, for clients that send or take CBOR, too. None passes on, as its does."""

    def handle(req: Request) -> Result | None:
        form = req.header(b"content-type").partition(";")[0].strip()
        accept = req.raw_header(b"accept")
        if (form not in _BODIES and b"cbor" not in accept) or req.info.subresource in _OTHERS:
            return handler(req)
        if form in _BODIES:
            if req.incoming is not None:
                req.incoming = _FromCBOR(req.incoming)
            _replace(req, b"content-type", _BODIES[form])
        if not _takes(req, accept.decode("latin-1"), restrictions):
            return handler(req)
        try:
            found = handler(req)
        except ApiError as e:
            found = respond.status(req, e)
        return _answered(req, found) if found is not None else None

    return handle


def _replace(req: Request, name: bytes, value: str) -> None:
    req.headers = [pair for pair in req.headers if pair[0] != name] + [(name, value.encode("latin-1"))]


def _takes(req: Request, accept: str, restrictions: Restrictions) -> bool:
    """Whether the answer is to be CBOR; the request then asks for JSON of the same form, uncompressed."""
    for clause in parse_accept(accept):
        asked = clause
        is_cbor = f"{clause.type}/{clause.sub}" == CBOR
        if is_cbor and clause.params.get("as") == respond.TABLE:
            continue  # columns are for people
        if is_cbor:
            asked = Clause("application", "json", clause.q, clause.params)
        text = ";".join((f"{asked.type}/{asked.sub}", *(f"{k}={v}" for k, v in asked.params.items())))
        try:
            negotiate(text, restrictions)
        except ApiError:
            continue
        if is_cbor:
            req.drop_header(b"accept-encoding")
            _replace(req, b"accept", text)
        return is_cbor
    return False


class _FromCBOR:
    """A body on its way, as JSON once it is whole."""

    def __init__(self, incoming: Incoming) -> None:
        self._incoming, self.length = incoming, incoming.length

    async def read(self, user: Any) -> bytes:
        """As ``Incoming.read``; raises ApiError 400 for what is no CBOR."""
        body = await self._incoming.read(user)
        if not body:
            return body
        try:
            text = await step(len(body) >= LARGE, _decode, body)
        except cbor.CBORTooLongError:
            raise request_entity_too_large(f"limit is {MAX_BODY_BYTES}") from None
        except cbor.CBORError as e:
            raise bad_request(f"error decoding CBOR: {e}") from None
        if len(text) > MAX_BODY_BYTES:
            raise request_entity_too_large(f"limit is {MAX_BODY_BYTES}")
        return text

    def pieces(self) -> AsyncIterator[bytes]:
        """As it comes: whoever takes pieces hands them on."""
        return self._incoming.pieces()


async def _answered(req: Request, found: Response | Awaitable[Response]) -> Response:
    try:
        resp = found if isinstance(found, Response) else await found
    except ApiError as e:
        resp = respond.status(req, e)
    if not any(name == b"content-type" and value.startswith(b"application/json") for name, value in resp.headers):
        return resp
    resp.headers = [pair for pair in resp.headers if pair[0] != b"content-type"]
    watch = resp.stream is not None and req.long_running
    resp.headers.append((b"content-type", (CBOR_SEQUENCE if watch else CBOR).encode()))
    if resp.stream is None:
        resp.body = await _encoded(resp.body)
    else:
        resp.stream = _events(resp.stream) if watch else _whole(resp.stream)
    return resp


async def _encoded(body: bytes) -> bytes:
    return await step(len(body) >= LARGE, _encode, body)


def _decode(body: bytes) -> bytes:
    return orjson.dumps(cbor.decode(body, MAX_BODY_BYTES // 2))  # JSON has two bytes for each value, itself and what comes behind it


def _encode(text: bytes) -> bytes:
    return cbor.encode(orjson.loads(text), turned=True)


def _events(stream: Stream) -> Stream:
    """A watch: each line of JSON one data item."""

    async def run(write: Write) -> None:
        rest = b""

        async def take(data: bytes) -> None:
            nonlocal rest
            *lines, rest = (rest + data).split(b"\n")
            await write(await step(len(data) >= LARGE, b"".join, map(_encode, lines)))

        await stream(take)

    return run


def _whole(stream: Stream) -> Stream:
    """A list that comes in pieces: CBOR says at its beginning how many items there are."""

    async def run(write: Write) -> None:
        pieces: list[bytes] = []

        async def take(data: bytes) -> None:
            pieces.append(data)

        await stream(take)
        await write(await _encoded(b"".join(pieces)))

    return run

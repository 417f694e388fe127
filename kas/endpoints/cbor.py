"""CBOR for requests and responses (gate ``CBORServingAndStorage``): bodies are converted to JSON first, responses to CBOR last.

So all code in between handles only JSON, and nothing here runs while the gate is off. Stored objects stay JSON. As upstream, connections
to other servers (``exec``, ``proxy``, ``log``) and the documents of discovery and OpenAPI are left alone. An error of a filter, which
runs earlier, is JSON.
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
    """Wrap ``handler`` for clients that send or accept CBOR. ``restrictions`` are its media types. Like it, the result may return None."""

    def handle(req: Request) -> Result | None:
        form = req.header(b"content-type").partition(";")[0].strip()
        accept = req.raw_header(b"accept")
        if (form not in _BODIES and b"cbor" not in accept) or req.info.subresource in _OTHERS:
            return handler(req)
        if form in _BODIES:
            if req.incoming is not None:
                req.incoming = _FromCBOR(req.incoming)
            _replace(req, b"content-type", _BODIES[form])
        if not _accepts_cbor(req, accept.decode("latin-1"), restrictions):
            return handler(req)
        try:
            found = handler(req)
        except ApiError as e:
            found = respond.status(req, e)
        return _encode_response(req, found) if found is not None else None

    return handle


def _replace(req: Request, name: bytes, value: str) -> None:
    req.headers = [pair for pair in req.headers if pair[0] != name] + [(name, value.encode("latin-1"))]


def _accepts_cbor(req: Request, accept: str, restrictions: Restrictions) -> bool:
    """Return whether the response is to be CBOR. If so, the request is changed to ask for uncompressed JSON of the same form."""
    for clause in parse_accept(accept):
        as_json = clause
        is_cbor = f"{clause.type}/{clause.sub}" == CBOR
        if is_cbor and clause.params.get("as") == respond.TABLE:
            continue  # Tables are for people
        if is_cbor:
            as_json = Clause("application", "json", clause.q, clause.params)
        text = ";".join((f"{as_json.type}/{as_json.sub}", *(f"{k}={v}" for k, v in as_json.params.items())))
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
    """A body that is converted to JSON once it is complete."""

    def __init__(self, incoming: Incoming) -> None:
        self._incoming, self.length = incoming, incoming.length

    async def read(self, user: Any) -> bytes:
        """Like ``Incoming.read``. Raises ApiError 400 for invalid CBOR."""
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
        """Return the pieces unconverted: callers that stream the body forward it."""
        return self._incoming.pieces()


async def _encode_response(req: Request, found: Response | Awaitable[Response]) -> Response:
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
    return orjson.dumps(cbor.decode(body, MAX_BODY_BYTES // 2))  # JSON has at least two bytes for each value: the value and a separator


def _encode(text: bytes) -> bytes:
    return cbor.encode(orjson.loads(text), turned=True)


def _events(stream: Stream) -> Stream:
    """Convert a watch: each line of JSON becomes one data item."""

    async def run(write: Write) -> None:
        rest = b""

        async def take(data: bytes) -> None:
            nonlocal rest
            *lines, rest = (rest + data).split(b"\n")
            await write(await step(len(data) >= LARGE, b"".join, map(_encode, lines)))

        await stream(take)

    return run


def _whole(stream: Stream) -> Stream:
    """Convert a list that is sent in pieces, as a whole: CBOR starts with the number of items."""

    async def run(write: Write) -> None:
        pieces: list[bytes] = []

        async def take(data: bytes) -> None:
            pieces.append(data)

        await stream(take)
        await write(await _encoded(b"".join(pieces)))

    return run

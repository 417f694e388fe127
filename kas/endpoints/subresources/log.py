"""``pods/NAME/log``: a container's log, streamed from its kubelet (upstream ``pkg/registry/core/pod/rest/log.go``)."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote_plus, urlencode

from kas.auth.user import tenant
from kas.client.http import BackendError, Connection, Target, UnverifiedError
from kas.client.outgoing import connect_for
from kas.config import features
from kas.endpoints.options import number
from kas.endpoints.proxy import piped
from kas.endpoints.proxy_locations import Locations
from kas.endpoints.subresources.containers import chosen
from kas.meta import errors, field, scalars
from kas.meta.errors import ApiError
from kas.meta.responses import generic_server_response
from kas.observe import counted
from kas.request.http import Request, Response
from kas.request.requestinfo import Query
from kas.request.websocket import Socket, Upgrade, WebSocketRequest, send_until_closed

MAX_REFUSAL = 50_000
ENFORCED, SKIPPED = "enforce_tls", "skip_tls_allowed"  # the metrics' values for whether the kubelet's certificate was verified
NUMBERS = ("sinceSeconds", "tailLines", "limitBytes")
BINARY, BASE64 = "binary.k8s.io", "base64.binary.k8s.io"  # WebSocket subprotocols
ALL = "All"
STREAMS = (ALL, "Stderr", "Stdout")


class Log:
    """Serves the ``log`` subresource of pods."""

    def __init__(self, locations: Locations) -> None:
        self._locations = locations

    async def get(self, req: Request, served: Any, namespace: str, name: str) -> Response:
        """Serve the log; 204 for a pod that has no node yet. Raises 400, 404, 422, and 500 if the kubelet cannot be reached."""
        wanted = log_options(req.params, name)
        pod = served.registry.object(served.registry.get(namespace, name))
        container = chosen(pod, req.params.get("container"))
        node = (pod.get("spec") or {}).get("nodeName") or ""
        if not node:
            return Response(204, [])
        verify = not req.params.flag("insecureSkipTLSVerifyBackend")
        counted.LOGS.inc((ENFORCED if verify else SKIPPED,))
        chosen_protocol = _chosen_protocol(req) if isinstance(req, WebSocketRequest) else None
        kubelet = self._locations.kubelet(node, ("", "pods"), verify)
        target = _with_path(kubelet, f"/containerLogs/{namespace}/{name}/{container}", wanted)
        try:
            connection = await connect_for(tenant(req.user.name), target)
        except BackendError as e:
            if isinstance(e, UnverifiedError):
                counted.UNVERIFIED_LOGS.inc()
            raise ApiError(500, "", f'Get "{target.url}": {e}') from None
        try:
            await connection.send("GET", target, [(b"accept", b"*/*"), (b"connection", b"close")])
            await connection.head()
            if not 200 <= connection.status <= 206:
                raise await _refusal(connection, name)
        except BackendError as e:
            connection.close()
            raise ApiError(500, "", f'Get "{target.url}": {e}') from None
        except BaseException:
            connection.close()
            raise
        if chosen_protocol is not None:
            return _upgraded(connection, chosen_protocol)
        return Response(200, [(b"content-type", b"text/plain")], stream=piped(connection))


def _chosen_protocol(req: WebSocketRequest) -> str:
    """Return the client's first supported subprotocol, or "" if it names none (``wsstream.NewDefaultReaderProtocols``). Raises 403."""
    found = next((p for p in req.subprotocols if p in (BINARY, BASE64)), "")
    if req.subprotocols and not found:
        offered = " ".join(req.subprotocols)
        raise ApiError(403, "Forbidden", f"requested protocol(s) are not supported: [{offered}]; supports [{BINARY} {BASE64}]")
    return found


def _upgraded(connection: Connection, protocol: str) -> Upgrade:
    """Send the log in WebSocket messages, after an empty one that tells the client that it is connected (``wsstream.Reader``)."""
    pieces = piped(connection)

    async def talk(client: Socket) -> int:
        async def write(piece: bytes) -> None:
            await client.send(base64.b64encode(piece).decode("ascii") if protocol == BASE64 else piece)

        async def telling() -> None:
            await write(b"")
            await pieces(write)

        try:
            return await send_until_closed(client, telling())
        finally:
            connection.close()

    return Upgrade(protocol, talk, connection.close)


def _with_path(kubelet: Target, path: str, params: list[tuple[str, str]]) -> Target:
    return kubelet._replace(path=path, query=urlencode(sorted(params), quote_via=quote_plus))


def log_options(q: Query, name: str) -> list[tuple[str, str]]:
    """Return the query's PodLogOptions in the form that the kubelet takes. Raises 400 and 422."""
    given = {k: number(q.get(k)) for k in NUMBERS if k in q}
    since = q.get("sinceTime")
    errs: list[field.FieldError] = []
    if given.get("tailLines", 0) < 0:
        errs.append(field.invalid("tailLines", given["tailLines"], "must be greater than or equal to 0"))
    if given.get("limitBytes", 1) < 1:
        errs.append(field.invalid("limitBytes", given["limitBytes"], "must be greater than 0"))
    if "sinceSeconds" in given and since:
        errs.append(field.forbidden(field.ROOT, "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    elif given.get("sinceSeconds", 1) < 1:
        errs.append(field.invalid("sinceSeconds", given["sinceSeconds"], "must be greater than 0"))
    stream = _stream(q, "tailLines" in given, errs)
    if errs:
        raise errors.invalid("", "PodLogOptions", name, errs)
    out = [(k, "true") for k in ("follow", "previous", "timestamps") if q.flag(k)]
    if since:
        try:
            stamp = scalars.canonical_time(since)
        except ValueError as e:
            raise errors.bad_request(str(e)) from None
        if stamp:
            out.append(("sinceTime", stamp))
    if stream:
        out.append(("stream", stream))
    return out + [(k, str(v)) for k, v in given.items()]


def _stream(q: Query, tail: bool, errs: list[field.FieldError]) -> str:
    """Return the requested stream, or "" without the feature gate. Errors are added to ``errs``."""
    given = q.get("stream") if "stream" in q else None
    if not features.DEFAULT.enabled("PodLogsQuerySplitStreams"):
        if given is not None:
            errs.append(field.forbidden("stream", "may not be specified"))
        return ""
    stream = ALL if given is None else given
    if stream not in STREAMS:
        errs.append(field.not_supported("stream", stream, STREAMS))
    if stream != ALL and tail:
        errs.append(field.forbidden(field.ROOT, "`tailLines` and specific `stream` are mutually exclusive for now"))
    return stream


async def _refusal(connection: Connection, name: str) -> ApiError:
    """Return a kubelet's error response as an API error (``GenericHttpResponseChecker``)."""
    code = connection.status
    text = (await connection.read(MAX_REFUSAL)).decode("utf-8", "replace")
    if code == 500:
        return errors.internal(text)
    if code == 400:
        return errors.bad_request(text)
    reason, message = generic_server_response(code, text)
    message = f"{message} ( pods/log {name})"
    return ApiError(code, reason, message, {"name": name, "kind": "pods/log"})

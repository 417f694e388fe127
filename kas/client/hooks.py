"""Webhooks that API objects configure: upstream's ``apiserver/pkg/util/webhook`` (``ClientManager``), for admission and conversion.

A ``clientConfig`` becomes a client, which all webhooks with the same configuration share and which keeps its
connections. A call is bounded in time by its caller, in size by ``MAX_ANSWER``, and in number by ``Shares``: a call
that would wait next to too many others is refused at once, so that backends that hang hold only a part of the writes
that a server has room for. Redirects are not followed.
"""

from __future__ import annotations

import asyncio
import base64
import math
import posixpath
import zlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping
from time import monotonic
from typing import Any
from urllib.parse import unquote, urlsplit

import orjson

from kas.client._exchange import Asker, Ends, Known, Shares
from kas.client.exchange import Exchange
from kas.client.http import (
    CONNECTION_BYTES,
    CONTEXT_BYTES,
    DIRECT,
    UNREADABLE,
    BackendError,
    Egress,
    Headers,
    Outdated,
    Target,
    UnverifiedError,
    request_error,
    request_head,
    retry_after_s,
)
from kas.client.kubeconfig import Credentials, KubeconfigError, Users, renewed
from kas.client.pool import MAX_IDLE, Answer, Dial, Pool, said
from kas.client.reloadingtls import ReloadingTLS
from kas.client.services import OWN, Resolve
from kas.client.webhook import refusal
from kas.meta import gojson
from kas.meta.deadlines import Deadlines
from kas.meta.field import go_quote
from kas.meta.offload import POOL
from kas.meta.tls import context_bytes
from kas.observe import caches, tracing
from kas.types.scheme import UNVERSIONED, DecodeError, TypeDesc, decode

MAX_ANSWER = 3 << 20
MAX_CLIENTS = 200  # upstream's limit; beyond it the least recently used client is dropped
RETRIES = 10  # of responses that ask for it with Retry-After
DEFAULT_PORT, MAX_PORT = 443, 65535
_HEADERS = [
    (b"accept", b"application/json, */*"), (b"content-type", b"application/json"), (b"user-agent", b"kube-apiserver-admission"),
    (b"accept-encoding", b"gzip"),
]  # fmt: skip
_SCHEME = "k8s.io/apiserver/pkg/util/webhook/client.go:71"
_UNAVAILABLE = 503

Sent = tuple[tuple[int, Headers], Target, bytes]  # timeout in seconds and headers; target; request head


class HookError(Exception):
    """There is no usable response. ``code`` is the response's status code, 503 if there was none. ``client`` means
    that no request could be sent. ``host`` and ``outdated`` tell whose certificate has a property that was once
    accepted, and which."""

    def __init__(
        self, message: str, code: int = _UNAVAILABLE, client: bool = False, host: str = "", outdated: Outdated | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.client, self.host, self.outdated = code, client, host, outdated


class HookClient(Asker):
    """The client of one ``clientConfig``. ``backend`` identifies the server, whatever the path; ``trusted`` is the
    size in bytes of its CA bundle."""

    def __init__(
        self, target: Target, credentials: Credentials, shares: Shares, backend: Hashable, dial: Dial | None = None,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep, ends: Ends | None = None,
        deadlines: Deadlines | None = None, tls: ReloadingTLS | None = None, trusted: int = 0,
    ) -> None:  # fmt: skip
        self.context_bytes = context_bytes(trusted, CONTEXT_BYTES)
        super().__init__(shares, backend, ends or Ends(), MAX_ANSWER)
        self._tls, self._target, self._credentials, self._sleep = tls, target, credentials, sleep
        self._pool, self._last = Pool(dial), None
        self._deadlines = deadlines or Deadlines()
        # whether none of its credentials are in files, which may change
        self._fixed = not credentials.token_file and (tls is None or tls.fixed)

    def post(self, body: bytes, timeout_s: float, left_s: float = math.inf) -> Awaitable[bytes]:
        """Returns an awaitable of the response's body. Raises HookError, also when ``timeout_s`` is over; cancelling
        it closes the connection.

        The backend is told how many seconds it has, which is ``left_s`` if that is less, because the caller will
        have given up by then.
        """
        return self.begin(body, timeout_s, left_s) or self.otherwise(body, timeout_s, left_s)

    async def unusual(self, connection: Exchange, found: bytes, last: Sent, body: bytes, until: float) -> bytes:
        """The result of ``post`` for a response that has arrived and is not a plain success."""
        _, target, head = last
        try:
            self.rest(connection, len(found) <= MAX_ANSWER and connection.persistent)
            return await self._finish_post(said(connection, found), target, head, body, until)
        finally:
            self._shares.give(self._backend)

    @staticmethod
    def unanswered(error: BackendError, last: Sent) -> HookError:
        """The error that ``post`` raises."""
        return HookError(request_error("Post", last[1].url, error))

    async def otherwise(self, body: bytes, timeout_s: float, left_s: float) -> bytes:
        """``post`` without an open connection, or when the timeout or headers have changed."""
        _, target, head = self._request(max(1, math.ceil(min(timeout_s, left_s))))
        trace = tracing.outgoing()
        if trace:
            head += f"traceparent: {trace}\r\n".encode()
        if not self._shares.take(self._backend):
            raise HookError(f'Post "{target.url}": {self._shares.running(self._backend)} requests are waiting for it already')
        try:
            return await self._finish_post(None, target, head, body, monotonic() + timeout_s)
        finally:
            self._shares.give(self._backend)

    async def _finish_post(self, answer: Answer | None, target: Target, head: bytes, body: bytes, until: float) -> bytes:
        """Returns the body of the response. Connects, or repeats the request, if ``answer`` is None or asks for it."""
        if answer is None or answer.retry_after:
            task = asyncio.current_task()
            assert task is not None
            self._deadlines.add(task, until)
            try:
                if answer is None:
                    answer = await self._pool.post(target, head, body, MAX_ANSWER)
                if answer.retry_after:
                    answer = await self._retry(answer, target, head, body)
            except asyncio.CancelledError:
                if not self._deadlines.drop(task):
                    raise  # the caller was cancelled
                raise HookError(f'Post "{target.url}": context deadline exceeded') from None
            except BackendError as e:
                outdated = e.outdated if isinstance(e, UnverifiedError) else None
                raise HookError(request_error("Post", target.url, e), host=target.host, outdated=outdated) from None
            finally:
                self._deadlines.drop(task)
        found = answer.body
        if answer.encoding == "gzip":
            found = await POOL.run(_unzipped, found)
        if not 200 <= answer.status <= 206:
            if answer.status == 401:
                self._credentials.refused()
            kind = answer.content_type
            raise HookError(refusal(answer.status, found, not kind or kind.startswith("text/")), answer.status)
        if len(found) > MAX_ANSWER:
            raise HookError(f"the answer is larger than {MAX_ANSWER} bytes")
        if not found:
            kind = answer.content_type or "application/json"
            raise HookError(f"0-length response with status code: {answer.status} and content type: {kind}")
        return found

    def _request(self, seconds: int) -> Sent:
        """The target for a timeout of so many seconds, and the head of the request; mostly those of the last request."""
        last = self._last
        headers = self._credentials.headers()  # tokens are read from files, and change
        if self._tls is not None and (tls := self._tls.context()) is not self._target.tls:
            self._target, last = self._target._replace(tls=tls), None
            self._pool.renew()
        if last is None or last[0] != (seconds, headers):
            target = self._target._replace(query=f"timeout={seconds}s")
            last = self._last = (seconds, headers), target, request_head("POST", target, [*_HEADERS, *headers])
        return last

    async def _retry(self, answer: Answer, target: Target, head: bytes, body: bytes) -> Answer:
        """Repeats the request while the response asks for it; returns the last response."""
        for _ in range(RETRIES):
            pause = retry_after_s(answer.retry_after)
            if not (answer.status == 429 or answer.status >= 500) or pause is None:
                break
            await self._sleep(pause)
            answer = await self._pool.post(target, head, body, MAX_ANSWER)
        return answer

    def bytes_kept(self) -> int:
        """The memory that it takes at most."""
        return self.context_bytes + self._pool.bytes_kept()

    def close(self) -> None:
        """Closes the idle connections; those in use close when they are done."""
        self._pool.close()


def _unzipped(data: bytes) -> bytes:
    """Decompresses data, up to one byte more than ``MAX_ANSWER``. Raises HookError."""
    out = bytearray()
    while data and len(out) <= MAX_ANSWER:
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            out += member.decompress(data, MAX_ANSWER + 1 - len(out))
        except zlib.error as e:
            said = str(e)
            why = "gzip: invalid header" if "header" in said else "gzip: invalid checksum" if "check" in said else "flate: corrupt input"
            raise HookError(f"{UNREADABLE}{why}") from None
        if not member.eof and len(out) <= MAX_ANSWER:
            raise HookError(f"{UNREADABLE}unexpected EOF")
        data = member.unused_data
    return bytes(out)


def client_key(config: Mapping[str, Any]) -> bytes:
    """A key that is the same for equal ``clientConfig`` objects only."""
    return orjson.dumps(config, option=orjson.OPT_SORT_KEYS)


class HookClients(Known):
    """The clients of a server by ``clientConfig``. ``shares`` are the worker's. ``egress`` are the ways to connect:
    Services are in the cluster, URLs next to the control plane; this server itself is reached directly."""

    def __init__(self, users: Users, resolve: Resolve, shares: Shares, egress: Egress = DIRECT) -> None:
        self._users, self._resolve, self._shares, self._egress = users, resolve, shares, egress
        super().__init__(clients := OrderedDict[bytes, HookClient]())
        self._clients = clients
        self._ends, self._deadlines, self._context_bytes = Ends(), Deadlines(), 0
        what = "clients of webhooks, with connections that are not in use"
        most = MAX_CLIENTS * (CONTEXT_BYTES + MAX_IDLE * CONNECTION_BYTES)
        caches.follow("webhook_clients", what, most, self, lambda own: sum(c.bytes_kept() for c in own._clients.values()))

    def of(self, config: Mapping[str, Any], key: bytes = b"") -> HookClient:
        """The client of a configuration. ``key`` is its ``client_key``, if that is known. Raises HookError for an
        unusable configuration."""
        key = key or client_key(config)
        return self.found(key) or self._keep(key, self._made(config))

    async def ready(self, config: Mapping[str, Any], key: bytes = b"") -> HookClient:
        """Like ``of``, but a new client is made outside the event loop: reading the system's CAs takes some 30 ms."""
        key = key or client_key(config)
        found = self.found(key)
        if found is not None:
            return found
        made = await POOL.run(self._made, config)
        return self.found(key) or self._keep(key, made)  # another task may have been quicker

    def _keep(self, key: bytes, made: HookClient) -> HookClient:
        self._clients[key] = self._latest = made
        self._context_bytes += made.context_bytes
        while len(self._clients) > MAX_CLIENTS or self._context_bytes > MAX_CLIENTS * CONTEXT_BYTES:
            gone = self._clients.popitem(last=False)[1]
            self._context_bytes -= gone.context_bytes
            gone.close()
        return made

    def close(self) -> None:
        """Closes all idle connections."""
        for client in self._clients.values():
            client.close()

    def _made(self, config: Mapping[str, Any]) -> HookClient:
        service = config.get("service")
        if service:
            name, namespace, port = service.get("name") or "", service.get("namespace") or "", service.get("port") or DEFAULT_PORT
            host = f"{name}.{namespace}.svc"
            via = None if (namespace, name, port) == OWN else self._egress.cluster
            target = Target("https", host, str(port), _clean(service.get("path") or ""), tls_name=host, via=via)
            credentials = self._users.of(host, port)

            async def dial() -> tuple[str, int]:
                return self._resolve(namespace, name, port)

            target, tls = self._secured(target, credentials, config)
            return HookClient(
                target, credentials, self._shares, (namespace, name, port), dial, ends=self._ends, deadlines=self._deadlines, tls=tls,
                trusted=_size(config),
            )
        if not config.get("url"):
            raise HookError("webhook configuration must have either service or URL", client=True)
        try:
            url = urlsplit(config["url"])
        except ValueError as e:
            raise HookError(f"Unparsable URL: {e}", client=True) from None
        host, port = url.hostname or "", _port(url.netloc)
        target = Target("https", host, port, _clean(unquote(url.path)), via=self._egress.controlplane)
        number = int(port or DEFAULT_PORT)
        backend, credentials = (host, number), self._users.of(host, number)

        async def nowhere() -> tuple[str, int]:
            raise BackendError(f"dial tcp: address {port}: invalid port")

        target, tls = self._secured(target, credentials, config)
        impossible = nowhere if number > MAX_PORT else None
        return HookClient(
            target, credentials, self._shares, backend, impossible, ends=self._ends, deadlines=self._deadlines, tls=tls,
            trusted=_size(config),
        )

    def _secured(self, target: Target, credentials: Credentials, config: Mapping[str, Any]) -> tuple[Target, ReloadingTLS]:
        try:
            bundle = base64.b64decode(config.get("caBundle") or "")
            tls = renewed(bundle, credentials, ("http/1.1",))
        except KubeconfigError as e:
            raise HookError(str(e), client=True) from None
        except ValueError:
            raise HookError("unable to load root certificates: unable to parse bytes as PEM block", client=True) from None
        return target._replace(tls=tls.context()), tls


def _size(config: Mapping[str, Any]) -> int:
    return len(config.get("caBundle") or "")


def read_review(body: bytes, wanted: tuple[str, str], known: frozenset[tuple[str, str]], type_: TypeDesc) -> dict[str, Any]:
    """Decodes a response as an object of the kind ``wanted``, (apiVersion, kind). If it leaves out either, it is
    taken for one of that kind, and the result leaves them out, too. ``known`` are all the kinds that such a response
    may have. Raises HookError."""
    value = _document(body)
    api_version, kind = value.get("apiVersion") or "", value.get("kind") or ""
    if not isinstance(api_version, str) or not isinstance(kind, str):
        name, bad = ("apiVersion", api_version) if not isinstance(api_version, str) else ("kind", kind)
        why = f"json: cannot unmarshal {gojson.go_type(bad)} into Go struct field .{name} of type string"
        raise HookError(f"couldn't get version/kind; json parse error: {why}")
    given = _given(body, api_version, wanted[0]), kind or wanted[1]
    if given not in known and given[1] not in UNVERSIONED:
        raise HookError(f"no kind {go_quote(given[1])} is registered for version {go_quote(given[0])} in scheme {go_quote(_SCHEME)}")
    if given != wanted:
        version = "v1" if given[1] in UNVERSIONED else given[0].rpartition("/")[2]
        raise HookError(f"converting ({version}.{given[1]}) to ({wanted[0].rpartition('/')[2]}.{wanted[1]}): unknown conversion")
    try:
        obj, _ = decode(type_, value)
    except DecodeError as e:
        raise HookError(str(e)) from None
    return {**obj, "apiVersion": api_version, "kind": kind}


def _given(body: bytes, api_version: str, wanted: str) -> str:
    """The apiVersion of a response; what it leaves out is as in ``wanted``. Raises HookError."""
    if api_version.count("/") > 1:
        raise HookError(f"unexpected GroupVersion string: {api_version}")
    group, _, version = api_version.rpartition("/")
    if not version and group and group != wanted.rpartition("/")[0]:
        raise HookError(f"Object 'apiVersion' is missing in '{body.decode('utf-8', 'replace')}'")
    return (f"{group}/{version}" if group else version) if version else wanted


def said_kind(review: Mapping[str, Any]) -> str:
    """The kind that a review states, as Go prints a GroupVersionKind."""
    group, _, version = review["apiVersion"].rpartition("/")
    return f"{group}/{version}, Kind={review['kind']}"


def _clean(path: str) -> str:
    """A path without empty parts, dots and a trailing slash, as client-go joins it to the host."""
    return posixpath.normpath("/" + path.lstrip("/"))


def _port(netloc: str) -> str:
    """The port in a URL, "" if there is none. That it is numeric was validated when the configuration was written."""
    host, _, port = netloc.rpartition(":")
    return port if host and port.isdigit() else ""


def _document(body: bytes) -> dict[str, Any]:
    if body.lstrip()[:1] == b"{":
        try:
            value = gojson.loads(body)
        except gojson.JSONError as e:
            raise HookError(f"couldn't get version/kind; json parse error: {e}") from None
    else:
        from kas.types import yaml_codec  # PyYAML is large, and a response that is not JSON usually is not valid at all

        try:
            value, _ = yaml_codec.decode(body)
        except yaml_codec.YAMLError as e:
            raise HookError(str(e)) from None
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise HookError(f"couldn't get version/kind; json parse error: {gojson.cannot_unmarshal(value, gojson.TYPE_META)}")
    return value

"""Webhooks that objects configure: upstream's ``apiserver/pkg/util/webhook`` (``ClientManager``), for admission and conversion.

A ``clientConfig`` becomes a client, which is shared by all webhooks with the same one and keeps its connections. A call is bounded in
time by who makes it, in size by ``MAX_ANSWER``, and in number by ``Shares``: what would wait beside too many others is refused at once, so
that backends that hang hold only a part of the writes a server has room for. Redirects are not followed.
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
    request_head,
    retry_after_s,
    untold,
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
MAX_CLIENTS = 200  # upstream's; of those beyond, the one that was not used for longest is forgotten
RETRIES = 10  # of answers that ask for it with Retry-After
DEFAULT_PORT, MAX_PORT = 443, 65535
_HEADERS = [
    (b"accept", b"application/json, */*"), (b"content-type", b"application/json"), (b"user-agent", b"kube-apiserver-admission"),
    (b"accept-encoding", b"gzip"),
]  # fmt: skip
_SCHEME = "k8s.io/apiserver/pkg/util/webhook/client.go:71"
_UNAVAILABLE = 503

Sent = tuple[tuple[int, Headers], Target, bytes]  # for how many seconds and with which headers, to whom, the head


class HookError(Exception):
    """There is no answer that could be used. ``code`` is that of the answer, 503 when there was none; ``client`` says that it could not
    even be asked; ``host`` and ``outdated`` whose certificate is of a kind that was accepted once, and of which."""

    def __init__(
        self, message: str, code: int = _UNAVAILABLE, client: bool = False, host: str = "", outdated: Outdated | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.client, self.host, self.outdated = code, client, host, outdated


class HookClient(Asker):
    """One place that is asked. ``backend`` is who answers there, whatever the path; ``trusted`` are the bytes of its authorities."""

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
        self._fixed = not credentials.token_file and (tls is None or tls.fixed)  # nothing of what it shows is in files, which change

    def post(self, body: bytes, timeout_s: float, left_s: float = math.inf) -> Awaitable[bytes]:
        """The body of the answer, to be awaited. Raises HookError, also when ``timeout_s`` is over; cancelling it closes the connection.

        The backend is told how many seconds it has; ``left_s`` may be less, when whoever asks will have given up by then.
        """
        return self.begin(body, timeout_s, left_s) or self.otherwise(body, timeout_s, left_s)

    async def unusual(self, connection: Exchange, found: bytes, last: Sent, body: bytes, until: float) -> bytes:
        """What ``post`` gives for an answer that says more than its body, or is no such answer; it has come."""
        _, target, head = last
        try:
            self.rest(connection, len(found) <= MAX_ANSWER and connection.persistent)
            return await self._slowly(said(connection, found), target, head, body, until)
        finally:
            self._shares.give(self._backend)

    @staticmethod
    def unanswered(error: BackendError, last: Sent) -> HookError:
        """What ``post`` raises."""
        return HookError(untold("Post", last[1].url, error))

    async def otherwise(self, body: bytes, timeout_s: float, left_s: float) -> bytes:
        """``post`` where there is no connection yet, or something about the question is new."""
        _, target, head = self._told(max(1, math.ceil(min(timeout_s, left_s))))
        trace = tracing.outgoing()
        if trace:
            head += f"traceparent: {trace}\r\n".encode()
        if not self._shares.take(self._backend):
            raise HookError(f'Post "{target.url}": {self._shares.running(self._backend)} requests are waiting for it already')
        try:
            return await self._slowly(None, target, head, body, monotonic() + timeout_s)
        finally:
            self._shares.give(self._backend)

    async def _slowly(self, answer: Answer | None, target: Target, head: bytes, body: bytes, until: float) -> bytes:
        """The body of the answer, which may be there: where a connection is to be made, or to be asked again."""
        if answer is None or answer.retry_after:
            task = asyncio.current_task()
            assert task is not None
            self._deadlines.add(task, until)
            try:
                if answer is None:
                    answer = await self._pool.post(target, head, body, MAX_ANSWER)
                if answer.retry_after:
                    answer = await self._again(answer, target, head, body)
            except asyncio.CancelledError:
                if not self._deadlines.drop(task):
                    raise  # somebody else's wish
                raise HookError(f'Post "{target.url}": context deadline exceeded') from None
            except BackendError as e:
                outdated = e.outdated if isinstance(e, UnverifiedError) else None
                raise HookError(untold("Post", target.url, e), host=target.host, outdated=outdated) from None
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

    def _told(self, seconds: int) -> Sent:
        """Where it is asked when it has so many seconds, and the head of that request: mostly those of the last one."""
        last = self._last
        headers = self._credentials.headers()  # tokens are read from files, and change
        if self._tls is not None and (tls := self._tls.context()) is not self._target.tls:
            self._target, last = self._target._replace(tls=tls), None
            self._pool.renew()
        if last is None or last[0] != (seconds, headers):
            target = self._target._replace(query=f"timeout={seconds}s")
            last = self._last = (seconds, headers), target, request_head("POST", target, [*_HEADERS, *headers])
        return last

    async def _again(self, answer: Answer, target: Target, head: bytes, body: bytes) -> Answer:
        """The answer in place of one that says when to ask again."""
        for _ in range(RETRIES):
            pause = retry_after_s(answer.retry_after)
            if not (answer.status == 429 or answer.status >= 500) or pause is None:
                break
            await self._sleep(pause)
            answer = await self._pool.post(target, head, body, MAX_ANSWER)
        return answer

    def bytes_kept(self) -> int:
        """What it takes at most."""
        return self.context_bytes + self._pool.bytes_kept()

    def close(self) -> None:
        """Let go of the connections nobody uses; those in use close when they are done."""
        self._pool.close()


def _unzipped(data: bytes) -> bytes:
    """What was compressed, with at most one byte more than ``MAX_ANSWER``. Raises HookError."""
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
    """What tells a ``clientConfig`` from all others."""
    return orjson.dumps(config, option=orjson.OPT_SORT_KEYS)


class HookClients(Known):
    """The clients of a server by what their ``clientConfig`` says. ``shares`` are those of the worker. ``egress`` are the ways: Services
    are in the cluster, URLs beside the control plane; this server itself is reached directly."""

    def __init__(self, users: Users, resolve: Resolve, shares: Shares, egress: Egress = DIRECT) -> None:
        self._users, self._resolve, self._shares, self._egress = users, resolve, shares, egress
        super().__init__(clients := OrderedDict[bytes, HookClient]())
        self._clients = clients
        self._ends, self._deadlines, self._context_bytes = Ends(), Deadlines(), 0
        what = "clients of webhooks, with connections that are not in use"
        most = MAX_CLIENTS * (CONTEXT_BYTES + MAX_IDLE * CONNECTION_BYTES)
        caches.follow("webhook_clients", what, most, self, lambda own: sum(c.bytes_kept() for c in own._clients.values()))

    def of(self, config: Mapping[str, Any], key: bytes = b"") -> HookClient:
        """The client of a configuration; ``key`` is what ``client_key`` says of it, where that is known. Raises HookError for one nobody
        can be asked with."""
        key = key or client_key(config)
        return self.found(key) or self._keep(key, self._made(config))

    async def ready(self, config: Mapping[str, Any], key: bytes = b"") -> HookClient:
        """``of``, where a client that is not there yet is made beside the loop: to read the system's authorities takes some 30 ms."""
        key = key or client_key(config)
        found = self.found(key)
        if found is not None:
            return found
        made = await POOL.run(self._made, config)
        return self.found(key) or self._keep(key, made)  # somebody else may have been quicker

    def _keep(self, key: bytes, made: HookClient) -> HookClient:
        self._clients[key] = self._latest = made
        self._context_bytes += made.context_bytes
        while len(self._clients) > MAX_CLIENTS or self._context_bytes > MAX_CLIENTS * CONTEXT_BYTES:
            gone = self._clients.popitem(last=False)[1]
            self._context_bytes -= gone.context_bytes
            gone.close()
        return made

    def close(self) -> None:
        """Let go of all connections nobody uses."""
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
    """An answer as an object of the kind ``wanted``, (apiVersion, kind); without either it is taken for one, and says so by leaving them
    out. ``known`` are all the kinds such an answer may be of. Raises HookError."""
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
    """The group and version that an answer says it is of; what it leaves out is as ``wanted``. Raises HookError."""
    if api_version.count("/") > 1:
        raise HookError(f"unexpected GroupVersion string: {api_version}")
    group, _, version = api_version.rpartition("/")
    if not version and group and group != wanted.rpartition("/")[0]:
        raise HookError(f"Object 'apiVersion' is missing in '{body.decode('utf-8', 'replace')}'")
    return (f"{group}/{version}" if group else version) if version else wanted


def said_kind(review: Mapping[str, Any]) -> str:
    """What a review says it is, as Go writes a GroupVersionKind."""
    group, _, version = review["apiVersion"].rpartition("/")
    return f"{group}/{version}, Kind={review['kind']}"


def _clean(path: str) -> str:
    """A path without empty parts, dots and a slash at its end, as client-go joins it to the host."""
    return posixpath.normpath("/" + path.lstrip("/"))


def _port(netloc: str) -> str:
    """The port that a URL names, "" where it names none; that it is digits was looked at when the configuration was written."""
    host, _, port = netloc.rpartition(":")
    return port if host and port.isdigit() else ""


def _document(body: bytes) -> dict[str, Any]:
    if body.lstrip()[:1] == b"{":
        try:
            value = gojson.loads(body)
        except gojson.JSONError as e:
            raise HookError(f"couldn't get version/kind; json parse error: {e}") from None
    else:
        from kas.types import yaml_codec  # PyYAML is large, and an answer that is no JSON mostly is no answer

        try:
            value, _ = yaml_codec.decode(body)
        except yaml_codec.YAMLError as e:
            raise HookError(str(e)) from None
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise HookError(f"couldn't get version/kind; json parse error: {gojson.cannot_unmarshal(value, gojson.TYPE_META)}")
    return value

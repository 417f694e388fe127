"""Calls of etcd's v3 API over gRPC (``rpc/``): the choice of the server, and the translation of errors to the store's.

etcd's documentation describes the calls; ``etcd.proto`` has the messages. Two clients make the same calls: ``Client`` blocks, for
threads of its own; ``AsyncClient`` belongs to an event loop.

A *safe* call (it changes nothing, or may be repeated) is sent to the next server when one is unavailable or takes longer than its
share of the timeout. A write is sent once, to a reachable server: if it is interrupted its outcome is unknown, and the error is
``Unknown``, unless etcd's own answer says that it was refused.

If the cluster is known, each new connection is first asked for its cluster id: its address may now belong to another cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Generic, NoReturn, TypeVar
from urllib.parse import urlsplit

from google.protobuf.message import DecodeError

from kas.meta.records import NamedTuple
from kas.meta.tls import trust_as_go
from kas.store.errors import Compacted, Damaged, Full, FutureRevision, StoreError, Unavailable, Unknown
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.rpc import Stream
from kas.store.etcd.rpc.blocking import Blocking, Following
from kas.store.etcd.rpc.hpack import literal
from kas.store.etcd.rpc.looped import Looped, answer, dial
from kas.store.etcd.rpc.status import Code, RpcError, reason

BACKOFF_S, BACKOFF_MAX_S = 0.1, 3.0  # between attempts to connect to a server
DIAL_S = 20.0  # upstream's dialTimeout
FOLLOW_S = 3.0  # for a stream: the caller has other servers to try
IDLE = 8  # idle connections kept per server for threads
REFUSED_S = 1.0  # until a refused password is tried again: it may have been changed in etcd
WHICH_S = 2.0  # for a server to report its cluster id
# A member without a connection to the majority refuses, instead of answering with its last state.
HAS_LEADER = ((b"hasleader", b"true"),)
Metadata = tuple[tuple[bytes, bytes], ...]

log = logging.getLogger("kas.store.etcd")

Q = TypeVar("Q", bound=Any)
A = TypeVar("A", bound=Any)


@dataclass(frozen=True)
class Call(Generic[Q, A]):
    """One method: its path, its messages, whether it may be repeated, and whether it waits for a server if none is reachable.
    Writes, and calls that prepare a write, do not wait."""

    path: str
    request: type[Q]
    answer: type[A]
    safe: bool = False
    waits: bool = False


RANGE = Call("/etcdserverpb.KV/Range", pb.RangeRequest, pb.RangeResponse, safe=True, waits=True)
TXN = Call("/etcdserverpb.KV/Txn", pb.TxnRequest, pb.TxnResponse)
PUT = Call("/etcdserverpb.KV/Put", pb.PutRequest, pb.PutResponse)
COMPACT = Call("/etcdserverpb.KV/Compact", pb.CompactionRequest, pb.CompactionResponse)
WATCH = Call("/etcdserverpb.Watch/Watch", pb.WatchRequest, pb.WatchResponse, safe=True, waits=True)
GRANT = Call("/etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse, safe=True)  # a surplus lease expires by itself
REVOKE = Call("/etcdserverpb.Lease/LeaseRevoke", pb.LeaseRevokeRequest, pb.LeaseRevokeResponse)
TIME_TO_LIVE = Call("/etcdserverpb.Lease/LeaseTimeToLive", pb.LeaseTimeToLiveRequest, pb.LeaseTimeToLiveResponse, safe=True, waits=True)
# An empty transaction: any member answers it at once, for any user, with its cluster id. Status has the id, too, but with
# authentication enabled some versions since 3.5.28 answer it only for root.
WHICH = Call("/etcdserverpb.KV/Txn", pb.TxnRequest, pb.TxnResponse, safe=True, waits=True)
SNAPSHOT = Call("/etcdserverpb.Maintenance/Snapshot", pb.SnapshotRequest, pb.SnapshotResponse, safe=True, waits=True)
STATUS = Call("/etcdserverpb.Maintenance/Status", pb.StatusRequest, pb.StatusResponse, safe=True, waits=True)
AUTHENTICATE = Call("/etcdserverpb.Auth/Authenticate", pb.AuthenticateRequest, pb.AuthenticateResponse, safe=True, waits=True)
ALARM = Call("/etcdserverpb.Maintenance/Alarm", pb.AlarmRequest, pb.AlarmResponse, safe=True, waits=True)


@dataclass(frozen=True)
class Config:
    """The address of the cluster and its credentials. ``servers`` are URLs, as in ``--etcd-servers``; the files are PEM.
    ``cluster_id`` is the expected cluster; 0: any. ``later``: the files were valid before, and may be in replacement: they are read
    only for each connection."""

    servers: tuple[str, ...]
    cafile: str = ""
    certfile: str = ""
    keyfile: str = ""
    lease_reuse_s: int = 60
    username: str = ""
    password: str = field(default="", repr=False)
    cluster_id: int = 0
    later: bool = False

    def targets(self) -> list[Target]:
        """Returns the servers. Raises ``StoreError`` for an unusable file, and for an invalid address."""
        out = []
        for server in self.servers:
            url = urlsplit(server if "://" in server else f"http://{server}")
            if url.scheme not in ("http", "https") or not url.hostname:
                raise StoreError(f"--etcd-servers: {server} is not the URL of a server")
            target = Target(url.hostname, url.port or 2379, url.scheme == "https", self)
            if not self.later:
                target.tls()
            out.append(target)
        return out


@dataclass(frozen=True)
class Target:
    """The address of one server."""

    host: str
    port: int
    secure: bool
    config: Config

    def tls(self) -> ssl.SSLContext | None:
        """Returns the TLS context for a connection; None for http. The files are read each time, so that replaced files apply from
        the next connection on. Raises ``StoreError``."""
        if not self.secure:
            return None
        c, used = self.config, self.config.cafile
        try:
            context = trust_as_go(ssl.create_default_context(cafile=c.cafile or None))
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if c.certfile:
                used = f"{c.certfile}, {c.keyfile}" if c.keyfile else c.certfile
                context.load_cert_chain(c.certfile, c.keyfile or None)
        except OSError as e:  # includes SSLError
            raise StoreError(f"etcd's certificates: {used}: {reason(e)}") from None
        context.set_alpn_protocols(["h2"])
        return context

    def block(self, call: Call[Any, Any], metadata: Metadata) -> bytes:
        """Returns the headers of a call, without its deadline."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        headers = (
            (b":method", b"POST"), (b":scheme", b"https" if self.secure else b"http"), (b":path", call.path.encode()),
            (b":authority", f"{host}:{self.port}".encode()), (b"te", b"trailers"), (b"content-type", b"application/grpc"),
            (b"user-agent", b"kas"), *metadata,
        )  # fmt: skip
        return b"".join(literal(*header) for header in headers)

    def which(self) -> tuple[bytes, bytes]:
        """Returns the headers (without the deadline) and the message of the call for the cluster id, which needs no login."""
        return self.block(WHICH, ()), pb.TxnRequest().SerializeToString()

    def check(self, answer: bytes | RpcError) -> None:
        """Raises ``StoreError`` unless the answer to ``which`` says that the server belongs to the expected cluster."""
        if isinstance(answer, RpcError):
            if answer.from_server and answer.code in (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED):
                return  # a proxy in between that requires a login; another cluster would have other users
            raise StoreError(f"{self.host}:{self.port} does not say which cluster it is of: {answer.details}") from None
        try:
            found = pb.TxnResponse.FromString(answer).header.cluster_id
        except DecodeError:
            raise StoreError(f"{self.host}:{self.port} does not say which cluster it is of") from None
        if found != self.config.cluster_id:
            raise StoreError(f"{self.host}:{self.port} is a server of another cluster: {found:x}, not {self.config.cluster_id:x}")


def prefix_end(prefix: bytes) -> bytes:
    """Returns the end of the range of all keys that begin with ``prefix``, as etcd expects it."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else b"\0"


def translate(e: RpcError, call: Call[Any, Any]) -> NoReturn:
    """Raises the store's error for a gRPC error. The texts are etcd's (rpctypes)."""
    details = e.details
    text = details if details.startswith("etcdserver") else f"etcdserver: {details or e.code.name.lower()}"
    if e.code == Code.OUT_OF_RANGE and "compacted" in details:
        raise Compacted(0, 0) from None
    if e.code == Code.OUT_OF_RANGE and "future revision" in details:
        raise FutureRevision(0, 0) from None
    if e.from_server and e.code == Code.RESOURCE_EXHAUSTED and "space exceeded" in details:
        raise Full(text) from None
    if e.from_server and e.code == Code.RESOURCE_EXHAUSTED and "larger than max" in details:
        # Upstream's client itself refuses messages above 2 MiB, the server's limit.
        raise StoreError(f"rpc error: code = ResourceExhausted desc = {details.replace('grpc: received', 'trying to send')}") from None
    if e.from_server and e.code == Code.RESOURCE_EXHAUSTED and "too many requests" in details:
        raise Unavailable(text) from None  # the server is overloaded, and did not begin; the others are no less so
    if e.from_server and e.code == Code.DATA_LOSS and "corrupt cluster" in details:
        raise Damaged(text) from None
    if e.from_server and (e.code == Code.PERMISSION_DENIED or details.endswith("permission denied")):
        raise Denied(text) from None
    if e.from_server and e.code in REFUSED and not _not_begun(e):
        raise (LeaseGone if "lease not found" in details else StoreError)(text) from None
    raise (Unavailable if call.safe or _not_begun(e) else Unknown)(text) from None


# Codes by which a server refuses a request. Any other code may come from the connection, or from a server that has begun.
REFUSED = (
    Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.OUT_OF_RANGE, Code.RESOURCE_EXHAUSTED, Code.FAILED_PRECONDITION, Code.UNAUTHENTICATED,
    Code.UNIMPLEMENTED,
)  # fmt: skip


# Errors of a server before it has looked at a request (etcd: api/v3rpc/interceptor.go), or when it found, in the request's turn,
# that users and roles have changed: another server, or the same one a moment later, may be asked.
NOT_BEGUN = ("no leader", "not capable", "rpc not supported for learner", "revision of auth store is old")


class Denied(StoreError):
    """The etcd user has no permission; nothing was done."""


class TooLarge(Unavailable):
    """The answer is larger than the caller's limit."""


class LeaseGone(StoreError):
    """The lease of a put has ended; nothing was written."""


def _logged_out(e: RpcError) -> bool:
    """Returns whether the server does not know the token (any more); nothing was done."""
    return e.from_server and (
        e.code == Code.UNAUTHENTICATED or "revision of auth store is old" in e.details or "user name is empty" in e.details
    )


def _login(config: Config) -> pb.AuthenticateRequest:
    return pb.AuthenticateRequest(name=config.username, password=config.password)


def _with_token(answer: pb.AuthenticateResponse) -> Metadata:
    return (*HAS_LEADER, (b"token", answer.token.encode()))


def _without_login(e: StoreError) -> Metadata:
    """Returns the metadata for an etcd without authentication, as clientv3 does; once enabled, errors say so (``_logged_out``)."""
    if str(e).endswith("authentication is not enabled"):
        return HAS_LEADER
    raise e


def _not_begun(e: RpcError) -> bool:
    """Returns whether it is certain that nothing was done."""
    return e.unsent or (e.from_server and e.details.removeprefix("etcdserver: ") in NOT_BEGUN)


def _retry(e: RpcError, call: Call[Any, Any]) -> bool:
    """Returns whether the call may be sent to another server."""
    return _not_begun(e) or (call.safe and e.code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED))


def _elsewhere(e: RpcError) -> bool:
    """Returns whether other servers may answer otherwise. Decisions of etcd itself are the same everywhere."""
    return not e.from_server or e.code not in (*REFUSED, Code.DATA_LOSS, Code.PERMISSION_DENIED) or _not_begun(e)


def _share(call: Call[Any, Any], until: float, attempt: int, servers: int) -> float:
    """Returns the timeout for one server: for a safe call a share of the remaining time, so that there is time for the others."""
    left = max(0.001, until - time.monotonic())
    return left / max(1, servers - attempt + 1) if call.safe else left


@lru_cache(64)
def _deadline(seconds: float) -> bytes:
    digits = b"%dm" % min(int(seconds * 1000) + 1, 99_999_999)
    return b"\x10\x0cgrpc-timeout" + bytes((len(digits),)) + digits


def _read(call: Call[Q, A], message: bytes) -> A:
    """Returns the parsed answer. Raises ``RpcError`` if it is invalid: it is unknown then whether the call was carried out."""
    try:
        answer: A = call.answer.FromString(message)
    except DecodeError:
        raise RpcError(Code.INTERNAL, "the answer cannot be read") from None
    return answer


class _Blocks:
    """The headers of calls, cached for each server."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, str], tuple[bytes, Metadata | None]] = {}

    def __call__(self, target: Target, call: Call[Any, Any], metadata: Metadata) -> bytes:
        key = id(target), call.path
        block, of = self._made.get(key, (b"", None))
        if of is not metadata:
            block = target.block(call, metadata)
            self._made[key] = block, metadata
        return block


class Client:
    """A blocking client. For any thread but that of an event loop."""

    def __init__(self, config: Config) -> None:
        self._targets = config.targets()
        self._servers, self._config = config.servers, config
        self._metadata: Metadata | None = None if config.username else HAS_LEADER
        self._blocks = _Blocks()
        self._lock = threading.Lock()  # guards the idle connections
        self._idle: dict[Target, list[Blocking]] = {target: [] for target in self._targets}
        self._turn = 0
        self._closed = False

    @property
    def asked(self) -> str:
        """The server for the next call."""
        return self._servers[self._turn % len(self._servers)]

    def call(self, call: Call[Q, A], request: Q, within_s: float = 10.0, most: int = 0) -> A:
        """Returns the answer. Raises ``StoreError`` and its subclasses: ``Unknown`` if a write may have happened, ``TooLarge`` for
        an answer of more than ``most`` bytes, which is not read then."""
        until = time.monotonic() + within_s
        logged_in = call is AUTHENTICATE
        message = request.SerializeToString()
        for attempt in itertools.count(1):
            metadata = HAS_LEADER if call is AUTHENTICATE else self._known(max(0.001, until - time.monotonic()))
            left = _share(call, until, attempt, len(self._targets))
            reach = _share(RANGE, until, attempt, len(self._targets))  # nothing is sent yet, so any call may leave time for the others
            try:
                return _read(call, self._ask(self._target(), call, metadata, message, left, reach, most))
            except RpcError as e:
                if self._config.username and not logged_in and _logged_out(e):
                    logged_in = True
                    if self._metadata is metadata:  # otherwise another thread has logged in since
                        self._metadata = None
                    continue
                if most and e.code == Code.RESOURCE_EXHAUSTED and not e.from_server:
                    raise TooLarge(e.details) from None
                self._turn += _elsewhere(e)
                pause = min(0.05 * attempt, 1.0)
                if not _retry(e, call) or time.monotonic() + pause >= until:
                    translate(e, call)
                time.sleep(pause)
        raise AssertionError("unreachable")

    def _ask(
        self, target: Target, call: Call[Any, Any], metadata: Metadata, message: bytes, within_s: float, reach_s: float, most: int
    ) -> bytes:
        until = time.monotonic() + within_s
        connection = self._connection(target, reach_s)
        left = max(0.001, until - time.monotonic())
        whole = False
        try:
            answer = connection.call(self._blocks(target, call, metadata) + _deadline(left), message, left, most)
            whole = True
        except RpcError as e:
            whole = e.from_server
            raise
        finally:
            self._give_back(target, connection, whole)
        return answer

    def _connection(self, target: Target, within_s: float) -> Blocking:
        """Returns an idle or new connection. Raises ``RpcError``: nothing was sent."""
        while True:
            with self._lock:
                found = self._idle[target].pop() if self._idle[target] else None
            if found is None:
                break
            if found.idle():
                return found
            found.close()
        return self._fresh(target, min(within_s, DIAL_S))

    def _fresh(self, target: Target, within_s: float) -> Blocking:
        """Returns a new connection. Raises ``RpcError``."""
        until = time.monotonic() + within_s
        try:
            connection = Blocking(target.host, target.port, target.tls(), within_s)
        except (OSError, StoreError) as e:
            why = f"failed to connect to {target.host}:{target.port}: {_why(e, target.secure)}"
            raise RpcError(Code.UNAVAILABLE, why, unsent=True) from None
        if self._config.cluster_id:
            try:
                target.check(self._which(connection, target, max(0.001, until - time.monotonic())))
            except StoreError as e:
                connection.close()
                raise RpcError(Code.UNAVAILABLE, str(e), unsent=True) from None
        return connection

    @staticmethod
    def _which(connection: Blocking, target: Target, within_s: float) -> bytes | RpcError:
        block, message = target.which()
        try:
            return connection.call(block + _deadline(within_s), message, within_s)
        except RpcError as e:
            return e

    def has(self, cluster_id: int) -> bool:
        """Returns whether one of the servers belongs to this cluster. Asks one after the other."""
        for server in self._servers:
            config = replace(self._config, servers=(server,), cluster_id=cluster_id)
            with contextlib.suppress(StoreError), contextlib.closing(Client(config)) as client:
                client.call(WHICH, pb.TxnRequest(), WHICH_S)
                return True
        return False

    def _give_back(self, target: Target, connection: Blocking, whole: bool) -> None:
        with self._lock:
            if whole and not self._closed and len(self._idle[target]) < IDLE:
                self._idle[target].append(connection)
                return
        connection.close()

    def _known(self, within_s: float = 10.0) -> Metadata:
        """Returns the credentials for etcd."""
        metadata = self._metadata
        if metadata is None:
            try:
                metadata = _with_token(self.call(AUTHENTICATE, _login(self._config), within_s))
            except StoreError as e:
                metadata = _without_login(e)
            self._metadata = metadata
        return metadata

    def _target(self) -> Target:
        return self._targets[self._turn % len(self._targets)]

    def watch(self, request: pb.WatchRequest) -> Following:
        """Returns a stream of serialized ``WatchResponse``s that begins with ``request``. Raises ``RpcError``, as iterating does."""
        target, metadata = self._target(), self._known()
        connection = self._fresh(target, FOLLOW_S)
        return Following(connection, self._blocks(target, WATCH, metadata), request.SerializeToString())

    def snapshot(self) -> Iterator[pb.SnapshotResponse]:
        """Returns the database file of one server, in pieces. Raises ``StoreError``; nothing is retried."""
        self.call(WHICH, pb.TxnRequest())  # finds a server that answers
        target, metadata = self._target(), self._known()
        try:
            block = self._blocks(target, SNAPSHOT, metadata)
            following = Following(self._fresh(target, DIAL_S), block, pb.SnapshotRequest().SerializeToString(), last=True)
            with contextlib.closing(following):
                for messages in following:
                    yield from map(pb.SnapshotResponse.FromString, messages)
        except RpcError as e:
            translate(e, SNAPSHOT)

    def next_server(self) -> None:
        """Sends the next call to another server, if there is one."""
        self._turn += 1

    def range(self, prefix: bytes, **more: Any) -> pb.RangeResponse:
        """Returns all keys that begin with ``prefix`` in one answer; use ``kas.store.etcd.pages`` for ranges with values."""
        return self.call(RANGE, pb.RangeRequest(key=prefix, range_end=prefix_end(prefix), **more), within_s=60.0)

    def close(self) -> None:
        """Closes idle connections now, and the others when their calls end. Idempotent."""
        with self._lock:
            self._closed = True
            idle = [connection for connections in self._idle.values() for connection in connections]
            self._idle = {target: [] for target in self._targets}
        for connection in idle:
            connection.close()


class _Server:
    """The connection of an ``AsyncClient`` to one server, opened on demand, while a caller waits for it."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.connection: Looped | None = None
        self.foreign = ""  # why the server is not used, though it answers
        self.away = ""  # why the last attempt to connect failed
        self._dialling: asyncio.Task[None] | None = None
        self._failed = 0
        self._not_before = 0.0

    def usable(self) -> Looped | None:
        """Returns the connection, if it accepts calls."""
        if self.connection is not None and self.connection.usable:
            return self.connection
        return None

    async def reach(self, within_s: float, patient: bool) -> Looped:
        """Returns a connection. Raises ``TimeoutError``; without ``patient`` it does not retry, and raises the ``OSError`` or
        ``StoreError`` of the last attempt."""
        async with asyncio.timeout(within_s):
            while (connection := self.usable()) is None:
                if not patient and self._failed and asyncio.get_running_loop().time() < self._not_before:
                    raise ConnectionError(self.away)
                if self._dialling is None or self._dialling.done():
                    self._dialling = asyncio.create_task(self._dial())
                    self._dialling.add_done_callback(_retrieve_exception)
                try:
                    await asyncio.shield(self._dialling)
                except (OSError, StoreError):
                    if not patient:
                        raise
            return connection

    async def _dial(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._not_before - loop.time()))
        try:
            connection = await dial(self.target.host, self.target.port, self.target.tls(), DIAL_S)
            try:
                await self._identify(connection)
            except BaseException:
                connection.close()
                raise
            self.connection = connection
        except (OSError, StoreError) as e:
            self.away = f"{self.target.host}:{self.target.port}: {_why(e, self.target.secure) or 'it does not answer'}"
            self._failed += 1
            self._not_before = loop.time() + min(BACKOFF_S * 2 ** min(self._failed - 1, 10), BACKOFF_MAX_S)
            raise
        self._failed = 0
        self._not_before = loop.time() + BACKOFF_S

    async def _identify(self, connection: Looped) -> None:
        """Raises ``StoreError`` unless the server belongs to the expected cluster, if there is one."""
        if not self.target.config.cluster_id:
            return
        block, message = self.target.which()
        said: bytes | RpcError
        try:
            said = await connection.begin(block + _deadline(DIAL_S), message, DIAL_S).waiter
        except RpcError as e:
            said = e
        try:
            self.target.check(said)
        except StoreError as e:
            if self.foreign != str(e):
                self.foreign = str(e)
                log.warning("an etcd server is not used: %s", e)
            raise
        self.foreign = ""

    async def close(self) -> None:
        """Closes the connection. Idempotent."""
        if self._dialling is not None:
            self._dialling.cancel()
            await asyncio.wait([self._dialling])
        if self.connection is not None:
            self.connection.close()


def _why(e: Exception, secure: bool) -> str:
    """Returns why a connection failed."""
    closed = isinstance(e, ConnectionError) and not e.errno
    return f"{e} (it may want https)" if closed and not secure else reason(e)


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    """Retrieves a task's exception, which may have no waiter any more."""
    if not task.cancelled():
        task.exception()


class Begun(NamedTuple, Generic[A]):
    """A call in progress: ``at`` is the server's index, ``metadata`` the credentials."""

    call: Call[Any, A]
    at: int
    stream: Stream
    metadata: Metadata


class AsyncClient:
    """The same calls on an event loop. Must be created on its thread."""

    def __init__(self, config: Config) -> None:
        self._reached = [_Server(target) for target in config.targets()]
        self.servers = len(self._reached)
        self._config = config
        self._metadata: Metadata | None = None if config.username else HAS_LEADER
        self._blocks = _Blocks()
        self._logging_in: asyncio.Task[Metadata] | None = None
        self._refused, self._refused_until = "", 0.0
        self._turn = 0

    async def call(self, call: Call[Q, A], request: Q, within_s: float = 10.0) -> A:
        """As ``Client.call``."""
        until = time.monotonic() + within_s
        logged_in = call is AUTHENTICATE
        message = request.SerializeToString()
        for attempt in itertools.count(1):
            metadata = HAS_LEADER if call is AUTHENTICATE else self._metadata or await self._log_in()
            at = self._turn % len(self._reached)
            connection = self._reached[at].usable()
            if connection is None:
                at, connection = await self._reachable(until, call.waits)
            try:
                share = _share(call, until, attempt, len(self._reached))
                block = self._blocks(self._reached[at].target, call, metadata)
                stream = connection.begin(block + _deadline(share), message, share)
                try:
                    return _read(call, await stream.waiter)
                except asyncio.CancelledError:
                    connection.leave(stream)
                    raise
            except RpcError as e:
                if self._config.username and not logged_in and _logged_out(e):
                    logged_in = True
                    self._log_out(metadata)
                    continue
                if _elsewhere(e):
                    self._turn = at + 1
                if not _retry(e, call) or time.monotonic() >= until:
                    translate(e, call)
                await asyncio.sleep(min(0.05 * attempt, max(0.0, until - time.monotonic())))
        raise AssertionError("unreachable")

    def begin(self, call: Call[Q, A], request: Q, within_s: float, on_end: Callable[[Begun[A]], None]) -> bool:
        """Begins a call at once, without a task, and returns True; returns False if that is impossible now and ``call`` must be
        used. At its end ``on_end`` is called, which must not raise."""
        found = self.usable(call, within_s)
        if found is None:
            return False
        at, connection, block, metadata = found
        try:
            connection.begin(block, request.SerializeToString(), within_s, lambda stream: on_end(Begun(call, at, stream, metadata)))
        except RpcError:  # it has not begun
            return False
        return True

    def usable(self, call: Call[Any, Any], within_s: float) -> tuple[int, Looped, bytes, Metadata] | None:
        """Returns the next server's index, its connection, a call's headers and the credentials; None if a task has to find these."""
        at, metadata = self._turn % len(self._reached), self._metadata
        connection = self._reached[at].usable()
        if connection is None or metadata is None:
            return None
        return at, connection, self._blocks(self._reached[at].target, call, metadata) + _deadline(within_s), metadata

    def ended(self, begun: Begun[A]) -> A | None:
        """Returns the answer of a begun call that has ended; None if ``call`` may repeat it: it was not carried out, or is safe.
        Raises as ``call`` does."""
        try:
            return _read(begun.call, answer(begun.stream))
        except RpcError as e:
            if self._config.username and _logged_out(e):
                self._log_out(begun.metadata)
                return None
            if _elsewhere(e):
                self._turn = begun.at + 1
            if _retry(e, begun.call):
                return None
            translate(e, begun.call)

    def _log_out(self, metadata: Metadata) -> None:
        """Forgets a token that a server does not know any more, unless a new login has replaced it."""
        if self._metadata is metadata:
            self._metadata = None

    async def _log_in(self) -> Metadata:
        """Logs in once for all waiting callers: checking a password costs etcd a tenth of a second of CPU. If etcd refuses it, all
        callers fail for ``REFUSED_S``."""
        if self._refused and asyncio.get_running_loop().time() < self._refused_until:
            raise StoreError(self._refused)
        if self._logging_in is None:
            self._logging_in = asyncio.create_task(self._authenticate())
            self._logging_in.add_done_callback(_retrieve_exception)
        return await asyncio.shield(self._logging_in)

    async def _authenticate(self) -> Metadata:
        try:
            metadata = _with_token(await self.call(AUTHENTICATE, _login(self._config)))
        except StoreError as e:
            if type(e) is StoreError:  # etcd has checked the password
                self._refused, self._refused_until = str(e), asyncio.get_running_loop().time() + REFUSED_S
            metadata = _without_login(e)
        finally:
            self._logging_in = None
        self._metadata, self._refused = metadata, ""
        return metadata

    async def _reachable(self, until: float, patient: bool = True) -> tuple[int, Looped]:
        """Returns the next server with a connection; a ``patient`` call waits for one when all are away. A write fails at once, as
        through gRPC: a waiting write would hold a place that others want, and its client retries."""
        servers = self._reached
        first = self._turn % len(servers)
        tries = [(i, waits) for waits in ((False, True) if patient else (False,)) for i in range(len(servers))]
        for left, (i, waits) in zip(range(len(tries), 0, -1), tries, strict=True):
            at = (first + i) % len(servers)
            share = max(0.05, until - time.monotonic()) / left
            try:
                connection = await servers[at].reach(share, waits)
            except (OSError, StoreError):  # includes TimeoutError
                continue
            self._turn = at
            return at, connection
        why = next((server.foreign for server in servers if server.foreign), "")
        if not why:
            away = next((f": {server.away}" for server in servers if server.away), "")
            why = f"no server can be reached{away}"
        raise Unavailable(f"etcdserver: {why}")

    async def close(self) -> None:
        """Closes the connections. Idempotent."""
        if self._logging_in is not None:
            self._logging_in.cancel()
        for server in self._reached:
            await server.close()

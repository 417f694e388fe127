"""Calls of etcd's v3 API over gRPC (``rpc/``): which server is asked, and errors as those of the store.

What a call means stands in etcd's documentation; the messages in ``etcd.proto``. Two clients make the same calls: ``Client`` waits, for
threads of its own; ``AsyncClient`` belongs to an event loop.

A *safe* call (it changes nothing, or nothing that matters twice) is asked of the next server when one is not available or takes longer than
its share of the time. A write is sent once, to a server that can be reached: nobody knows whether one that broke off was carried out, and
``Unknown`` says so, unless etcd's own answer says that it was refused.

Where it is known which cluster is meant, each new connection is asked for it before anything else: a name or an address may have become
that of a member of another cluster.
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
FOLLOW_S = 3.0  # for a stream: who wants one has others to ask
IDLE = 8  # connections of a server that threads may find open
REFUSED_S = 1.0  # until a password that was wrong is tried again: somebody may have changed it in etcd
WHICH_S = 2.0  # for a server to say which cluster it is of
# A member that is cut off from the majority refuses instead of answering with what it last knew.
HAS_LEADER = ((b"hasleader", b"true"),)
Metadata = tuple[tuple[bytes, bytes], ...]

log = logging.getLogger("kas.store.etcd")

Q = TypeVar("Q", bound=Any)
A = TypeVar("A", bound=Any)


@dataclass(frozen=True)
class Call(Generic[Q, A]):
    """One method: its path, its messages, whether it may be asked twice, and whether it waits for a server where all refuse. A write does
    not, nor what is asked for one."""

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
GRANT = Call("/etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse, safe=True)  # one too many ends by itself
REVOKE = Call("/etcdserverpb.Lease/LeaseRevoke", pb.LeaseRevokeRequest, pb.LeaseRevokeResponse)
TIME_TO_LIVE = Call("/etcdserverpb.Lease/LeaseTimeToLive", pb.LeaseTimeToLiveRequest, pb.LeaseTimeToLiveResponse, safe=True, waits=True)
# An empty transaction, which any member answers at once, to anybody, and says with it of which cluster it is. Status says that, too, but
# where etcd has users some versions since 3.5.28 tell it to root alone.
WHICH = Call("/etcdserverpb.KV/Txn", pb.TxnRequest, pb.TxnResponse, safe=True, waits=True)
SNAPSHOT = Call("/etcdserverpb.Maintenance/Snapshot", pb.SnapshotRequest, pb.SnapshotResponse, safe=True, waits=True)
STATUS = Call("/etcdserverpb.Maintenance/Status", pb.StatusRequest, pb.StatusResponse, safe=True, waits=True)
AUTHENTICATE = Call("/etcdserverpb.Auth/Authenticate", pb.AuthenticateRequest, pb.AuthenticateResponse, safe=True, waits=True)
ALARM = Call("/etcdserverpb.Maintenance/Alarm", pb.AlarmRequest, pb.AlarmResponse, safe=True, waits=True)


@dataclass(frozen=True)
class Config:
    """Where the cluster is and how it is reached. ``servers`` are URLs, as ``--etcd-servers`` has them; the files are PEM. ``cluster_id``
    is the cluster that is meant; 0: whichever answers. ``later``: the files were good once, and may be being replaced: they are looked at
    with each connection only."""

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
        """The servers. Raises ``StoreError`` for a file that cannot be used, and for an address that is none."""
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
    """Where one server listens."""

    host: str
    port: int
    secure: bool
    config: Config

    def tls(self) -> ssl.SSLContext | None:
        """What secures a connection; None for http. The files are read anew, so that what replaced them counts from the next connection
        on. Raises ``StoreError``."""
        if not self.secure:
            return None
        c, used = self.config, self.config.cafile
        try:
            context = trust_as_go(ssl.create_default_context(cafile=c.cafile or None))
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if c.certfile:
                used = f"{c.certfile}, {c.keyfile}" if c.keyfile else c.certfile
                context.load_cert_chain(c.certfile, c.keyfile or None)
        except OSError as e:  # SSLError is one
            raise StoreError(f"etcd's certificates: {used}: {reason(e)}") from None
        context.set_alpn_protocols(["h2"])
        return context

    def block(self, call: Call[Any, Any], metadata: Metadata) -> bytes:
        """The headers of a call, but for its deadline."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        headers = (
            (b":method", b"POST"), (b":scheme", b"https" if self.secure else b"http"), (b":path", call.path.encode()),
            (b":authority", f"{host}:{self.port}".encode()), (b"te", b"trailers"), (b"content-type", b"application/grpc"),
            (b"user-agent", b"kas"), *metadata,
        )  # fmt: skip
        return b"".join(literal(*header) for header in headers)

    def which(self) -> tuple[bytes, bytes]:
        """The headers, but for the deadline, and the message of the question which cluster it is of. Nobody has to be logged in for it."""
        return self.block(WHICH, ()), pb.TxnRequest().SerializeToString()

    def check(self, answer: bytes | RpcError) -> None:
        """Raises ``StoreError`` unless the server is of the cluster that is meant, as its answer to ``which`` says."""
        if isinstance(answer, RpcError):
            if answer.told and answer.code in (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED):
                return  # something between that lets no stranger through; those of another cluster have other users
            raise StoreError(f"{self.host}:{self.port} does not say which cluster it is of: {answer.details}") from None
        try:
            found = pb.TxnResponse.FromString(answer).header.cluster_id
        except DecodeError:
            raise StoreError(f"{self.host}:{self.port} does not say which cluster it is of") from None
        if found != self.config.cluster_id:
            raise StoreError(f"{self.host}:{self.port} is a server of another cluster: {found:x}, not {self.config.cluster_id:x}")


def prefix_end(prefix: bytes) -> bytes:
    """The end of the range of all keys that begin with ``prefix``, as etcd wants it."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else b"\0"


def translate(e: RpcError, call: Call[Any, Any]) -> NoReturn:
    """Raises the store's error for gRPC's. The texts are etcd's (rpctypes)."""
    details = e.details
    text = details if details.startswith("etcdserver") else f"etcdserver: {details or e.code.name.lower()}"
    if e.code == Code.OUT_OF_RANGE and "compacted" in details:
        raise Compacted(0, 0) from None
    if e.code == Code.OUT_OF_RANGE and "future revision" in details:
        raise FutureRevision(0, 0) from None
    if e.told and e.code == Code.RESOURCE_EXHAUSTED and "space exceeded" in details:
        raise Full(text) from None
    if e.told and e.code == Code.RESOURCE_EXHAUSTED and "larger than max" in details:
        # Upstream's client refuses by itself what is above the same 2 MiB that the server would not take.
        raise StoreError(f"rpc error: code = ResourceExhausted desc = {details.replace('grpc: received', 'trying to send')}") from None
    if e.told and e.code == Code.RESOURCE_EXHAUSTED and "too many requests" in details:
        raise Unavailable(text) from None  # it has more to do than it can, and did not begin; others have no less
    if e.told and e.code == Code.DATA_LOSS and "corrupt cluster" in details:
        raise Damaged(text) from None
    if e.told and (e.code == Code.PERMISSION_DENIED or details.endswith("permission denied")):
        raise Denied(text) from None
    if e.told and e.code in REFUSED and not _not_begun(e):
        raise (LeaseGone if "lease not found" in details else StoreError)(text) from None
    raise (Unavailable if call.safe or _not_begun(e) else Unknown)(text) from None


# What a server says that has decided not to do it. Anything else may come from a connection, or from a server that has begun.
REFUSED = (
    Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.OUT_OF_RANGE, Code.RESOURCE_EXHAUSTED, Code.FAILED_PRECONDITION, Code.UNAUTHENTICATED,
    Code.UNIMPLEMENTED,
)  # fmt: skip


# What a server says before it has looked at a request (etcd: api/v3rpc/interceptor.go), or when it found, in its turn, that users and roles
# have changed meanwhile: another one, or the same a moment later, may be asked.
NOT_BEGUN = ("no leader", "not capable", "rpc not supported for learner", "revision of auth store is old")


class Denied(StoreError):
    """etcd's user may not do that; nothing was done."""


class TooLarge(Unavailable):
    """The answer is larger than who asked wants to have."""


class LeaseGone(StoreError):
    """The lease of a put has ended; nothing was written."""


def _logged_out(e: RpcError) -> bool:
    """Whether the token is one that the server does not know (any more); nothing was done."""
    return e.told and (
        e.code == Code.UNAUTHENTICATED or "revision of auth store is old" in e.details or "user name is empty" in e.details
    )


def _login(config: Config) -> pb.AuthenticateRequest:
    return pb.AuthenticateRequest(name=config.username, password=config.password)


def _with_token(answer: pb.AuthenticateResponse) -> Metadata:
    return (*HAS_LEADER, (b"token", answer.token.encode()))


def _unasked(e: StoreError) -> Metadata:
    """What tells etcd who asks where it does not want to know (yet), as clientv3 has it; when it wants to it says so (``_logged_out``)."""
    if str(e).endswith("authentication is not enabled"):
        return HAS_LEADER
    raise e


def _not_begun(e: RpcError) -> bool:
    """Whether it is certain that nothing was done."""
    return e.unsent or (e.told and e.details.removeprefix("etcdserver: ") in NOT_BEGUN)


def _retry(e: RpcError, call: Call[Any, Any]) -> bool:
    """Whether another server may be asked."""
    return _not_begun(e) or (call.safe and e.code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED))


def _elsewhere(e: RpcError) -> bool:
    """Whether others may do better than the server that said it. What etcd has decided is the same everywhere."""
    return not e.told or e.code not in (*REFUSED, Code.DATA_LOSS, Code.PERMISSION_DENIED) or _not_begun(e)


def _share(call: Call[Any, Any], until: float, attempt: int, servers: int) -> float:
    """How long one server may take: of a safe call a part of what is left, so that there is time for the others."""
    left = max(0.001, until - time.monotonic())
    return left / max(1, servers - attempt + 1) if call.safe else left


@lru_cache(64)
def _deadline(seconds: float) -> bytes:
    digits = b"%dm" % min(int(seconds * 1000) + 1, 99_999_999)
    return b"\x10\x0cgrpc-timeout" + bytes((len(digits),)) + digits


def _read(call: Call[Q, A], message: bytes) -> A:
    """The answer. Raises ``RpcError`` for what is none: whether the call was carried out is not known then."""
    try:
        answer: A = call.answer.FromString(message)
    except DecodeError:
        raise RpcError(Code.INTERNAL, "the answer cannot be read") from None
    return answer


class _Blocks:
    """The headers of calls, made once for each server."""

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
    """Calls that wait. For any thread but an event loop's."""

    def __init__(self, config: Config) -> None:
        self._targets = config.targets()
        self._servers, self._config = config.servers, config
        self._metadata: Metadata | None = None if config.username else HAS_LEADER
        self._blocks = _Blocks()
        self._lock = threading.Lock()  # of the connections that are not in use
        self._idle: dict[Target, list[Blocking]] = {target: [] for target in self._targets}
        self._turn = 0
        self._closed = False

    @property
    def asked(self) -> str:
        """Who is asked next."""
        return self._servers[self._turn % len(self._servers)]

    def call(self, call: Call[Q, A], request: Q, within_s: float = 10.0, most: int = 0) -> A:
        """The answer. Raises ``StoreError`` and what derives from it; of a write ``Unknown`` when it may have happened, and ``TooLarge``
        for an answer of more than ``most`` bytes, which is not read then."""
        until = time.monotonic() + within_s
        logged_in = call is AUTHENTICATE
        message = request.SerializeToString()
        for attempt in itertools.count(1):
            metadata = HAS_LEADER if call is AUTHENTICATE else self._known(max(0.001, until - time.monotonic()))
            left = _share(call, until, attempt, len(self._targets))
            reach = _share(RANGE, until, attempt, len(self._targets))  # nothing has been sent yet: any call has time for others
            try:
                return _read(call, self._ask(self._target(), call, metadata, message, left, reach, most))
            except RpcError as e:
                if self._config.username and not logged_in and _logged_out(e):
                    logged_in = True
                    if self._metadata is metadata:  # else another thread has logged in since
                        self._metadata = None
                    continue
                if most and e.code == Code.RESOURCE_EXHAUSTED and not e.told:
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
            whole = e.told
            raise
        finally:
            self._give_back(target, connection, whole)
        return answer

    def _connection(self, target: Target, within_s: float) -> Blocking:
        """One that is not in use. Raises ``RpcError``: nothing was sent."""
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
        """A new one. Raises ``RpcError``."""
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
        """Whether one of the servers is of this cluster. Asks one after the other."""
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
        """What tells etcd who asks."""
        metadata = self._metadata
        if metadata is None:
            try:
                metadata = _with_token(self.call(AUTHENTICATE, _login(self._config), within_s))
            except StoreError as e:
                metadata = _unasked(e)
            self._metadata = metadata
        return metadata

    def _target(self) -> Target:
        return self._targets[self._turn % len(self._targets)]

    def watch(self, request: pb.WatchRequest) -> Following:
        """A stream of ``WatchResponse``s, serialized, that begins with ``request``. Raises ``RpcError``, as iterating does."""
        target, metadata = self._target(), self._known()
        connection = self._fresh(target, FOLLOW_S)
        return Following(connection, self._blocks(target, WATCH, metadata), request.SerializeToString())

    def snapshot(self) -> Iterator[pb.SnapshotResponse]:
        """The file of one server, in pieces. Raises ``StoreError``; nothing is asked again."""
        self.call(WHICH, pb.TxnRequest())  # to a server that answers
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
        """The next call goes to another server, if there is one."""
        self._turn += 1

    def range(self, prefix: bytes, **more: Any) -> pb.RangeResponse:
        """A range of the keys that begin with ``prefix``, whole; where there are values ``pages`` is for it."""
        return self.call(RANGE, pb.RangeRequest(key=prefix, range_end=prefix_end(prefix), **more), within_s=60.0)

    def close(self) -> None:
        """Ends the connections that are not in use, and each other one when its call ends. Idempotent."""
        with self._lock:
            self._closed = True
            idle = [connection for connections in self._idle.values() for connection in connections]
            self._idle = {target: [] for target in self._targets}
        for connection in idle:
            connection.close()


class _Server:
    """The connection of an ``AsyncClient`` to one server, made when it is wanted and for as long as somebody waits for it."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.connection: Looped | None = None
        self.foreign = ""  # why it is not asked, though it answers
        self.away = ""  # why it could not be reached when that was tried last
        self._dialling: asyncio.Task[None] | None = None
        self._failed = 0
        self._not_before = 0.0

    def usable(self) -> Looped | None:
        """The connection, if calls may begin on it."""
        if self.connection is not None and self.connection.usable:
            return self.connection
        return None

    async def reach(self, within_s: float, patient: bool) -> Looped:
        """A connection. Raises ``TimeoutError``; who is not ``patient`` does not try again either, and ``OSError`` or ``StoreError`` says
        what came of the last attempt."""
        async with asyncio.timeout(within_s):
            while (connection := self.usable()) is None:
                if not patient and self._failed and asyncio.get_running_loop().time() < self._not_before:
                    raise ConnectionError(self.away)
                if self._dialling is None or self._dialling.done():
                    self._dialling = asyncio.create_task(self._dial())
                    self._dialling.add_done_callback(_looked_at)
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
        """Raises ``StoreError`` unless it is a server of the cluster that is meant, where one is."""
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
        """Idempotent."""
        if self._dialling is not None:
            self._dialling.cancel()
            await asyncio.wait([self._dialling])
        if self.connection is not None:
            self.connection.close()


def _why(e: Exception, secure: bool) -> str:
    """Why a connection was not made."""
    closed = isinstance(e, ConnectionError) and not e.errno
    return f"{e} (it may want https)" if closed and not secure else reason(e)


def _looked_at(task: asyncio.Task[Any]) -> None:
    """Nobody may wait any more for how a task ends."""
    if not task.cancelled():
        task.exception()


class Begun(NamedTuple, Generic[A]):
    """A call on its way: ``at`` which server, as whom."""

    call: Call[Any, A]
    at: int
    stream: Stream
    metadata: Metadata


class AsyncClient:
    """The same calls on an event loop. To be made on its thread."""

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

    def begin(self, call: Call[Q, A], request: Q, within_s: float, told: Callable[[Begun[A]], None]) -> bool:
        """Whether a call was begun at once, without a task; where that is not possible now ``call`` is to be asked. When it is over,
        ``told``, which must not raise, is called."""
        found = self.usable(call, within_s)
        if found is None:
            return False
        at, connection, block, metadata = found
        try:
            connection.begin(block, request.SerializeToString(), within_s, lambda stream: told(Begun(call, at, stream, metadata)))
        except RpcError:  # it has not begun
            return False
        return True

    def usable(self, call: Call[Any, Any], within_s: float) -> tuple[int, Looped, bytes, Metadata] | None:
        """Which server is asked next, its connection, a call's headers there, and as whom; None where a task has to find that out."""
        at, metadata = self._turn % len(self._reached), self._metadata
        connection = self._reached[at].usable()
        if connection is None or metadata is None:
            return None
        return at, connection, self._blocks(self._reached[at].target, call, metadata) + _deadline(within_s), metadata

    def ended(self, begun: Begun[A]) -> A | None:
        """The answer of a call that was begun and is over; None when it may be asked anew by ``call``: it was not carried out, or is safe.
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
        """A server does not know this token any more. Whoever asked with it learns that by himself, and one may have logged in since."""
        if self._metadata is metadata:
            self._metadata = None

    async def _log_in(self) -> Metadata:
        """One for all who wait for it: etcd takes a tenth of a second of CPU to look at a password. One that it refused is refused to all
        for ``REFUSED_S``."""
        if self._refused and asyncio.get_running_loop().time() < self._refused_until:
            raise StoreError(self._refused)
        if self._logging_in is None:
            self._logging_in = asyncio.create_task(self._authenticate())
            self._logging_in.add_done_callback(_looked_at)
        return await asyncio.shield(self._logging_in)

    async def _authenticate(self) -> Metadata:
        try:
            metadata = _with_token(await self.call(AUTHENTICATE, _login(self._config)))
        except StoreError as e:
            if type(e) is StoreError:  # it has looked at who asks
                self._refused, self._refused_until = str(e), asyncio.get_running_loop().time() + REFUSED_S
            metadata = _unasked(e)
        finally:
            self._logging_in = None
        self._metadata, self._refused = metadata, ""
        return metadata

    async def _reachable(self, until: float, patient: bool = True) -> tuple[int, Looped]:
        """The next server with a connection; who is ``patient`` waits for one when all are away. A write that nobody takes fails at once,
        as through gRPC: who waits holds a place that others want, and has a client that comes again."""
        servers = self._reached
        first = self._turn % len(servers)
        tries = [(i, waits) for waits in ((False, True) if patient else (False,)) for i in range(len(servers))]
        for left, (i, waits) in zip(range(len(tries), 0, -1), tries, strict=True):
            at = (first + i) % len(servers)
            share = max(0.05, until - time.monotonic()) / left
            try:
                connection = await servers[at].reach(share, waits)
            except (OSError, StoreError):  # TimeoutError is one
                continue
            self._turn = at
            return at, connection
        why = next((server.foreign for server in servers if server.foreign), "")
        if not why:
            away = next((f": {server.away}" for server in servers if server.away), "")
            why = f"no server can be reached{away}"
        raise Unavailable(f"etcdserver: {why}")

    async def close(self) -> None:
        """Ends the connections. Idempotent."""
        if self._logging_in is not None:
            self._logging_in.cancel()
        for server in self._reached:
            await server.close()

"""Calls of etcd's v3 API over gRPC: one channel to each server, errors as those of the store.

What a call means stands in etcd's documentation; the messages in ``etcd.proto``. Two clients make the same calls: ``Client`` waits, for
threads of its own; ``AsyncClient`` belongs to an event loop.

A *safe* call (it changes nothing, or nothing that matters twice) is asked of the next server when one is not available or takes longer than
its share of the time. A write is sent once, to a server that can be reached: nobody knows whether one that broke off was carried out, and
``Unknown`` says so, unless etcd's own answer says that it was refused.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar
from urllib.parse import urlsplit

import grpc

from kas.store.errors import Compacted, Full, FutureRevision, StoreError, Unavailable, Unknown
from kas.store.etcd import etcd_pb2 as pb

# Upstream's clientv3 settings (storage/storagebackend/factory/etcd3.go).
OPTIONS = (
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 3_000),
)
# A member that is cut off from the majority refuses instead of answering with what it last knew.
HAS_LEADER = (("hasleader", "true"),)

Q = TypeVar("Q", bound=Any)
A = TypeVar("A", bound=Any)


@dataclass(frozen=True)
class Call(Generic[Q, A]):
    """One method: its path, its messages, and whether it may be asked twice."""

    path: str
    request: type[Q]
    answer: type[A]
    safe: bool = False


RANGE = Call("/etcdserverpb.KV/Range", pb.RangeRequest, pb.RangeResponse, safe=True)
TXN = Call("/etcdserverpb.KV/Txn", pb.TxnRequest, pb.TxnResponse)
PUT = Call("/etcdserverpb.KV/Put", pb.PutRequest, pb.PutResponse)
COMPACT = Call("/etcdserverpb.KV/Compact", pb.CompactionRequest, pb.CompactionResponse)
WATCH = Call("/etcdserverpb.Watch/Watch", pb.WatchRequest, pb.WatchResponse, safe=True)
GRANT = Call("/etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse, safe=True)  # one too many ends by itself
REVOKE = Call("/etcdserverpb.Lease/LeaseRevoke", pb.LeaseRevokeRequest, pb.LeaseRevokeResponse)
TIME_TO_LIVE = Call("/etcdserverpb.Lease/LeaseTimeToLive", pb.LeaseTimeToLiveRequest, pb.LeaseTimeToLiveResponse, safe=True)
SNAPSHOT = Call("/etcdserverpb.Maintenance/Snapshot", pb.SnapshotRequest, pb.SnapshotResponse, safe=True)
STATUS = Call("/etcdserverpb.Maintenance/Status", pb.StatusRequest, pb.StatusResponse, safe=True)
AUTHENTICATE = Call("/etcdserverpb.Auth/Authenticate", pb.AuthenticateRequest, pb.AuthenticateResponse, safe=True)
ALARM = Call("/etcdserverpb.Maintenance/Alarm", pb.AlarmRequest, pb.AlarmResponse, safe=True)


@dataclass(frozen=True)
class Config:
    """Where the cluster is and how it is reached. ``servers`` are URLs, as ``--etcd-servers`` has them; the files are PEM."""

    servers: tuple[str, ...]
    cafile: str = ""
    certfile: str = ""
    keyfile: str = ""
    lease_reuse_s: int = 60
    username: str = ""
    password: str = field(default="", repr=False)

    def targets(self) -> list[tuple[str, grpc.ChannelCredentials | None]]:
        """What gRPC calls the servers, with what secures the connection (None for http). Raises ``StoreError`` for a file that cannot be
        read, and for an address that is none."""
        out: list[tuple[str, grpc.ChannelCredentials | None]] = []
        for server in self.servers:
            url = urlsplit(server if "://" in server else f"http://{server}")
            if url.scheme not in ("http", "https") or not url.hostname:
                raise StoreError(f"--etcd-servers: {server} is not the URL of a server")
            host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
            out.append((f"{host}:{url.port or 2379}", self._credentials() if url.scheme == "https" else None))
        return out

    def _credentials(self) -> grpc.ChannelCredentials:
        try:
            ca, cert, key = (Path(p).read_bytes() if p else None for p in (self.cafile, self.certfile, self.keyfile))
        except OSError as e:
            raise StoreError(f"etcd's certificates: {e.filename}: {e.strerror}") from None
        return grpc.ssl_channel_credentials(ca, key, cert)


def prefix_end(prefix: bytes) -> bytes:
    """The end of the range of all keys that begin with ``prefix``, as etcd wants it."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else b"\0"


def translate(e: grpc.RpcError, call: Call[Any, Any]) -> NoReturn:
    """Raises the store's error for gRPC's. The texts are etcd's (rpctypes)."""
    code, details = e.code(), e.details() or ""
    text = details if details.startswith("etcdserver") else f"etcdserver: {details or code.name.lower()}"
    if code == grpc.StatusCode.OUT_OF_RANGE and "compacted" in details:
        raise Compacted(0, 0) from None
    if code == grpc.StatusCode.OUT_OF_RANGE and "future revision" in details:
        raise FutureRevision(0, 0) from None
    if code == grpc.StatusCode.RESOURCE_EXHAUSTED and "space exceeded" in details:
        raise Full(text) from None
    if code == grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
        # Upstream's client refuses by itself what is above the same 2 MiB that the server would not take.
        raise StoreError(f"rpc error: code = ResourceExhausted desc = {details.replace('grpc: received', 'trying to send')}") from None
    if code in REFUSED:
        raise (LeaseGone if "lease not found" in details else StoreError)(text) from None
    raise (Unavailable if call.safe or _never_sent(e) else Unknown)(text) from None


# What a server says that has decided not to do it. Anything else may come from a connection, or from a server that has begun.
REFUSED = (
    grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.OUT_OF_RANGE, grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED,
)  # fmt: skip


class LeaseGone(StoreError):
    """The lease of a put has ended; nothing was written."""


def _never_sent(e: grpc.RpcError) -> bool:
    """Whether a call failed before anything of it left: gRPC could not connect."""
    return e.code() == grpc.StatusCode.UNAVAILABLE and "failed to connect" in (e.details() or "")


def _logged_out(e: grpc.RpcError) -> bool:
    """Whether the token is one that the server does not know (any more); nothing was done."""
    details = e.details() or ""
    return e.code() == grpc.StatusCode.UNAUTHENTICATED or "revision of auth store is old" in details or "user name is empty" in details


def _login(config: Config) -> pb.AuthenticateRequest:
    return pb.AuthenticateRequest(name=config.username, password=config.password)


def _with_token(answer: pb.AuthenticateResponse) -> tuple[tuple[str, str], ...]:
    return (*HAS_LEADER, ("token", answer.token))


def _retry(e: grpc.RpcError, call: Call[Any, Any]) -> bool:
    """Whether another server may be asked."""
    return _never_sent(e) or (call.safe and e.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED))


def _share(call: Call[Any, Any], until: float, attempt: int, servers: int) -> float:
    """How long one server may take: of a safe call a part of what is left, so that there is time for the others."""
    left = max(0.001, until - time.monotonic())
    return left / max(1, servers - attempt + 1) if call.safe else left


class Client:
    """Calls that wait. For any thread but an event loop's."""

    def __init__(self, config: Config) -> None:
        self._channels = [
            grpc.secure_channel(target, secured, OPTIONS) if secured else grpc.insecure_channel(target, OPTIONS)
            for target, secured in config.targets()
        ]
        self._servers, self._config = config.servers, config
        self._metadata: tuple[tuple[str, str], ...] | None = None if config.username else HAS_LEADER
        self._turn = 0

    @property
    def asked(self) -> str:
        """Who is asked next."""
        return self._servers[self._turn % len(self._servers)]

    def call(self, call: Call[Q, A], request: Q, within_s: float = 10.0) -> A:
        """The answer. Raises ``StoreError`` and what derives from it; of a write ``Unknown`` when it may have happened."""
        until = time.monotonic() + within_s
        logged_in = call is AUTHENTICATE
        for attempt in itertools.count(1):
            metadata = HAS_LEADER if call is AUTHENTICATE else self._known()
            method = self._channel().unary_unary(
                call.path,
                request_serializer=call.request.SerializeToString,
                response_deserializer=call.answer.FromString,
            )
            try:
                answer: A = method(request, timeout=_share(call, until, attempt, len(self._channels)), metadata=metadata)
                return answer
            except grpc.RpcError as e:
                if self._config.username and not logged_in and _logged_out(e):
                    logged_in, self._metadata = True, None
                    continue
                self._turn += 1
                pause = min(0.05 * attempt, 1.0)
                if not _retry(e, call) or time.monotonic() + pause >= until:
                    translate(e, call)
                time.sleep(pause)
        raise AssertionError("unreachable")

    def _known(self) -> tuple[tuple[str, str], ...]:
        """What tells etcd who asks."""
        metadata = self._metadata
        if metadata is None:
            metadata = self._metadata = _with_token(self.call(AUTHENTICATE, _login(self._config)))
        return metadata

    def _channel(self) -> grpc.Channel:
        return self._channels[self._turn % len(self._channels)]

    def watch(self, requests: Iterator[pb.WatchRequest]) -> tuple[Iterable[pb.WatchResponse], Any]:
        """A stream of answers to ``requests``, and the call, whose ``cancel()`` ends it. Iterating raises ``grpc.RpcError``."""
        method = self._channel().stream_stream(
            WATCH.path, request_serializer=pb.WatchRequest.SerializeToString, response_deserializer=pb.WatchResponse.FromString
        )
        stream = method(requests, metadata=self._known())
        return stream, stream

    def snapshot(self) -> Iterator[pb.SnapshotResponse]:
        """The file of one server, in pieces. Raises ``StoreError``; nothing is asked again."""
        self.call(STATUS, pb.StatusRequest())  # to a server that answers
        method = self._channel().unary_stream(
            SNAPSHOT.path, request_serializer=pb.SnapshotRequest.SerializeToString, response_deserializer=pb.SnapshotResponse.FromString
        )
        try:
            yield from method(pb.SnapshotRequest())
        except grpc.RpcError as e:
            translate(e, SNAPSHOT)

    def next_server(self) -> None:
        """The next call goes to another server, if there is one."""
        self._turn += 1

    def range(self, prefix: bytes, **more: Any) -> pb.RangeResponse:
        """A range of the keys that begin with ``prefix``."""
        return self.call(RANGE, pb.RangeRequest(key=prefix, range_end=prefix_end(prefix), **more), within_s=60.0)

    def close(self) -> None:
        """Ends the connections. Idempotent."""
        for channel in self._channels:
            channel.close()


class AsyncClient:
    """The same calls on an event loop. To be made on its thread."""

    def __init__(self, config: Config) -> None:
        self._channels: Sequence[grpc.aio.Channel] = [
            grpc.aio.secure_channel(target, secured, OPTIONS) if secured else grpc.aio.insecure_channel(target, OPTIONS)
            for target, secured in config.targets()
        ]
        self._config = config
        self._metadata: tuple[tuple[str, str], ...] | None = None if config.username else HAS_LEADER
        self._turn = 0
        self._methods: dict[tuple[str, int], Any] = {}

    async def call(self, call: Call[Q, A], request: Q, within_s: float = 10.0) -> A:
        """As ``Client.call``."""
        until = time.monotonic() + within_s
        logged_in = call is AUTHENTICATE
        for attempt in itertools.count(1):
            metadata = HAS_LEADER if call is AUTHENTICATE else self._metadata or await self._log_in()
            at = await self._reachable(until)
            method = self._methods.get((call.path, at))
            if method is None:
                method = self._methods[call.path, at] = self._channels[at].unary_unary(
                    call.path,
                    request_serializer=call.request.SerializeToString,
                    response_deserializer=call.answer.FromString,
                )
            try:
                answer: A = await method(request, timeout=_share(call, until, attempt, len(self._channels)), metadata=metadata)
                return answer
            except grpc.RpcError as e:
                if self._config.username and not logged_in and _logged_out(e):
                    logged_in, self._metadata = True, None
                    continue
                self._turn = at + 1
                if not _retry(e, call) or time.monotonic() >= until:
                    translate(e, call)
                await asyncio.sleep(min(0.05 * attempt, max(0.0, until - time.monotonic())))
        raise AssertionError("unreachable")

    async def _log_in(self) -> tuple[tuple[str, str], ...]:
        metadata = self._metadata = _with_token(await self.call(AUTHENTICATE, _login(self._config)))
        return metadata

    async def _reachable(self, until: float) -> int:
        channels, ready = self._channels, grpc.ChannelConnectivity.READY
        first = self._turn % len(channels)
        if channels[first].get_state(True) == ready:
            return first
        for i in range(len(channels)):
            at = (first + i) % len(channels)
            share = max(0.05, until - time.monotonic()) / (len(channels) - i)
            try:
                await asyncio.wait_for(channels[at].channel_ready(), share)
            except TimeoutError:
                continue
            self._turn = at
            return at
        raise Unavailable("etcdserver: no server can be reached")

    async def close(self) -> None:
        """Ends the connections. Idempotent."""
        for channel in self._channels:
            await channel.close()

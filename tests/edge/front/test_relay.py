"""The front in the test's own process, in front of a fake worker."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import uvloop

from kas.edge.front import process, relay, tls
from kas.edge.front.frames import GOAWAY
from kas.edge.front.introduction import Introductions, hello
from kas.edge.front.process import FrontProcess, Limits
from kas.edge.front.rendezvous import Rendezvous, free
from kas.edge.front.tls import Pair, Settings
from kas.observe.counted import failed_handshakes
from kas.observe.metrics import Registry
from tests import pki
from tests.edge.front.test_frames import PING, PREFACE

LIMIT_S = 60.0
CA = pki.authority("clients")


class Played:
    """A fake worker: connections go to ``serve(reader, writer)``. ``addresses`` are those of the relays, in order."""

    def __init__(self, rendezvous: Rendezvous, serve, index: int = 0) -> None:
        self.introductions = Introductions(rendezvous.introductions(index))
        self._path, self._serve = rendezvous.worker(index), serve
        self.addresses: list[str] = []

    async def start(self) -> None:
        self.introductions.start()
        self._server = await asyncio.start_unix_server(self._take, self._path)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.addresses.append(writer.get_extra_info("peername"))
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await self._serve(reader, writer)
        writer.close()

    def end(self) -> None:
        self._server.close()
        self.introductions.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


class Scene:
    def __init__(self, front: FrontProcess, worker: Played, port: int) -> None:
        self.front, self.worker, self.port = front, worker, port

    async def dial(self, shown: pki.Issued | None = None, directory: Path | None = None, alpn: str = "", **more):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if alpn:
            context.set_alpn_protocols([alpn])
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if shown is not None:
            assert directory is not None
            context.load_cert_chain(*shown.write(directory, "shown"))
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=context, **more)

    async def plain(self):
        """Opens a TCP connection without TLS."""
        return await asyncio.open_connection("127.0.0.1", self.port)


@contextlib.asynccontextmanager
async def scene(directory: Path, serve=echo, limits: Limits | None = None, goaway: bool = False) -> AsyncIterator[Scene]:
    server = pki.issue([("CN", "server")], usages=("server",), ips=["127.0.0.1"])
    pair = Pair(*server.write(directory, "server"))
    CA.write(directory, "ca")
    rendezvous = Rendezvous(directory / "front")
    worker = Played(rendezvous, serve)
    await worker.start()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        options = Settings(pair, authorities=[str(directory / "ca.crt")])
        front = FrontProcess(listening, rendezvous, 1, options, limits or Limits(), goaway=goaway)
        front.start()
        async with asyncio.timeout(LIMIT_S):
            yield Scene(front, worker, listening.getsockname()[1])
        front.stop()
        worker.end()
        async with asyncio.timeout(LIMIT_S):
            await front.ended


def run(test):
    asyncio.run(test)


async def closed(reader: asyncio.StreamReader) -> bool:
    """Waits for the end of a connection, in whatever way."""
    try:
        while await reader.read(65536):
            pass
    except (ConnectionError, ssl.SSLError):
        pass
    return True


async def until(condition) -> None:
    while not condition():  # noqa: ASYNC110 — what is waited for tells nobody
        await asyncio.sleep(0.02)


def test_bytes_are_relayed_unchanged_in_both_directions(tmp_path):
    async def test():
        async with scene(tmp_path) as s:
            reader, writer = await s.dial()
            data = bytes(range(256)) * 20_000  # many records, many reads
            writer.write(data)
            assert await reader.readexactly(len(data)) == data
            writer.close()

    run(test())


def test_new_connections_are_refused_when_workers_stopped_listening(tmp_path):
    """So that a balancer tries another server. Open connections continue."""
    async def test():
        async with scene(tmp_path) as s:
            reader, writer = await s.dial()
            writer.write(b"one")
            assert await reader.readexactly(3) == b"one"
            s.worker._server.close()
            s.front.stop()
            late, speaks = await s.dial()
            speaks.write(b"too late")
            assert await closed(late)
            with pytest.raises(ConnectionRefusedError):
                await s.plain()
            writer.write(b"two")
            assert await reader.readexactly(3) == b"two"
            writer.close()

    run(test())


def test_a_worker_knows_the_certificates_before_the_first_byte(tmp_path):
    async def test():
        found = []

        async def serve(reader, writer):
            found.append(s.worker.introductions.of(writer.get_extra_info("peername")))
            await echo(reader, writer)

        async with scene(tmp_path, serve) as s:
            middle = pki.authority("middle", CA)
            for shown in (None, pki.issue([("CN", "a")], middle, chain=[middle])):
                reader, writer = await s.dial(shown, tmp_path)
                writer.write(b"x")
                await reader.readexactly(1)
                assert found[-1].client == "127.0.0.1"
                assert (found[-1].certificates and list(found[-1].certificates.chain)) == (shown and shown.ders)
                writer.close()
            for address in s.worker.addresses:
                await until(lambda a=address: s.worker.introductions.of(a) is None)

    run(test())


def test_the_last_answer_arrives_although_the_client_still_sends(tmp_path):
    async def test():
        async def serve(reader, writer):
            await reader.read(1)
            writer.write(b"no" * 50_000)
            await writer.drain()
            writer.close()

        async with scene(tmp_path, serve) as s:
            reader, writer = await s.dial()
            writer.write(b"x" * 3_000_000)
            assert await reader.readexactly(100_000) == b"no" * 50_000
            writer.transport.abort()

    run(test())


def test_a_worker_that_closes_with_unread_data_ends_the_connection(tmp_path):
    """With the loop that a front uses, which reports a socket's error once. Earlier data still arrive, and nothing remains."""

    async def test():
        came, said = 300_000, b"go away" * 15_000  # more than the worker reads, and more than one read

        async def serve(reader, writer):
            (relay,) = s.front._workers[0].relays.values()
            await until(lambda: relay.came == came)
            writer.write(said)
            await until(lambda: not writer.transport.get_write_buffer_size())
            writer.transport.abort()

        async with scene(tmp_path, serve) as s:
            for _ in range(2):
                reader, writer = await s.dial()
                writer.write(b"x" * came)
                assert await reader.read() == said
                writer.transport.abort()
                await until(lambda: not s.front._open)
            assert not s.front._workers[0].relays

    uvloop.run(test())


def test_the_end_of_a_client_is_passed_to_the_worker(tmp_path):
    async def test():
        ended = asyncio.Event()

        async def serve(reader, writer):
            while await reader.read(65536):
                pass
            ended.set()

        async with scene(tmp_path, serve) as s:
            _, writer = await s.dial()
            writer.write(b"x")
            await writer.drain()
            writer.close()
            await ended.wait()

    run(test())


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_peer_that_does_not_read_stops_the_other_direction(tmp_path, way):
    """Data in transit are bounded by the buffers of sockets, not by what the sender would like to send."""

    async def test():
        sent, stop = 0, asyncio.Event()

        async def pour(writer) -> None:
            nonlocal sent
            while not stop.is_set():
                writer.write(b"x" * 65536)
                await writer.drain()
                sent += 65536

        async def serve(reader, writer):
            await (pour(writer) if way == "down" else stop.wait())

        async with scene(tmp_path, serve) as s:
            _, writer = await s.dial(limit=65536)
            writer.write(b"x")
            task = asyncio.ensure_future(pour(writer)) if way == "up" else None
            last = -1
            while sent != last or not sent:  # until no more data move
                last = sent
                await asyncio.sleep(0.5)
            assert sent < 64 << 20
            (relay,) = s.front._workers[0].relays.values()
            assert len(relay._up) + len(relay._down) <= 65536
            stop.set()
            if task is not None:
                task.cancel()
            writer.transport.abort()
            await until(lambda: not s.front._workers[0].relays)

    run(test())


def test_half_open_handshakes_are_closed_after_their_timeout(tmp_path):
    async def test():
        async with scene(tmp_path, limits=Limits(handshake_s=0.1)) as s:
            reader, writer = await s.plain()
            writer.write(b"\x16\x03\x01")  # the beginning of a ClientHello
            assert await closed(reader)
            writer.close()

    run(test())


@pytest.mark.parametrize(("names", "taken"), [(10, True), (1000, False)])
def test_too_large_certificate_messages_end_the_handshake(tmp_path, names, taken):
    async def test():
        async with scene(tmp_path) as s:
            shown = pki.issue([("CN", "x")], CA, usages=("client",), dns=[f"a{i}.{'x' * 20}.example" for i in range(names)])
            reader, writer = await s.dial(shown, tmp_path)
            writer.write(b"x")
            if taken:
                assert await reader.readexactly(1) == b"x"
            else:
                assert await closed(reader)
                assert not s.worker.addresses
            writer.close()

    run(test())


def test_costly_keys_are_not_used(tmp_path, monkeypatch):
    """74 certificates, each signed with a key of 3,072 bits and an exponent as long, took the front 510 ms before the client was known.
    Only the keys of the client's own certificate and of the next are checked."""
    looked: list[str] = []
    monkeypatch.setattr(tls, "usable", lambda key, real=tls.usable: looked.append(type(key).__name__) or real(key))
    usual, costly = pki.authority("usual", CA, key=pki.rsa_key(65537)), pki.authority("costly", CA, key=pki.rsa_key(4294967311))
    far = [CA]
    for i in range(30):
        far.insert(0, pki.authority(f"a{i}", far[0]))

    async def served(shown: pki.Issued) -> bool:
        async with scene(Path(tempfile.mkdtemp(dir=tmp_path))) as s:
            reader, writer = await s.dial(shown, tmp_path)
            try:
                writer.write(b"x")
                return await reader.read(1) == b"x"
            except (ConnectionError, ssl.SSLError):
                return False
            finally:
                writer.close()

    assert asyncio.run(served(pki.issue([("CN", "x")], usual, chain=[usual])))
    for shown in (pki.issue([("CN", "x")], costly, chain=[costly]), pki.issue([("CN", "x")], CA, key=costly.key)):
        assert not asyncio.run(served(shown))
    looked.clear()
    assert asyncio.run(served(pki.issue([("CN", "x")], far[0], chain=far)))
    assert len(looked) <= 6, looked  # and not 31 certificates


def test_a_thousand_half_open_handshakes_cost_little_and_delay_no_other(tmp_path):
    async def test():
        async with scene(tmp_path, limits=Limits(handshakes=300)) as s:
            before, held = memory_kib(), []
            for i in range(1000):
                held.append(await s.plain())
                held[-1][1].write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100))
                if i % 100 == 99:
                    reader, writer = await s.dial()
                    writer.write(b"x")
                    assert await reader.readexactly(1) == b"x"
                    writer.close()
            assert len(s.front._in_handshake.since) <= 300
            # Both ends are in this process, so the test's part of each connection counts, too.
            assert memory_kib() - before < 1000 * 64
            for _, w in held:
                w.close()

    run(test())


def memory_kib() -> int:
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("RssAnon:"))


def test_time_in_which_the_front_did_not_run_does_not_count_for_timeouts(monkeypatch):
    """After a suspension of a minute, all connections in a handshake used to be closed."""
    clock, cut = [100.0], []
    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    own = process.OwnTime()
    waiting = process._Waiting(10.0, own)

    class Shakes:
        def close(self) -> None:
            cut.append(self)
            waiting.drop(self)

    def pass_(seconds: float) -> None:
        clock[0] += seconds
        waiting.sweep(own.looked())

    first, second = Shakes(), Shakes()
    waiting.add(first)
    for _ in range(5):
        pass_(process.SWEEP_S)
    pass_(60 + process.SWEEP_S)
    waiting.add(second)
    for _ in range(3):
        pass_(process.SWEEP_S)
    assert cut == []
    pass_(process.SWEEP_S)
    assert cut == [first]
    for _ in range(5):
        pass_(process.SWEEP_S)
    assert cut == [first]
    pass_(process.SWEEP_S)
    assert cut == [first, second]


def test_a_silent_connection_is_closed_after_its_timeout(tmp_path):
    async def test():
        async with scene(tmp_path, limits=Limits(silent_s=0.1)) as s:
            reader, writer = await s.dial()
            assert await closed(reader)
            writer.close()
            assert not s.worker.addresses  # and no worker was told of it

    run(test())


def test_failed_handshakes_are_reported_to_workers(tmp_path, monkeypatch):
    """Whatever the reason: a disconnect, another protocol, or silence. A front that replaces a dead one continues."""

    def told() -> float:
        files, registry = sorted(tmp_path.glob("metrics-*.json")), Registry()
        registry.add(failed_handshakes())
        lines = registry.expose(f.read_bytes() for f in files).decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("apiserver_tls_handshake_errors_total "))

    async def test(before: int, n: int):
        async with scene(tmp_path, limits=Limits(handshake_s=0.3)) as s:
            reader, writer = await s.dial()
            for said in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01 and more", b"")[:n]:
                other, speaks = await s.plain()
                speaks.write(said)
                if said:
                    await closed(other)
                speaks.close()
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            writer.close()
            await until(lambda: told() == before + n)
        (tmp_path / "front").rename(tmp_path / str(before))  # a server starts with a new directory

    monkeypatch.setattr(process, "SWEEP_S", 0.1)
    assert told() == 0
    run(test(0, 3))
    run(test(3, 1))
    assert told() == 4


def test_of_too_many_handshakes_the_oldest_is_closed(tmp_path):
    async def test():
        async with scene(tmp_path, limits=Limits(handshakes=3)) as s:
            held = [await s.plain() for _ in range(3)]
            await until(lambda: len(s.front._in_handshake.since) == 3)
            reader, writer = await s.dial()
            assert await closed(held[0][0])
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            assert len(s.front._in_handshake.since) == 2
            for _, w in (*held, (reader, writer)):
                w.close()

    run(test())


def test_of_too_many_connections_idle_ones_are_closed_first(tmp_path):
    async def test():
        async with scene(tmp_path, limits=Limits(connections=2)) as s:
            busy = await s.dial()
            busy[1].write(b"x")
            await busy[0].readexactly(1)
            idle = await s.plain()
            await until(lambda: s.front._open == 2)
            other = await s.dial()
            assert await closed(idle[0])
            other[1].write(b"y")
            assert await other[0].readexactly(1) == b"y"
            last = await s.plain()
            assert await closed(last[0])  # all open connections are active
            busy[1].write(b"z")
            assert await busy[0].readexactly(1) == b"z"
            for _, w in (busy, idle, other, last):
                w.close()

    run(test())


def test_connections_without_tls_do_no_harm(tmp_path):
    async def test():
        async with scene(tmp_path) as s:
            reader, writer = await s.plain()
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert await reader.read() == b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
            writer.close()
            reader, writer = await s.plain()
            writer.write(b"no HTTP, either\r\n")
            assert await closed(reader)
            writer.close()
            reader, writer = await s.dial()
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            writer.close()

    run(test())


def test_a_worker_that_comes_back_is_used_again(tmp_path):
    async def test():
        async with scene(tmp_path) as s:
            held = await s.dial()
            held[1].write(b"x")
            await held[0].readexactly(1)
            s.worker.end()
            held[1].transport.abort()
            await until(lambda: not s.front._workers[0].joined)
            waits = await s.dial()
            waits[1].write(b"y")  # no worker at the moment
            await until(lambda: s.front._without_worker)
            free(s.worker._path)
            await s.worker.start()
            assert await waits[0].readexactly(1) == b"y"
            waits[1].close()

    run(test())


def test_goaway_is_sent_though_the_worker_sends_no_more(tmp_path, monkeypatch):
    """The fake worker sends frames, which is the part of HTTP/2 that the front sees."""

    async def test():
        async with scene(tmp_path, goaway=True) as s:
            reader, writer = await s.dial(alpn="h2")
            writer.write(GOAWAY[:5])  # a partial frame comes first: nothing may be inserted
            assert await reader.readexactly(5) == GOAWAY[:5]
            client = s.worker.introductions.of(s.worker.addresses[0])
            client.leave()
            await asyncio.sleep(2 * relay.SOON_S)
            writer.write(GOAWAY[5:])
            assert await reader.readexactly(2 * len(GOAWAY) - 5) == GOAWAY[5:] + GOAWAY
            client.leave()  # a client may ignore it
            client.leave(must=True)
            assert await reader.readexactly(len(GOAWAY)) == GOAWAY
            monkeypatch.setattr(relay, "LEAVES_S", -1.0)
            client.leave()
            assert await reader.readexactly(len(GOAWAY)) == GOAWAY
            client.leave(must=True)
            assert await closed(reader)

    run(test())


@pytest.mark.parametrize(("first", "wait_s", "cut"), [(PREFACE, 10.0, True), (PREFACE, 0.0, False), (b"GET / HTTP/1.1\r\n", 10.0, False)])
def test_a_client_that_only_sends_pings_is_closed(tmp_path, monkeypatch, first, wait_s, cut):
    """A ping costs the worker more than the client, which could send them as fast as its processor allows."""
    monkeypatch.setattr(relay, "IDLE_S", wait_s)

    async def test():
        async with scene(tmp_path) as s:
            reader, writer = await s.dial(alpn="h2")
            writer.write(first)
            assert await reader.readexactly(len(first)) == first
            pings = PING * (relay.IDLE_FRAMES // 2)
            writer.write(pings)
            assert await reader.readexactly(len(pings)) == pings
            writer.write(2 * pings)
            if cut:
                assert await closed(reader)
            else:
                assert await reader.readexactly(2 * len(pings)) == 2 * pings
            writer.close()

    run(test())


def test_a_new_front_is_heard_before_its_first_connection_is_handled(tmp_path: Path):
    """It may relay as soon as the system accepted its connection, before the worker's loop does."""

    async def test() -> None:
        introductions = Introductions(str(tmp_path / "introductions"))
        introductions.start()
        with contextlib.closing(introductions), socket.socket(socket.AF_UNIX) as front, socket.socket(socket.AF_UNIX) as other:
            front.connect(str(tmp_path / "introductions"))
            other.connect(str(tmp_path / "introductions"))
            other.send(hello("relay", "192.0.2.1:4711", ()))
            who = introductions.of("relay")  # in the same loop iteration
            assert who is not None and who.client == "192.0.2.1:4711"
            assert introductions.of("nobody") is None
        assert introductions.of("relay") is None

    asyncio.run(test())

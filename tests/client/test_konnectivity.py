"""Connections through a konnectivity server: data, and errors of one that is missing, refuses, hangs or disconnects."""

from __future__ import annotations

import asyncio

import pytest

from kas.client.exchange import exchange
from kas.client.http import BackendError, Target, connect, insecure_tls
from kas.client.konnectivity import CLOSE_REQ, DATA, DIAL_CLS, DIAL_REQ, HIGH, packet, read_packet
from kas.meta.protowire import put_bytes, put_int
from tests.client.konnectivity_server import KonnectivityServer, selection
from tests.client.test_connectproxy import BIG, LOOPS, NAME, answered, backend, dialled, loaded
from tests.endpoints.fakekubelet import make_certificate

LABELS = "grpc", "uds"


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("backend"), "127.0.0.1")


@pytest.fixture
def proxy(tmp_path):
    with KonnectivityServer(str(tmp_path / "k.sock")) as made:
        yield made


def through(proxy, directory):
    ways, registry = loaded(directory, proxy.selection("cluster"))
    assert ways.controlplane is None and ways.cluster.where == proxy.path
    return ways.cluster, registry


@pytest.mark.parametrize("loop", LOOPS, ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("tls", [True, False], ids=["https", "http"])
def test_data_pass_unchanged(proxy, tmp_path, pair, tls, loop):
    via, registry = through(proxy, tmp_path)

    def ended():
        for _ in range(2):
            assert proxy.ended.acquire(timeout=60)

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(answered(proxy, via, pair, tls, ended)) == [BIG, b"x", BIG, b"y"]
    assert proxy.asked == ["pod.invalid:7443"] * 2
    assert set(proxy.got) <= {DIAL_REQ, DATA, CLOSE_REQ}
    assert registry.metrics[f"{NAME}start_total"].values == {LABELS: 2}
    assert sum(registry.metrics[f"{NAME}duration_seconds"].values[LABELS][:-1]) == 2
    assert not registry.metrics[f"{NAME}failure_count"].values


def test_an_agent_that_cannot_dial(proxy, tmp_path):
    via, registry = through(proxy, tmp_path)
    proxy.refuses = "dial tcp 10.9.8.7:443: connect: connection refused"
    assert dialled(via) == proxy.refuses
    assert registry.metrics[f"{NAME}failure_count"].values == {("grpc", "proxy", "uds"): 2}


class Ahead(asyncio.SelectorEventLoop):
    """A loop whose clock can be advanced."""

    ahead_s = 0.0

    def time(self):
        return super().time() + self.ahead_s


def test_an_agent_that_does_not_answer(proxy, tmp_path):
    """Its timeout starts when the server has received the request, however long that takes."""
    via, registry = through(proxy, tmp_path)
    proxy.silent = True
    target = Target("https", "10.9.8.7", "443", tls=insecure_tls(), via=via)

    async def run():
        for turn, made in enumerate((connect, exchange), 1):
            dialling = asyncio.ensure_future(made(target, 60.0))
            while len(proxy.asked) < turn:  # noqa: ASYNC110  # another thread asks
                await asyncio.sleep(0.01)
            assert not dialling.done()
            asyncio.get_running_loop().ahead_s += 60.0
            with pytest.raises(BackendError) as e:
                await dialling
            assert str(e.value) == f"dial tcp 10.9.8.7:443 via proxy {proxy.path}: i/o timeout"

    with asyncio.Runner(loop_factory=Ahead) as runner:
        runner.run(run())
    assert proxy.gave_up.wait(60) and set(proxy.got) <= {DIAL_REQ, DIAL_CLS}
    assert registry.metrics[f"{NAME}failure_count"].values == {("grpc", "proxy", "uds"): 2}


def test_a_missing_server(tmp_path):
    via, registry = loaded(tmp_path, selection(str(tmp_path / "none.sock"), "cluster"))
    said = dialled(via.cluster)
    assert said.startswith("rpc error: code = Unavailable desc = ") and "No such file or directory" in said
    assert registry.metrics[f"{NAME}failure_count"].values == {("grpc", "connect", "uds"): 2}


def test_a_broken_tunnel(proxy, tmp_path, pair):
    """A reader is notified, and does not wait."""
    via, _ = through(proxy, tmp_path)
    proxy.drops.set()

    async def run():
        server, port = await backend(pair, False)
        proxy.routes["pod.invalid:80"] = port
        made = await connect(Target("http", "pod.invalid", "80", via=via))
        await made.send("POST", Target("http", "pod.invalid", "80"), [], BIG)
        await made.head()
        with pytest.raises(BackendError):
            await asyncio.wait_for(made.read(1 << 21), 60)
        made.close()
        server.close()

    asyncio.run(run())


class Slow(asyncio.Protocol):
    """Counts what it receives."""

    def __init__(self):
        self.got, self.pauses, self.enough, self.enough_at, self.lost = 0, 0, asyncio.Event(), 0, asyncio.Event()

    def data_received(self, data):
        self.got += len(data)
        if self.got > self.enough_at:
            self.enough.set()

    def pause_writing(self):
        self.pauses += 1

    def resume_writing(self):
        pass

    def connection_lost(self, exc):
        self.lost.set()


def test_both_sides_buffer_no_more_than_their_windows(proxy, tmp_path):
    """Data that a protocol does not read stay at the other end, and data that the other end does not read pause the protocol."""
    via, _ = through(proxy, tmp_path)

    async def run():
        written = [0]

        async def pour(reader, writer):
            try:
                while True:
                    writer.write(b"x" * (1 << 16))
                    await writer.drain()
                    written[0] += 1 << 16
            except OSError:
                writer.close()

        server = await asyncio.start_server(pour, "127.0.0.1", 0)
        proxy.routes["pod.invalid:80"] = server.sockets[0].getsockname()[1]
        transport, slow = await via.connect(Slow, "pod.invalid", 80)
        transport.pause_reading()
        last = -1
        while written[0] != last or not last:
            last = written[0]
            await asyncio.sleep(0.3)
        held = last
        while not slow.pauses:
            transport.write(b"y" * (1 << 16))
            await asyncio.sleep(0)
        assert transport.get_write_buffer_size() > HIGH
        slow.enough.clear()
        slow.enough_at = held
        transport.resume_reading()
        await asyncio.wait_for(slow.enough.wait(), 60)
        transport.abort()
        await asyncio.wait_for(slow.lost.wait(), 60)
        server.close()
        return held

    assert asyncio.run(run()) < 32 << 20


def test_data_written_before_a_close_arrive(proxy, tmp_path):
    via, _ = through(proxy, tmp_path)
    got = bytearray()

    async def run():
        whole = asyncio.Event()

        async def take(reader, writer):
            got.extend(await reader.read(-1))
            writer.close()
            whole.set()

        server = await asyncio.start_server(take, "127.0.0.1", 0)
        proxy.routes["pod.invalid:80"] = server.sockets[0].getsockname()[1]
        transport, slow = await via.connect(Slow, "pod.invalid", 80)
        transport.writelines([BIG, b"end"])
        transport.close()
        transport.write(b"too late")
        await asyncio.wait_for(asyncio.gather(slow.lost.wait(), whole.wait()), 60)
        server.close()

    asyncio.run(run())
    assert bytes(got) == BIG + b"end" and proxy.got[-1] == CLOSE_REQ


def test_packets():
    data = packet(DATA, put_int(1, 5) + put_bytes(3, b"abc"))
    assert read_packet(data) == (DATA, {1: 5, 3: b"abc"})
    assert read_packet(packet(DIAL_REQ, b"")) == (DIAL_REQ, {})
    with pytest.raises(ValueError):
        read_packet(b"\xff")
    with pytest.raises(ValueError):
        read_packet(put_bytes(1, b"x"))

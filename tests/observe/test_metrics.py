"""Metrics of several workers, one of which dies: a counter never falls."""

from __future__ import annotations

import asyncio
import gzip
import json
import struct
import sys
import threading
from collections.abc import Iterator
from os import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kas.config import features
from kas.endpoints.metrics import DELIMITED, TEXT, MetricsEndpoint, negotiated
from kas.meta import waiting
from kas.meta.protowire import fields, read_varint
from kas.observe import nativebuckets
from kas.observe.metricmessages import delimited, family
from kas.observe.metrics import PIECE, Counter, Histogram, Registry, Timer, drop_gauges, dumped, exposed, merged_families
from kas.observe.reloads import Reloads
from kas.request.http import Request, Response


class Worker:
    """The metrics of a worker, and its part of /metrics."""

    def __init__(self, run_dir: Path, index: int) -> None:
        metrics, slis = Registry(), Registry()
        self.requests = metrics.counter("requests_total", "Requests.", ("verb",))
        self.took = metrics.histogram("took_seconds", "How long.", ("verb",), (1, 2))
        self.open = metrics.gauge("open", "What is open.")
        self.checks = slis.counter("checks_total", "Checks.")
        self.cpu = metrics.counter("cpu_seconds_total", "Set when somebody looks.")
        self.spent, self.routes = 0.0, dict[str, Any]()
        metrics.collectors.append(self._look)
        self.endpoint = MetricsEndpoint(metrics, slis, run_dir, index, lambda: None, resets=True)
        self.endpoint.install(SimpleNamespace(exact=self.routes.__setitem__))  # type: ignore[arg-type]

    def _look(self) -> None:
        self.spent += 1
        self.cpu.values[()] = self.spent

    def serve(self, seconds: float) -> None:
        self.requests.inc(("get",))
        self.took.observe(("get",), seconds)
        self.checks.inc()
        self.open.inc()

    def ask(self, path: str, accept_encoding: str = "", method: str = "GET", accept: str = "") -> Response:
        headers = [(b"accept-encoding", accept_encoding.encode()), (b"accept", accept.encode())]
        return asyncio.run(self.routes[path](Request(method, path, "", headers, b"")))

    def scrape(self, path: str = "/metrics") -> dict[str, float]:
        lines = self.ask(path).body.decode().splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))}


@pytest.mark.parametrize("path", ["/metrics", "/metrics/slis"])
def test_gzip_is_sent_to_clients_that_accept_it(tmp_path: Path, path: str) -> None:
    worker = Worker(tmp_path, 0)
    worker.serve(0.5)
    plain = worker.ask(path)
    assert b"content-encoding" not in dict(plain.headers)
    packed = worker.ask(path, "gzip")  # the header of Prometheus
    assert dict(packed.headers)[b"content-encoding"] == b"gzip"
    lines = [line.split()[0] for line in gzip.decompress(packed.body).splitlines()]
    assert lines == [line.split()[0] for line in plain.body.splitlines()]


def test_replacing_a_worker_loses_no_counts(tmp_path: Path) -> None:
    first, second = Worker(tmp_path, 0), Worker(tmp_path, 1)
    first.serve(0.5)
    second.serve(1.5)
    second.serve(5)
    shown = second.scrape()  # and then it is killed
    first.scrape()
    assert shown['requests_total{verb="get"}'] == 2
    assert second.scrape("/metrics/slis")["checks_total"] == 3

    second = Worker(tmp_path, 1)
    for worker in (second, first):
        after = worker.scrape()
        assert after['requests_total{verb="get"}'] == 3
        buckets = [after[f'took_seconds_bucket{{verb="get",le="{le}"}}'] for le in ("1", "2", "+Inf")]
        assert buckets == [1, 2, 3] and after['took_seconds_sum{verb="get"}'] == 7
        assert after["cpu_seconds_total"] > shown["cpu_seconds_total"]
        assert after["open"] == 1  # nothing is open in the new one
    second.serve(0.5)
    assert second.scrape()['requests_total{verb="get"}'] == 4
    assert second.scrape("/metrics/slis")["checks_total"] == 4

    # The next one continues from there, too.
    third = Worker(tmp_path, 1)
    assert third.scrape()['requests_total{verb="get"}'] == 4
    third.serve(0.5)
    assert first.scrape()['requests_total{verb="get"}'] == 4  # its counts since then are published within a second
    assert third.scrape()['requests_total{verb="get"}'] == 5


def test_a_reset_restarts_labelled_metrics_of_all_workers(tmp_path: Path) -> None:
    first, second = Worker(tmp_path, 0), Worker(tmp_path, 1)
    first.serve(0.5)
    second.serve(1.5)
    second.requests.inc(("put",))
    second.scrape()
    assert first.ask("/metrics", method="DELETE").body == b"metrics reset\n"
    for worker in (first, second):
        shown = worker.scrape()
        assert not any("verb=" in name for name in shown)
        assert shown["open"] == 2 and shown["cpu_seconds_total"] > 0, "what has no labels stays, and what is so now"
    assert second.scrape("/metrics/slis")["checks_total"] == 2, "that is another registry"
    second.serve(5)
    second.scrape()
    shown = first.scrape()
    assert shown['requests_total{verb="get"}'] == 1 and 'requests_total{verb="put"}' not in shown
    assert [shown[f'took_seconds_bucket{{verb="get",le="{le}"}}'] for le in ("1", "2", "+Inf")] == [0, 0, 1]
    assert shown['took_seconds_sum{verb="get"}'] == 5
    assert Worker(tmp_path, 1).scrape()['requests_total{verb="get"}'] == 1, "that of a worker in another's place goes on, too"
    first.endpoint._resets = False  # as without --profiling: the handler knows no methods
    assert b"requests_total" in first.ask("/metrics", method="DELETE").body


def test_gauges_end_with_their_worker(tmp_path: Path) -> None:
    first, second = Worker(tmp_path, 0), Worker(tmp_path, 1)
    first.serve(1)
    second.serve(1)
    second.scrape()
    assert first.scrape()["open"] == 2
    drop_gauges(tmp_path, 1)  # as the supervisor does before it starts another
    after = first.scrape()
    assert after["open"] == 1
    assert after['requests_total{verb="get"}'] == 2 and first.scrape("/metrics/slis")["checks_total"] == 2
    drop_gauges(tmp_path, 2)  # has published nothing yet
    assert Worker(tmp_path, 1).scrape()['requests_total{verb="get"}'] == 2


def test_metrics_outlive_the_worker_that_showed_them(tmp_path: Path) -> None:
    one = Worker(tmp_path, 0)
    one.serve(1)
    shown = one.scrape()["cpu_seconds_total"]
    assert Worker(tmp_path, 1).scrape()["cpu_seconds_total"] == shown + 1


def test_a_full_disk_hides_no_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    one = Worker(tmp_path, 0)
    one.serve(1)
    monkeypatch.setattr(Path, "write_bytes", full)
    assert one.scrape()['requests_total{verb="get"}'] == 1


def test_a_removed_resource_leaves_no_metrics() -> None:
    def worker() -> tuple[Registry, Counter, Counter]:
        metrics = Registry()
        return metrics, metrics.counter("asked", "By group.", ("group", "resource")), metrics.counter("stored", "By name.", ("resource",))

    before, *counters = worker()
    metrics, asked, stored = worker()
    for a, s in (counters, (asked, stored)):
        for group in ("", "example.com"):
            a.inc((group, "pods"))
            s.inc((f"pods.{group}" if group else "pods",))
    metrics.resume(before.dump())
    dropped: list[Any] = []
    metrics.droppers.append(dropped.append)
    metrics.forget("example.com", "pods")
    shown = [line for line in metrics.expose().decode().splitlines() if not line.startswith("#")]
    assert shown == ['asked{group="",resource="pods"} 2', 'stored{resource="pods"} 2']
    asked.inc(("example.com", "pods"))  # it exists again
    metrics.dump()
    assert asked.values["example.com", "pods"] == 1 and dropped == [{("example.com", "pods")}]


def test_concurrent_requests_share_one_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """24 clients that asked repeatedly made the server build the page 24 times each, and waited 1 to 2.5 s."""
    worker, made = Worker(tmp_path, 0), list[str]()
    body = worker.endpoint._body
    monkeypatch.setattr(worker.endpoint, "_body", lambda name, *more: made.append(name) or body(name, *more))
    began, go_on = threading.Event(), threading.Event()
    monkeypatch.setattr("kas.endpoints.metrics.os.replace", lambda new, path: (began.set(), go_on.wait(60), replace(new, path)))

    def ask(path: str = "/metrics", gzip: bytes = b"") -> asyncio.Task[Response]:
        return asyncio.create_task(worker.routes[path](Request("GET", path, "", [(b"accept-encoding", gzip)], b"")))

    async def go() -> None:
        first = ask()
        await asyncio.to_thread(began.wait, 60)
        worker.serve(1)  # the first may have a page of its own, all others share one
        later = [ask() for _ in range(24)]
        left = ask()
        await asyncio.sleep(0)
        left.cancel()
        packed = ask(gzip=b"gzip")
        go_on.set()
        assert (await first).status == 200
        assert all(b'requests_total{verb="get"} 1' in r.body for r in await asyncio.gather(*later))
        assert b'requests_total{verb="get"} 1' in gzip.decompress((await packed).body)
        assert len(made) == 3
        worker.serve(1)
        assert b'requests_total{verb="get"} 2' in (await ask()).body and len(made) == 4

    asyncio.run(go())


def test_a_busy_disk_delays_only_requests_for_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, written = Worker(tmp_path, 0), threading.Event()
    monkeypatch.setattr("kas.endpoints.metrics.os.replace", lambda new, path: (written.wait(60), replace(new, path)))
    worker.serve(1)

    async def ask() -> None:
        periodic = asyncio.create_task(worker.endpoint.dump())
        asked = asyncio.create_task(worker.routes["/metrics"](Request("GET", "/metrics", "", [], b"")))
        for _ in range(5):
            await asyncio.sleep(0.01)  # other requests are served
        assert not periodic.done() and not asked.done()
        written.set()
        assert b'requests_total{verb="get"} 1' in (await asked).body
        await periodic

    asyncio.run(ask())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics-0.json", "slis-0.json"]


@pytest.mark.parametrize(
    "value, written",
    [
        (0, "0"), (999_999, "999999"), (1_000_000, "1e+06"), (-1_234_567, "-1.234567e+06"), (1234567.25, "1.23456725e+06"),
        (1764000000.123, "1.764000000123e+09"), (1e15, "1e+15"), (1e16, "1e+16"), (2.5e20, "2.5e+20"), (1e-8, "1e-08"), (0.5, "0.5"),
        (float("inf"), "+Inf"),
    ],
)  # fmt: skip
def test_numbers_are_written_as_go_writes_them(value: float, written: str) -> None:
    metrics = Registry()
    metrics.gauge("one", "").set((), value)
    assert f"\none {written}\n" in metrics.expose().decode()


def test_many_series_are_dumped_in_pieces_that_add_up() -> None:
    """One call into the JSON library for all of them would keep the interpreter's lock."""
    def worker(by: int) -> Registry:
        metrics = Registry()
        counter, histogram = metrics.counter("c", "C.", ("a",)), metrics.histogram("h", "H.", ("a",), (1.0,))
        for i in range(PIECE + 1):
            counter.inc((str(i),), by)
            histogram.observe((str(i),), by)
        return metrics

    one, other = worker(1), worker(2)
    dumped = other.dump()
    assert dumped.count(b"\n") == 3  # two pieces each
    text = one.expose([dumped])
    assert text.count(b"\nc{") == PIECE + 1 == text.count(b'} 3\n', text.index(b"\nc{"), text.index(b"# HELP h"))
    assert f'h_count{{a="{PIECE}"}} 2'.encode() in text
    one.resume(dumped)
    assert f'c{{a="{PIECE}"}} 3'.encode() in one.expose()


def test_a_page_does_not_change_after_it_was_read() -> None:
    metrics = Registry()
    counter, histogram = metrics.counter("c", "C.", ()), metrics.histogram("h", "H.", (), (1.0,))
    counter.inc()
    histogram.observe((), 0.5)
    read = metrics.read()
    counter.inc()
    histogram.observe((), 0.5)
    page = exposed(merged_families(read, (), metrics.shown))
    assert b"\nc 1\n" in page and b"h_count 1" in page


def test_many_series_are_read_in_several_loop_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes meanwhile may be in the page or not, but nothing is lost: reading 10,000 series at once blocked the loop each second."""
    monkeypatch.setattr(waiting, "TIME_SLICE_S", 0.0)  # so that each step is an iteration
    metrics, turns = Registry(), 0
    counter, gone = metrics.counter("c", "C.", ("n",)), metrics.counter("g", "G.", ("resource",))
    histogram = metrics.histogram("h", "H.", ("n",), (1.0,))
    for i in range(4 * PIECE):
        counter.inc((str(i),))
        histogram.observe((str(i),), 0.5)
    gone.inc(("r",))
    metrics.forget("", "r")

    def collect() -> Iterator[None]:
        for i in range(3):
            counter.inc((str(i),))
            yield

    metrics.collectors.append(collect)

    async def read() -> bytes:
        nonlocal turns
        reading = asyncio.ensure_future(metrics.paced())
        while not reading.done():
            turns += 1
            counter.inc(("more",))  # other tasks run, and create series of their own
            histogram.observe((f"more{turns}",), 0.5)
            await asyncio.sleep(0)
        return dumped(reading.result())

    rows = {(name, *key): n for _, name, _, rows in map(json.loads, asyncio.run(read()).splitlines()) for key, n in rows}
    assert turns > 2 * 4 and ("g", "r") not in rows
    assert [rows["c", str(i)] for i in (0, 2, 3, 4 * PIECE - 1)] == [2, 2, 1, 1]
    assert all(rows["h", str(i)] == [1, 0, 0.5] for i in range(4 * PIECE))


def test_a_client_that_disconnects_while_metrics_are_read_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next reader removes the series of a deleted resource."""
    monkeypatch.setattr(waiting, "TIME_SLICE_S", 0.0)
    metrics = Registry()
    of = [metrics.counter(f"c{i}", "C.", ("resource",)) for i in range(4)]
    for one in of:
        one.inc(("r",))
    metrics.forget("", "r")

    async def leave() -> int:
        reading = asyncio.ensure_future(metrics.paced())
        while all(one.values for one in of):  # noqa: ASYNC110
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        assert reading.cancelled()
        return sum(bool(one.values) for one in of)

    assert asyncio.run(leave()) > 0
    metrics.read()
    assert not any(one.values for one in of)


@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.1, 0.11, 1.0, 1.5, 2.0, 99.0])
def test_a_timer_counts_as_its_histogram_does(seconds):
    one, other = (Histogram("h", "", ("a",), (0.1, 1.0, 2.0)) for _ in range(2))
    timer = Timer(one, ("x",))
    for _ in range(3):
        timer.add(seconds)
        other.observe(("x",), seconds)
        assert one.values == other.values
    del one.values["x",]  # removed with its resource
    timer.add(5.0)
    assert {k: v.tolist() for k, v in one.values.items()} == {("x",): [0, 0, 0, 1, 5.0]}


def test_metrics_without_labels_begin_at_zero() -> None:
    """As in Prometheus' libraries: a rate over a metric that appears with its first count would not see that count."""
    metrics = Registry()
    metrics.counter("c", "C.")
    metrics.histogram("h", "H.", (), (1.0,))
    metrics.counter("labelled", "L.", ("a",))
    metrics.gauge("g", "G.")
    shown = [line for line in metrics.expose().decode().splitlines() if not line.startswith("#")]
    assert shown == ["c 0", 'h_bucket{le="1"} 0', 'h_bucket{le="+Inf"} 0', "h_sum 0", "h_count 0"]
    other = Registry()
    other.counter("c", "C.").inc()
    assert b"\nc 1\n" in metrics.expose([other.dump()]) and other.dump() and metrics.dump() == b""


def test_labels_are_sorted_by_name() -> None:
    """As Prometheus' libraries write them, in whatever order they are declared; the label of buckets is last."""
    metrics = Registry()
    metrics.counter("c", "C.", ("type", "name")).inc(("a", "z"))
    metrics.counter("c", "C.", ("type", "name")).inc(("b", "y"))
    metrics.histogram("h", "H.", ("verb", "zone", "code"), (1.0,)).observe(("get", "x", "200"), 1.0)
    shown = [line for line in metrics.expose().decode().splitlines() if not line.startswith("#")]
    assert shown[:3] == ['c{name="y",type="b"} 1', 'c{name="z",type="a"} 1', 'h_bucket{code="200",verb="get",zone="x",le="1"} 1']
    assert shown[-1] == 'h_count{code="200",verb="get",zone="x"} 1'


def test_a_worker_shows_metrics_that_only_others_have() -> None:
    """Some are created when they are first needed; the worker that is asked, or that replaces a dead one, may not have needed them."""
    one, other = Registry(), Registry()
    one.counter("c", "C.", ("a",)).inc(("x",))
    one.histogram("h", "H.", ("a",), (1.0, 2.0)).observe(("x",), 1.5)
    one.gauge("g", "G.", same=True).set((), 3)
    both = Registry()
    both.gauge("g", "G.", same=True).set((), 2)
    dumped = one.dump()
    assert other.expose([dumped]) == one.expose()
    assert b"\ng 3\n" in other.expose([dumped, both.dump()])
    heir = Registry()
    heir.resume(dumped)
    assert b'c{a="x"} 1\n' in heir.expose() and b'h_bucket{a="x",le="2"} 1\n' in heir.expose() and b"\ng 3" not in heir.expose()
    assert b'c{a="x"} 1\n' in other.expose([heir.dump()])
    heir.counter("c", "C.", ("a",)).inc(("x",))
    assert heir.expose().count(b'c{a="x"} 2\n') == 1


def test_reloads_are_shown_by_a_worker_that_does_not_count_them() -> None:
    counting, other = Registry(), Registry()
    Reloads(counting, "authorization", "me").done(True, 5.0)
    silent = Reloads(other, "authorization", "")
    silent.done(True, 6.0)
    silent.applied(b"x")
    shown = other.expose([counting.dump()])
    name = b"apiserver_authorization_config_controller_automatic_reload"
    assert shown.count(b'status="success"} 1\n') == 1 and name + b"s_total{" in shown
    assert shown.count(b'status="success"} 5\n') == 1 and b"last_config_info{" not in shown


def test_unchanged_metrics_are_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, said, written = Registry(), {}, []
    counter, gauge = registry.counter("c", "C.", ("a",)), registry.gauge("g", "G.")
    histogram = registry.histogram("h", "H.", (), (1.0, 2.0))
    own = json.dumps
    monkeypatch.setattr("kas.observe.metrics.json", SimpleNamespace(dumps=lambda line: written.append(line[1]) or own(line)))
    for change, names in (
        (lambda: (counter.inc(("x",)), gauge.set((), -1), histogram.observe((), 1.5)), ["c", "g", "h"]),
        (lambda: None, []), (lambda: histogram.observe((), 0.5), ["h"]), (lambda: gauge.set((), -2), ["g"]),
        (lambda: counter.inc(("y",), 0), ["c"]), (lambda: counter.values.pop(("x",)), ["c"]),
    ):  # fmt: skip
        change()
        written.clear()
        told = dumped(registry.read(), said)
        assert written == names and told == dumped(registry.read())


def test_an_observation_allocates_no_object() -> None:
    """An object would be allocated among short-lived ones, and keep a megabyte from being freed after a flood."""
    h = Histogram("h", "", ("a",), (0.1, 1.0))
    timer = Timer(h, ("x",))
    timer.add(0.5)
    row = h.values[("x",)]
    before = sys.getallocatedblocks()
    for i in range(1000):
        h.observe(("x",), i + 0.5)
        timer.add(i + 0.25)
    assert h.values[("x",)] is row and sum(row[:-1]) == 2001
    assert sys.getallocatedblocks() - before < 100


WANTED = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"


@pytest.mark.parametrize(
    ("accept", "form", "escaping"),
    [
        ("", TEXT, "underscores"),
        ("*/*", TEXT, "underscores"),
        (WANTED, DELIMITED, "underscores"),
        (f"{WANTED};q=0.6,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.5,*/*;q=0.2", DELIMITED, "underscores"),
        (f"{WANTED};escaping=allow-utf-8", DELIMITED, "allow-utf-8"),
        (f"text/plain;version=0.0.4,{WANTED};q=0.5", TEXT, "underscores"),
        (f"text/plain;version=1.0.0;escaping=values,{WANTED};q=0.5", DELIMITED, "values"),  # a version that is not supported
        ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;q=0.3", TEXT, "allow-utf-8"),
        (WANTED.replace("delimited", "text"), TEXT, "underscores"),
        (WANTED.replace("MetricFamily", "Family"), TEXT, "underscores"),
        (WANTED + ";escaping=dots", DELIMITED, "underscores"),
    ],
)  # fmt: skip
def test_the_format_follows_the_accept_header(accept: str, form: str, escaping: str) -> None:
    assert negotiated(accept) == (form, escaping)


def children(message: bytes, number: int) -> list[Any]:
    """The values of a field of a message; 64-bit numbers as doubles."""
    found = [(kind, value) for n, kind, value in fields(message) if n == number]
    return [struct.unpack("<d", value)[0] if kind == 1 and isinstance(value, bytes) else value for kind, value in found]


def families(body: bytes) -> dict[str, bytes]:
    out, at = {}, 0
    while at < len(body):
        size, at = read_varint(body, at)
        message = body[at : at + size]
        out[children(message, 1)[0].decode()] = message
        at += size
    return out


@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_protobuf_and_text_have_the_same_values(tmp_path: Path, encoding: str) -> None:
    first, second = Worker(tmp_path, 0), Worker(tmp_path, 1)
    for worker, seconds in ((first, 0.5), (first, 1.5), (second, 3.0)):
        worker.serve(seconds)
    asyncio.run(second.endpoint.dump())
    answer = first.ask("/metrics", encoding, accept=WANTED)
    assert dict(answer.headers)[b"content-type"].decode() == DELIMITED + "; escaping=underscores"
    found = families(gzip.decompress(answer.body) if encoding else answer.body)
    lines = first.ask("/metrics").body.decode().splitlines()
    assert list(found) == [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert [children(m, 2)[0].decode() for m in found.values()] == [line.split(" ", 3)[3] for line in lines if line.startswith("# HELP")]
    assert [children(m, 3)[0] for m in found.values()] == [
        {"counter": 0, "gauge": 1, "histogram": 4}[line.split()[3]] for line in lines if line.startswith("# TYPE")
    ]
    ((requests,), (opened,), (took,)) = (children(found[name], 4) for name in ("requests_total", "open", "took_seconds"))
    assert children(requests, 1) == [b"\x0a\x04verb\x12\x03get"] and children(children(requests, 3)[0], 1) == [3.0]
    assert children(opened, 1) == [] and children(children(opened, 2)[0], 1) == [3.0]
    (histogram,) = children(took, 7)
    assert children(histogram, 1) == [3] and children(histogram, 2) == [5.0]
    assert [(children(b, 1)[0], children(b, 2)[0]) for b in children(histogram, 3)] == [(1, 1.0), (2, 2.0)]


def test_a_message_has_empty_labels_and_zero_counts() -> None:
    metrics = Registry()
    metrics.counter("c", "Counted.", ("b", "a")).inc(("", "x"), 0)
    (metric,) = children(families(delimited(merged_families(metrics.read(), (), metrics.shown)))["c"], 4)
    assert children(metric, 1) == [b"\x0a\x01a\x12\x01x", b"\x0a\x01b\x12\x00"] and children(children(metric, 3)[0], 1) == [0.0]



@pytest.fixture
def finer() -> Iterator[None]:
    with features.DEFAULT.overridden(NativeHistograms=True):
        yield


def read_histogram(message: bytes, labels: int = 0) -> dict[int, list[Any]]:
    """The fields of a family's histogram, by their numbers."""
    (histogram,) = children(children(message, 4)[labels], 7)
    return {n: children(histogram, n) for n in (1, 2, 3, 5, 6, 7, 12, 13)}


def signed(n: int) -> int:
    return (n >> 1) ^ -(n & 1)


def sparse(found: dict[int, list[Any]]) -> dict[int, int]:
    """The count of each bucket of the native format, by its index."""
    key, has, out, deltas = 0, 0, dict[int, int](), iter(found[13])
    for span in found[12]:
        key += signed((children(span, 1) or [0])[0])
        for _ in range(children(span, 2)[0]):
            has += signed(next(deltas))
            out[key], key = has, key + 1
    assert next(deltas, None) is None
    return {k: n for k, n in out.items() if n}


def test_native_histograms_have_both_formats_of_all_workers(finer: None, tmp_path: Path) -> None:
    first, second = Worker(tmp_path, 0), Worker(tmp_path, 1)
    for worker, seconds in ((first, 0.0), (first, 0.5), (first, 0.51), (first, 1.0), (second, 1.05), (second, 1.0), (second, 3.0)):
        worker.serve(seconds)
    asyncio.run(second.endpoint.dump())
    found = read_histogram(families(first.ask("/metrics", accept=WANTED).body)["took_seconds"])
    assert [(children(b, 1)[0], children(b, 2)[0]) for b in found[3]] == [(5, 1.0), (6, 2.0)] and found[1] == [7]
    assert signed(found[5][0]) == 3 and found[6] == [2.0**-128] and found[7] == [1]
    # The index of a bucket is the exponent of its upper bound, in eighths: 2**-1, 2**(-7/8), 1, 2**(1/8), 2**(13/8).
    assert sparse(found) == {-8: 1, -7: 1, 0: 2, 1: 1, 13: 1}
    assert len(found[12]) == 3, "a gap of two or less is no end of a span"
    text = first.ask("/metrics").body.decode()
    assert [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith("took_seconds")] == ["5", "6", "7", "7.06", "7"]


def test_without_the_gate_there_are_no_native_histograms(tmp_path: Path) -> None:
    worker = Worker(tmp_path, 0)
    worker.serve(0.5)
    found = read_histogram(families(worker.ask("/metrics", accept=WANTED).body)["took_seconds"])
    assert found[1] == [1] and not any(found[n] for n in (5, 6, 7, 12, 13))


def test_too_many_buckets_are_merged_in_pairs(finer: None) -> None:
    metrics = Registry()
    wide = metrics.histogram("wide", "Wide.", (), (2.0**-20, 2.0**20))
    for key in range(-160, 161):
        wide.observe((), nativebuckets.bound(key))
    found = read_histogram(families(delimited(merged_families(metrics.read(), (), metrics.shown)))["wide"])
    assert signed(found[5][0]) == 1  # 321 buckets become 161, and then 81
    assert sparse(found) == {key: 1 if key == -40 else 4 for key in range(-40, 41)}


def test_a_value_beyond_all_buckets_is_in_the_last(finer: None) -> None:
    metrics = Registry()
    narrow = metrics.histogram("narrow", "Narrow.", (), (1.0,))
    for value in (1e-9, 1e9):
        narrow.observe((), value)
    found = read_histogram(families(delimited(merged_families(metrics.read(), (), metrics.shown)))["narrow"])
    assert sparse(found) == {-32: 1, 17: 1} and found[1] == [2] and [children(b, 1) for b in found[3]] == [[1]]


@pytest.mark.parametrize("value", [1e-9, 0.3, 0.5, 1.0, 1.0000000001, 7.0, 8.0, 1e9])
def test_a_bucket_includes_its_upper_bound(value: float) -> None:
    key = nativebuckets.key_of(value)
    assert nativebuckets.bound(key - 1) < value <= nativebuckets.bound(key)


def test_metrics_with_their_own_buckets_have_no_native_format(finer: None) -> None:
    metrics = Registry()
    other = metrics.histogram("other", "Other.", (), (1.0,), finer=False)
    other.observe((), 2.0)
    read = Registry().read()
    (metric, values), = merged_families(read, (dumped(metrics.read()),), metrics.shown)
    assert not read_histogram(family(metric, values))[12] and list(values[()]) == [0, 1, 2.0]

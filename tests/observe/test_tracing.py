"""Spans of requests reach a collector as one tree; trace contexts from clients count as far as the clients are trusted."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kas.aggregator.proxy import _forwarded
from kas.client.hooks import HookClient, Shares
from kas.client.http import Target
from kas.client.kubeconfig import Backend, Users
from kas.client.webhook import Webhook
from kas.observe import otlp
from kas.observe.otlp import OTLPExporter
from kas.observe.tracing import CURRENT, MAX_CHILDREN, MILLION, Span, Tracer, current, outgoing, parse
from kas.request.http import Request, Response
from tests.observe.collector import Collector
from tests.server.whole import World

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GIVEN = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture
def collector(monkeypatch):
    """A collector, and a tracer that sends it all spans at the end, however long that takes."""
    monkeypatch.setattr(otlp, "LAST_S", 60.0)
    found = Collector()
    yield found
    found.close()


def configuration(directory: Path, **said: Any) -> str:
    path = directory / "tracing.yaml"
    path.write_text(json.dumps({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "TracingConfiguration", **said}))
    return str(path)


class Asked:
    """A whole server with tracing; ``spans()`` stops it and returns what the collector received."""

    def __init__(self, directory: Path, collector: Collector, **said: Any) -> None:
        self.collector, self.directory = collector, directory
        self.file = configuration(directory, endpoint=collector.endpoint, **said)

    def __call__(self, *asked: tuple[Any, ...]) -> list[int]:
        """The statuses of requests (method, path, body, traceparent, token); the token None is the administrator's."""
        return asyncio.run(self._ask(asked))

    async def _ask(self, asked: tuple[tuple[Any, ...], ...]) -> list[int]:
        world = World(self.directory, loop=asyncio.get_running_loop(), tracing_config_file=self.file, authorization_mode=["RBAC"])
        out = []
        try:
            for method, path, body, traceparent, token in asked:
                token = world.token if token is None else token
                headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
                headers += [(b"traceparent", traceparent.encode())] if traceparent else []
                path, _, query = path.partition("?")
                req = Request(method, path, query, [*headers, (b"content-type", b"application/json")], json.dumps(body).encode())
                result = world.server.chain(req)
                resp = result if isinstance(result, Response) else await asyncio.ensure_future(result)
                if resp.stream is not None:
                    await resp.stream(lambda data: asyncio.sleep(0))
                    resp.finish()
                out.append(resp.status)
        finally:
            assert world.server.tracer is not None
            await asyncio.to_thread(world.server.tracer.exporter.close)
            world.close()
        return out


def test_a_write_is_one_tree_of_spans(tmp_path, collector):
    ask = Asked(tmp_path, collector, samplingRatePerMillion=MILLION)
    body = {"metadata": {"name": "a"}, "data": {"password": "do-not-tell"}}
    assert ask(("POST", f"{CONFIG_MAPS}?token=do-not-tell", body, "", None)) == [201]
    spans = collector.spans
    assert collector.resource["service.name"] == "apiserver" and collector.resource["service.instance.id"].startswith("apiserver-")
    root = next(s for s in spans if not s.parent)
    assert (root.name, root.kind, root.error) == ("POST /api/v1/namespaces/{:namespace}/configmaps", 2, False)
    assert root.attributes["http.response.status_code"] == 201 and root.attributes["http.request.method"] == "POST"
    assert {s.trace for s in spans} == {root.trace} and len({s.span for s in spans}) == len(spans)
    by_id = {s.span: s for s in spans}
    of = {s.name: by_id[s.parent].name for s in spans if s.parent}
    assert of["authentication"] == of["authorization"] == of["priorityandfairness"] == of["Create"] == root.name
    assert of["admit"] == of["validate"] == of["store commit"] == "Create"
    told = next(s for s in spans if s.name == "Create").attributes
    assert root.attributes["url.path"] == CONFIG_MAPS and root.attributes["network.protocol.version"] == "1.0"
    assert root.attributes["http.request.body.size"] == len(json.dumps(body)) and root.attributes["http.response.body.size"] > 100
    assert {k: told[k] for k in ("api-group", "api-version", "name", "subresource", "namespace", "resource", "scope", "verb")} == {
        "api-group": "", "api-version": "v1", "name": "", "subresource": "", "namespace": "default", "resource": "configmaps",
        "scope": "resource", "verb": "POST",
    }  # fmt: skip
    assert {"accept", "audit-id", "client", "protocol", "url", "user-agent"} <= told.keys()
    assert (told["url"], told["protocol"], told["audit-id"]) == (CONFIG_MAPS, "HTTP/1.0", root.attributes["audit-id"])
    for span in spans:
        within = by_id.get(span.parent, span)
        assert within.start <= span.start <= span.end <= within.end, span
    assert "do-not-tell" not in str([(s.name, s.attributes) for s in spans])


def test_a_list_has_a_span_for_writing_its_response(tmp_path, collector):
    ask = Asked(tmp_path, collector, samplingRatePerMillion=MILLION)
    assert ask(("GET", "/api/v1/configmaps", None, "", None)) == [200]
    by_name = {s.name: s for s in collector.spans}
    assert by_name["List"].parent == by_name["GET /api/v1/configmaps"].span
    assert by_name["store range"].attributes["key"].startswith("/registry/configmaps")


def test_only_trusted_clients_decide_about_sampling(tmp_path, collector):
    ask = Asked(tmp_path, collector)  # without a rate only requests with a sampled parent
    not_sampled = f"00-{TRACE}-{PARENT}-00"
    asked = [("/version", GIVEN, None), ("/version", not_sampled, None), ("/version", "", None), ("/version", GIVEN, "")]
    assert ask(*(("GET", path, None, trace, token) for path, trace, token in asked)) == [200, 200, 200, 200]
    roots = [s for s in collector.spans if s.kind == 2]
    assert [(s.trace, s.parent, s.links) for s in roots] == [(TRACE, PARENT, [])]


def test_the_trace_of_an_untrusted_client_is_linked_and_not_continued(tmp_path, collector):
    ask = Asked(tmp_path, collector, samplingRatePerMillion=MILLION)
    assert ask(("GET", "/version", None, GIVEN, "")) == [200]
    root = next(s for s in collector.spans if s.kind == 2)
    assert root.trace != TRACE and not root.parent and root.links == [(TRACE, PARENT)]


def test_a_bug_is_an_error_and_a_refusal_is_not(tmp_path, collector):
    ask = Asked(tmp_path, collector, samplingRatePerMillion=MILLION)
    assert ask(("GET", f"{CONFIG_MAPS}/none", None, "", None), ("GET", CONFIG_MAPS, None, "", "")) == [404, 403]
    assert [s.error for s in collector.spans if s.kind == 2] == [False, False]


def test_without_tracing_there_are_no_spans(tmp_path):
    world = World(tmp_path)
    try:
        assert world.server.tracer is None and "get" not in vars(world.store) and "start_mutate" not in vars(world.server.admission)
    finally:
        world.close()


class Kept:
    def __init__(self) -> None:
        self.spans: list[Span] = []

    def add(self, span: Span) -> None:
        self.spans.append(span)

    def close(self) -> None:
        pass


def test_rates_are_shares_of_a_million():
    for rate, least, most in ((0, 0, 0), (MILLION // 2, 400, 600), (MILLION, 1000, 1000)):
        tracer = Tracer(Kept(), rate)
        assert least <= sum(tracer.begin("x", None, False) is not None for _ in range(1000)) <= most


def test_an_ended_span_has_no_more_children_and_a_request_a_limited_number():
    kept = Kept()
    root = Tracer(kept, MILLION).begin("x", None, False)
    assert root is not None
    token = CURRENT.set(root)
    try:
        assert [root.child("y") is None for _ in range(MAX_CHILDREN + 2)] == [False] * MAX_CHILDREN + [True, True]
        assert current() is root and outgoing() == root.traceparent
        root.end()
        assert current() is None and outgoing() == ""
    finally:
        CURRENT.reset(token)


@pytest.mark.parametrize("text", ["", "00-0-0-01", f"ff-{TRACE}-{PARENT}-01", f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{'0' * 16}-01",
                                  GIVEN.upper(), GIVEN + "-x"])  # fmt: skip
def test_invalid_trace_contexts_are_ignored(text):
    assert parse(text) is None


async def heads_of(ask) -> list[bytes]:
    """The request headers that ``ask(port)`` sends to a server that answers {} to each request."""
    heads = []

    async def serve(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        heads.append(head.lower())
        size = next(int(line.split(b":")[1]) for line in heads[-1].split(b"\r\n") if line.startswith(b"content-length"))
        await reader.readexactly(size)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        await ask(server.sockets[0].getsockname()[1])
    return heads


def test_outgoing_requests_continue_the_trace():
    async def ask(port: int) -> None:
        target = Target("http", "127.0.0.1", str(port), "/x")
        credentials = Users({}).of("127.0.0.1", port)
        hook, webhook = HookClient(target, credentials, Shares(10), "x"), Webhook(Backend(target, credentials), 0.01)
        for traceparent in ("", GIVEN):
            token = CURRENT.set(parse(traceparent))
            try:
                await hook.post(b"{}", 10)
                await webhook.send(b"{}", bytes)
            finally:
                CURRENT.reset(token)

    heads = asyncio.run(heads_of(ask))
    assert [f"traceparent: {GIVEN}\r\n".encode() in head for head in heads] == [False, False, True, True]


def test_a_backend_gets_the_servers_span_and_not_the_clients():
    req = Request("GET", "/apis/x/v1", "", [(b"traceparent", GIVEN.encode()), (b"accept", b"*/*")])
    span = Tracer(Kept(), MILLION).begin("x", None, False)
    assert span is not None
    token = CURRENT.set(span)
    try:
        assert dict(_forwarded(req, "localhost:443"))[b"traceparent"] == span.traceparent.encode()
    finally:
        CURRENT.reset(token)


def test_the_queue_is_bounded_and_requests_do_not_need_the_collector(monkeypatch):
    monkeypatch.setattr(otlp, "LAST_S", 0.2)
    exporter = OTLPExporter("127.0.0.1:1", "x")
    span = Tracer(exporter, MILLION).begin("x", None, False)
    for _ in range(otlp.QUEUE * 3):
        exporter.add(span)
        assert len(exporter._queue) <= otlp.QUEUE
    assert exporter.dropped > 0
    exporter.close()


def test_long_texts_are_truncated(collector):
    exporter = OTLPExporter(collector.endpoint, "x")
    span = Tracer(exporter, MILLION).begin("x", None, False)
    span.attributes = {"long": "é" * 100_000, "n": 5, "none": "", "zero": 0}
    span.end()
    exporter.close()
    assert collector.wait_for(1)[0].attributes == {"long": "é" * otlp.MAX_TEXT, "n": 5, "none": "", "zero": 0}

"""Watches: where they start, what they send, how they end (apiserver's handlers/watch.go, storage/cacher)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import re
import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import pytest

from kas.endpoints import watch as watches
from kas.endpoints.frames import wrap_protobuf
from kas.endpoints.listpages import FIRST_BYTES, NotTakenError, Room
from kas.meta.errors import ApiError
from kas.meta.waiting import TimeSlice
from kas.request.http import Request, Response
from kas.store import Op, build_record
from kas.testing.server import KasServer
from kas.types.scheme import decode, encode_protobuf
from tests.intervals import shorter_intervals
from tests.server.whole import World
from tests.types.kinds import kind_for

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PROTOBUF = "application/vnd.kubernetes.protobuf"
NOT_OLDER = "resourceVersionMatch=NotOlderThan"


def events(client, path, query="", **headers):
    """Returns all events of a watch until it ends by itself."""
    r = client.raw("GET", f"{path}{'&' if '?' in path else '?'}watch=1&timeoutSeconds=1&{query}", **headers)
    assert r.status_code == 200, r.text
    return [json.loads(line) for line in r.content.splitlines()]


def side_by_side(ask, whats):
    """Returns the result of ``ask`` for each argument, all at the same time, because each watch takes a second."""
    with ThreadPoolExecutor(len(whats)) as pool:
        return list(pool.map(ask, whats))


def brief(found):
    pairs = [(e["type"], e["object"]["metadata"].get("name", "")) for e in found]
    return [p for p in pairs if p[1] != "kube-root-ca.crt"]


@pytest.fixture
def history(client, namespace):
    """Returns (path, revision before) of: w1, w2 created; w1 labelled and unlabelled; w2 deleted."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    rv = client("GET", path)[1]["metadata"]["resourceVersion"]
    client("POST", path, {"metadata": {"name": "w1"}})
    client("POST", path, {"metadata": {"name": "w2"}})
    for labels in ({"l": "1"}, {"l": None}):
        client("PATCH", f"{path}/w1", {"metadata": {"labels": labels}}, "application/merge-patch+json")
    client("DELETE", f"{path}/w2")
    yield path, rv
    client("DELETE", f"{path}/w1")


ALL = [("ADDED", "w1"), ("ADDED", "w2"), ("MODIFIED", "w1"), ("MODIFIED", "w1"), ("DELETED", "w2")]


def test_from_a_revision_in_every_format(client, history):
    path, rv = history
    url = f"{path}?watch=1&timeoutSeconds=1&resourceVersion={rv}"
    forms = ("application/json", PARTIAL, TABLE, PROTOBUF, PARTIAL.replace("application/json", PROTOBUF))
    *texts, raw, packed = (r.content for r in side_by_side(lambda form: client.raw("GET", url, Accept=form), forms))
    whole, partial, table = ([json.loads(line) for line in text.splitlines()] for text in texts)
    assert brief(whole) == ALL
    revisions = [int(e["object"]["metadata"]["resourceVersion"]) for e in whole]
    assert revisions == sorted(set(revisions)) and revisions[0] > int(rv)
    assert brief(partial) == ALL
    rows = [e["object"] for e in table if "rows" in e["object"]]
    shown = [t["rows"][0]["object"]["metadata"]["name"] for t in rows]
    assert [n for n in shown if n != "kube-root-ca.crt"] == [n for _, n in ALL]
    assert len(rows[0]["columnDefinitions"]) == 3 and not rows[1].get("columnDefinitions")
    assert raw.endswith(protobuf_frames(whole))
    assert packed.endswith(protobuf_frames(partial))
    kinds, at = [], 0
    while at < len(raw):
        size = int.from_bytes(raw[at : at + 4], "big")
        message = raw[at + 4 : at + 4 + size]
        assert message[0] == 0x0A and b"k8s\0" in message
        kinds.append(message[2 : 2 + message[1]].decode())
        at += 4 + size
    assert kinds[-5:] == [k for k, _ in ALL]


def protobuf_frames(found):
    out = []
    for e in found:
        kind = kind_for(e["object"]["apiVersion"], e["object"]["kind"])
        body = encode_protobuf(kind.type, decode(kind.type, e["object"])[0], api_version=kind.api_version, kind=kind.kind)
        out.append(wrap_protobuf(e["type"], body))
    return b"".join(out)


def test_objects_enter_and_leave_a_selector(client, history):
    path, rv = history
    found = events(client, path, f"resourceVersion={rv}&labelSelector=l=1")
    assert brief(found) == [("ADDED", "w1"), ("DELETED", "w1")]
    # An object that leaves is shown with its last matching state, at the revision at which it left.
    assert found[1]["object"]["metadata"]["labels"] == {"l": "1"}
    assert int(found[1]["object"]["metadata"]["resourceVersion"]) > int(found[0]["object"]["metadata"]["resourceVersion"])


def test_old_paths_names_and_all_namespaces(client, history, namespace):
    path, rv = history
    old = f"/api/v1/watch/namespaces/{namespace}/configmaps"
    w2 = [("ADDED", "w2"), ("DELETED", "w2")]
    one = "?fieldSelector=metadata.name=w2"
    paths = (old, f"{old}/w2", f"{path}{one}", f"/api/v1/configmaps{one}")
    whole, named, selected, everywhere = side_by_side(lambda path: events(client, path, f"resourceVersion={rv}"), paths)
    assert brief(whole) == ALL
    assert brief(named) == w2
    assert brief(selected) == w2
    assert brief([e for e in everywhere if e["object"]["metadata"]["namespace"] == namespace]) == w2
    code, body = client("GET", f"{old}/w2?fieldSelector=metadata.name=w1")
    assert (code, body["message"]) == (400, "fieldSelector metadata.name doesn't match requested name")
    assert client("GET", "/api/v1/watch/configmaps/w2")[0] == 404


def test_the_current_state_comes_first(client, history):
    path, rv = history
    end = {"k8s.io/initial-events-end": "true"}
    starts, without = ("", "resourceVersion=0", f"sendInitialEvents=true&{NOT_OLDER}"), f"sendInitialEvents=false&{NOT_OLDER}"
    queries = (*starts, *(f"{query}&allowWatchBookmarks=true" for query in starts), without)
    *found, none = side_by_side(lambda query: events(client, path, query), queries)
    assert [brief(plain) for plain in found[:3]] == [[("ADDED", "w1")]] * 3
    for bookmarked in found[3:]:
        marked = next(e["object"] for e in bookmarked if e["type"] == "BOOKMARK")  # a periodic bookmark may follow
        assert marked["metadata"]["annotations"] == end
        assert marked["kind"] == "ConfigMap" and int(marked["metadata"]["resourceVersion"]) > int(rv)
    assert brief(none) == []
    # Below /watch/ the options are those of a list unless they contain watch.
    old = path.replace("/api/v1/", "/api/v1/watch/")
    r = client.raw("GET", f"{old}?timeoutSeconds=1&allowWatchBookmarks=1")
    assert "initial-events-end" not in r.text and "w1" in r.text  # a periodic bookmark may come
    assert client("GET", f"{old}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0")[0] == 422


def test_refusals(client, history):
    path, _ = history
    assert client("GET", f"{path}?watch=1&sendInitialEvents=true")[0] == 422
    assert client("GET", f"{path}?watch=1&resourceVersionMatch=Exact&resourceVersion=1")[0] == 422
    # The storage error is no API error.
    assert client("GET", f"{path}?watch=1&resourceVersion=x")[0] == 500
    assert client("GET", f"{path}?watch=1&includeObject=x", Accept=TABLE)[0] == 400
    assert events(client, path, "resourceVersion=999999999") == []
    late = client.raw(
        "GET", f"{path}?watch=1&timeoutSeconds=9&resourceVersion=999999999&sendInitialEvents=1&resourceVersionMatch=NotOlderThan"
    )
    error = json.loads(late.content)
    assert error["type"] == "ERROR" and error["object"]["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert client.raw("GET", f"{path}?watch=1&timeoutSeconds=-1").content == b""


def test_a_watch_from_a_future_revision_skips_earlier_events(client, history):
    path, _ = history
    now = int(client("GET", path)[1]["metadata"]["resourceVersion"])
    found = []
    with client.session.get(f"{client.server.url}{path}?watch=1&resourceVersion={now + 2}", stream=True, timeout=60) as r:
        for i in range(4):
            client("POST", path, {"metadata": {"name": f"f{i}"}})
        for line in r.iter_lines():
            found.append(json.loads(line))
            if found[-1]["object"]["metadata"]["name"] == "f3":
                break
    assert all(int(e["object"]["metadata"]["resourceVersion"]) > now + 2 for e in found)
    for i in range(4):
        client("DELETE", f"{path}/f{i}")


def test_a_bookmark_before_the_end(client, history):
    path, _ = history
    now = client("GET", path)[1]["metadata"]["resourceVersion"]
    r = client.raw("GET", f"{path}?watch=1&timeoutSeconds=3&allowWatchBookmarks=1&resourceVersion={now}")
    found = [json.loads(line) for line in r.content.splitlines()]
    assert {e["type"] for e in found} == {"BOOKMARK"}  # one, or two when the periodic one is due as well
    assert int(found[0]["object"]["metadata"]["resourceVersion"]) >= int(now) and "annotations" not in found[0]["object"]["metadata"]


def test_initial_events_with_an_end_cannot_be_a_table(client, history):
    path, rv = history
    ask = "watch=1&timeoutSeconds=1&allowWatchBookmarks=true"
    asked = []
    for query in (f"{ask}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", ask, f"{ask}&resourceVersion=0"):
        status, refused = client("GET", f"{path}?{query}", Accept=TABLE)
        assert (status, refused["reason"]) == (406, "NotAcceptable") and "application/yaml" in refused["message"]
        asked.append((query, f"{TABLE},application/json", "ConfigMap"))
    asked += [(query, TABLE, "Table") for query in ("watch=1&timeoutSeconds=1", f"{ask}&resourceVersion={rv}")]
    answers = side_by_side(lambda one: client.raw("GET", f"{path}?{one[0]}", Accept=one[1]).content, asked)
    for (query, _, kind), found in zip(asked, answers, strict=True):
        assert {json.loads(line)["object"]["kind"] for line in found.splitlines()} == {kind}, query


def test_bookmarks_of_every_kind_and_format(client):
    """Printers and codecs get an object that has only a revision."""
    paths = []
    for root in ["/api/v1", *(f"/apis/{g['preferredVersion']['groupVersion']}" for g in client("GET", "/apis")[1]["groups"])]:
        paths += [f"{root}/{r['name']}" for r in client("GET", root)[1]["resources"] if "watch" in r["verbs"]]
    assert len(paths) > 40
    now = client("GET", "/api/v1/namespaces")[1]["metadata"]["resourceVersion"]
    query = f"watch=1&timeoutSeconds=3&allowWatchBookmarks=1&resourceVersion={now}"
    with ThreadPoolExecutor(len(paths)) as pool:  # each gets its bookmark shortly before it ends
        for r in pool.map(lambda path: client.raw("GET", f"{path}?{query}", Accept=TABLE), paths):
            assert r.status_code == 200 and "BOOKMARK" in r.text, (r.url, r.text)
    for path in paths:
        for accept in (PARTIAL, PROTOBUF):
            url = f"{client.server.url}{path}?watch=1&timeoutSeconds=30&allowWatchBookmarks=1"
            with client.session.get(url, headers={"Accept": accept}, stream=True, timeout=60) as r:
                assert r.status_code == 200, (path, accept, r.text)
                got = b""
                for piece in r.iter_content(None):
                    got += piece
                    if b"BOOKMARK" in got:
                        break
                assert b"BOOKMARK" in got, (path, accept, got)
    assert "panic'd" not in client.server.output


def test_versions_share_one_history(client, namespace):
    """A write in one version is seen by watches of all versions of the kind, converted."""
    path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
    rv = client("GET", path)[1]["metadata"]["resourceVersion"]
    target = {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}
    spec = {"scaleTargetRef": target, "maxReplicas": 3, "targetCPUUtilizationPercentage": 60}
    v1 = path.replace("/v2/", "/v1/")
    assert client("POST", v1, {"metadata": {"name": "h"}, "spec": spec})[0] == 201
    client("DELETE", f"{path}/h")
    watched = side_by_side(lambda where: events(client, where, f"resourceVersion={rv}"), (path, v1))
    for found, version in zip(watched, ("autoscaling/v2", "autoscaling/v1"), strict=True):
        assert brief(found) == [("ADDED", "h"), ("DELETED", "h")] and {e["object"]["apiVersion"] for e in found} == {version}
    core = f"/api/v1/namespaces/{namespace}/events"
    rv = client("GET", core)[1]["metadata"]["resourceVersion"]
    about = {"kind": "Pod", "name": "p", "namespace": namespace}
    body = {"metadata": {"name": "e"}, "involvedObject": about, "reason": "R", "message": "m", "type": "Normal"}
    assert client("POST", core, body)[0] == 201
    found = events(client, f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", f"resourceVersion={rv}")
    assert [(e["type"], e["object"]["apiVersion"], e["object"].get("note")) for e in found] == [("ADDED", "events.k8s.io/v1", "m")]


def test_a_too_old_revision_is_an_error_event(tmp_path, connect):
    flags, soon = ("--history-window=1s", "--unsafe-no-fsync"), shorter_intervals("kas.controllers.runner.COMPACT_EVERY_S=0.2")
    with KasServer(tmp_path, *flags, prefix=soon) as server:
        _an_old_revision_ends(connect(server))


def _an_old_revision_ends(client):
    path = "/api/v1/namespaces/default/configmaps"
    rv = client("GET", path)[1]["metadata"]["resourceVersion"]
    until = time.monotonic() + 60
    found = []
    while time.monotonic() < until and not (found and found[0]["type"] == "ERROR"):
        client("POST", path, {"metadata": {"generateName": "z"}, "data": {"x": "y" * 900_000}})  # more than is kept in memory
        found = events(client, path, f"resourceVersion={rv}")
    assert len(found) == 1 and found[0]["object"]["code"] == 410 and found[0]["object"]["reason"] == "Expired"
    assert re.fullmatch(r"too old resource version: \d+ \(\d+\)", found[0]["object"]["message"])


def _memory(server) -> int:
    """Returns the private memory of a server's processes in MiB."""
    pattern = r"RssAnon:\s+(\d+)"
    return sum(int(re.search(pattern, Path(f"/proc/{pid}/status").read_text()).group(1)) for pid in server.worker_pids()) // 1024


class Taking:
    """A connection that accepts pieces at once while ``open``, and later those that are awaited."""

    def __init__(self) -> None:
        self.got: list[dict] = []
        self.pieces: list[bytes] = []  # those that were accepted at once
        self.open = asyncio.Event()
        self.open.set()
        self.refused: Exception | None = None

    async def __call__(self, piece: bytes) -> None:
        await self.open.wait()
        self.got += [json.loads(line) for line in piece.splitlines()]

    def begin(self, piece: bytes):
        if self.refused is not None:
            raise self.refused
        if not self.open.is_set():
            return self(piece)
        self.pieces.append(piece)
        self.got += [json.loads(line) for line in piece.splitlines()]
        return None

    def seen(self) -> list[tuple[str, str, str]]:
        return [(e["type"], e["object"]["metadata"]["name"], e["object"].get("data", {}).get("n", "")) for e in self.got]


@contextlib.asynccontextmanager
async def watching(world, query):
    """Returns (connection, the task of a watch of config maps that has begun)."""
    head = [(b"authorization", f"Bearer {world.token}".encode())]
    resp = world.server.chain(Request("GET", "/api/v1/namespaces/default/configmaps", f"watch=1&{query}", head))
    taking = Taking()
    task = asyncio.ensure_future((resp if isinstance(resp, Response) else await resp).stream(taking))
    await asyncio.sleep(0.01)
    try:
        yield taking, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def configmap(world, name, n=None, **labels):
    """Writes it, or deletes it if ``n`` is None, without giving a watch's task a chance to run."""
    key = f"/registry/configmaps/default/{name}"
    meta, data = {"name": name, "namespace": "default", "uid": "u", "labels": labels}, orjson.dumps({"n": n})
    head = b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{'
    tail = orjson.dumps(meta)[1:] + b',"data":' + data + b"}"
    draft = build_record(head, tail, labels, {"metadata.name": name, "metadata.namespace": "default"}, 40)
    world.store.commit_now(Op(key, draft if n is not None else None))
    world.store.catch_up()


@pytest.fixture
def in_process(tmp_path):
    """``in_process(work)`` runs ``work(world)`` with a whole server in this process."""

    def run(work):
        async def go():
            world = World(tmp_path, loop=asyncio.get_running_loop())
            try:
                await work(world)
            finally:
                world.close()

        asyncio.run(go())

    return run


def test_an_event_is_sent_in_the_same_loop_iteration(in_process):
    """With a selector, a name, and all objects alike; each event once and in order."""

    async def work(world):
        async with watching(world, "") as (all_, _), watching(world, "labelSelector=l%3D1") as (some, _), watching(
            world, "fieldSelector=metadata.name%3Da"
        ) as (one, _):
            configmap(world, "a", "1", l="1")
            configmap(world, "b", "2")
            configmap(world, "a", "3")
            configmap(world, "a")
            added, changed, deleted = ("ADDED", "a", "1"), ("MODIFIED", "a", "3"), ("DELETED", "a", "3")
            assert all_.seen() == [added, ("ADDED", "b", "2"), changed, deleted]
            assert some.seen() == [added, ("DELETED", "a", "1")]
            assert one.seen() == [added, changed, deleted]

    in_process(work)


def test_a_connection_that_was_full_gets_the_rest_in_order(in_process):
    async def work(world):
        async with watching(world, "") as (taking, _):
            taking.open.clear()
            for i in range(5):
                configmap(world, "a", str(i))
                await asyncio.sleep(0)
            assert taking.got == []
            taking.open.set()
            for i in range(5, 10):
                configmap(world, "a", str(i))
                await asyncio.sleep(0.01)
            assert [n for _, _, n in taking.seen()] == [str(i) for i in range(10)]

    in_process(work)


def test_several_events_of_one_loop_iteration_are_sent_in_one_piece(in_process):
    """In order; a piece is built once for watches with equal events. Large events are left to the task."""

    def write(world, pad=""):
        heads = {n: b'{"metadata":{"name":"%s","pad":"%s",' % (n.encode(), pad.encode()) for n in "abc"}
        labels = {"a": {}, "b": {"l": "1"}, "c": {"l": "1"}}
        drafts = {n: build_record(head, b'"x":1}}', labels[n]) for n, head in heads.items()}
        world.store.commit_now(*(Op(f"/registry/configmaps/default/{n}", draft) for n, draft in drafts.items()))
        world.store.catch_up()

    async def work(world):
        async with watching(world, "") as (first, _), watching(world, "labelSelector=l%3D1") as (some, _), watching(world, "") as (
            second, _
        ), watching(world, "") as (third, task):  # fmt: skip
            third.refused = ZeroDivisionError("refused")
            write(world)
            assert [[name for _, name, _ in one.seen()] for one in (first, some, second)] == [[*"abc"], [*"bc"], [*"abc"]]
            assert [len(one.pieces) for one in (first, some, second)] == [1, 1, 1]
            write(world)
            assert first.pieces[1] is not first.pieces[0] and [kind for kind, _, _ in first.seen()] == ["ADDED"] * 3 + ["MODIFIED"] * 3
            write(world, "x" * (watches.LEAST_BYTES // 5))
            write(world, "x" * (watches.LEAST_BYTES // 5))  # with earlier ones, more than a piece
            assert len(first.seen()) == 9
            while len(first.seen()) < 12 or len(some.seen()) < 8:  # noqa: ASYNC110 — what is waited for tells nobody
                await asyncio.sleep(0)
            assert [name for _, name, _ in first.seen()] == [*"abc"] * 4 and [name for _, name, _ in some.seen()] == [*"bc"] * 4
            with pytest.raises(ZeroDivisionError):
                await task

    in_process(work)


def test_streams_notified_one_after_another_share_a_piece(in_process):
    async def work(world):
        async with watching(world, "") as (first, _), watching(world, "") as (second, _):
            draft = build_record(b'{"metadata":{"name":"a",', b'"x":1}}')
            world.store.commit_now(*(Op(f"/registry/configmaps/default/{n}", draft) for n in "ab"))
            world.store.catch_up()
            assert len(first.got) == 2 and first.pieces[0] is second.pieces[0]

    in_process(work)


def test_an_error_while_sending_ends_the_watch(in_process):
    async def work(world):
        async with watching(world, "") as (taking, task), watching(world, "") as (other, _):
            taking.refused = ZeroDivisionError("refused")
            configmap(world, "a", "1")
            with pytest.raises(ZeroDivisionError):
                await task
            assert other.seen() == [("ADDED", "a", "1")]

    in_process(work)


@pytest.mark.parametrize(("size", "writes"), [(800_000, 250), (40_000, 600)])
def test_a_client_that_does_not_read_costs_bounded_memory(tmp_path, connect, size, writes):
    """Some 200 MB of events behind clients that stall do not grow memory; a client that reads gets them all, in order. The stalled clients
    read now and then, because a client that reads nothing for a minute is disconnected."""
    patient = shorter_intervals("kas.endpoints.listpages.PATIENCE_S=600")
    with KasServer(tmp_path, "--unsafe-no-fsync", "--controllers", "none", prefix=patient) as server:
        _stalled_clients(server, connect(server), size, writes)


def _stalled_clients(server, client, size, writes):
    path = "/api/v1/namespaces/default/configmaps"
    rv = int(client("GET", path)[1]["metadata"]["resourceVersion"])
    context = ssl.create_default_context(cafile=server.ca)
    stalled = []
    for _ in range(3):
        raw = socket.create_connection(("127.0.0.1", server.port))
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        s = context.wrap_socket(raw, server_hostname="localhost")
        head = f"GET {path}?watch=1&resourceVersion={rv}&timeoutSeconds=600 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}"
        s.sendall(head.encode() + b"\r\n\r\n")
        s.settimeout(60)
        stalled.append(s)
    got = {s: bytearray() for s in stalled}

    def take(s):
        piece = s.recv(1 << 16)
        assert piece, (len(got[s]), bytes(got[s][-300:]), server.output[-2000:])
        got[s] += piece

    client("POST", path, {"metadata": {"name": "fat"}})
    before = _memory(server)
    highest = before
    for i in range(writes):
        status, _ = client("PATCH", f"{path}/fat", {"data": {"x": f"{i:04}" + "v" * size}}, "application/merge-patch+json")
        assert status == 200
        if i % 10 == 0:
            highest = max(highest, _memory(server))
        if i % 25 == 24:
            for s in stalled:
                most = len(got[s]) + 2 * size
                while len(got[s]) < most:
                    take(s)
    # 200 MB or more would be there if anything queued; memory mapped from the store does not count.
    assert _memory(server) < before + 60, (before, highest)
    s, last = stalled[0], b'"data":{"x":"%04d' % (writes - 1)
    while last not in got[s][-70_000:]:
        take(s)
    seen = [int(x) for x in re.findall(rb'"data":\{"x":"(\d{4})v', got[s])]
    assert seen == list(range(writes))
    for s in stalled:
        s.close()
    assert "panic'd" not in server.output


def test_a_watch_can_be_ended_while_it_yields(in_process, monkeypatch):
    """It stayed until the next event if it had kept the loop for its whole time slice."""

    async def work(world):
        pauses = []

        class Over(TimeSlice):
            over = True

            async def pause(self):
                pauses.append(self)
                if len(pauses) == 2:  # with nothing left to send
                    world.server.watches.end_all()
                await super().pause()

        monkeypatch.setattr(watches, "TimeSlice", Over)
        async with watching(world, "") as (_, task):
            await asyncio.wait_for(task, 60)

    in_process(work)


def test_large_objects_wait_for_memory(in_process, monkeypatch):
    """Of many watches of one user that do not read, some have read large objects from the store; the others do so once those were sent."""
    mine = Room(most_bytes=250_000)
    monkeypatch.setattr(watches, "room", mine)

    async def work(world):
        configmap(world, "large", "v" * 100_000)
        head = [(b"authorization", f"Bearer {world.token}".encode())]
        conns, tasks, reads = [Whole() for _ in range(10)], [], []
        monkeypatch.setattr(watches.WatchStream, "_added", noting(reads, watches.WatchStream._added))
        for one in conns:
            resp = world.server.chain(Request("GET", "/api/v1/namespaces/default/configmaps", "watch=1", head))
            tasks.append(asyncio.ensure_future((resp if isinstance(resp, Response) else await resp).stream(one)))
        await asyncio.sleep(0.05)
        assert len(reads) == 3 and sum(mine.held.values()) < 350_000
        for one in conns:
            one.open.set()
        await asyncio.gather(*(one.has.wait() for one in conns))
        await asyncio.sleep(0.01)
        assert len(reads) == 10 and not mine.held
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    in_process(work)


class Whole:
    """A connection that accepts the head, and the rest once it is ``open``."""

    def __init__(self) -> None:
        self.got, self.open, self.has = bytearray(), asyncio.Event(), asyncio.Event()

    async def __call__(self, piece: bytes) -> None:
        if piece:
            await self.open.wait()
        self.got += piece
        if b"large" in self.got:
            self.has.set()


def noting(calls, method):
    def noted(self, *args):
        calls.append(args)
        return method(self, *args)

    return noted


def test_waiting_for_memory_in_vain_ends_the_watch():
    async def work():
        room, never = Room(most_bytes=10, patience_s=0.01), asyncio.Event()
        await room.enter("u", 10)
        await room.enter("other", 5)  # each user has a share of his own
        with pytest.raises(ApiError) as e:
            await room.enter("u", 1)
        assert e.value.code == 429
        with pytest.raises(ApiError):
            room.check("u")  # of a list
        room.check("other")
        left = asyncio.ensure_future(room.enter("u", 1))
        goes_on = asyncio.ensure_future(Room.enter(room, "u", 7))
        await asyncio.sleep(0)
        left.cancel()
        room.add("u", -10)
        await asyncio.gather(left, goes_on, return_exceptions=True)
        assert left.cancelled() and room.held == {"u": 7, "other": 5} and not room._waiting
        with pytest.raises(NotTakenError):
            await room.taken(lambda piece: never.wait(), b"x" * 100)

    asyncio.run(work())


def test_no_user_has_more_memory_than_is_left_for_others():
    size = FIRST_BYTES
    room = Room(most_bytes=1 << 30, patience_s=0.01, all_bytes=12 * size)
    accounts = [f"system:serviceaccount:tenant:a{i}" for i in range(20)]

    def filled(*users):
        """Returns what these users get, one piece each in turn, as long as there is memory for one of them."""
        before, any_more = dict(room.held), True
        while any_more:
            any_more = False
            for user in users:
                with contextlib.suppress(ApiError):
                    room.check(user)
                    room.add(user, size)
                    any_more = True
        return sum(room.held[user] - before.get(user, 0) for user in users if user in room.held) // size

    assert filled("greedy") == 6
    assert filled(*accounts) == 3  # a user who may make one watch makes hundreds
    assert filled("system:serviceaccount:other:a") == 2
    assert filled("last") == 1 and filled("nobody") == 0
    for user, held in list(room.held.items()):
        room.add(user, -held)
    assert filled(accounts[0]) == 6


def test_watches_that_wait_for_memory_continue_when_others_release_it():
    async def work():
        room = Room(patience_s=60, all_bytes=4 * FIRST_BYTES)
        await room.enter("first", 4 * FIRST_BYTES)
        waiting = [asyncio.ensure_future(room.enter(user, FIRST_BYTES)) for user in ("second", "second", "third")]
        await asyncio.sleep(0)
        assert not any(one.done() for one in waiting)
        room.add("first", -2 * FIRST_BYTES)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [one.done() for one in waiting] == [True, False, True]  # one piece for each user before anyone gets a second
        room.add("first", -2 * FIRST_BYTES)
        await asyncio.gather(*waiting)
        assert room.held == {"second": 2 * FIRST_BYTES, "third": FIRST_BYTES} and not room._waiting

    asyncio.run(work())


class Told:
    """An open watch that records the loop iteration in which it was notified."""

    served = "foos"

    def __init__(self, turn, told):
        self._turn, self._told, self.over_at = turn, told, -1

    def over(self):
        self.over_at = self._turn[0]

    def finish(self):
        self._told.append(self._turn[0])

    ask_bookmark = finish


@pytest.mark.parametrize("what", ["bookmarks", "end"])
def test_thousands_of_watches_are_notified_over_several_iterations(what):
    """All at once held the loop every minute: for 22 ms, and HTTP, with 5,000 watches."""
    open_, turn, told = watches.Watches(0), [0], []

    async def run():
        def count():
            turn[0] += 1
            asyncio.get_running_loop().call_soon(count)

        count()
        open_.open = {Told(turn, told) for _ in range(5 * watches.NOTIFIED_PER_TURN + 1)}
        if what == "bookmarks":
            await open_.send_bookmarks()
        else:
            open_.end_of(["foos"])
            assert {s.over_at for s in open_.open} == {1}
            while len(told) < len(open_.open):  # noqa: ASYNC110 — what is waited for tells nobody
                await asyncio.sleep(0)

    asyncio.run(run())
    assert len(told) == len(open_.open) and max(map(told.count, told)) <= watches.NOTIFIED_PER_TURN


class Drained:
    """A watch that records how many were open when it was told to end, and ends; with ``go`` false it stays."""

    def __init__(self, of: watches.Watches, noted: list[int], go: bool = True) -> None:
        self._of, self._noted, self._go = of, noted, go

    def finish(self):
        self._noted.append(len(self._of.open))
        if self._go:
            self._of.open.discard(self)


@pytest.mark.parametrize(("least_per_s", "go"), [(1.0, True), (1e9, True), (1.0, False)])
def test_shutdown_drains_watches(least_per_s, go, monkeypatch):
    """One after another within the time, or faster; and no longer than that."""
    of, noted, now = watches.Watches(0), list[int](), [0.0]
    of.open = {Drained(of, noted, go) for _ in range(5)}

    async def passes(seconds: float) -> None:
        now[0] += seconds

    async def run() -> None:
        asyncio.get_running_loop().time = lambda: now[0]
        monkeypatch.setattr(watches.asyncio, "sleep", passes)
        await of.drain(0.25, least_per_s)

    asyncio.run(run())
    assert noted[0] == 5 and now[0] < 0.25 + 2 * watches.DRAINED_S and not of.closing
    assert (noted == [5, 4, 3, 2, 1] and not of.open) if go else len(of.open) == 5


def test_watches_are_ended_at_the_rate_that_the_time_allows(monkeypatch):
    """Not faster than that."""
    of, noted, turns = watches.Watches(0), list[int](), [0]
    of.open = {Drained(of, noted) for _ in range(4)}

    async def step(_: float) -> None:
        turns[0] += 1
        asyncio.get_running_loop().time = lambda: at + turns[0]  # a second for each iteration

    async def run() -> list[int]:
        nonlocal at
        at = asyncio.get_running_loop().time()
        asyncio.get_running_loop().time = lambda: at
        monkeypatch.setattr(watches.asyncio, "sleep", step)
        await of.drain(8.0, 0.5)
        return noted

    at = 0.0
    assert asyncio.run(run()) == [4, 3, 2, 1] and turns[0] == 7  # one in two seconds, the first at once


def test_ended_watches_leave_no_cycle():
    """Each deleted definition ends those of its resources."""
    gc.collect()
    gc.disable()
    try:
        watches.Watches(0).end_of([])
        assert gc.collect() == 0
    finally:
        gc.enable()

"""Watches as informers use them: in protobuf, across a kill -9 of the server, and many at the same time on several workers."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
import urllib.parse

import pytest
import requests

from tests.clients import gostyle

pytestmark = pytest.mark.client


def session(server) -> requests.Session:
    s = requests.Session()
    s.trust_env, s.verify, s.headers["Authorization"] = False, server.ca, f"Bearer {server.token}"
    return s


def namespace(server, name: str) -> str:
    """Creates a namespace; returns the path of its ConfigMaps."""
    assert session(server).post(server.url + "/api/v1/namespaces", json={"metadata": {"name": name}}).status_code == 201
    return f"/api/v1/namespaces/{name}/configmaps"


def create(s: requests.Session, url: str, name: str, **data: str) -> dict:
    answer = s.post(url, json={"metadata": {"name": name}, "data": data}, timeout=60)
    assert answer.status_code == 201, answer.text
    return answer.json()


@pytest.fixture(scope="module")
def server(module_server):
    return module_server("--unsafe-no-fsync", "--controllers=none", workers=2)


# --- protobuf


def test_informer_in_protobuf(server):
    url, s = server.url + namespace(server, "protobuf"), session(server)
    go = gostyle.GoClient(server, "protobuf")
    for i in range(5):
        create(s, url, f"c{i}", k=str(i))
    revision, items = go.list("?resourceVersion=0")
    assert [(o.name, o.data) for o in items] == [(f"c{i}", {"k": str(i)}) for i in range(5)]
    events = go.watch(f"resourceVersion={revision}&allowWatchBookmarks=true&timeoutSeconds=60")
    made = create(s, url, "later", k="ü\n")
    kind, obj = next(events)
    assert (kind, obj.kind, obj.name, obj.uid, obj.data) == ("ADDED", "ConfigMap", "later", made["metadata"]["uid"], {"k": "ü\n"})
    assert (
        s.patch(
            url + "/later", data='{"metadata":{"labels":{"a":"b"}}}', headers={"Content-Type": "application/merge-patch+json"}
        ).status_code
        == 200
    )
    kind, obj = next(events)
    assert (kind, obj.labels) == ("MODIFIED", {"a": "b"}) and int(obj.resource_version) > int(made["metadata"]["resourceVersion"])
    assert s.delete(url + "/later").status_code == 200
    kind, obj = next(events)
    assert (kind, obj.name) == ("DELETED", "later")


def test_streamed_list_in_protobuf(server):
    """sendInitialEvents: the objects as ADDED, the bookmark that ends them, then later events."""
    url, s = server.url + namespace(server, "streamed"), session(server)
    names = {f"c{i}" for i in range(20)}
    for n in names:
        create(s, url, n)
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=60"
    events, first = gostyle.GoClient(server, "streamed").watch(query), []
    for kind, obj in events:
        if kind == "BOOKMARK":
            assert obj.annotations == {"k8s.io/initial-events-end": "true"} and obj.kind == "ConfigMap" and int(obj.resource_version) > 0
            break
        first.append((kind, obj.name))
    assert first == [("ADDED", n) for n in sorted(names)]
    create(s, url, "after")
    kind, obj = next(events)
    assert (kind, obj.name) == ("ADDED", "after")


def test_protobuf_objects_are_returned_unchanged(server):
    """A Go client gets back what it sent; the server returns the same object as JSON."""
    path = namespace(server, "sent")
    go = gostyle.GoClient(server, "sent")

    def text(number: int, value: bytes) -> bytes:
        return bytes([number << 3 | 2, len(value)]) + value

    message = text(1, text(1, b"made")) + text(2, text(1, b"k") + text(2, b"v"))
    envelope = gostyle.MAGIC + text(1, text(1, b"v1") + text(2, b"ConfigMap")) + text(2, message)
    status, data = go.send("POST", path, envelope)
    assert status == 201
    obj = gostyle.configmap(gostyle.unwrap(data)[2])
    assert (obj.name, obj.namespace, obj.data) == ("made", "sent", {"k": "v"})
    assert session(server).get(f"{server.url}{path}/made").json()["data"] == {"k": "v"}
    status, data = go.send("GET", path + "/nosuch")
    assert (status, gostyle.unwrap(data)[:2]) == (404, ("v1", "Status"))


# --- an informer that reconnects


class Informer(threading.Thread):
    """Lists once, then watches from the last revision it saw, again and again, as a reflector does after a lost connection."""

    def __init__(self, server, path: str) -> None:
        super().__init__(daemon=True)
        self.host, self.path = urllib.parse.urlsplit(server.url).netloc, path
        self.context = ssl.create_default_context(cafile=server.ca)
        self.headers = {"Authorization": f"Bearer {server.token}"}
        self.events: list[tuple[str, str, int]] = []
        self.relists = self.connections = 0
        self.stopped = threading.Event()
        self.failure: str | None = None
        listed = session(server).get(server.url + path).json()
        self.revision = listed["metadata"]["resourceVersion"]
        assert listed["items"] == []

    def run(self) -> None:
        while not self.stopped.is_set():
            try:
                self._watch()
            except (OSError, http.client.HTTPException):
                time.sleep(0.05)  # refused or cut: the next round resumes

    def _watch(self) -> None:
        connection = http.client.HTTPSConnection(self.host, context=self.context, timeout=60)
        try:
            connection.request(
                "GET", f"{self.path}?watch=true&allowWatchBookmarks=true&resourceVersion={self.revision}", headers=self.headers
            )
            answer = connection.getresponse()
            if answer.status in (429, 503):
                return
            assert answer.status == 200
            self.connections += 1
            while line := answer.readline():
                if not line.endswith(b"\n"):
                    return  # cut in the middle of an event
                event = json.loads(line)
                if event["type"] == "ERROR":
                    self.failure = line.decode()
                    self.stopped.set()
                    return
                meta = event["object"]["metadata"]
                self.revision = meta["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self.events.append((event["type"], meta["name"], int(self.revision)))
        finally:
            connection.close()


def until(condition, what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.mark.kill
def test_watch_survives_restarts(kas_server):
    """kill -9 and a restart on the same port, three times, during writes: resuming from the last revision loses and repeats nothing."""
    server = kas_server("--controllers=none", "--workers=2")
    path = namespace(server, "restarts")
    informers = [Informer(server, path) for _ in range(3)]
    for i in informers:
        i.start()
    acknowledged, asked, stop = {}, [], threading.Event()

    def write() -> None:
        s, n = session(server), 0
        while not stop.is_set():
            name, n = f"c{n:05}", n + 1
            asked.append(name)
            try:
                answer = s.post(server.url + path, json={"metadata": {"name": name}}, timeout=60)
                if answer.status_code == 201:
                    acknowledged[name] = int(answer.json()["metadata"]["resourceVersion"])
            except requests.RequestException:
                s = session(server)
                time.sleep(0.02)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for turn in range(3):
            have = len(acknowledged)
            until(lambda have=have: len(acknowledged) > have + 30, "no writes were acknowledged")
            until(lambda turn=turn: all(i.connections > turn for i in informers), "an informer does not watch")
            server.kill()
            server.start()
        have = len(acknowledged)
        until(lambda: len(acknowledged) > have + 30, "no writes were acknowledged after the last start")
    finally:
        stop.set()
        writer.join()
    last = max(acknowledged.values())
    for i in informers:
        until(
            lambda i=i: i.failure or (i.events and i.events[-1][2] >= last),
            f"an informer stopped at {i.events[-1:]}, {last} was written; {i.failure}",
        )
        until(lambda i=i: i.connections >= 4, "an informer does not watch after the last start")
        i.stopped.set()
    stored = {o["metadata"]["name"]: int(o["metadata"]["resourceVersion"]) for o in session(server).get(server.url + path).json()["items"]}
    assert {n: r for n, r in stored.items() if n in acknowledged} == acknowledged, "an acknowledged write was lost"
    assert set(stored) <= set(asked)
    for i in informers:
        assert i.failure is None, i.failure
        revisions = [r for _, _, r in i.events]
        assert revisions == sorted(set(revisions)), "an event came twice or out of order"
        assert {n: r for _, n, r in i.events} == stored, "an event was lost"
        assert {t for t, _, _ in i.events} == {"ADDED"}


def test_many_watchers_see_the_same(server):
    """Watchers of both workers, with writes through both: every event once, in the order of revisions, the same for all."""
    path = namespace(server, "many")
    watchers = [Informer(server, path) for _ in range(12)]
    for w in watchers:
        w.start()
    writers, per_writer, failures = 4, 40, []

    def write(number: int) -> None:
        try:
            s = session(server)
            for i in range(per_writer):
                name = f"w{number}-{i}"
                create(s, server.url + path, name)
                if i % 2:
                    r = s.patch(
                        f"{server.url}{path}/{name}", data='{"data":{"a":"b"}}', headers={"Content-Type": "application/merge-patch+json"}
                    )
                    assert r.status_code == 200, r.text
                if i % 4 == 3:
                    assert s.delete(f"{server.url}{path}/{name}").status_code == 200
                    s.close()  # the next connection may reach the other worker
        except AssertionError as e:
            failures.append(e)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(writers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
    expected = writers * (per_writer + per_writer // 2 + per_writer // 4)
    for w in watchers:
        until(lambda w=w: len(w.events) >= expected, f"a watcher saw {len(w.events)} of {expected} events")
        w.stopped.set()
    time.sleep(0.3)  # time for duplicates to arrive
    first = watchers[0].events
    assert len(first) == expected
    assert [r for _, _, r in first] == sorted({r for _, _, r in first})
    for w in watchers[1:]:
        assert w.events == first
    assert [w.connections for w in watchers] == [1] * len(watchers)

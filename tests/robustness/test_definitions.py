"""Ten thousand objects of one definition: listed, watched and deleted with it, while others are served."""

from __future__ import annotations

import http.client
import json
import ssl
import threading

import pytest

from tests.endpoints.customs import Customs, definition, until, version

pytestmark = pytest.mark.long

COUNT, WRITERS = 10_000, 8


def test_ten_thousand_objects_are_deleted_with_their_definition(kas_server, connect):
    server = kas_server("--unsafe-no-fsync", "--controllers=none", workers=2)
    client = connect(server)
    customs = Customs(client, definition("example.com", version(spec={"x": {"type": "integer"}}))).install()
    other = Customs(client, definition("example.com", plural="gadgets", kind="Gadget")).install()
    kept = other.create("kept")
    failed = []

    def write(writer: int) -> None:
        mine = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=60, context=ssl.create_default_context(cafile=server.ca))
        headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
        for i in range(writer, COUNT, WRITERS):
            mine.request("POST", customs.path(), json.dumps(customs.obj(f"o{i:05}", {"x": i})), headers)
            answer = mine.getresponse()
            body = answer.read()
            if answer.status != 201:
                failed.append(body)
        mine.close()

    threads = [threading.Thread(target=write, args=(w,)) for w in range(WRITERS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed, failed[:3]
    assert len(client("GET", customs.path())[1]["items"]) == COUNT
    _, page = client("GET", customs.path() + "?limit=500")
    assert (len(page["items"]), page["metadata"]["remainingItemCount"]) == (500, COUNT - 500)
    held = client("GET", customs.path("o00007"))[1]
    held["metadata"]["finalizers"] = ["example.com/held"]
    assert client("PUT", customs.path("o00007"), held)[0] == 200
    assert client("DELETE", customs.where)[0] == 200
    until(lambda: len(client("GET", customs.path() + "?limit=2")[1]["items"]) == 1, "all but one are gone")
    assert customs.condition("Terminating") == "True"
    assert client("GET", other.path("kept"))[1] == kept
    assert client("PATCH", customs.path("o00007"), {"metadata": {"finalizers": None}}, "application/merge-patch+json")[0] == 200
    customs.gone()
    customs.install()
    assert client("GET", customs.path())[1]["items"] == []

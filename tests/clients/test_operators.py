"""Operators of custom resources through create, update, delete, and a restart of the server."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kas.testing.server import KasServer
from tests import prerequisites
from tests.conftest import Client

prerequisites.module("kopf")
prerequisites.module("lightkube")

pytestmark = pytest.mark.client
HERE = Path(__file__).parent
GROUP, NAMESPACE = "operators.example.com", "operators"
GADGETS = f"/apis/{GROUP}/v1/namespaces/{NAMESPACE}/gadgets"
MERGE = "application/merge-patch+json"


def definition() -> dict:
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    spec = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}
    names = {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"}
    wanted = {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": f"gadgets.{GROUP}"}, "spec": wanted}


def gadget(name: str, word: str) -> dict:
    return {"apiVersion": f"{GROUP}/v1", "kind": "Gadget", "metadata": {"name": name}, "spec": {"word": word}}


@pytest.fixture
def server(tmp_path) -> Iterator[KasServer]:
    with KasServer(tmp_path / "kas", "--unsafe-no-fsync", workers=2) as running:
        call = Client(running)
        assert call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})[0] == 201
        assert call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition())[0] == 201
        eventually(lambda: Client(running)("GET", GADGETS)[0] == 200)
        yield running


@contextmanager
def operator(server: KasServer, log: Path, *command: str, **env: str) -> Iterator[None]:
    with log.open("a") as out:
        given = {**os.environ, "KUBECONFIG": server.kubeconfig, **env}
        process = subprocess.Popen([sys.executable, *command], env=given, stdout=out, stderr=out)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def eventually(condition, log: Path | None = None, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, log.read_text()[-4000:] if log is not None else "too late"
        time.sleep(0.1)


def seen(server: KasServer, name: str) -> str:
    return (Client(server)("GET", f"{GADGETS}/{name}")[1].get("status") or {}).get("seen", "")


def test_kopf(server, tmp_path):
    log, trace = tmp_path / "operator.log", tmp_path / "trace"
    command = ("-m", "kopf", "run", "--standalone", "-n", NAMESPACE, str(HERE / "kopf_gadgets.py"))
    trace.touch()
    with operator(server, log, *command, TRACE=str(trace)):
        assert Client(server)("POST", GADGETS, gadget("a", "one"))[0] == 201
        eventually(lambda: seen(server, "a") == "created with one", log)
        assert Client(server)("PATCH", f"{GADGETS}/a", {"spec": {"word": "two"}}, MERGE)[0] == 200
        eventually(lambda: seen(server, "a") == "one became two", log)
        server.stop()
        server.start()
        assert Client(server)("PATCH", f"{GADGETS}/a", {"spec": {"word": "three"}}, MERGE)[0] == 200
        eventually(lambda: seen(server, "a") == "two became three", log)
    # Changes made while no operator runs are handled later.
    assert Client(server)("PATCH", f"{GADGETS}/a", {"spec": {"word": "four"}}, MERGE)[0] == 200
    assert Client(server)("POST", GADGETS, gadget("b", "new"))[0] == 201
    with operator(server, log, *command, TRACE=str(trace)):
        eventually(lambda: seen(server, "a") == "three became four" and seen(server, "b") == "created with new", log)
        eventually(lambda: "a resumed\n" in trace.read_text(), log)
        assert Client(server)("DELETE", f"{GADGETS}/a")[0] == 200
        eventually(lambda: Client(server)("GET", f"{GADGETS}/a")[0] == 404, log)
        assert "a gone\n" in trace.read_text()


def test_lightkube(server, tmp_path):
    log = tmp_path / "controller.log"
    command = (str(HERE / "lightkube_gadgets.py"), NAMESPACE)

    def word(name: str) -> str:
        found = Client(server)("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps/{name}")[1]
        return (found.get("data") or {}).get("word", "")

    with operator(server, log, *command):
        assert Client(server)("POST", GADGETS, gadget("a", "one"))[0] == 201
        eventually(lambda: word("a") == seen(server, "a") == "one", log)
        server.stop()
        server.start()
        assert Client(server)("PATCH", f"{GADGETS}/a", {"spec": {"word": "two"}}, MERGE)[0] == 200
        eventually(lambda: word("a") == seen(server, "a") == "two", log)
    assert Client(server)("PATCH", f"{GADGETS}/a", {"spec": {"word": "three"}}, MERGE)[0] == 200
    with operator(server, log, *command):
        eventually(lambda: word("a") == seen(server, "a") == "three", log)
        assert Client(server)("DELETE", f"{GADGETS}/a")[0] == 200
        # Its ConfigMap is deleted with it: garbage collection knows custom owners.
        eventually(lambda: word("a") == "", log)

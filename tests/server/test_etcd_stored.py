"""Definitions and custom resources in etcd, compared with what apiextensions-apiserver 1.36.4 stored for the same requests."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import TXN, Client
from kas.testing.server import KasServer
from tests.conftest import Client as HTTP
from tests.controllers.waiting import until
from tests.etcd import Etcd
from tests.vectors import files

LINES = files.lines("etcd-custom")
CONVERSATIONS = [line for line in LINES if "steps" in line["in"]]
READ = [line for line in LINES if "stored" in line["in"]]
PREFIXES = tuple(f"/registry/{group}/" for group in ("apiextensions.k8s.io", *(f"{letter}.example.com" for letter in "abc")))
UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MINUS_ZERO = re.compile(r"(?<=[\[:,])-0(?=[,\]}])")  # Go stores a value that is read as 0; kas stores it as it is read
TIME = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def alike(text: str) -> str:
    """Returns the value without what differs each time: uids are numbered, all times are equal, and managers therefore have an order that
    does not depend on the clock."""
    seen: dict[str, str] = {}
    text = UID.sub(lambda m: seen.setdefault(m[0], f"00000000-0000-4000-8000-{len(seen):012}"), text)
    text = MINUS_ZERO.sub("0", TIME.sub("2024-01-02T03:04:05Z", text))
    before, found, rest = text.partition('"managedFields":')
    if not found:
        return text
    managers, end = json.JSONDecoder().raw_decode(rest)
    return before + found + json.dumps(sorted(managers, key=json.dumps)) + rest[end:]


def stored(etcd: Etcd) -> dict[str, str]:
    client = Client(etcd.config)
    try:
        return {kv.key.decode(): alike(kv.value.decode()) for prefix in PREFIXES for kv in client.range(prefix.encode()).kvs}
    finally:
        client.close()


def flags(etcd: Etcd) -> tuple[str, ...]:
    # No garbage was collected in the recording: some owners never existed, and some deletes wait for dependents.
    off = "--controllers=*,-garbage-collector-controller"
    return "--storage-backend=etcd3", f"--etcd-servers={etcd.url}", "--advertise-address=127.0.0.1", off


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Etcd, HTTP]]:
    with Etcd(tmp_path_factory.mktemp("etcd")) as etcd, KasServer(tmp_path_factory.mktemp("kas"), *flags(etcd)) as kas:
        yield etcd, HTTP(kas)


def ask(http: HTTP, step: dict[str, Any]) -> int:
    body = step.get("body")
    if step.get("over"):  # an update of an existing object
        body = {**http("GET", step["path"])[1], **body}
    if isinstance(body, str):
        body = body.encode()
    return http(step["method"], step["path"], body, step.get("contentType", "application/json"))[0]


def differences(etcd: Etcd, wanted: dict[str, str]) -> dict[str, tuple[str | None, str | None]]:
    """Returns keys with the stored and the expected value, once they agree or have not agreed for long: controllers write after the
    answer."""
    found: dict[str, str] = {}

    def agree() -> bool:
        found.clear()
        found.update(stored(etcd))
        return found == wanted

    with contextlib.suppress(AssertionError):
        until(agree, 30.0)
    return {key: (found.get(key), wanted.get(key)) for key in found.keys() | wanted if found.get(key) != wanted.get(key)}


@pytest.mark.skipif(not CONVERSATIONS, reason="KAS_VECTORS names a directory without them")
def test_stored_values_are_those_of_upstream(served: tuple[Etcd, HTTP]) -> None:
    """In order: a conversation continues with the objects of earlier ones."""
    etcd, http = served
    wanted: dict[str, str] = {}
    for line in CONVERSATIONS:
        for i, (step, out) in enumerate(zip(line["in"]["steps"], line["out"]["steps"], strict=True)):
            if step["method"] == "POST":  # the definition may take a moment to be served
                until(lambda path=step["path"]: http("GET", path)[0] == 200)
            assert ask(http, step) == out["status"], (line["id"], i, step)
            for key, value in out["stored"].items():
                wanted.pop(key, None)
                if value is not None:
                    wanted[key] = alike(value)
            assert differences(etcd, wanted) == {}, (line["id"], i, step["path"])


@pytest.mark.parametrize("line", READ, ids=lambda line: line["id"])
def test_values_that_upstream_stored_are_read_as_upstream_reads_them(tmp_path, line: dict[str, Any]) -> None:
    with Etcd(tmp_path) as etcd:
        client = Client(etcd.config)
        for key, value in line["in"]["stored"].items():
            put = pb.RequestOp(request_put=pb.PutRequest(key=key.encode(), value=value.encode()))
            client.call(TXN, pb.TxnRequest(success=[put]))
        client.close()
        with KasServer(tmp_path / "kas", *flags(etcd)) as kas:
            http = HTTP(kas)
            for path, items in line["out"]["lists"].items():
                status, found = until(lambda path=path: (got := http("GET", path))[0] == 200 and got)
                assert status == 200
                for item in found["items"]:
                    assert item["metadata"].pop("resourceVersion")
                texts = [json.dumps(item, sort_keys=True, separators=(",", ":")) for item in found["items"]]
                assert [json.loads(alike(text)) for text in texts] == items, path

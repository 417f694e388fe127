"""CBOR in bodies, answers and watches, with its feature gate on."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kas.endpoints.cbor import _encode, _FromCBOR
from kas.meta import offload
from kas.meta.errors import ApiError
from kas.meta.offload import LARGE
from kas.testing.server import KasServer
from kas.types import cbor
from tests.clients.conversation import Connection
from tests.controllers.waiting import until

CBOR, APPLY, JSON = "application/cbor", "application/apply-patch+cbor", "application/json"
GROUP = "cbor.example.com"
FOOS, MAPS = f"/apis/{GROUP}/v1/namespaces/default/foos", "/api/v1/namespaces/default/configmaps"
SCHEMA = {"type": "object", "properties": {"data": {"type": "object", "additionalProperties": {"type": "string"}}}}
DEFINITION = {
    "metadata": {"name": f"foos.{GROUP}"},
    "spec": {
        "group": GROUP, "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}}],
    },
}  # fmt: skip
KINDS = [(FOOS, f"{GROUP}/v1", "Foo"), (MAPS, "v1", "ConfigMap")]


class Caller:
    def __init__(self, server: KasServer) -> None:
        self.connection = Connection(server)
        self.headers: dict[str, str] = {}

    def __call__(self, method: str, path: str, body: Any = None, form: str = CBOR, accept: str = CBOR, **more: str) -> tuple[int, Any]:
        """Returns status and decoded answer; ``headers`` are the last answer's."""
        headers = {**self.connection.authorization, "Accept": accept, **more}
        if body is not None:
            headers["Content-Type"] = form
            body = body if isinstance(body, bytes) else json.dumps(body).encode() if form == JSON else cbor.encode(body)
        status, found, data = self.connection.request(method, path, body, headers)
        self.headers = {k.lower(): v for k, v in found.items()}
        said = self.headers["content-type"]
        return status, cbor.decode(data) if said == CBOR else json.loads(data) if said == JSON else data


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    flags = ("--unsafe-no-fsync", "--controllers=none", "--feature-gates=CBORServingAndStorage=true")
    with KasServer(tmp_path_factory.mktemp("cbor"), *flags) as server:
        assert "CBORServingAndStorage" not in server.output  # without a warning
        call = Caller(server)
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        assert call("POST", path, DEFINITION, JSON, JSON)[0] == 201
        until(lambda: call("GET", FOOS, accept=JSON)[0] == 200)
        yield call
        assert "panic" not in server.output


def of(api_version: str, kind: str, name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "data": data}


@pytest.mark.parametrize(("path", "api_version", "kind"), KINDS)
def test_objects_are_written_and_read(call, path, api_version, kind):
    code, made = call("POST", path, {**of(api_version, kind, "a", x="é"), "bogus": 1})
    assert (code, call.headers["content-type"], made["data"]) == (201, CBOR, {"x": "é"})
    assert r'unknown field \"bogus\"' in call.headers["warning"]
    made["data"]["y"] = "2"
    assert call("PUT", f"{path}/a", made)[1]["data"] == {"x": "é", "y": "2"}
    assert call("PATCH", f"{path}/b?fieldManager=me", of(api_version, kind, "b", x="1"), APPLY)[0] == 201
    assert call("PATCH", f"{path}/a?fieldManager=me", of(api_version, kind, "a", x="1"), APPLY)[1]["reason"] == "Conflict"
    in_json, found = call("GET", path, accept=JSON)[1], call("GET", path, **{"Accept-Encoding": "gzip"})[1]
    assert found == in_json and {o["metadata"]["name"] for o in found["items"]} >= {"a", "b"}
    as_table = f"{CBOR};as=Table;v=v1;g=meta.k8s.io"
    assert call("GET", path, accept=f"{as_table},{CBOR}")[1]["kind"] == f"{kind}List"  # there are no tables in CBOR
    assert call("GET", path, accept=as_table)[0] == 406
    assert call("DELETE", f"{path}/a", {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]})[0] == 200
    assert call("GET", f"{path}/a")[0] == 200
    assert call("DELETE", f"{path}/a")[0] == 200
    assert call("GET", f"{path}/a")[1]["reason"] == "NotFound" and call.headers["content-type"] == CBOR


@pytest.mark.parametrize(("path", "api_version", "kind"), KINDS)
def test_a_watch_is_a_sequence(call, path, api_version, kind):
    assert call("POST", path, of(api_version, kind, "seen"))[0] == 201
    query = "?watch=true&resourceVersion=0&timeoutSeconds=1&fieldSelector=metadata.name%3Dseen"
    code, data = call("GET", path + query)
    assert (code, call.headers["content-type"]) == (200, "application/cbor-seq")
    events = [cbor.decode(cbor.SELF_DESCRIBED + item) for item in data.split(cbor.SELF_DESCRIBED)[1:]]
    assert [(e["type"], e["object"]["kind"], e["object"]["metadata"]["name"]) for e in events] == [("ADDED", kind, "seen")]


def test_accept_and_content_type_are_independent(call):
    assert call("POST", FOOS, of(f"{GROUP}/v1", "Foo", "form"))[0] == 201

    def form(accept: str, path: str = f"{FOOS}/form") -> str:
        call("GET", path, accept=accept)
        return call.headers["content-type"]

    assert form(f"application/vnd.kubernetes.protobuf,{CBOR}") == CBOR  # custom resources have no protobuf
    assert form(f"application/vnd.kubernetes.protobuf,{CBOR}", "/api/v1/namespaces/default") == "application/vnd.kubernetes.protobuf"
    assert form(f"{CBOR};q=0.1,{JSON}") == JSON and form("*/*") == JSON and form(f"text/plain,{CBOR}") == CBOR
    # CBOR requests with JSON answers, and the reverse.
    assert call("POST", FOOS, of(f"{GROUP}/v1", "Foo", "mixed"), accept=JSON)[0] == 201
    assert call.headers["content-type"] == JSON
    assert form(CBOR, "/apis") != CBOR  # documents have no CBOR form


@pytest.mark.parametrize("path", [FOOS, MAPS])
@pytest.mark.parametrize("body", [b"{}", b"\xff", cbor.SELF_DESCRIBED + b"\xa2\x41a\x01\x41a\x02", b"\x81" * 1000 + b"\x01"])
def test_bodies_that_are_no_objects_are_refused(call, path, body):
    code, said = call("POST", path, body)
    assert (code, said["reason"]) == (400, "BadRequest"), said


def test_large_lists_are_complete(call):
    for i in range(12):
        assert call("POST", MAPS, of("v1", "ConfigMap", f"large-{i}", x="x" * 100_000))[0] == 201
    found = call("GET", MAPS)[1]
    assert sum(o["metadata"]["name"].startswith("large-") for o in found["items"]) == 12


def test_cbor_is_refused_while_the_gate_is_off(kas):
    call = Caller(kas)
    assert call("GET", MAPS)[0] == 406
    assert call("POST", MAPS, of("v1", "ConfigMap", "a"), accept=JSON)[0] == 415


@pytest.mark.parametrize(("size", "jobs"), [(100, 0), (LARGE, 1)])
def test_a_large_body_is_read_off_the_loop(size, jobs):
    class Whole:
        length = -1

        async def read(self, user):
            return cbor.encode({"x": "x" * size})

    async def story() -> None:
        before = offload.POOL.done
        assert json.loads(await _FromCBOR(Whole()).read(None)) == {"x": "x" * size}
        assert offload.POOL.done - before == jobs

    asyncio.run(story())


def test_more_values_than_json_could_have_are_refused():
    class Whole:
        length = -1

        async def read(self, user):
            return b"\x9a\x00\x18\x00\x01" + b"\x80" * 0x180000 + b"\xf7"  # the last one is invalid

    async def story() -> None:
        with pytest.raises(ApiError) as caught:
            await _FromCBOR(Whole()).read(None)
        assert caught.value.code == 413

    asyncio.run(story())


def test_equal_answers_have_different_bytes(monkeypatch):
    drawn = iter((0.0, 0.5))
    monkeypatch.setattr(cbor, "random", lambda: next(drawn))
    text = b'{"type":"ADDED","object":1}'
    assert _encode(text) != _encode(text)

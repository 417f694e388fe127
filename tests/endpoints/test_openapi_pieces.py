"""The OpenAPI v2 document, assembled from what definitions contribute."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from kas.endpoints import openapi
from kas.endpoints.openapi import OpenAPI, gnostic
from tests.endpoints.test_openapi import CRD, described, fields


class Counted:
    """The contributions of ``count`` definitions in one group; ``loads`` has the numbers of those that were read."""

    def __init__(self, count: int) -> None:
        self.count, self.loads = count, list[int]()

    def part(self, i: int, tag: str = "1") -> openapi.Part:
        names = {"plural": f"widgets{i}", "kind": f"Widget{i}", "listKind": f"Widget{i}List"}

        def load():
            self.loads.append(i)
            return openapi.custom.describe({"spec": CRD["spec"] | {"names": names}})

        return openapi.Part("example.com", "v1", f"{i} {tag}", load)

    def server(self, changed: int = -1, before: OpenAPI | None = None) -> OpenAPI:
        parts = [self.part(i, "2" if i == changed else "1") for i in range(self.count)]
        return OpenAPI([], "v1.36.2", parts, before)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_protobuf_equals_that_of_the_whole_document(count):
    server = Counted(count).server()
    document = json.loads(server.v2().body)
    assert len([name for name in document["definitions"] if name.startswith("com.example.v1.Widget")]) == 2 * count
    assert len([path for path in document["paths"] if path.startswith("/apis/example.com/v1/")]) == 4 * count
    assert "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta" in document["definitions"] or not count
    whole, written = (dict(fields(data)) for data in (gnostic.encode_v2(document), server.v2(openapi.V2_PROTOBUF).body))
    assert whole.keys() == written.keys()
    for number in (8, 9):  # paths and definitions: their members have another order, at every depth
        names = [sorted(dict(fields(entry))[1] for _, entry in fields(data[number])) for data in (whole, written)]
        assert names[0] == names[1] and sorted(whole[number]) == sorted(written[number])


def test_a_changed_definition_costs_only_its_own_part():
    parts = Counted(5)
    before = parts.server()
    before.v2()
    before.v2(openapi.V2_PROTOBUF)
    assert sorted(parts.loads) == sorted([*range(5), *range(5)])
    parts.loads.clear()
    after = parts.server(changed=3, before=before)
    assert after.v2().etag != before.v2().etag
    assert parts.loads == [3]


GROUP = "apis/example.com/v1"


@pytest.mark.parametrize("count", [1, 3])
def test_an_assembled_v3_document_equals_the_whole_one(count):
    server = Counted(count).server()
    document = json.loads(server.v3(GROUP).body)
    named = [name for name in document["components"]["schemas"] if name.startswith("com.example.v1.Widget")]
    assert len(named) == 2 * count and len(document["paths"]) == 4 * count
    assert "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta" in document["components"]["schemas"]
    refs = {ref.rpartition("/")[2] for ref in strings(document) if ref.startswith("#/components/schemas/")}
    assert refs <= document["components"]["schemas"].keys()
    whole, written = (dict(fields(data)) for data in (gnostic.encode_v3(document), server.v3(GROUP, openapi.V3_PROTOBUF).body))
    assert whole.keys() == written.keys() and sorted(whole[4]) == sorted(written[4])
    parts = [dict(fields(data[5])) for data in (whole, written)]
    assert sorted(parts[0][1]) == sorted(parts[1][1]) and parts[0].keys() == parts[1].keys() == {1}


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from strings(item)


def test_in_v3_a_definition_replaces_a_built_in_one_of_its_name():
    names = {"plural": "pods", "kind": "Pod", "listKind": "PodList"}
    crd = {"spec": CRD["spec"] | {"group": "core.api.k8s.io", "names": names}}
    part = openapi.Part("core.api.k8s.io", "v1", "1", lambda: described(crd, "v1"))
    body = OpenAPI([], "v1.36.2", [part]).v3("apis/core.api.k8s.io/v1").body
    assert body.count(b'"io.k8s.api.core.v1.Pod":') == 1
    assert "io.k8s.api.core.v1.PodSpec" not in json.loads(body)["components"]["schemas"]


def test_in_v3_a_changed_definition_costs_only_its_own_part():
    parts = Counted(5)
    before = parts.server()
    before.v3(GROUP)
    parts.loads.clear()
    assert parts.server(changed=3, before=before).v3(GROUP).etag != before.v3(GROUP).etag
    assert parts.loads == [3]


@pytest.mark.parametrize("content_type", [openapi.JSON, openapi.V2_PROTOBUF, openapi.V3_PROTOBUF])
def test_a_definition_does_not_read_the_built_in_ones(content_type, monkeypatch):
    """They are 1.4 MB: reading them for each definition was nearly the whole cost of a document."""
    reads = []
    parse = openapi.schemas.json.loads
    openapi.schemas.names()
    monkeypatch.setattr(openapi.schemas.json, "loads", lambda text: (reads.append(len(text)), parse(text))[1])
    server = Counted(20).server()
    made = server.v3(GROUP, content_type) if content_type == openapi.V3_PROTOBUF else server.v2(content_type)
    assert made.size == len(made.body) and len(reads) == 1


def test_similar_definitions_share_memory():
    server = Counted(50).server()
    for kind in (openapi.JSON, openapi.V2_PROTOBUF):
        server.v2(kind)
    for kind in (openapi.JSON, openapi.V3_PROTOBUF):
        server.v3(GROUP, kind)
    kept = sum(len(text) for found in server._pieces.values() for text in found.texts)
    assert kept < sum(sum(found.sizes) for found in server._pieces.values()) / 20


def test_additions_to_v2_are_merged_with_definitions():
    server = Counted(3).server()
    known = json.loads(server.v2().body)
    own = "com.example.v1.Widget1"
    path = {"get": {"responses": {"200": {"description": "a", "schema": {"$ref": f"#/definitions/{own}"}}}}}

    def extend(document, part_index):
        assert part_index.has_path("/apis/example.com/v1/namespaces/{namespace}/widgets1")
        assert not part_index.has_path("/apis/example.com/v1/nothing") and not part_index.has_path("/apis/")
        assert part_index.definition(own) == known["definitions"][own] and part_index.definition("none") is None
        document["paths"]["/apis/a/b"] = path

    for kind in (openapi.JSON, openapi.V2_PROTOBUF):
        made = openapi.Document(server.extended_v2(kind, extend), kind, "")
        if kind == openapi.JSON:
            assert json.loads(made.body) == known | {"paths": known["paths"] | {"/apis/a/b": path}}
        else:
            assert b"/apis/a/b" in made.body


def test_deleted_definitions_are_removed():
    parts = Counted(5)
    server = parts.server()
    server.v2()
    parts.count = 4
    server = parts.server(before=server)
    assert "Widget4" not in server.v2().body.decode()
    parts.count = 5
    parts.loads.clear()
    parts.server(before=server).v2()
    assert parts.loads == [4]


def test_not_all_definitions_are_in_memory_at_once():
    text, count = "x" * (1 << 20), 64
    OpenAPI([], "v1.36.2").v2()  # the size without definitions

    def load(i: int):
        crd = {"spec": CRD["spec"] | {"names": {"plural": f"w{i}", "kind": f"W{i}"}, "versions": [
            {"name": "v1", "served": True, "schema": {"openAPIV3Schema": {"type": "object", "description": f"{text}{i}"}}},
        ]}}  # fmt: skip
        return described(crd, "v1")

    parts = [openapi.Part("example.com", "v1", str(i), lambda i=i: load(i)) for i in range(count)]
    server = OpenAPI([], "v1.36.2", parts)
    for make, kind in (
        (server.v2, openapi.JSON), (server.v2, openapi.V2_PROTOBUF), (server.v3, openapi.JSON), (server.v3, openapi.V3_PROTOBUF),
    ):  # fmt: skip
        tracemalloc.start()
        make(*([GROUP] if make == server.v3 else []), kind)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < count * len(text) / 2


def test_the_digest_of_a_version_reads_no_other_version():
    """The index has all digests, and a definition may have thousands of versions."""

    class Once(dict):
        walks = 0

        def items(self):
            self.walks += 1
            return super().items()

        def values(self):
            self.walks += 1
            return super().values()

    parts = [openapi.Part("example.com", f"v{i}", "1", dict) for i in range(20)]
    server = OpenAPI([], "v1.36.2", parts)
    server._parts, server._served = Once(server._parts), Once(server._served)
    assert server.known_v3_index() is None
    index = json.loads(server.v3_index().body)["paths"]
    assert len({index[f"apis/example.com/v{i}"]["serverRelativeURL"] for i in range(20)}) == 20
    assert server._parts.walks == server._served.walks == 0 and server.known_v3_index() is server.v3_index()
    other = OpenAPI([], "v1.36.2", [*parts[1:], openapi.Part("example.com", "v0", "2", dict)])
    assert [i for i in range(20) if other.v3_hash(f"apis/example.com/v{i}") != server.v3_hash(f"apis/example.com/v{i}")] == [0]

"""OpenAPI documents of several servers in one."""

from __future__ import annotations

from kas.aggregator.openapi import merge
from tests.aggregator.backend import Reply
from tests.aggregator.conftest import SERVICES
from tests.controllers.waiting import until

SCHEMA = "#/definitions/"
PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


def path(ref: str) -> dict:
    return {"get": {"responses": {"200": {"schema": {"$ref": SCHEMA + ref}}}}}


def test_merging_renames_definitions_that_differ():
    into = {"paths": {"/a": path("X")}, "definitions": {"X": {"type": "object"}, "Same": {"type": "string"}}}
    theirs = {"X": {"type": "array", "items": {"$ref": SCHEMA + "Same"}}, "Same": {"type": "string"}, "Unused": {}}
    spec = {"paths": {"/a": path("Unused"), "/b": path("X")}, "definitions": theirs, "parameters": {}}
    merge(into, spec)
    assert into["paths"] == {"/a": path("X"), "/b": path("X_v2")}
    assert into["definitions"] == {"X": {"type": "object"}, "Same": {"type": "string"}, "X_v2": theirs["X"]}
    assert spec["paths"]["/b"] == path("X")
    merge(into, {"paths": {"/c": path("X")}, "definitions": {"X": {"type": "number"}}, "parameters": {}})
    assert into["paths"]["/c"] == path("X_v3")


class PartIndex:
    """The parts of definitions, kept apart from the document."""

    def __init__(self, paths: set, definitions: dict) -> None:
        self.has_path, self.definition = paths.__contains__, definitions.get


def test_merging_considers_parts_outside_of_the_document():
    theirs = {"X": {"type": "array"}, "Same": {"type": "string"}}
    spec = {"paths": {"/a": path("X"), "/b": path("X"), "/c": path("Same")}, "definitions": theirs, "parameters": {}}
    into = {"paths": {}, "definitions": {}}
    merge(into, spec, PartIndex({"/a"}, {"X": {"type": "object"}, "Same": {"type": "string"}}))
    assert into["paths"] == {"/b": path("X_v2"), "/c": path("Same")}
    assert into["definitions"] == {"X_v2": theirs["X"]}


def test_a_recursive_definition_ends():
    into = {"paths": {}, "definitions": {}}
    merge(into, {"paths": {"/a": path("X")}, "definitions": {"X": {"properties": {"x": {"$ref": SCHEMA + "X"}}}}, "parameters": {}})
    assert list(into["definitions"]) == ["X"]


def test_v2_has_the_paths_of_backends(register):
    found = register("spec")
    thing, answer = f"{found.backend.base}/things", found.call.raw("GET", "/openapi/v2")
    document = answer.json()
    assert document["paths"][thing]["get"]["operationId"] == "readspec.test"
    assert document["definitions"]["test.Thing"]["description"] == "of spec.test"
    assert "/healthz" not in document["paths"] and "test.Unused" not in document["definitions"]
    assert "/api/v1/namespaces" in document["paths"]
    assert found.call.raw("GET", "/openapi/v2", If_None_Match=answer.headers["ETag"]).status_code == 304
    assert b"readspec.test" in found.call.raw("GET", "/openapi/v2", Accept=PROTOBUF).content
    found.call("DELETE", f"{SERVICES}/{found.name}")
    until(lambda: thing not in found.call("GET", "/openapi/v2")[1]["paths"])


def test_v2_omits_documents_that_cannot_be_merged(register):
    deep = b'{"paths":{"/apis/x":' + b'{"a":' * 300 + b"1" + b"}" * 302
    for name, body in (("bad-json", b"{"), ("bad-shape", b'{"paths":[]}'), ("deep", deep)):
        found = register(name, available=False)
        found.backend.replies["/openapi/v2"] = Reply(200, body)
        found.is_available()
        answer = found.call.raw("GET", "/openapi/v2")
        assert answer.status_code == 200 and "/api/v1/namespaces" in answer.json()["paths"]
        assert found.call.raw("GET", "/openapi/v2", Accept=PROTOBUF).status_code == 200
        assert "panic" not in found.call.server.output


def test_v3_lists_and_passes_on_the_documents_of_backends(register):
    found = register("three")
    paths = found.call("GET", "/openapi/v3")[1]["paths"]
    own = f"apis/{found.backend.group}/v1"
    assert paths[own] == {"serverRelativeURL": f"/openapi/v3/{own}?hash=1"}
    assert paths["api/v1"]["serverRelativeURL"] != ""  # the backend lists it too, which is ignored
    assert found.call("GET", paths[own]["serverRelativeURL"])[1]["info"] == {"title": found.backend.group}
    assert found.call("GET", "/openapi/v3/apis/apps/v1")[1]["openapi"] == "3.0.0"
    found.backend.stop()
    touched = {"spec": {"versionPriority": 16}}
    found.call("PATCH", f"{SERVICES}/{found.name}", touched, "application/merge-patch+json")
    found.is_available(False)
    assert found.call("GET", f"/openapi/v3/{own}") == (503, "service unavailable\n")
    assert found.call("GET", "/openapi/v3")[0] == 200

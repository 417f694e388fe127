"""OpenAPI v3 for backends that publish only v2."""

from __future__ import annotations

import pytest

from kas.aggregator.openapiconv import schema, to_v3
from tests.aggregator.backend import Reply
from tests.aggregator.conftest import SERVICES
from tests.controllers.waiting import until

PROTOBUF = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
THING, LED = {"$ref": "#/definitions/Thing"}, {"$ref": "#/components/schemas/Thing"}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (THING, LED),
        ({**THING, "description": "d"}, {"description": "d", "allOf": [LED]}),
        ({"properties": {"a": THING, "allOf": THING}}, {"properties": {"a": LED, "allOf": LED}}),
        ({"items": THING}, {"items": LED}),
        ({"items": [THING, {}]}, {"items": [LED, {}]}),
        ({"additionalProperties": THING, "additionalItems": True}, {"additionalProperties": LED, "additionalItems": True}),
        ({"anyOf": [THING], "not": THING, "default": {"$ref": "x"}}, {"anyOf": [LED], "not": LED, "default": {"$ref": "x"}}),
        ({"$ref": "elsewhere"}, {"$ref": "elsewhere"}),
    ],
)
def test_schemas(given, wanted):
    assert schema(given) == wanted


def test_operations():
    body, query = {"name": "body", "in": "body", "required": True, "schema": THING}, {"name": "q", "in": "query", "type": "string"}
    responses = {"200": {"description": "OK", "schema": THING}, "401": {"description": "no"}, "404": {"$ref": "#/responses/gone"}}
    post = {
        "operationId": "x", "consumes": ["a/b"], "produces": ["c/d", "e/f"], "parameters": [body, {"$ref": "#/parameters/p"}],
        "responses": responses, "x-kubernetes-action": "post", "schemes": ["https"],
    }  # fmt: skip
    spec = {
        "swagger": "2.0", "info": {"title": "t"}, "paths": {"/x": {"post": post, "parameters": [{**query, "uniqueItems": True}]}},
        "definitions": {"Thing": {"type": "object"}}, "responses": {"gone": {"description": "g", "schema": THING}}, "produces": ["a/b"],
        "securityDefinitions": {"T": {"type": "apiKey", "name": "authorization", "in": "header"}}, "security": [{"T": []}],
    }  # fmt: skip
    made = to_v3(spec)
    content = {"schema": LED}
    assert made["openapi"] == "3.0.0" and made["info"] == {"title": "t"} and "security" not in made
    assert made["paths"]["/x"] == {
        "parameters": [{"name": "q", "in": "query", "schema": {"type": "string", "uniqueItems": True}}],
        "post": {
            "operationId": "x", "x-kubernetes-action": "post", "requestBody": {"content": {"a/b": content}},
            "parameters": [{"$ref": "#/components/parameters/p"}],
            "responses": {
                "200": {"description": "OK", "content": {"c/d": content, "e/f": content}}, "401": {"description": "no"},
                "404": {"$ref": "#/components/responses/gone"},
            },
        },
    }  # fmt: skip
    assert made["components"] == {
        "schemas": {"Thing": {"type": "object"}}, "responses": {"gone": {"description": "g", "content": {"a/b": content}}},
        "securitySchemes": {"T": {"type": "apiKey", "name": "authorization", "in": "header"}},
    }  # fmt: skip


def test_a_backend_without_v3_gets_it_from_its_v2(register):
    found = register("old", available=False)
    found.backend.replies["/openapi/v3"] = Reply(404, b"")
    found.is_available()
    own = f"apis/{found.backend.group}/v1"
    first = found.call.raw("GET", f"/openapi/v3/{own}")  # before the index is requested
    assert first.status_code == 200 and first.json()["info"]["title"] == found.backend.group
    address = found.call("GET", "/openapi/v3")[1]["paths"][own]["serverRelativeURL"]
    assert address.startswith(f"/openapi/v3/{own}?hash=")
    answer = found.call.raw("GET", address)
    get = answer.json()["paths"][f"{found.backend.base}/things"]["get"]
    assert get["operationId"] == "readold.test" and answer.json()["openapi"] == "3.0.0" and "immutable" in answer.headers["Cache-Control"]
    assert answer.json()["components"]["schemas"]["test.Thing"]["description"] == "of old.test"
    assert found.call.raw("GET", address, If_None_Match=answer.headers["ETag"]).status_code == 304
    assert b"readold.test" in found.call.raw("GET", address, Accept=PROTOBUF).content
    stale = found.call.raw("GET", f"/openapi/v3/{own}?hash=0")
    assert [(r.status_code, r.headers["Location"]) for r in stale.history] == [(301, address)] and stale.status_code == 200
    assert not found.backend.seen(f"/openapi/v3/{own}")
    found.call("DELETE", f"{SERVICES}/{found.name}")
    until(lambda: own not in found.call("GET", "/openapi/v3")[1]["paths"])


def test_without_a_valid_v2_the_answer_is_the_backends_404(register):
    found = register("older", available=False)
    found.backend.replies["/openapi/v3"] = Reply(404, b"")
    found.backend.replies["/openapi/v2"] = Reply(200, b'{"paths":[]}')
    found.backend.replies[f"/openapi/v3/apis/{found.backend.group}/v1"] = Reply(404, b"none")
    found.is_available()
    assert found.call.raw("GET", f"/openapi/v3/apis/{found.backend.group}/v1").status_code == 404
    assert f"apis/{found.backend.group}/v1" not in found.call("GET", "/openapi/v3")[1]["paths"]

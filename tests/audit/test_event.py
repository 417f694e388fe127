"""The content of an audit event."""

from __future__ import annotations

import orjson
import pytest

from kas.audit.event import COMPLETE, METADATA, RECEIVED, REQUEST, REQUEST_RESPONSE, Entry, Event, source_ips, without_managed_fields
from kas.audit.policy import Verdict
from kas.auth.impersonation import CONSTRAINT
from kas.auth.user import UserInfo
from kas.types.scheme import BUILTIN
from tests.filters.requests import request

CONFIG_MAP = BUILTIN.known("", "v1", "ConfigMap")
MANAGED = [{"manager": "m", "operation": "Update"}]


def event(level: str = METADATA, omit_managed_fields: bool = False, omit: tuple[str, ...] = (), **how) -> tuple[Event, object]:
    req = request(**how)
    return Event(req, Verdict(level, omit, omit_managed_fields), 0.0), req


def fields(e: Event, stage: str = COMPLETE) -> dict:
    return orjson.loads(e.entry(stage).line)


def test_the_request_of_an_event():
    e, _ = event(path="/api/v1/namespaces/ns/pods/p", query="a=b%20c", user_agent="kubectl", x_real_ip="192.0.2.3")
    found = fields(e, RECEIVED)
    assert list(found) == [
        "kind", "apiVersion", "level", "auditID", "stage", "requestURI", "verb", "user", "sourceIPs", "userAgent", "objectRef",
        "requestReceivedTimestamp", "stageTimestamp",
    ]  # fmt: skip
    assert found["requestURI"] == "/api/v1/namespaces/ns/pods/p?a=b%20c" and found["verb"] == "get"
    assert found["user"] == {"username": "jane", "groups": ["system:authenticated"]} and found["sourceIPs"] == ["192.0.2.3"]
    assert found["objectRef"] == {"resource": "pods", "namespace": "ns", "name": "p", "apiVersion": "v1"}
    assert found["requestReceivedTimestamp"] == "1970-01-01T00:00:00.000000Z"


@pytest.mark.parametrize(("query", "told"), [("", True), ("watch=1", False)])
def test_slow_requests_have_latency_annotations_unless_they_are_watches(query, told):
    e, req = event(path="/api/v1/namespaces/ns/pods", query=query)
    req.started -= 10
    e.ended()
    assert ("apiserver.latency.k8s.io/total" in fields(e).get("annotations", {})) == told


def test_credentials_in_the_query_are_masked():
    e, _ = event(query="access_token=S3CRET&x=1")
    assert fields(e)["requestURI"] == "/api/v1/pods?access_token=***&x=1"


def test_a_non_resource_path_has_no_object_reference():
    e, _ = event(path="/healthz")
    assert "objectRef" not in fields(e)


def test_a_long_user_agent_is_truncated():
    e, _ = event(user_agent="a" * 1025)
    assert fields(e)["userAgent"] == "a" * 1024 + "...TRUNCATED"


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({"x_forwarded_for": "192.0.2.1, nonsense, 192.0.2.2", "x_real_ip": "192.0.2.1"}, ["192.0.2.1", "192.0.2.2", "10.0.0.9"]),
        ({"x_forwarded_for": "10.0.0.9,192.0.2.1, 10.0.0.9", "x_real_ip": "192.0.2.1"}, ["10.0.0.9", "192.0.2.1", "10.0.0.9"]),
        ({"x_forwarded_for": "010.0.0.9,fe80::1%e,192.0.2.1:80"}, ["10.0.0.9"]),
        ({"x_real_ip": "::ffff:192.0.2.1"}, ["192.0.2.1", "10.0.0.9"]),
        ({"x_real_ip": "10.0.0.9"}, ["10.0.0.9"]),
        ({}, ["10.0.0.9"]),
    ],
)
def test_source_addresses(headers, found):
    req = request(**headers)
    req.client = "10.0.0.9"
    assert source_ips(req) == found


def test_a_decoded_body_names_the_object_and_is_recorded_from_level_request_on():
    obj = {"metadata": {"name": "x", "uid": "u", "managedFields": MANAGED}, "data": {"a": "<b>"}}
    for level in (METADATA, REQUEST):
        e, _ = event(level, method="POST", path="/api/v1/namespaces/ns/configmaps")
        e.decoded(CONFIG_MAP.type, "ConfigMap", "v1", obj)
        found = fields(e)
        assert found["objectRef"] == {"resource": "configmaps", "namespace": "ns", "name": "x", "uid": "u", "apiVersion": "v1"}
        assert ("requestObject" in found) == (level == REQUEST)
    assert found["requestObject"]["metadata"]["managedFields"][0]["manager"] == "m" and found["requestObject"]["data"] == {"a": "<b>"}
    assert b'"a":"\\u003cb\\u003e"' in e.entry(COMPLETE).line


@pytest.mark.parametrize(("said", "shown"), [
    ("a<b", b"a\\u003cb"), ("é\u2028<", "é\\u2028\\u003c".encode()), ("\u2029&", b"\\u2029\\u0026"), ("\u2027", "\u2027".encode()),
])  # fmt: skip
def test_characters_special_to_html_are_escaped(said, shown):
    assert b'"k":"' + shown + b'"' in Entry({"k": said}).text


@pytest.mark.parametrize(("at", "shown"), [
    (1763900000.0, "2025-11-23T12:13:20.000000Z"), (1763900000.000001, "2025-11-23T12:13:20.000001Z"),
    (1763899999.75, "2025-11-23T12:13:19.750000Z"), (0.000007, "1970-01-01T00:00:00.000007Z"),
])  # fmt: skip
def test_times_have_microseconds(at, shown):
    assert fields(Event(request(), Verdict(METADATA, (), False), at))["requestReceivedTimestamp"] == shown


def test_managed_fields_are_omitted_if_the_policy_says_so():
    e, _ = event(REQUEST_RESPONSE, omit_managed_fields=True, method="POST", path="/api/v1/namespaces/ns/configmaps")
    obj = {"metadata": {"name": "x", "managedFields": MANAGED}}
    e.decoded(CONFIG_MAP.type, "ConfigMap", "v1", obj)
    e.answered(201, orjson.dumps({"kind": "ConfigMap", "apiVersion": "v1", **obj}))
    found = fields(e)
    assert found["requestObject"]["metadata"] == found["responseObject"]["metadata"] == {"name": "x"}
    assert obj["metadata"]["managedFields"] == MANAGED


def test_managed_fields_of_lists_and_tables():
    item = {"metadata": {"name": "x", "managedFields": MANAGED}}
    assert orjson.loads(without_managed_fields(orjson.dumps({"items": [item], "rows": [{"object": item}, {"cells": []}]}))) == {
        "items": [{"metadata": {"name": "x"}}], "rows": [{"object": {"metadata": {"name": "x"}}}, {"cells": []}],
    }  # fmt: skip


@pytest.mark.parametrize(("body", "found"), [(b' {"a": [1, 2]} ', {"a": [1, 2]}), (b"a:\n- 1\n", {"a": [1]}), (b"{a: [", None)])
def test_a_patch_is_recorded_as_json(body, found):
    e, _ = event(REQUEST, method="PATCH", path="/api/v1/namespaces/ns/configmaps/x")
    e.patched(body)
    assert fields(e).get("requestObject") == found


def test_a_status_is_recorded_at_every_level_and_the_object_only_at_the_highest():
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "m", "reason": "NotFound", "code": 404}
    for level in (METADATA, REQUEST_RESPONSE):
        e, _ = event(level)
        e.answered(404, orjson.dumps(status))
        found = fields(e)
        assert found["responseStatus"] == {"metadata": {}, "status": "Failure", "message": "m", "reason": "NotFound", "code": 404}
        assert found.get("responseObject") == (status if level == REQUEST_RESPONSE else None)
        assert "responseStatus" not in fields(e, RECEIVED)


def test_impersonation_shows_both():
    e, req = event()
    req.user = UserInfo("eve", ("g",))
    req.annotate(CONSTRAINT, "impersonate:user-info")
    req.annotate("b", "1")
    found = fields(e)
    assert found["user"]["username"] == "jane" and found["impersonatedUser"] == {"username": "eve", "groups": ["g"]}
    assert found["authenticationMetadata"] == {"impersonationConstraint": "impersonate:user-info"} and found["annotations"] == {"b": "1"}


def test_later_annotations_cannot_replace_the_servers():
    """Keys of webhooks and policies begin with their names, which may equal the beginning of the server's own keys."""
    e, req = event()
    e.authorized("allow", "RBAC: allowed", 0.0)
    assert not req.annotate("authorization.k8s.io/decision", "forbid") and not req.annotate("authorization.k8s.io/reason", "")
    assert req.annotate("h.example.com/k", "1") and req.annotate("h.example.com/k", "1") and not req.annotate("h.example.com/k", "2")
    assert req.annotate("authentication.kubernetes.io/impersonation-constraint", "impersonate:user-info")
    found = fields(e)
    assert found["annotations"] == {
        "authentication.kubernetes.io/impersonation-constraint": "impersonate:user-info",
        "authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": "RBAC: allowed", "h.example.com/k": "1",
    }  # fmt: skip
    assert "authenticationMetadata" not in found and "impersonatedUser" not in found


def test_omitted_stages():
    e, _ = event(omit=(RECEIVED,))
    assert not e.records(RECEIVED) and e.records(COMPLETE)


def test_a_truncated_entry_has_no_bodies():
    whole = Entry({"level": "Request", "requestObject": {"a": 1}, "responseObject": {}, "annotations": {"z": "1"}})
    found = orjson.loads(whole.truncated().line)
    assert found == {
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Request", "annotations": {"audit.k8s.io/truncated": "true", "z": "1"},
    }  # fmt: skip


@pytest.mark.parametrize(("form", "levels"), [("json", 300), ("json", 900), ("json", 2000), ("yaml", 300), ("yaml", 2000)])
def test_a_patch_is_recorded_however_deep_it_is_nested(form, levels):
    """It was a panic; one that no server takes is left out."""
    deep, _ = event(REQUEST)
    text = '{"a":' * levels + "1" + "}" * levels
    deep.patched(text.encode() if form == "json" else text.replace('"a":', "a: ").encode())
    assert deep.request_object == (text.encode() if levels < 1000 else None)


def test_managed_fields_are_left_out_of_deeply_nested_objects():
    answer = b'{"metadata":{"managedFields":[]},"a":' + b'{"a":' * 400 + b"1" + b"}" * 401
    assert without_managed_fields(answer) == answer.replace(b'"managedFields":[]', b"")

"""The JSON of events, compared with one built from dictionaries."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

import orjson
import pytest

from kas.audit.event import COMPLETE, METADATA, RECEIVED, REQUEST_RESPONSE, STARTED, Event, source_ips
from kas.audit.policy import Verdict
from kas.auth.impersonation import CONSTRAINT
from kas.auth.user import UserInfo
from kas.request.http import Request, Response
from kas.request.masking import request_uri
from kas.request.requestinfo import parse
from kas.types.scheme import BUILTIN

CONFIG_MAP = BUILTIN.known("", "v1", "ConfigMap")
EVERY = "".join(chr(c) for c in (*range(0x300), 0x7FF, 0x800, 0x2027, 0x2028, 0x2029, 0x202A, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF))
USERS = [
    None, UserInfo(""), UserInfo("jane", ("dev", "system:authenticated"), "u-1"),
    UserInfo(EVERY, (EVERY, ""), EVERY, {EVERY: [EVERY, "x"]}),
    UserInfo("é<b>&\u2028", ["日本"], "", {"b": ["2"], "a": ["1", ""]}),
]  # fmt: skip
LINES = [
    ("GET", "/api/v1/namespaces/ns/pods/p", ""), ("GET", "/api/v1/namespaces/ns/pods/p/log", "container=c&follow=true"),
    ("GET", "/healthz", ""), ("GET", "/apis/apps/v1/deployments", "limit=5&labelSelector=a%3Db"),
    ("GET", "/api/v1/nodes/n/proxy/x<>&y", ""),
    ("POST", "/apis/x.example/v1/things", "token=S3CRET&dryRun=All"), ("GET", "/apis/apps/v1", ""),
    ("DELETE", f"/api/v1/namespaces/{EVERY[1:]}", ""),
]  # fmt: skip
HEADERS = [
    [], [(b"user-agent", b"")], [(b"user-agent", b"kubectl/v1 (\xe9<\"\\\x01\x7f)")], [(b"user-agent", b"\xff" * 1024)],
    [(b"user-agent", b"a" * 1025), (b"x-forwarded-for", b"192.0.2.1, x, 2001:DB8::1"), (b"x-real-ip", b"192.0.2.1")],
]  # fmt: skip
ANNOTATIONS = [
    None, {}, {"a": EVERY}, {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": "<r>"}, {"b": "1", "a": "2"},
    {"c": "µ", EVERY: "\U0001f600", CONSTRAINT: "impersonate:user-info", "a": ""},
    {CONSTRAINT: "x"},
]  # fmt: skip
ANSWERS: list[tuple[int, bytes | None] | None] = [
    None, (200, None), (201, b'{"kind":"ConfigMap","apiVersion":"v1","data":{"a":"<b>\xe2\x80\xa8"}}\n'),
    (403, '{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"<é> & \\"x\\"","reason":"Forbidden",'
          '"details":{"name":"p","kind":"pods"},"code":403}\n'.encode()),
]  # fmt: skip


def expected(e: Event, req: Request, stage: str, named: dict, stamps: tuple[str, str], answer) -> bytes:
    """Returns the line as orjson and escaping produce it."""
    info = req.info
    fields = {
        "level": e.level, "auditID": req.audit_id, "stage": stage, "requestURI": request_uri(req), "verb": info.verb,
        "user": e.user.to_dict() if e.user is not None else {},
    }  # fmt: skip
    if e.user is not None and req.user is not e.user:
        fields["impersonatedUser"] = req.user.to_dict()
    annotations = dict(sorted(req.annotations.items())) if req.annotations else {}
    if (constraint := annotations.pop(CONSTRAINT, None)) is not None:
        fields["authenticationMetadata"] = {"impersonationConstraint": constraint}
    if sources := source_ips(req):
        fields["sourceIPs"] = sources
    agent = req.header(b"user-agent")
    if agent:
        fields["userAgent"] = agent if len(agent) <= 1024 else agent[:1024] + "...TRUNCATED"
    if info.is_resource_request:
        ref = {
            "resource": info.resource, "namespace": info.namespace, "name": info.name, "uid": "", "apiGroup": info.api_group,
            "apiVersion": info.api_version, "resourceVersion": "", "subresource": info.subresource,
        }  # fmt: skip
        fields["objectRef"] = {k: v or named.get(k, "") for k, v in ref.items() if v or named.get(k)}
    if answer is not None and stage != RECEIVED:
        told = orjson.loads(answer[1]) if answer[1] is not None and answer[1].startswith(b'{"kind":"Status"') else {}
        fields["responseStatus"] = {
            "metadata": {}, **{k: told[k] for k in ("status", "message", "reason", "details") if k in told}, "code": answer[0]
        }  # fmt: skip
    if e.request_object is not None:
        fields["requestObject"] = orjson.Fragment(e.request_object)
    if e.response_object is not None:
        fields["responseObject"] = orjson.Fragment(e.response_object)
    fields["requestReceivedTimestamp"], fields["stageTimestamp"] = stamps
    if annotations:
        fields["annotations"] = annotations
    text = orjson.dumps({"kind": "Event", "apiVersion": "audit.k8s.io/v1", **fields}).decode()
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text.encode() + b"\n"


def made(line, headers, user, client, level=METADATA, at=1_767_323_045.000001) -> tuple[Event, Request]:
    method, path, query = line
    req = Request(method, path, query, list(headers))
    req.info, req.user, req.client, req.audit_id = parse(method, path, query), user, client, "0a-<1>"
    return Event(req, Verdict(level, (), False), at), req


def compared(e: Event, req: Request, stage: str, named: dict, answer) -> None:
    line = e.entry(stage).line
    found = orjson.loads(line)
    stamps = found["requestReceivedTimestamp"], found["stageTimestamp"]
    assert line == expected(e, req, stage, named, stamps, answer)
    assert stamps[0] == "2026-01-02T03:04:05.000001Z"
    if stage == RECEIVED:
        assert stamps[1] == stamps[0]
    else:
        assert abs((datetime.fromisoformat(stamps[1]) - datetime.now(UTC)).total_seconds()) < 3600


@pytest.mark.parametrize("level", [METADATA, REQUEST_RESPONSE])
def test_every_kind_of_request_equals_one_built_from_dictionaries(level):
    for line, headers, user in itertools.product(LINES, HEADERS, USERS):
        e, req = made(line, headers, user, "10.0.0.9", level)
        compared(e, req, RECEIVED, {}, None)
        for other, noted, answer in itertools.product((user, UserInfo("bob", ["<g>"])), ANNOTATIONS, ANSWERS):
            e, req = made(line, headers, user, "", level)
            req.user, req.annotations = other, noted
            if answer is not None:
                e.answered(*answer)
            compared(e, req, COMPLETE, {}, answer)


@pytest.mark.parametrize("meta", [{}, {"name": "n", "uid": "u", "namespace": "other"}, {"name": EVERY, "resourceVersion": "7"}])
def test_the_name_in_a_body_is_in_the_reference(meta):
    for line in LINES:
        e, req = made(line, [], USERS[2], "::1")
        e.decoded(CONFIG_MAP.type, "ConfigMap", "v1", {"metadata": meta})
        compared(e, req, STARTED, meta, None)


def test_a_stage_keeps_its_state():
    e, req = made(LINES[5], [], USERS[2], "")
    first = e.entry(STARTED)
    e.decoded(CONFIG_MAP.type, "ConfigMap", "v1", {"metadata": {"name": "late"}})
    req.annotate("a", "b")
    e.answered(200, None)
    assert "name" not in first.fields["objectRef"] and "annotations" not in first.fields and "responseStatus" not in first.fields
    assert e.entry(COMPLETE).fields["objectRef"]["name"] == "late"


def test_invalid_characters_are_written_as_by_go():
    e, req = made(LINES[0], [], USERS[2], "")
    req.annotations = {"a": "x\ud800y"}
    assert '"a":"x\ufffdy"'.encode() in e.entry(COMPLETE).line


@pytest.mark.parametrize("char", ["<", '"', "\\", "\n", "\x00", "\x7f", "é", "日"])
def test_escaped_characters_in_every_position(char):
    e, req = made(LINES[0], [], USERS[2], "")
    for length in (1, 7, 8, 9, 16, 25):
        for at in range(length):
            req.annotations = {"a": "x" * at + char + "y" * (length - at - 1)}
            compared(e, req, RECEIVED, {}, None)


def test_long_and_short_texts_alternately():
    for n in (10, 100_000, 1, 30_000, 0):
        e, req = made(("GET", "/" + "<" * n, ""), [], USERS[2], "")
        compared(e, req, RECEIVED, {}, None)


def test_only_bodies_are_omitted_from_a_large_event():
    e, req = made(LINES[5], [], USERS[2], "10.0.0.9", REQUEST_RESPONSE)
    e.decoded(CONFIG_MAP.type, "ConfigMap", "v1", {"metadata": {"name": "x"}, "data": {"requestObject": "<"}})
    e.answered(200, b'{"kind":"ConfigMap"}\n')
    req.annotations = {"z": "<", "b": "1"}
    entry = e.entry(COMPLETE)
    assert entry.size == len(entry.line) and entry.line == b'{"kind":"Event","apiVersion":"audit.k8s.io/v1",' + entry.text[1:] + b"\n"
    whole = orjson.loads(entry.text)
    assert whole["requestObject"]["data"] and whole["responseObject"]
    short = orjson.loads(entry.truncated().text)
    assert short == {k: v for k, v in whole.items() if k not in ("requestObject", "responseObject")} | {
        "annotations": {"audit.k8s.io/truncated": "true", "b": "1", "z": "<"}
    }


@pytest.mark.parametrize(
    ("headers", "body", "plain"),
    [
        ([(b"content-type", b"application/json")], b'{"kind":"ConfigMap"}', True),
        ([(b"content-type", b"application/json")], b'{"kind":"Status","code":200}', False),
        ([(b"content-type", b"application/json")], b'{\n  "kind": "Status"\n}', False),
        ([(b"content-type", b"application/vnd.kubernetes.protobuf")], b"k8s\0", False),
        ([(b"content-type", b"application/json"), (b"content-encoding", b"gzip")], b"\x1f\x8b", False),
        ([(b"content-type", b"application/json")], b"", False),
        ([], b"{}", False),
    ],
)
def test_answers_are_parsed_only_where_they_may_be_a_status(headers, body, plain):
    e, _ = made(LINES[0], [], USERS[2], "")
    assert e.plain(Response(200, headers, body)) == plain
    for unlike in (made(LINES[0], [], USERS[2], "", REQUEST_RESPONSE)[0], e):
        unlike.panicked = "" if unlike is not e else "ValueError"
        assert not unlike.plain(Response(200, headers, body))

"""How the responses of conversations are made comparable."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace

import pytest

from tests.clients.conversation import Aliases, Conversation, diff, in_order, kinds, without
from tests.clients.waiting import WaitingConversation

UID = "0a1b2c3d-0000-4000-8000-00000000000{}"


class Answers:
    """Replaces a connection: returns its responses in order, the last one repeatedly."""

    host, authorization = "127.0.0.1:6443", {"Authorization": "Bearer t"}

    def __init__(self, *answers: object) -> None:
        self.answers, self.asked = list(answers), []

    def request(self, method, path, body, headers):
        self.asked.append(SimpleNamespace(method=method, path=path, body=body, headers=headers))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        status, value = answer if isinstance(answer, tuple) else (200, answer)
        return status, {"content-type": "application/json", "date": "now"}, json.dumps(value).encode()


def talk(*answers: object) -> tuple[Conversation, Answers]:
    connection = Answers(*answers)
    return Conversation(connection, "a/b"), connection


def test_equal_values_stay_equal_and_different_ones_different():
    a = Aliases("s123", "6443")
    one, two = UID.format(1), UID.format(2)
    assert a.value([{"uid": one}, {"uid": two}, {"uid": one}]) == [{"uid": "<uid1>"}, {"uid": "<uid2>"}, {"uid": "<uid1>"}]
    assert a.text(f"precondition {two} in s123") == "precondition <uid2> in <ns>"
    service = {"clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7", "10.0.0.8"]}
    assert a.value(service) == {"clusterIP": "<ip1>", "clusterIPs": ["<ip1>", "<ip2>"]}
    assert a.value({"generateName": "x-", "name": "x-4fz2q", "note": "x-4fz2q is there"})["note"] == "<gen1> is there"


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ({"resourceVersion": "12"}, {"resourceVersion": "<rv>"}),
        ({"resourceVersion": "0"}, {"resourceVersion": "0"}),
        ({"continue": "ab"}, {"continue": "<continue>"}),
        ({"continue": ""}, {"continue": ""}),
        ({"cells": ["a", "3d4h", 1]}, {"cells": ["a", "<age>", 1]}),
        ({"time": "2024-01-02T03:04:05Z"}, {"time": "<time>"}),
        ({"nodePort": 30001, "other": 30001}, {"nodePort": "<port1>", "other": 30001}),
        ({"nodePort": 0}, {"nodePort": 0}),
        ({"targetPort": 6443, "port": 6443}, {"targetPort": "<serverport>", "port": 6443}),
        ({"ready": True, "nothing": None}, {"ready": True, "nothing": None}),
        ({"resourceRules": [{"verbs": ["b"]}, {"verbs": ["a"]}]}, {"resourceRules": [{"verbs": ["a"]}, {"verbs": ["b"]}]}),
        ({"rules": [{"verbs": ["b"]}, {"verbs": ["a"]}]}, {"rules": [{"verbs": ["b"]}, {"verbs": ["a"]}]}),
    ],
)
def test_values_that_differ_between_runs_get_aliases(given, want):
    assert Aliases("s123", "6443").value(given) == want


def test_steps_can_use_earlier_responses():
    c, asked = talk({"metadata": {"uid": "u7", "list": ["one", 2]}})
    c.play({"method": "GET", "path": "/x", "save": "got"})
    c.play({"method": "PUT", "path": "/${ns}/${got:metadata.uid}", "body": {"n": "${got:metadata.list.0}", "gone": "${got:a.b}"}})
    sent = asked.asked[1]
    assert sent.path == f"/{c.namespace}/u7"
    assert json.loads(sent.body) == {"n": "one", "gone": "null"}
    assert sent.headers == {"Authorization": "Bearer t", "Accept": "application/json", "Content-Type": "application/json"}


def test_headers_of_a_step():
    c, asked = talk({})
    c.play({"method": "POST", "path": "/", "body": "x", "contentType": "", "anonymous": True, "accept": "a/b", "headers": {"X": "${ns}"}})
    assert asked.asked[0].headers == {"Accept": "a/b", "X": c.namespace}


def test_polling_ends_with_the_expected_status_and_text():
    c, asked = talk((404, {}), {"phase": "no"}, {"phase": "yes"}, {"phase": "late"})
    out = c.play({"method": "GET", "path": "/", "poll": 9, "has": '"yes"'})
    assert (out["body"], len(asked.asked)) == ({"phase": "yes"}, 3)


def test_consecutive_watches_run_at_the_same_time():
    """Each is read when all of them have been started; responses are returned in their order."""
    asked = threading.Barrier(3)

    class Watched:
        status = 200

        def __init__(self) -> None:
            self.lines: list[bytes] = []

        def request(self, method, path, headers):
            self.lines = [json.dumps({"type": "ADDED", "object": {"metadata": {"name": path}}}).encode(), b""]
            asked.wait(60)

        def getresponse(self):
            return self

        def getheader(self, _):
            return "application/json"

        def readline(self):
            return self.lines.pop(0)

        def close(self):
            pass

    c, connection = talk({})
    connection.another = lambda timeout: Watched()
    steps = [{"method": "GET", "path": "/"}, *({"method": "GET", "path": path, "watch": 1} for path in "abc")]
    _, *watched = c.all(steps, [{}] * 4)
    assert [event["name"] for answer in watched for event in answer["events"]] == ["a", "b", "c"]


def test_a_read_with_a_wait_continues_when_it_is_as_recorded():
    """A response that came too early has no alias; a recorded hour is not waited."""
    early, late = ({"metadata": {"uid": UID.format(i)}} for i in (1, 2))
    connection = Answers(early, early, late)
    wanted = {"status": 200, "headers": {"content-type": "application/json"}, "body": {"metadata": {"uid": "<uid1>"}, "there": True}}
    late["there"] = True
    assert WaitingConversation(connection, "a/b").all([{"method": "GET", "path": "/", "wait": 3600}], [wanted]) == [wanted]
    assert len(connection.asked) == 3


def test_parts_of_a_response_can_be_kept():
    c, _ = talk({"paths": {"/a": 1, "/b": 2}, "names": {"x.y": ["one", "two"]}})
    assert c.play({"method": "GET", "path": "/", "only": "status"}) == {"status": 200, "headers": {"content-type": "application/json"}}
    out = c.play({"method": "GET", "path": "/", "keep": {"paths": "^/a", "names.x~1y": "t"}})
    assert out["body"] == {"paths": {"/a": 1}, "names.x~1y": ["two"]}
    listed = {"resources": [{"name": "b", "kind": "B", "verbs": ["list", "get"]}, {"name": "a", "kind": "A", "namespaced": True}]}
    assert kinds(listed) == [["a", "A", True, []], ["b", "B", None, ["get", "list"]]]


def test_errors_in_any_order_are_equal():
    def status(*causes: str) -> dict:
        body = {"kind": "Status", "message": f"x is invalid: [{', '.join(causes)}]", "details": {"causes": [{"field": c} for c in causes]}}
        return in_order({"status": 422, "headers": {"warning": ", ".join(f'299 - "{c}"' for c in causes)}, "body": body})

    assert status("a", "b") == status("b", "a")
    assert status("a", "b") != status("a", "c")


def test_an_unknown_step_is_refused():
    with pytest.raises(ValueError, match="a step with reply cannot be played"):
        talk({})[0].play({"method": "HOOK", "path": "/m", "reply": {}})


@pytest.mark.parametrize(
    ("want", "got", "lines"),
    [
        ({"a": [1, 2]}, {"a": [1, 2]}, []),
        ({"a": 1, "b": 2}, {"b": 3, "c": 4}, [".a: missing, want 1", ".b: got 3 want 2", ".c: extra 4"]),
        ([1, 2], [1], [": 1 items, want 2"]),
        (True, 1, [": got 1 want true"]),
        ({}, None, [": got null want {}"]),
    ],
)
def test_differences(want, got, lines):
    assert diff(want, got) == lines


def test_a_field_can_be_left_out():
    assert without({"a": [{"b": 1, "c": 2}], "b": 3}, "b") == {"a": [{"c": 2}]}

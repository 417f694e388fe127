"""Conversations in which the server calls webhooks, which answer by the rules of the conversation.

A step ``{"method": "HOOK", "path": P, "reply": RULE}`` sets the answer of ``${hook}/${ns}P``. ``{"method": "CALLS"}`` returns the requests
that have arrived for the conversation since the last such step (``sort`` where calls come at the same time, ``distinct`` where their
number is not guaranteed, ``fields`` for parts of the bodies). A RULE for a review has ``allowed``, ``patch``, ``patchType``, ``warnings``,
``auditAnnotations``, ``result`` (a Status), ``uid``, ``apiVersion``, ``kind``, ``response`` (null omits it), ``code``, ``raw`` (body),
``delay`` (seconds); of ``cases``, the first whose ``when`` matches the review counts. A RULE for a conversion has ``convert`` (the last
part of a version -> changes: ``move`` one path to another, ``set`` a path to a value, ``drop`` a path), ``lose`` (returns one object too
few), ``version`` (of the objects), ``fail`` (message), ``uid``, ``response``.

The recording waited for the reference's caches (``wait``); replays do not. Webhooks with a timeout of 5 seconds get the longest one
allowed, so that no result depends on the speed of this machine.
"""

from __future__ import annotations

import base64
import json
import re
import time
from pathlib import Path
from typing import Any

from tests.admission.webhook.hook_server import Answer as HookAnswer
from tests.admission.webhook.hook_server import HookServer, raw_answer
from tests.clients.conversation import Aliases, Answer, Connection, Step, as_text
from tests.clients.waiting import WaitingConversation

SHORT, LONG = 5, 30
# Prefixes of the names of such conversations.
HOOKED = re.compile("(webhook|policy|mutating-policy|conversion)/")
SHOWN_HEADERS = ("content-type", "accept", "authorization", "impersonate-user", "x-forwarded-for", "x-custom")


def part(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


class Hooks(HookServer):
    """Answers by rules, each at its path."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.rules: dict[str, dict[str, Any]] = {}
        self.answers = self._by_rule

    def _by_rule(self, asked: dict[str, Any]) -> HookAnswer:
        rule, body = self.rules.get(asked["path"].partition("?")[0]), asked["body"]
        if rule is None:
            return raw_answer(b"no rule\n", 404)
        for case in rule.get("cases", ()):
            if all(part(body, path) == value for path, value in case["when"].items()):
                rule = case
                break
        time.sleep(rule.get("delay", 0))
        review = _conversion if "convert" in rule or "fail" in rule else _review
        answer = rule["raw"].encode() if "raw" in rule else json.dumps(review(rule, body)).encode()
        return raw_answer(answer, rule.get("code", 200))


def _review(rule: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    response = {"uid": rule.get("uid", body["request"]["uid"]), "allowed": rule.get("allowed", True)}
    if "patch" in rule:
        text = rule["patch"] if isinstance(rule["patch"], str) else json.dumps(rule["patch"])
        response |= {"patch": base64.b64encode(text.encode()).decode(), "patchType": "JSONPatch"}
    response |= {k: rule[k] for k in ("patchType", "warnings", "auditAnnotations") if k in rule}
    if "result" in rule:
        response["status"] = rule["result"]
    out = {
        "apiVersion": rule.get("apiVersion", body["apiVersion"]), "kind": rule.get("kind", "AdmissionReview"),
        "response": rule.get("response", response),
    }  # fmt: skip
    return {k: v for k, v in out.items() if v is not None}


def _conversion(rule: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    request = body["request"]
    wanted = request["desiredAPIVersion"]
    response = {"uid": rule.get("uid", request["uid"]), "convertedObjects": [], "result": {"status": "Success"}}
    if "fail" in rule:
        response["result"] = {"status": "Failure", "message": rule["fail"]}
    else:
        changes = rule["convert"].get(wanted.rpartition("/")[2], [])
        objects = [_changed(obj | {"apiVersion": rule.get("version", wanted)}, changes) for obj in request["objects"]]
        response["convertedObjects"] = objects[:-1] if rule.get("lose") else objects
    out = {"apiVersion": body["apiVersion"], "kind": "ConversionReview", "response": rule.get("response", response)}
    return {k: v for k, v in out.items() if v is not None}


def _changed(obj: dict[str, Any], changes: list[list[Any]]) -> dict[str, Any]:
    for what, path, *more in changes:
        *parents, last = path.split(".")
        place: Any = obj
        for key in parents:
            place = place.setdefault(key, {})
        if what == "set":
            place[last] = more[0]
        elif last in place:
            value = place.pop(last)
            if what == "move":
                _changed(obj, [["set", more[0], value]])
    return obj


class HookedAliases(Aliases):
    """Also replaces the webhooks' address, port and certificate."""

    def __init__(self, namespace: str, port: str, hooks: Hooks) -> None:
        super().__init__(namespace, port)
        self._hooks = hooks
        self.lengthened = False  # webhooks got LONG for SHORT

    def text(self, s: str) -> str:
        s = s.replace(self._hooks.ca_bundle, "<hookca>")
        s = re.sub(rf"\b(localhost|127\.0\.0\.1):{self._hooks.port}\b", "<hook>", s)
        return super().text(s.replace(f"?timeout={LONG}s", f"?timeout={SHORT}s") if self.lengthened else s)


class HookedConversation(WaitingConversation):
    def __init__(self, connection: Connection, name: str, hooks: Hooks, me: str) -> None:
        super().__init__(connection, name)
        self.hooks, self.me = hooks, me
        self.aliases = HookedAliases(self.namespace, self.aliases.port, hooks)

    def fill(self, text: str) -> str:
        for name, value in (("hookca", self.hooks.ca_bundle), ("hookport", str(self.hooks.port)), ("hook", self.hooks.url)):
            text = text.replace(f"${{{name}}}", value)
        return super().fill(text)

    def play(self, step: Step) -> Answer:
        if step["method"] == "HOOK":
            self.hooks.rules[f"/{self.namespace}{step['path']}"] = json.loads(self.fill(json.dumps(step["reply"])))
            return {"set": True}
        if step["method"] == "CALLS":
            return {"calls": self._calls(step)}
        step = {k: v for k, v in step.items() if k != "wait"}
        for hook in step["body"].get("webhooks") or () if isinstance(step.get("body"), dict) else ():
            if hook.get("timeoutSeconds") == SHORT and "${hook}" in str(hook.get("clientConfig")):
                hook["timeoutSeconds"] = LONG
                self.aliases.lengthened = True
        return super().play(step)

    def _calls(self, step: Step) -> list[Answer]:
        mine = [s for s in self.hooks.seen if self.namespace in s["path"]]
        self.hooks.seen[:] = [s for s in self.hooks.seen if self.namespace not in s["path"]]
        out = []
        for call in mine:
            body = call["body"]
            user = part(body, "request.userInfo")
            if user is not None and user.get("username") == self.me:
                body = {**body, "request": {**body["request"], "userInfo": "<self>"}}
            if step.get("fields"):
                body = {f: part(body, f) for f in step["fields"] if part(body, f) is not None}
            headers = {k: self.aliases.text(v) for k, v in call["headers"].items() if k in SHOWN_HEADERS}
            out.append({"method": "POST", "path": self.aliases.text(call["path"]), "headers": headers, "body": self.aliases.value(body)})
        if step.get("distinct"):
            out = list({as_text(c): c for c in out}.values())
        return sorted(out, key=lambda c: (c["path"], as_text(c["body"]))) if step.get("sort") else out

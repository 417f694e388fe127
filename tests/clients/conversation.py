"""Sends recorded conversations to a server and makes the responses comparable.

A conversation is a list of steps. Each is a request: ``method``, ``path``, ``body`` (JSON or text), ``contentType`` ("" sends none),
``accept``, ``headers``, ``anonymous``. ``save`` stores the response under a name, and ``${name:a.b.0}`` in a later step is a value of it;
``${ns}`` is the conversation's own namespace. The step first waits for ``wait`` seconds; with ``poll`` the request is repeated so many
times until the status is ``until`` (200) and the text matches ``has``. ``watch`` reads events until the stream ends or there are ``max``;
``objects`` keeps whole objects, ``bookmarks: drop`` omits bookmarks without annotations. Of the response, ``only: status`` compares no
body, ``only: kinds`` compares the kinds that a discovery document lists, ``keep`` (dotted path -> regular expression of keys or items)
compares parts of a large one; ``unordered`` is for errors that come in any order.

Values that differ between runs are replaced by aliases, numbered in order of appearance, so that equal values stay equal and different
ones stay different.
"""

from __future__ import annotations

import hashlib
import http.client
import itertools
import json
import re
import ssl
import time
import urllib.parse
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from kas.testing.server import KasServer

Step = dict[str, Any]
Answer = dict[str, Any]

COMPARED_HEADERS = ("content-type", "warning", "retry-after", "allow", "www-authenticate")
STEP_KEYS = {
    "method", "path", "body", "contentType", "accept", "headers", "anonymous", "save", "wait", "poll", "until", "has", "watch", "max",
    "objects", "bookmarks", "only", "keep", "unordered",
}  # fmt: skip
WATCH_SECONDS = 12
WATCHES = 16  # at the same time
POLL_SECONDS = 0.25
# Texts that depend on the run -> their replacement. The order matters: later patterns see the result of the earlier ones.
PLACEHOLDERS = [
    (re.compile(pattern), alias)
    for pattern, alias in (
        (r"eyJ[A-Za-z0-9_-]{20,}(\.[A-Za-z0-9_-]+)*", "<token>"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<time>"),
        (r"(resource version: )\d+( \(\d+\))?", r"\1<rv>"),
        (r'(resourceVersion[\\"]*: ?[\\"]*)\d+', r"\1<rv>"),
        (r"(ResourceVersion in record \(|<rv>, current: )\d+", r"\1<rv>"),
        (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<uid>"),
        (r"\bX_[a-z0-9]{5}\b", "X_<gen>"),
        (r"kube-api-access-[a-z0-9]{5}", "<projected>"),
        (r"\b10\.0\.0\.\d+\b", "<ip>"),
        (r"(?<!\b127\.0\.0\.1):3[0-2]\d{3}/", ":<port>/"),  # of nodes: the server's own may be equal
        (r"\b127\.0\.0\.1:\d+", "<server>"),
        (r"https?://(127\.0\.0\.1|localhost)(:\d+)?", "<server>"),
        (r"dial tcp [^ ]+: connect: connection refused", "<refused>"),
        (r"read tcp [^ ]+->[^ ]+: ", ""),
        (r"(hash=)[0-9A-F]{64,}", r"\1<hash>"),
    )
]
TIMES = ("creationTimestamp", "deletionTimestamp", "time", "lastTransitionTime")
UIDS = ("uid", "controller-uid", "batch.kubernetes.io/controller-uid")
# Lists whose order depends on clocks and caches.
SETS = ("managedFields", "resourceRules", "nonResourceRules")


def as_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


class Connection:
    """One connection to a server, with all rights."""

    def __init__(self, server: KasServer) -> None:
        self.host = urllib.parse.urlsplit(server.url).netloc
        self.authorization = {"Authorization": f"Bearer {server.token}"}
        self._context = ssl.create_default_context(cafile=server.ca)
        self._open: http.client.HTTPSConnection | None = None

    def another(self, timeout: float = 60) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self.host, context=self._context, timeout=timeout)

    def request(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        """(status, headers by their names in lower case, body). Reconnects once if the server has closed the connection."""
        for last in (False, True):
            if self._open is None:
                self._open = self.another()
            try:
                self._open.request(method, path, body=body, headers=headers)
                response = self._open.getresponse()
                data = response.read()
            except (http.client.HTTPException, ConnectionError, ssl.SSLError):
                self.close()
                if last:
                    raise
                continue
            found: dict[str, str] = {}
            for key, value in response.getheaders():
                found[key.lower()] = f"{found[key.lower()]}, {value}" if key.lower() in found else value
            if response.will_close:
                self.close()
            return response.status, found, data
        raise AssertionError("unreachable")

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


class Aliases:
    """The values of one conversation's responses, with those that differ between runs replaced."""

    def __init__(self, namespace: str, port: str) -> None:
        self.namespace, self.port = namespace, port
        self._aliases: dict[tuple[str, Any], str] = {}

    def alias(self, kind: str, value: Any) -> str:
        """``<kind1>`` for the first value of a kind, the same again whenever the value comes back."""
        count = sum(k == kind for k, _ in self._aliases)
        return self._aliases.setdefault((kind, value), f"<{kind}{count + 1}>")

    def text(self, s: str) -> str:
        s = s.replace(self.namespace, "<ns>").replace(self.namespace.capitalize(), "<Ns>")
        for (kind, value), alias in self._aliases.items():
            if kind in ("uid", "gen"):
                s = s.replace(value, alias)
        for pattern, alias in PLACEHOLDERS:
            s = pattern.sub(alias, s)
        return s

    def value(self, v: Any, key: str = "") -> Any:
        """A JSON value; ``key`` is the name of its field (items of a list get the list's)."""
        if isinstance(v, dict):
            prefix = v.get("generateName")
            if isinstance(prefix, str) and prefix and str(v.get("name", "")).startswith(prefix):
                self.alias("gen", v["name"])
            return {self.text(k): self.value(e, k) for k, e in v.items()}
        if isinstance(v, list):
            return self._list(v, key)
        if isinstance(v, str):
            return self._string(v, key)
        if isinstance(v, bool) or v is None:
            return v
        if key == "targetPort" and str(v) == self.port:
            return "<serverport>"
        return self.alias("port", v) if key in ("nodePort", "healthCheckNodePort") and v else v

    def _list(self, v: list[Any], key: str) -> list[Any]:
        if key in SETS:
            return sorted((self.value(e, key) for e in v), key=as_text)
        if key == "items" and v and all(isinstance(e, dict) and "conditions" in e for e in v):  # ComponentStatus
            v = sorted(v, key=lambda e: e["metadata"]["name"])
        if key == "conditions" and any(isinstance(e, dict) and e.get("type") == "NamesAccepted" for e in v):
            # Several controllers write the conditions of a CustomResourceDefinition.
            v = sorted(v, key=lambda e: (e.get("type") != "NamesAccepted", e.get("type")))
        return [self.value(e, key) for e in v]

    def _string(self, v: str, key: str) -> str:
        if key in UIDS and re.fullmatch(r"[0-9a-f-]{36}", v):
            return self.alias("uid", v)
        if key in ("resourceVersion", "resourceVersionMatch"):
            return v if v in ("", "0") else "<rv>"
        if key == "continue":
            return "<continue>" if v else ""
        if key in ("clusterIP", "clusterIPs") and re.fullmatch(r"[0-9.]+", v):
            return self.alias("ip", v)
        if key == "cells" and re.fullmatch(r"(\d+[smhd])+", v):
            return "<age>"
        if key == "token":
            return "<token>"
        if key in TIMES and re.match(r"\d{4}-", v):
            return "<time>"
        if key == "targetPort" and v == self.port:
            return "<serverport>"
        return self.text(v)


class Stream(NamedTuple):
    """The response to a watch: its events, or ``data`` where it is no stream."""

    status: int
    kind: str | None
    events: list[dict[str, Any]]
    data: bytes = b""


class Conversation:
    """One conversation: its namespace, saved responses and aliases."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.connection = connection
        self.namespace = "s" + hashlib.sha1(name.encode()).hexdigest()[:8]
        self.saved: dict[str, Any] = {}
        self.aliases = Aliases(self.namespace, connection.host.rpartition(":")[2])
        self._begun: dict[int, Future[Stream]] = {}  # watches whose step has not come yet

    def fill(self, text: str) -> str:
        """``text`` with every ``${...}`` replaced by its value; a missing value is the text ``null``."""

        def value(match: re.Match[str]) -> str:
            name, _, path = match.group(1).partition(":")
            if name == "ns":
                return self.namespace
            v = self.saved.get(name)
            for part in path.split("."):
                if isinstance(v, list):
                    v = v[int(part)] if int(part) < len(v) else None
                else:
                    v = v.get(part) if isinstance(v, dict) else None
            return v if isinstance(v, str) else json.dumps(v)

        return re.sub(r"\$\{([^}]*)\}", value, text)

    def all(self, steps: Sequence[Step], wanted: Sequence[Answer]) -> list[Answer]:
        """The normalised responses to all steps, in order. Watches in consecutive steps, each of which lasts for its seconds, run at the
        same time."""
        out = []
        with ThreadPoolExecutor(WATCHES) as pool:
            for i, (step, answer) in enumerate(zip(steps, wanted, strict=True)):
                if not self._begun:
                    watches = list(itertools.takewhile(lambda s: s.get("watch") and "wait" not in s, steps[i:]))
                    self._begun = {id(s): pool.submit(self._stream, s, *self._request(s)[:2]) for s in watches}
                out.append(self.reach(step, answer))
        return out

    def reach(self, step: Step, wanted: Answer) -> Answer:
        """The normalised response to one step whose recorded response is known."""
        return self.play(step)

    def play(self, step: Step) -> Answer:
        """The normalised response to one step. Raises ValueError for a step with unknown keys."""
        if unknown := step.keys() - STEP_KEYS:
            raise ValueError(f"a step with {', '.join(sorted(unknown))} cannot be played")
        time.sleep(step.get("wait", 0))
        path, headers, body = self._request(step)
        if step.get("watch"):
            begun = self._begun.pop(id(step), None)
            return self._watched(begun.result() if begun else self._stream(step, path, headers), step)
        status, found, data = self._ask(step, path, body, headers)
        value = parsed(data)
        if step.get("save"):
            self.saved[step["save"]] = value
        out: Answer = {"status": status, "headers": {k: self.aliases.text(found[k]) for k in COMPARED_HEADERS if k in found}}
        if step.get("only") == "kinds":
            out["body"] = kinds(value) if isinstance(value, dict) else value
            return out
        if step.get("only") != "status":
            if step.get("keep") and isinstance(value, dict):
                value = {at: self._part(value, at, self.fill(pattern)) for at, pattern in step["keep"].items()}
            out["body"] = self.aliases.value(value)
        return in_order(out) if step.get("unordered") else out

    def _request(self, step: Step) -> tuple[str, dict[str, str], bytes | None]:
        """The path, headers and body of a step."""
        headers = {} if step.get("anonymous") else dict(self.connection.authorization)
        headers |= {k: self.fill(v) for k, v in (step.get("headers") or {}).items()}
        headers["Accept"] = step.get("accept") or "application/json"
        body = step.get("body")
        if body is not None:
            body = self.fill(body if isinstance(body, str) else json.dumps(body)).encode()
            headers.setdefault("Content-Type", step.get("contentType") or "application/json")
        if step.get("contentType") == "":
            headers.pop("Content-Type", None)
        return self.fill(step["path"]), headers, body

    def _ask(self, step: Step, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        times = step.get("poll", 1)
        for left in range(times - 1, -1, -1):
            status, found, data = self.connection.request(step["method"], path, body, headers)
            there = "has" not in step or re.search(self.fill(step["has"]), data.decode("utf-8", "replace"))
            if not left or (status == step.get("until", 200) and there):
                break
            time.sleep(POLL_SECONDS)
        return status, found, data

    @staticmethod
    def _part(value: Any, at: str, pattern: str) -> Any:
        """The part at a dotted path ("~1" is a dot in a name); the keys of an object or the items of a list that match."""
        for part in at.split("."):
            value = value.get(part.replace("~1", ".")) if isinstance(value, dict) else None
        if isinstance(value, dict):
            return {k: v for k, v in value.items() if re.search(pattern, k)}
        return [v for v in value if re.search(pattern, json.dumps(v))] if isinstance(value, list) else value

    def _stream(self, step: Step, path: str, headers: dict[str, str]) -> Stream:
        stream = self.connection.another(WATCH_SECONDS)
        try:
            stream.request("GET", path, headers=headers)
            response = stream.getresponse()
            kind = response.getheader("Content-Type")
            if response.status != 200 or "json" not in (kind or ""):
                return Stream(response.status, kind, [], response.read() if response.status != 200 else b"")
            events: list[dict[str, Any]] = []
            while len(events) < step.get("max", 200) and (line := next_line(response)):
                event = json.loads(line)
                if "object" not in event:  # not a stream but one object
                    return Stream(200, kind, events, line)
                events.append(event)
            return Stream(200, kind, events)
        finally:
            stream.close()

    def _watched(self, stream: Stream, step: Step) -> Answer:
        out: Answer = {"status": stream.status, "headers": {"content-type": stream.kind}}
        if stream.status != 200 or "json" not in (stream.kind or ""):
            out["body"] = self.aliases.value(parsed(stream.data)) if stream.status != 200 else ""
            return out
        events = [self._event(event, bool(step.get("objects"))) for event in stream.events]
        if stream.data:
            out["body"] = self.aliases.value(parsed(stream.data))
        if step.get("bookmarks") == "drop":
            events = [e for e in events if e["type"] != "BOOKMARK" or e.get("annotations")]
        out["events"] = events
        return out

    def _event(self, event: dict[str, Any], whole: bool) -> dict[str, Any]:
        obj = event["object"]
        meta = obj.get("metadata") or {}
        out = {"type": event["type"], "kind": obj.get("kind"), "name": self.aliases.text(meta.get("name") or "")}
        if event["type"] == "BOOKMARK":
            out["annotations"] = meta.get("annotations")
        if whole or event["type"] == "ERROR":
            out["object"] = self.aliases.value(obj)
        return out


def parsed(data: bytes) -> Any:
    """The JSON value if it is JSON, else the text."""
    try:
        return json.loads(data)
    except ValueError:
        return data.decode("utf-8", "replace")


def next_line(response: http.client.HTTPResponse) -> bytes:
    """The next line of a stream; empty when it has ended or nothing came in time."""
    try:
        return response.readline()
    except TimeoutError:
        return b""


def kinds(document: dict[str, Any]) -> list[Any]:
    """The entries of a discovery document: name, kind, whether namespaced, verbs."""
    rows = [[r.get("name"), r.get("kind"), r.get("namespaced"), sorted(r.get("verbs") or [])] for r in document.get("resources") or []]
    return sorted(rows)


def in_order(out: Answer) -> Answer:
    """A response whose errors or warnings may come in any order: these are sorted, and of the message the text before them is kept."""
    body = out.get("body")
    causes = (body.get("details") or {}).get("causes") if isinstance(body, dict) and body.get("kind") == "Status" else None
    if causes and len(causes) > 1:
        body["details"]["causes"] = sorted(causes, key=as_text)
        body["message"] = body["message"].split(": [")[0]
    if out["headers"].get("warning"):
        out["headers"]["warning"] = ", ".join(sorted(re.split(r", (?=299 - )", out["headers"]["warning"])))
    return out


def diff(want: Any, got: Any, at: str = "") -> list[str]:
    """The differences of two JSON values, one line for each path."""
    if isinstance(want, dict) and isinstance(got, dict):
        out = []
        for key in sorted(want.keys() | got.keys()):
            if key not in want:
                out.append(f"{at}.{key}: extra {json.dumps(got[key])[:120]}")
            elif key not in got:
                out.append(f"{at}.{key}: missing, want {json.dumps(want[key])[:120]}")
            else:
                out += diff(want[key], got[key], f"{at}.{key}")
        return out
    if isinstance(want, list) and isinstance(got, list):
        out = [] if len(want) == len(got) else [f"{at}: {len(got)} items, want {len(want)}"]
        for i, (w, g) in enumerate(zip(want, got, strict=False)):
            out += diff(w, g, f"{at}[{i}]")
        return out
    if want == got and isinstance(want, bool) == isinstance(got, bool):  # true does not equal 1
        return []
    return [f"{at}: got {json.dumps(got)[:160]} want {json.dumps(want)[:160]}"]


def without(value: Any, key: str) -> Any:
    """A JSON value without the fields of that name, at any depth."""
    if isinstance(value, dict):
        return {k: without(v, key) for k, v in value.items() if k != key}
    return [without(v, key) for v in value] if isinstance(value, list) else value

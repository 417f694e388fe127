"""The 5xx answers that kube-apiserver gives, too, each described as narrowly as possible: its code, its reason and its whole message."""

from __future__ import annotations

import collections
import json
import re
from typing import Any, NamedTuple, Protocol

import yaml

from kas._codecs import decode_protobuf, open_envelope
from kas.types import cbor
from kas.types.scheme import BUILTIN
from tests.robustness.fuzzwire import Answer, Asked

STATUS = BUILTIN.known("", "v1", "Status").type


class Explained(NamedTuple):
    """A 5xx answer that is allowed, and the reason. ``text`` is a regular expression for the whole message; ``reason`` is that of the
    Status ("" if it has none, None for an answer that is not a Status)."""

    code: int
    reason: str | None
    text: str
    why: str


NAMED = r"\([^;]*; [^;)]*, Kind=[^;)]*\)"  # an object, as apply names it
QUOTED = r'"(?:[^"\\]|\\.)*"'  # as Go quotes
# Complaints of schemas about unknown fields: one, or a list.
MISFIT = r"(errors:\n  )?\.?\S.*(expected|not declared|duplicate|missing|associative|element|list map|failed|invalid|must).*"
REFUSED = r"dial tcp 127\.0\.0\.1:1: connect: connection refused"
EXPLAINED = (
    Explained(
        500, None, rf"Internal Server Error: {QUOTED}: failed to create RequestInfo: unable to determine kind and namespace from url, .*\n",
        "a path such as /api/v1/watch/ that cannot be read as a request",
    ),
    Explained(500, "", "resourceVersion should not be set on objects to be created", "a POST that names a revision"),
    Explained(
        500, "", rf"(resourceVersion: Invalid value: {QUOTED}: )?strconv.ParseUint: parsing {QUOTED}: (invalid syntax|value out of range)",
        "a revision that is no number, which the storage complains of",
    ),
    Explained(500, "", rf"failed to create typed patch object {NAMED}: {MISFIT}", "an apply of what the schema has not, or has otherwise"),
    Explained(
        500, "", rf"failed to convert new object {NAMED} to proper version: unable to convert unstructured object to .*, Kind=\w+: .+",
        "an apply of what fits the schema but not the type",
    ),
    Explained(
        500, "", rf"failed to create manager for existing fields: failed to convert new object {NAMED} to smd typed: {MISFIT}",
        "an apply to an object that nobody has applied, which is stored as the schema has it not",
    ),
    Explained(
        500, "",
        r"failed to create manager for existing fields: failed to convert live object \(/; autoscaling/v1, Kind=Scale\) to proper version: "
        "request to convert CR to an invalid group/version: autoscaling/v1",
        "an apply to the scale of a custom resource whose replicas nobody manages yet",
    ),
    Explained(
        500, "InternalError", "Internal error occurred: Object 'apiVersion' is missing in 'object has no apiVersion field'",
        "a patch that takes a custom resource its apiVersion",
    ),
    Explained(
        500, "InternalError",
        r"Internal error occurred: failed to allocate (a serviceIP|a nodePort|(a|requested) HealthCheck NodePort \d+): "
        r"(range is full|the provided network does not match the current range|allocator not ready|provided port is already allocated"
        r"|provided port is not in the valid range\. .*)",
        "a Service whose address or port is not there: they come before validation",
    ),
    Explained(
        500, "", rf"unable to find api field in struct \w+ for the json field {QUOTED}",
        "a strategic merge patch of what the type has not",
    ),
    Explained(500, "", r"unknown patch type: .* in map: map\[.*\]", "a strategic merge patch with a directive nobody knows"),
    Explained(
        500, "",
        r"expected a (\[\]|map\[string\])interface \{\}, but received a (map\[string\]interface \{\}|\[\]interface \{\}|\w+|%!s\(<nil>\))"
        r"|list element types are not identical: \[.*\]"
        r"|map: map\[.*\] does not contain declared merge key: \w+|expected slice or array type, but got: \w+"
        r"|merging an object in json but data type is not struct, instead is: \w+|no elements in any of the given slices",
        "a strategic merge patch of another form than the type's",
    ),
    Explained(500, "", "content is not a list", "a custom resource asked for as a list"),
    Explained(
        500, "", r"\[?target\.(kind: Unsupported value|name: Required value)\b.*",
        "a binding to nothing, or to what is no node, whose list of faults is no Status",
    ),
    Explained(500, "", r"no preferred addresses found; known addresses: \[.*\]", "a proxy to a node that has said no address"),
    Explained(500, "", r"Component not found: .*", "a ComponentStatus of what is no component"),
    Explained(
        504, "Timeout", r"Timeout: Too large resource version: \d+, current: \d+",
        "a revision of the future, which did not come in three seconds",
    ),
    Explained(
        500, "", rf'Get "https://127\.0\.0\.1:1/containerLogs/\S+": {REFUSED}', "a log of a pod on a node where nobody listens",
    ),
    Explained(500, "", f"error dialing backend: {REFUSED}", "an exec, attach or port forward to a node where nobody listens"),
    Explained(503, "ServiceUnavailable", f"no endpoints available for service {QUOTED}", "a proxy to a service that nothing is behind"),
)


class Told(NamedTuple):
    """The content of an answer. ``reason`` is None if it is not a Status; its text is then the message."""

    reason: str | None
    message: str


def told(answer: Answer) -> Told:
    """Returns the reason and message of an answer in any format. A Status that cannot be parsed is returned as text."""
    try:
        status = _read(answer)
    except (ValueError, yaml.YAMLError):
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        return Told(None, answer.text)
    return Told(str(status.get("reason", "")), str(status.get("message", "")))


def _read(answer: Answer) -> Any:
    kind = answer.ctype.partition(";")[0]
    if kind == "application/json":
        return json.loads(answer.data)
    if kind == "application/yaml":
        return yaml.load(answer.data, yaml.CSafeLoader)
    if kind == "application/cbor":
        return cbor.decode(answer.data)
    if kind == "application/vnd.kubernetes.protobuf":
        return {"kind": "Status", **decode_protobuf(STATUS, open_envelope(answer.data)[2])}
    return None


def explanation(answer: Answer) -> Explained | None:
    """Returns the explanation of a 5xx, or None. The answer must have its text, which one to a HEAD has not."""
    said = told(answer)
    return next(
        (e for e in EXPLAINED if (e.code, e.reason) == (answer.status, said.reason) and re.fullmatch(e.text, said.message, re.S)), None
    )


class Asking(Protocol):
    """Connections to a server."""

    def ask(self, asked: Asked) -> Answer:
        """Returns the answer to one request."""


class Tally:
    """Counts the answers, and the explanations of 5xx answers."""

    def __init__(self) -> None:
        self.answered: collections.Counter[str] = collections.Counter()
        self.explained: collections.Counter[str] = collections.Counter()

    def wrong(self, wire: Asking, asked: Asked, answer: Answer) -> str:
        """Returns what is wrong with an answer: that there is none, or that its 5xx has no explanation; "" if nothing is. The text of a
        5xx to a HEAD is requested with a GET."""
        self.answered[f"{answer.status}"] += 1
        if 100 < answer.status < 500:
            return ""
        if asked.verb == "HEAD" and answer.status:
            answer = wire.ask(asked._replace(verb="GET"))
            if 100 < answer.status < 500:
                return ""  # the object did not exist a moment ago
        if found := explanation(answer):
            self.explained[f"{found.code} {found.why}"] += 1
            return ""
        return f"{asked.shown()}: {answer.status} {told(answer)}"[:2500]

    def properties(self) -> list[tuple[str, object]]:
        """Returns the counts for the summary of a run, and resets them."""
        out: list[tuple[str, object]] = [("answered", dict(self.answered)), ("explained", dict(self.explained))]
        self.answered.clear()
        self.explained.clear()
        return out

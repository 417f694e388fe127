"""Rows of definitions, their objects, policies, webhooks and aggregated API servers."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from tests.hostile.attacker import APPLY, CRDS, Attacker, definition
from tests.hostile.rows import posts, row

# -- definitions and their objects

def texts(n: int, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {f"f{i}": {"type": "string", **more} for i in range(n)}}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def defines(name: str, *codes: int, make: Callable[[], dict[str, Any]]) -> None:
    """An attack that creates a definition, twice at once, and deletes it."""
    posts(f"definition: {name}", *codes, make=lambda: definition("made", make()), to=CRDS)


def rule(text: str) -> dict[str, Any]:
    return {"x-kubernetes-validations": [{"rule": text}]}


defines("400 levels", 201, 400, 413, 422, make=lambda: nested(200))
defines("20,000 fields", 201, 422, make=lambda: texts(20_000))
defines("a thousand long patterns", 422, make=lambda: {
    "type": "object", "properties": {f"f{i}": {"type": "string", "pattern": rf"\pL{{{i + 100}}}"} for i in range(900)}})  # fmt: skip
defines("a pattern of Unicode classes", 422, make=lambda: texts(1, pattern=r"\pL" * 500_000))
defines("patterns never the same", 201, 422, make=lambda: {
    "type": "object", "properties": {f"f{i}": {"type": "string", "pattern": f"^a{{1,{i % 900}}}x{i}$"} for i in range(5000)}})  # fmt: skip
defines("defaults of defaults", 201, 400, 422, make=lambda: {"type": "object", "default": {f"k{i}": {} for i in range(3000)},
    "additionalProperties": {"type": "object", "allOf": [{"maxProperties": i} for i in range(3000)]}})  # fmt: skip
defines("rules by the thousand", 201, 422, make=lambda: {
    **texts(100), "x-kubernetes-validations": [{"rule": f"has(self.f1) || {i} > 0"} for i in range(1000)]})  # fmt: skip
defines("a rule that costs too much", 422, make=lambda: {
    "type": "object", "properties": {"l": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}}},
    **rule("self.l.all(x, self.l.all(y, self.l.all(z, x == y && y == z)))")})  # fmt: skip
defines("a rule of 100,000 characters", 422, make=lambda: {**texts(2), **rule(" && ".join(["self.f1 != ''"] * 6500))})
defines("a rule nested 5,000 deep", 400, 422, make=lambda: {**texts(2), **rule("(" * 5000 + "true" + ")" * 5000)})
defines("an enum of 100,000", 201, 422, make=lambda: texts(1, enum=[f"v{i}" for i in range(100_000)]))


def objects(name: str, *codes: int, schema: Callable[[], dict[str, Any]], spec: Callable[[], Any], mb: int = 96) -> None:
    """An attack that creates objects of a definition."""

    @row(f"custom objects: {name}", *codes, mb=mb)
    def _(a: Attacker) -> None:
        plural = "r" + str(len(name)) + "".join(c for c in name if c.isalpha())[:20].lower()
        path = a.define(plural, schema())
        assert path, a.codes
        a.post(path, a.custom(plural, spec()), times=2)


objects("unknown fields", 201, 400, 200, schema=lambda: texts(1), spec=lambda: {f"u{i}": {"a": 1} for i in range(80_000)})
objects(
    "a list by keys", 201, 200, 422, spec=lambda: {"l": [{"k": f"v{i}"} for i in range(60_000)]},
    schema=lambda: {"type": "object", "properties": {"l": {
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}}}}},
)  # fmt: skip
objects(
    "wrong everywhere", 422, 200, 201, mb=224, spec=lambda: {"l": ["x"] * 200_000},
    schema=lambda: {"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string", "minLength": 2}}}},
)  # fmt: skip
objects(
    "host names", 201, 200, spec=lambda: {"l": [f"a{i}.example.com" for i in range(20_000)]},
    schema=lambda: {"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string", "format": "hostname"}}}},
)  # fmt: skip
objects(
    "a text that its pattern cannot take", 422, 200, 201, spec=lambda: {"t": "ab" * 300_000},
    schema=lambda: {"type": "object", "properties": {"t": {"type": "string", "pattern": "[ab]*a" + "[ab]{900}" * 8 + "c"}}},
)  # fmt: skip
objects(
    "rules at their limit", 201, 200, 422, spec=lambda: {"l": ["x" * 20] * 1000},
    schema=lambda: {
        "type": "object", "properties": {"l": {"type": "array", "maxItems": 1000, "items": {"type": "string", "maxLength": 20}}},
        **rule("self.l.all(x, x.matches('^x+$') && x.size() > 1)")},
)  # fmt: skip
objects(
    "a thousand rules over as many fields", 201, 200, 422, spec=lambda: {f"f{i}": "a" for i in range(1000)},
    schema=lambda: {**texts(1000, maxLength=5), "x-kubernetes-validations": [{"rule": f"self.f{i} != 'x'"} for i in range(1000)]},
)  # fmt: skip
objects(
    "few bytes, and rules that cost all there is", 201, 200, 422, spec=lambda: {"l": ["ab"] * 250},
    schema=lambda: {
        "type": "object", "properties": {"l": {"type": "array", "maxItems": 500, "items": {"type": "string", "maxLength": 5}}},
        **rule("self.l.all(x, self.l.all(y, x + y != 'zz'))")},
)  # fmt: skip
objects(
    "few bytes, and a pattern of many states", 422, 200, 201, spec=lambda: {"t": "ab" * 2500},
    schema=lambda: {"type": "object", "properties": {"t": {"type": "string", "pattern": "[ab]*a" + "[ab]{900}" * 8 + "c"}}},
)  # fmt: skip
objects(
    "few bytes, and large defaults", 201, 200, 413, 422, spec=lambda: {"l": [{}] * 20_000},
    schema=lambda: {"type": "object", "properties": {"l": {"type": "array", "items": {"type": "object", "properties": {
        "a": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "default": {f"k{i}": i for i in range(1000)}}}}}}},
)  # fmt: skip
objects(
    "few bytes, and a thousand alternatives that all fail", 201, 200, 413, 422, 504, spec=lambda: {"l": [{}] * 1000},
    schema=lambda: {"type": "object", "properties": {"l": {"type": "array", "items": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": True, "anyOf": [{"required": [f"k{i}"]} for i in range(1000)]}}}},
)  # fmt: skip
objects(
    "few bytes, and the last of a thousand alternatives holds", 201, 200, 413, 422, 504, spec=lambda: {"l": [5] * 20_000},
    schema=lambda: {"type": "object", "properties": {"l": {"type": "array", "items": {
        "type": "integer", "anyOf": [{"minimum": 10 * (999 - i)} for i in range(1000)]}}}},
)  # fmt: skip
objects(
    "few bytes, and 400 members missing of each item", 201, 200, 413, 422, 504, spec=lambda: {"l": [{}] * 8000},
    schema=lambda: {"type": "object", "properties": {"l": {"type": "array", "items": {
        **texts(400), "required": [f"f{i}" for i in range(400)]}}}},
)  # fmt: skip
objects(
    "as deep as may be", 201, 200, 400, 422, schema=lambda: {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    spec=lambda: nested(200),
)  # fmt: skip


@row("custom objects: applied with 40,000 fields", 200, 201, 413)
def _(a: Attacker) -> None:
    path = a.define("applied", {"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    body = a.custom("applied", {f"k{i}": "v" for i in range(40_000)})
    body["metadata"] = {"name": "x"}
    a.many((("PATCH", f"{path}/x?fieldManager=m{i}&force=true", body, APPLY) for i in range(3)), 3)


# -- policies, webhooks and aggregated API servers

# Six at once take ten seconds of a processor: on a busy machine a request may time out.
@row("policies: expressions at their limit", 201, 200, 422, 504)
def _(a: Attacker) -> None:
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    match = {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]}
    scope = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": a.room}}}
    heavy = "object.data.all(x, object.data.all(y, object.data.all(z, x != '' && y != '' && z != '')))"
    a.ask("POST", policies, {"metadata": {"name": a.room}, "spec": {
        "failurePolicy": "Ignore", "matchConstraints": {**match, **scope}, "validations": [{"expression": heavy}]}})  # fmt: skip
    a.cleaned.append(lambda: a.ask("DELETE", f"{policies}/{a.room}"))
    bind = {"metadata": {"name": a.room}, "spec": {"policyName": a.room, "validationActions": ["Audit"]}}
    a.ask("POST", f"{policies[:-8]}policybindings", bind)
    a.cleaned.append(lambda: a.ask("DELETE", f"{policies[:-8]}policybindings/{a.room}"))
    a.post(a.maps, {"metadata": {"generateName": "p"}, "data": {f"k{i}": "v" for i in range(300)}}, times=3)


@row("policies: variables that double, and calls that are all work", 201, 200, 422)
def _(a: Attacker) -> None:
    base = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
    match = {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
             "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": a.room}}}  # fmt: skip
    sums, pairs = ([{"name": "v0", "expression": "object.data.map(k, object.data[k])"},
                    *({"name": f"v{i}", "expression": step.replace("v", f"variables.v{i - 1}")} for i in range(1, 30))]
                   for step in ("v + v", "dyn([v, v])"))  # fmt: skip
    works = [([], "lists.range(400000).distinct() == []"), ([], "sets.contains(lists.range(90000), lists.range(90000))"),
             (sums, "variables.v29.size() == 0"), (pairs, "variables.v29 == variables.v28")]  # fmt: skip
    for i, (variables, expression) in enumerate(works):
        meta = {"name": f"{a.room}-{i}", "labels": {"room": a.room}}
        spec = {"failurePolicy": "Ignore", "matchConstraints": match, "variables": variables, "validations": [{"expression": expression}]}
        a.ask("POST", f"{base}ies", {"metadata": meta, "spec": spec})
        a.ask("POST", f"{base}ybindings", {"metadata": meta, "spec": {"policyName": meta["name"], "validationActions": ["Audit"]}})
    for kind in ("ybindings", "ies"):
        a.cleaned.append(lambda kind=kind: a.ask("DELETE", f"{base}{kind}?labelSelector=room%3D{a.room}"))
    a.post(a.maps, {"metadata": {"generateName": "p"}, "data": {f"k{i}": "v" for i in range(300)}}, times=4)


@row("policies: a thousand expressions", 201, 422)
def _(a: Attacker) -> None:
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}]
    spec = {"validations": [{"expression": f"object.metadata.name != 'x{i}'"} for i in range(1000)],
            "matchConstraints": {"resourceRules": rules}}  # fmt: skip
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies?dryRun=All"
    a.post(policies, {"metadata": {"name": a.room}, "spec": spec})


@row("webhooks: one that never answers", 201, 200, 500)
def _(a: Attacker) -> None:
    hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    silent = listener(a)
    a.ask("POST", hooks, {"metadata": {"name": a.room}, "webhooks": [{
        "name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 2, "failurePolicy": "Ignore",
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": a.room}}, "clientConfig": {"url": f"https://127.0.0.1:{silent}/"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]}]})  # fmt: skip
    a.cleaned.append(lambda: a.ask("DELETE", f"{hooks}/{a.room}"))
    a.many((("POST", a.maps, {"metadata": {"generateName": "w"}}) for _ in range(100)), 25)


@row("APIServices: nobody behind them", 200, 201, 404, 503)
def _(a: Attacker) -> None:
    services = "/apis/apiregistration.k8s.io/v1/apiservices"
    for i in range(5):
        group = f"g{i}.dead.example.com"
        spec = {"group": group, "version": "v1", "groupPriorityMinimum": 10, "versionPriority": 10, "insecureSkipTLSVerify": True,
                "service": {"namespace": a.room, "name": f"s{i}"}}  # fmt: skip
        a.ask("POST", services, {"metadata": {"name": f"v1.{group}"}, "spec": spec})
        a.cleaned.append(lambda group=group: a.ask("DELETE", f"{services}/v1.{group}"))
    a.many((("GET", f"/apis/g{i % 5}.dead.example.com/v1/x") for i in range(200)), 20)
    a.many((("GET", "/apis") for _ in range(20)), 5)


def listener(a: Attacker) -> int:
    """A port that accepts connections and never answers."""
    s = socket.create_server(("127.0.0.1", 0), backlog=256)
    a.cleaned.append(s.close)
    port: int = s.getsockname()[1]
    return port

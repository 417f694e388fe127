"""Requests generated from our own OpenAPI documents: none of them causes a 5xx or a hang, and the responses are as documented.

It takes a sample of groups with few examples each, to need about a minute; ``KAS_SCHEMATHESIS_EXAMPLES`` and ``KAS_SCHEMATHESIS_GROUPS``
(comma separated, or ``all``) widen it.
"""

from __future__ import annotations

import json
import os
import random

import pytest
import requests

from tests import prerequisites

schemathesis = prerequisites.module("schemathesis")

import hypothesis  # noqa: E402

EXAMPLES = int(os.environ.get("KAS_SCHEMATHESIS_EXAMPLES", "2"))
GROUPS = os.environ.get(
    "KAS_SCHEMATHESIS_GROUPS", "version,api/v1,apis/apps/v1,apis/batch/v1,apis/autoscaling/v2,apis/rbac.authorization.k8s.io/v1"
)
OPERATIONS = 24
# A watch ends only after its timeout; these would proxy to, or wait for, a server that does not exist.
LONG = ("/watch/", "/proxy", "/exec", "/attach", "/portforward", "/log")
KNOWN_TYPES = (
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/cbor",
    "text/plain",
    "application/com.github.proto-openapi",
)


@pytest.fixture(scope="module")
def session(module_server):
    server = module_server("--unsafe-no-fsync")
    s = requests.Session()
    s.trust_env = False
    s.verify = server.ca
    s.headers["Authorization"] = f"Bearer {server.token}"
    s.server = server
    return s


def documents(session) -> dict[str, dict]:
    paths = session.get(session.server.url + "/openapi/v3", timeout=60).json()["paths"]
    wanted = paths if GROUPS == "all" else [g for g in GROUPS.split(",") if g in paths]
    found = {p: session.get(session.server.url + paths[p]["serverRelativeURL"], timeout=60).json() for p in wanted}
    found["v2"] = session.get(session.server.url + "/openapi/v2", timeout=60).json()
    return found


def some_operations(document: dict, name: str) -> dict:
    """The document with a sample of its operations, the same every time."""
    every = [
        (p, m)
        for p, item in document["paths"].items()
        if not any(x in p for x in LONG)
        for m in item
        if m not in ("parameters", "options", "head")
    ]
    chosen = every if GROUPS == "all" else random.Random(name).sample(every, min(OPERATIONS, len(every)))
    paths: dict[str, dict] = {}
    for p, m in chosen:
        item = document["paths"][p]
        paths.setdefault(p, {"parameters": item.get("parameters", [])})[m] = item[m]
    return {**document, "paths": paths}


def test_no_documented_request_causes_an_error(session, tell):
    sent = 0
    answers: dict[int, int] = {}
    for name, document in documents(session).items():
        schema = schemathesis.openapi.from_dict(some_operations(document, name))
        for result in schema.get_all_operations():
            operation = result.ok()

            @hypothesis.settings(
                max_examples=EXAMPLES, deadline=None, database=None, derandomize=True, suppress_health_check=list(hypothesis.HealthCheck),
                phases=[hypothesis.Phase.generate],
            )  # fmt: skip
            @hypothesis.given(case=operation.as_strategy())
            def attempt(case):
                nonlocal sent
                case.query = {**(case.query or {}), "timeoutSeconds": "1"}
                case.query.pop("watch", None)
                prepared = session.prepare_request(requests.Request(**_request(case, session.server.url)))
                r = session.send(prepared, timeout=60, verify=session.server.ca, allow_redirects=False)
                sent += 1
                answers[r.status_code] = answers.get(r.status_code, 0) + 1
                where = f"{name}: {prepared.method} {prepared.url} {prepared.body!r:.500} -> {r.status_code} {r.text[:500]}"  # noqa: B023
                assert r.status_code < 500, where
                kind = r.headers.get("content-type", "").partition(";")[0]
                assert not r.content or kind.startswith(KNOWN_TYPES), where
                if kind == "application/json":
                    assert isinstance(json.loads(r.content), (dict, list)), where
                    if r.status_code >= 400:
                        assert r.json()["code"] == r.status_code, where

            attempt()
    assert session.get(session.server.url + "/readyz", timeout=60).status_code == 200
    assert "panic" not in session.server.output
    assert sent > 50
    tell("schemathesis", f"{sent} requests; " + ", ".join(f"{n} answered {c}" for c, n in sorted(answers.items())))


def _request(case, url: str) -> dict:
    """The arguments of ``requests`` that send the case."""
    kwargs = case.as_transport_kwargs(base_url=url)
    # The documents have the bearer token as a parameter like any other.
    kwargs["headers"] = {k: v for k, v in (kwargs.get("headers") or {}).items() if k.lower() != "authorization"}
    return {k: v for k, v in kwargs.items() if k in ("method", "url", "headers", "params", "json", "data", "cookies")}

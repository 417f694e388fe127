"""Compares custom resources with ConfigMaps of the same size through the whole chain: in-process, one request at a time.

Compare the rows of a table with one another: ``builtin`` is a ConfigMap, ``free`` a definition without a schema, ``plain`` one with 200
fields, and ``ruled`` one with three CEL rules as well.
"""

from __future__ import annotations

import itertools
import json

import pytest

from bench.custom_against_builtin import KINDS, body, definition

SHORT = {"builtin": "builtin", "free": "custom without schema", "plain": "custom", "ruled": "custom with rules"}
LISTED = 100
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
numbers = itertools.count(1)
pytestmark = pytest.mark.parametrize("kind", [pytest.param(long, id=short) for short, long in SHORT.items()])


@pytest.fixture(scope="module")
def ask(api):
    def call(method: str, path: str, sent: bytes = b"") -> bytes:
        answer = api.call(method, path, sent)
        assert answer.status in (200, 201), answer.body
        return api.body(answer)

    for crd in (definition(False, schema=False), definition(False), definition(True)):
        # No controller runs here.
        made = json.loads(call("POST", DEFINITIONS, json.dumps(crd).encode()))
        condition = {"type": "Established", "status": "True", "reason": "Bench", "lastTransitionTime": "2024-01-01T00:00:00Z"}
        made["status"] |= {"acceptedNames": made["spec"]["names"], "conditions": [condition]}
        call("PUT", f"{DEFINITIONS}/{made['metadata']['name']}/status", json.dumps(made).encode())
    for kind in KINDS:
        path = KINDS[kind][0]
        for i in range(LISTED):
            call("POST", path, body(kind, f"first{i}"))
    return call


def test_get(benchmark, ask, kind):
    benchmark(ask, "GET", f"{KINDS[kind][0]}/first1")


def test_list(benchmark, ask, kind):
    assert benchmark(ask, "GET", f"{KINDS[kind][0]}?limit={LISTED}").count(b'"uid"') == LISTED


def test_create(benchmark, ask, kind):
    benchmark(lambda: ask("POST", KINDS[kind][0], body(kind, f"n{next(numbers)}")))

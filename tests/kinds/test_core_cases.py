"""Core kinds against a table: a valid object, a change of it, and what upstream's validation reports.

The first line of ``core_cases.jsonl`` has the valid objects. Each other one names the kind and the fields (dotted, null removes one) in
which the object differs from the valid one. With ``old`` the case is an update of an object that was created with those fields and then
got its ``status``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kas.config import features
from kas.meta.errors import ApiError
from tests.kinds.written import Kind, changed, without

_HEAD, *_LINES = (Path(__file__).parent / "core_cases.jsonl").read_text().splitlines()
BASES: dict[str, dict[str, Any]] = json.loads(_HEAD)["valid"]
CASES: list[dict[str, Any]] = [json.loads(line) for line in _LINES]


def with_fields(obj: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    for path, value in fields.items():
        obj = without(obj, path) if value is None else changed(obj, path, value)
    return obj


def told(case: dict[str, Any]) -> list[list[str]]:
    kind, base = Kind(case["kind"]), BASES[case["kind"]]
    try:
        if "old" not in case:
            kind.create(with_fields(base, case["change"]))
        else:
            old = with_fields(kind.create(with_fields(base, case["old"])), case.get("status") or {})
            kind.update(with_fields(old, case["change"]), old, case.get("subresource") or "")
    except ApiError as refusal:
        return [[cause["field"], cause["message"]] for cause in refusal.details["causes"]]
    return []


@pytest.mark.parametrize("case", CASES, ids=[f"{i}-{case['kind']}" for i, case in enumerate(CASES, 1)])
def test_case(case: dict[str, Any]) -> None:
    with features.DEFAULT.overridden(**case.get("gates", {})):
        assert told(case) == case.get("told", [])

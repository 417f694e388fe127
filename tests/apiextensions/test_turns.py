"""What a definition costs its small objects: schemas are compiled once, however many rules they have, and never hold the loop long."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import orjson
import pytest

from kas.apiextensions import celrules, customtypes, traits
from kas.apiextensions.definition import DefinedVersion
from kas.apiextensions.rules import rules
from kas.kinds.apiextensions.customresource import strategy
from kas.kinds.apiextensions.customresource.strategy import CustomResourceStrategy
from kas.meta import offload, regex
from kas.meta.compilebudget import MOST_PATTERNS
from kas.meta.errors import ApiError
from kas.meta.offload import LOOP_BUDGET, LOOP_BUDGET_UNITS, BudgetSpentError
from kas.registry.strategy import Context
from kas.types.scheme import schema_type

Schema = dict[str, Any]


def rules_over_properties(n: int) -> Schema:
    spec = {
        "type": "object", "properties": {f"f{i}": {"type": "string", "maxLength": 5} for i in range(n)},
        "x-kubernetes-validations": [{"rule": f"self.f{i} != 'x'"} for i in range(n)],
    }  # fmt: skip
    return {"type": "object", "properties": {"spec": spec}}


def rules_at_every_level(n: int) -> Schema:
    inner: Schema = {"type": "object", "properties": {f"f{i}": {"type": "string", "maxLength": 5} for i in range(n)}}
    for _ in range(n // 4):
        inner = {"type": "object", "properties": {"a": inner}, "x-kubernetes-validations": [{"rule": "has(self.a)"}]}
    return inner


def calls(schema: Schema) -> int:
    """Returns the number of calls that compiling the rules takes."""
    count = 0

    def seen(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    type_ = schema_type("", schema)
    sys.setprofile(seen)
    try:
        celrules.of_type(type_)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("make", [rules_over_properties, rules_at_every_level])
def test_compiling_rules_takes_linear_time(make):
    calls(make(8))  # what is loaded with the first one
    assert calls(make(160)) < 4.5 * calls(make(40))


def test_a_costly_rule_is_not_evaluated_on_the_loop():
    spec = {"type": "array", "items": {"type": "string"}}
    rules = [{"rule": "self.l.all(x, self.l.all(y, x + y != ''))"}]
    type_ = schema_type("", {"type": "object", "properties": {"l": spec}, "x-kubernetes-validations": rules})
    few, many = {"l": ["a"] * 3}, {"l": ["a"] * 100}
    assert LOOP_BUDGET.within(celrules.errors, type_, few) == ([], [])
    with pytest.raises(BudgetSpentError):
        LOOP_BUDGET.within(celrules.errors, type_, many)
    assert celrules.errors(type_, many) == ([], [])


def test_a_search_with_many_steps_is_not_made_on_the_loop():
    pattern = regex.compiled("[ab]{500}c$")
    assert LOOP_BUDGET.within(pattern.search, "ab") is None
    with pytest.raises(BudgetSpentError):
        LOOP_BUDGET.within(pattern.search, "ab" * 20_000)


def alternatives(n: int) -> Schema:
    item = {"type": "integer", "anyOf": [{"minimum": 10 * (n - i)} for i in range(n)]}
    return {"type": "object", "properties": {"l": {"type": "array", "items": item}}}


def test_alternatives_are_not_tried_for_long_on_the_loop():
    type_ = schema_type("", alternatives(500))
    for value, passes in ((10, True), (5, False)):
        few, many = {"l": [value] * 2}, {"l": [value] * 2000}
        assert customtypes.check(type_).passes(many) is passes  # off the loop it takes as long as it needs
        assert LOOP_BUDGET.within(customtypes.check(type_).passes, few) is passes
        if passes:  # otherwise it ends with the first
            with pytest.raises(BudgetSpentError):
                LOOP_BUDGET.within(customtypes.check(type_).passes, many)
        assert bool(LOOP_BUDGET.within(customtypes.schema_errors, type_, few)) is not passes
        with pytest.raises(BudgetSpentError):
            LOOP_BUDGET.within(customtypes.schema_errors, type_, many)


def test_a_quick_check_needs_a_compiled_check_and_a_small_value():
    type_ = schema_type("", alternatives(500))
    check = customtypes.check(type_)
    assert not check.soon_passes({"l": [10]})  # no check has been compiled for this place
    assert check.passes({"l": [10]}) and check.soon_passes({"l": [10]})
    assert LOOP_BUDGET.within(check.soon_passes, {"l": [10] * 2000}) is False


def test_the_loops_budget_belongs_to_its_thread():
    def spend() -> int | None:
        LOOP_BUDGET.spend(2 * LOOP_BUDGET_UNITS)
        return LOOP_BUDGET.left

    async def run() -> int | None:
        LOOP_BUDGET.left = LOOP_BUDGET_UNITS  # as during a validation on the loop
        try:
            return await offload.POOL.run(spend)
        finally:
            LOOP_BUDGET.left = None

    assert asyncio.run(run()) is None


@pytest.mark.parametrize(
    ("schema", "costly"),
    [
        ({"type": "object", "properties": {"a": {"type": "string", "pattern": "^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$"}}}, False),
        ({"type": "object", "properties": {f"f{i}": {"type": "string"} for i in range(501)}}, True),
        ({"type": "object", "properties": {"a": {"type": "string", "pattern": "[ab]{900}" * 3}}}, True),
        ({"type": "object", "properties": {f"f{i}": {"type": "string", "pattern": f"a{{{i + 1}}}"} for i in range(200)}}, True),
        ({"type": "object", "properties": {"a": {"type": "object", "default": {f"k{i}": "v" for i in range(1000)}}}}, True),
        ({"type": "object", "properties": {"a": {"type": "object", "default": {"k": "v"}}}}, False),
    ],
)
def test_which_schemas_are_costly(schema, costly):
    assert traits.is_costly(schema) is costly


def test_large_defaults_of_many_items_are_refused():
    default = {f"k{i}": i for i in range(1000)}
    item = {"type": "object", "properties": {"a": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "default": default}}}
    type_ = schema_type("", {"type": "object", "properties": {"l": {"type": "array", "items": item}}})
    given = {"l": [{}] * 1000}
    customtypes.bound_defaults(type_, given, orjson.dumps(given))
    given = {"l": [{}] * 2000}
    with pytest.raises(ApiError) as e:
        customtypes.bound_defaults(type_, given, orjson.dumps(given))
    assert e.value.code == 413
    given = {"l": [{"a": {}}] * 2000}  # nothing is absent
    customtypes.bound_defaults(type_, given, orjson.dumps(given))
    items = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "default": default}  # which replace nulls
    type_ = schema_type("", {"type": "object", "properties": {"l": {"type": "array", "items": items}}})
    customtypes.bound_defaults(type_, {"l": [None] * 1000}, orjson.dumps({"l": [None] * 1000}))
    with pytest.raises(ApiError):
        customtypes.bound_defaults(type_, {"l": [None] * 2000}, orjson.dumps({"l": [None] * 2000}))


def test_patterns_of_all_rules_are_bounded_together() -> None:
    """Each of 30 ms, and a definition has space for thousands: nothing could interrupt them."""
    def of(count: int) -> list[str]:
        rule = {"rule": r"self.matches('\\pL{1,60}')"}
        schema = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 9, "x-kubernetes-validations": [rule] * count}}}
        return [e.detail for e in rules(schema, "schema")]

    assert of(2) == []
    assert of(100) == [f"the patterns of all rules must compile to {MOST_PATTERNS} instructions at most together"]


def test_after_a_long_validation_the_next_ones_begin_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a while: otherwise fifty at once would each use up an iteration in vain."""
    now = 100.0
    monkeypatch.setattr(strategy, "monotonic", lambda: now)
    version = DefinedVersion("v1", True, True, False, None, (), (), "")
    over = "self.l.all(x, self.l.all(y, x + y != ''))"
    written = {"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string"}}}}
    kept = Kept(schema_type("", {**written, "x-kubernetes-validations": [{"rule": over}]}))
    custom, ctx = CustomResourceStrategy(kept, version), Context()  # type: ignore[arg-type]
    head = {"apiVersion": "x.example.com/v1", "kind": "Kept", "metadata": {"name": "a"}}
    few, many = {**head, "l": ["a"] * 3}, {**head, "l": ["a"] * 100}
    assert custom.validate(ctx, few) == [] and LOOP_BUDGET.within(custom.validate, ctx, few) == []
    with pytest.raises(BudgetSpentError):
        LOOP_BUDGET.within(custom.validate, ctx, many)
    with pytest.raises(BudgetSpentError):
        LOOP_BUDGET.within(custom.validate, ctx, few)
    assert custom.validate(ctx, few) == []  # off the loop
    now += strategy.LONG_S
    assert LOOP_BUDGET.within(custom.validate, ctx, few) == []


class Kept:
    """A resource, as far as its strategy needs it."""

    kind, api_version, namespaced, reset_on_spec_write = "Kept", "x.example.com/v1", False, False

    def __init__(self, type_: Any) -> None:
        self.type = type_

"""The compilation of expressions of policies and conditions at their first use."""

from __future__ import annotations

import asyncio

import pytest

from kas import cel
from kas.admission.expressions import LONG, Expression
from kas.cel.types import DYN
from kas.meta.offload import POOL

ENV = cel.BASE.extended({"object": DYN})


@pytest.mark.parametrize(
    ("text", "beside"),
    [
        ("object.name == 'a'", False), ("object.name.matches('^[a-z]+$')", False), ("object.name.matches('^[a-z]{500}$')", True),
        ("object.name.find('[a-z]{500}') == ''", True), (f"object.name == '{'x' * LONG}'", True), ("object.name.matches(", False),
    ],
)  # fmt: skip
def test_slow_expressions_are_compiled_off_the_loop(text: str, beside: bool) -> None:
    """A pattern of a few characters may take 50 ms: 35 of them held the loop for a second at the first write under their policy."""
    before = POOL.done
    expression = Expression(text, lambda: ENV)
    found = asyncio.run(expression.ready())
    assert (POOL.done - before > 0) is beside
    assert found is expression.program() and isinstance(found, str) is text.endswith("(")

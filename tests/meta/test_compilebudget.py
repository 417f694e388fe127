"""The time limit for compiling all expressions of one object, checked before each is compiled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event

from kas.apiextensions.rules import rules
from kas.meta.compilebudget import UNWANTED, CompileBudget
from kas.meta.field import FieldError
from kas.meta.offload import OffloadPool


async def leave(validate: Callable[[], None], begun: Event, left: Event, ended: Event) -> None:
    """Runs ``validate`` in a thread, stops waiting once it has ``begun``, reports that it ``left``, and returns when it has ``ended``."""
    asking = asyncio.create_task(OffloadPool(1).run(validate))
    await asyncio.to_thread(begun.wait, 60)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    left.set()
    await asyncio.to_thread(ended.wait, 60)


def test_compiling_expressions_ends_when_no_request_waits() -> None:
    """A claim of 3 MB has 300 selectors of 10 kB, and takes seconds: requests of the same user waited for it after its own had ended."""
    begun, left, ended, compiled = Event(), Event(), Event(), list[int]()

    def validate() -> None:
        allowance = CompileBudget()
        for i in range(100):
            if not allowance.spent("spec"):
                compiled.append(i)
            if i == 5:
                begun.set()
                left.wait(60)
        ended.set()

    asyncio.run(leave(validate, begun, left, ended))
    assert compiled == list(range(6))


def test_compiling_rules_of_a_definition_ends_when_no_request_waits() -> None:
    """300 of 10 kB took 8 s of a thread."""
    begun, left, ended, found = Event(), Event(), Event(), list[FieldError]()
    schema = {"type": "object", "x-kubernetes-validations": [{"rule": "1 == 1"}, {"rule": "is wrong"}]}

    def validate() -> None:
        begun.set()
        left.wait(60)
        found.extend(rules(schema, "schema"))
        ended.set()

    asyncio.run(leave(validate, begun, left, ended))
    assert [UNWANTED in str(error) for error in found] == [True]
    (wrong,) = rules(schema, "schema")
    assert "is wrong" in str(wrong)

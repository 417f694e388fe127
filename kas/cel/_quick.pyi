"""Python interface of the quick steps; ``_quick.pxd`` describes them."""

from collections.abc import Sequence
from typing import Any

from kas.cel.environment import Function

class Step:
    def evaluate(self, variables: dict[str, Any], limit: int) -> tuple[Any, int] | None: ...

class Fixed(Step):
    value: Any
    def __init__(self, value: Any) -> None: ...

class Path(Step):
    def __init__(self, variable: str, start: Step | None, keys: tuple[str | int | Step, ...]) -> None: ...
    def then(self, key: str | int | Step) -> Path: ...

class Has(Step):
    def __init__(self, at: Step, field: str) -> None: ...

class Compared(Step):
    def __init__(self, symbol: str, overload: str, left: Step, right: Step) -> None: ...

class Computed(Step):
    def __init__(self, symbol: str, overload: str, left: Step, right: Step) -> None: ...

class Decided(Step):
    def __init__(self, deciding: bool, left: Step, right: Step) -> None: ...

class Chosen(Step):
    def __init__(self, condition: Step, yes: Step, no: Step) -> None: ...

class Opposite(Step):
    def __init__(self, of: Step) -> None: ...

class NotFalse(Step):
    def __init__(self, of: Step) -> None: ...

class Member(Step):
    def __init__(self, of: Step, texts: frozenset[str]) -> None: ...

class Called(Step):
    def __init__(self, function: Function, overload: str, steps: Sequence[Step]) -> None: ...

class Loop(Step):
    def __init__(
        self,
        over: Step,
        variable: str,
        second: str,
        accumulator: str,
        init: Step,
        condition: Step,
        step: Step,
        result: Step,
    ) -> None: ...

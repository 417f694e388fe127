"""Python interface of the unit; the functions in the .pyx file document their guarantees."""

from collections.abc import Callable
from typing import Any

def quality_of_service(containers: Any, init: Any) -> str | None: ...
def default_containers(
    containers: list[Any], pull_policy: Callable[[str], str], round_up: Callable[[dict[str, Any]], object], from_limits: bool
) -> None: ...

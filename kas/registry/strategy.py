"""What a kind adds to the generic registry: upstream's ``rest.RESTCreateStrategy`` and its siblings.

``Strategy`` is the behaviour every kind has, driven by its ``Resource`` record; a kind with behaviour of its own
subclasses it in ``kas/registry/<group>/<kind>.py`` and names the class with ``@strategy_for``. Objects are plain dicts
in the *storage* version of the kind, constant and computed defaults already applied.

A strategy never does I/O. What it needs of the outside comes in ``Context``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kas.api.field import FieldError

Obj = dict[str, Any]


@dataclass(slots=True)
class Context:
    """What a strategy may know of the request.

    ``now`` is an RFC 3339 second in UTC ("2024-01-02T03:04:05Z"), ``now_micro`` the same with six digits; ``user`` is
    {"username", "uid", "groups", "extra"}; ``dry_run`` says nothing will be stored; ``features`` are the gates switched on.
    """

    now: str = ""
    now_micro: str = ""
    namespace: str = ""
    user: dict[str, Any] = field(default_factory=dict)
    subresource: str = ""
    dry_run: bool = False
    options: dict[str, Any] = field(default_factory=dict)


class Strategy:
    """Generic behaviour; each hook is named after upstream's and does nothing more than its name says."""

    def __init__(self, resource) -> None:
        self.resource = resource

    def prepare_for_create(self, ctx: Context, obj: Obj) -> None:
        """Drop what a create may not set (status where the kind resets it) and start the generation."""

    def prepare_for_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Carry over what an update of the main resource may not change and bump the generation when due."""

    def prepare_for_status_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Carry over what a write to /status may not change."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        return []

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        return []

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        return []

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        return []

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        return []

    def canonicalize(self, obj: Obj) -> None:
        """Last touch before storing."""

    def decorate(self, obj: Obj) -> None:
        """Read-time change of a stored object (upstream's Decorator). Kinds that need it are decoded on read."""


STRATEGIES: dict[tuple[str, str], type[Strategy]] = {}


def strategy_for(group: str, resource: str):
    """Class decorator: this strategy serves ``resource`` of ``group`` in all versions."""

    def register(cls: type[Strategy]) -> type[Strategy]:
        STRATEGIES[group, resource] = cls
        return cls

    return register



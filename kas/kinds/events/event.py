"""Strategy of Event as events.k8s.io serves it; it is stored as the core/v1 Event it also is."""

from __future__ import annotations

from typing import Any

from kas.kinds.core.event import event_cells, strict_create, strict_update
from kas.meta.field import FieldError
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for


@strategy_for("events.k8s.io", "events")
class EventStrategy(Strategy):
    """Objects are in their stored form: ``involvedObject`` for ``regarding``, ``message`` for ``note`` and so on."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateEventCreate`` of events.k8s.io/v1."""
        return strict_create(obj)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateEventUpdate`` of events.k8s.io/v1."""
        return strict_update(obj, old)


@printer("events.k8s.io", "Event")
def event_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row, in the order events.k8s.io/v1 has."""
    return event_cells(obj, now, new=True)

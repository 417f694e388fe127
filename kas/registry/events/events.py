"""Strategy of Event as events.k8s.io serves it; it is stored as the core/v1 Event it also is."""

from __future__ import annotations

from kas.api.field import FieldError
from kas.registry.core.event import strict_create, strict_update
from kas.registry.strategy import Context, Obj, Strategy, strategy_for


@strategy_for("events.k8s.io", "events")
class EventStrategy(Strategy):
    """Objects are in their stored form: ``involvedObject`` for ``regarding``, ``message`` for ``note`` and so on."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        return strict_create(obj)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        return strict_update(obj, old)

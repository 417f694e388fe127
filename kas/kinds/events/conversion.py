"""events.k8s.io/v1 Event and core/v1 Event: one stored object under two names (``pkg/apis/events/v1/conversion.go``)."""

from __future__ import annotations

from kas.types.conversion import Obj, converts

CORE = ("", "v1", "Event")
EVENTS = ("events.k8s.io", "v1", "Event")
_TO_CORE = {
    "note": "message",
    "regarding": "involvedObject",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
    "reportingController": "reportingComponent",
}
_TO_EVENTS = {core: events for events, core in _TO_CORE.items()}


@converts(EVENTS, CORE)
@converts(("events.k8s.io", "v1beta1", "Event"), CORE)
def to_core(obj: Obj) -> Obj:
    """Convert from events.k8s.io/v1 to core/v1 by renaming fields; ``obj`` is not changed."""
    return {_TO_CORE.get(k, k): v for k, v in obj.items()}


@converts(CORE, EVENTS)
def to_events(obj: Obj) -> Obj:
    """Convert from core/v1 to events.k8s.io/v1 by renaming fields; ``obj`` is not changed."""
    return {_TO_EVENTS.get(k, k): v for k, v in obj.items()}

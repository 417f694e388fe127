"""Events of core/v1 (upstream ``pkg/registry/core/event``, ``pkg/apis/core/validation/events.go``).

Requests through events.k8s.io/v1 must also fulfil stricter rules: ``strict_create`` and ``strict_update``.
"""

from __future__ import annotations

from typing import Any

from kas import checks
from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.meta import field, names
from kas.meta.age import ZERO_TIME, since
from kas.meta.equality import semantic_equal
from kas.meta.field import GO_SPACE, FieldError
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.checktables import ANY, NOTHING, TOP, Checked, Message, need
from kas.types.gostruct import render
from kas.types.scheme import builtin_field

LIMIT = 128
NOTE_LIMIT = 1024
MISMATCH = "does not match event.namespace"


# Events with an eventTime, as events.k8s.io has them.
CHECK = Checked(
    "core.v1.Event",
    {
        **TOP, "metadata": need(Message({"namespace": need(checks.dns_subdomain())}, rest=ANY)),
        "involvedObject": need(Message({"namespace": need(checks.text(1))}, rest=ANY)), "related": ANY, "eventTime": need(checks.text(1)),
        "reportingComponent": need(checks.qualified_name()), "reportingInstance": need(checks.ascii(1, LIMIT)),
        "action": need(checks.ascii(1, LIMIT)), "reason": need(checks.ascii(1, LIMIT)), "message": checks.ascii(0, NOTE_LIMIT),
        "type": need(checks.option("Normal", "Warning")), "source": {}, "count": checks.integer(0, 0),
        "firstTimestamp": NOTHING, "lastTimestamp": NOTHING,
        "series": {"count": need(checks.integer(2)), "lastObservedTime": need(checks.text(1))},
    },
)  # fmt: skip


def _text(obj: Obj, key: str, path: str, limit: int, need: bool = True) -> list[FieldError]:
    text = obj.get(key) or ""
    errs: list[FieldError] = []
    if need and not text:
        errs.append(field.required(path))
    if len(text.encode()) > limit:
        errs.append(field.invalid(path, "", f"can have at most {limit} characters"))
    return errs


def legacy(obj: Obj, controller: str = "reportingComponent") -> list[FieldError]:
    """Check the rules of every event; ``controller`` is the name of the field in the request's version."""
    namespace, involved = obj["metadata"].get("namespace") or "", (obj.get("involvedObject") or {}).get("namespace") or ""
    if obj.get("eventTime") and CHECK.passes(obj):
        return []
    errs: list[FieldError] = []
    if not obj.get("eventTime"):
        agree = namespace in ("", "default") if not involved else namespace == involved
        if not agree:
            errs.append(field.invalid("involvedObject.namespace", involved, MISMATCH))
    else:
        if not involved and namespace not in ("default", "kube-system"):
            errs.append(field.invalid("involvedObject.namespace", involved, MISMATCH))
        component = obj.get("reportingComponent") or ""
        if not component:
            errs.append(field.required(controller))
        errs += [field.invalid(controller, component, m) for m in names.is_qualified_name(component)]
        errs += _text(obj, "reportingInstance", "reportingInstance", LIMIT)
        errs += _text(obj, "action", "action", LIMIT)
        errs += _text(obj, "reason", "reason", LIMIT)
        errs += _text(obj, "message", "message", NOTE_LIMIT, need=False)
    return errs + [field.invalid("namespace", namespace, m) for m in names.is_dns1123_subdomain(namespace)]


def _series(obj: Obj) -> list[FieldError]:
    series = obj.get("series")
    if series is None:
        return []
    errs: list[FieldError] = []
    if (series.get("count") or 0) < 2:
        errs.append(field.invalid("series.count", "", "should be at least 2"))
    if not series.get("lastObservedTime"):
        errs.append(field.required("series.lastObservedTime"))
    return errs


def strict_create(obj: Obj) -> list[FieldError]:
    """``ValidateEventCreate`` of events.k8s.io/v1: fields that older events could omit or set are required or refused."""
    if CHECK.passes(obj):
        return object_meta(obj["metadata"], True, names.dns_subdomain)
    errs = legacy(obj, "reportingController")
    errs += object_meta(obj["metadata"], True, names.dns_subdomain)
    errs += _series(obj)
    if not obj.get("eventTime"):
        errs.append(field.required("eventTime"))
    if obj.get("type") not in ("Normal", "Warning"):
        errs.append(field.invalid("type", "", f"has invalid value: {obj.get('type') or ''}"))
    for key in ("firstTimestamp", "lastTimestamp", "count"):
        if obj.get(key):
            errs.append(field.invalid(key, "", "needs to be unset"))
    if any((obj.get("source") or {}).get(k) for k in ("component", "host")):
        errs.append(field.invalid("source", "", "needs to be unset"))
    return errs


# (path in the error, field of core/v1, printed form of an absent value).
_FROZEN: tuple[tuple[str, str, Any], ...] = (
    ("involvedObject", "involvedObject", {}), ("reason", "reason", ""), ("message", "message", ""), ("source", "source", {}),
    ("firstTimestamp", "firstTimestamp", None), ("lastTimestamp", "lastTimestamp", None), ("count", "count", 0),
    ("reason", "reason", ""),  # upstream checks it twice
    ("type", "type", ""), ("eventTime", "eventTime", None), ("action", "action", ""), ("related", "related", None),
    ("reportingController", "reportingComponent", ""), ("reportingInstance", "reportingInstance", ""),
)  # fmt: skip


_SHOWN = {"involvedObject": "core.ObjectReference", "related": "core.ObjectReference", "source": "core.EventSource"}


def strict_update(obj: Obj, old: Obj) -> list[FieldError]:
    """``ValidateEventUpdate`` of events.k8s.io/v1: only the series and metadata may change."""
    errs = legacy(obj, "reportingController")
    errs += object_meta_update(obj["metadata"], old["metadata"])
    if not semantic_equal(obj.get("series"), old.get("series"), builtin_field("core.v1.Event", "series")):
        errs += _series(obj)
    for path, key, zero in _FROZEN:
        if not semantic_equal(obj.get(key), old.get(key), builtin_field("core.v1.Event", key)):
            now = obj.get(key) or zero
            shown = render(_SHOWN[key], now) if key in _SHOWN and now is not None else now
            errs.append(field.invalid(path, shown, "field is immutable"))
    return errs


@strategy_for("", "events")
class EventStrategy(Strategy):
    """Events; both groups are stored as core/v1, and expire."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``legacyValidateEvent``, the only rules of core/v1."""
        return legacy(obj)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``legacyValidateEvent`` of the new object; all of it may change."""
        return legacy(obj)


def event_cells(obj: Obj, now: float, new: bool) -> list[Any]:
    """Return a Table row in the order of either API: the new one has ``regarding`` and ``note``, and old fields are deprecated."""
    about = obj.get("regarding" if new else "involvedObject") or {}
    source = obj.get("deprecatedSource" if new else "source") or {}
    first = obj.get("deprecatedFirstTimestamp" if new else "firstTimestamp")
    last = obj.get("deprecatedLastTimestamp" if new else "lastTimestamp")
    count = obj.get("deprecatedCount" if new else "count") or 1
    component = source.get("component") or obj.get("reportingController" if new else "reportingComponent") or ""
    instance = source.get("host") or obj.get("reportingInstance") or ""

    first_seen = since(first if first and first != ZERO_TIME else obj.get("eventTime"), now)
    last_seen = since(last, now) if last and last != ZERO_TIME else first_seen
    series = obj.get("series")
    if series is not None:
        last_seen, count = since(series.get("lastObservedTime"), now), series.get("count", 0)
    kind, name = about.get("kind", "").lower(), about.get("name")
    return [
        last_seen, obj.get("type", ""), obj.get("reason", ""), f"{kind}/{name}" if name else kind, about.get("fieldPath", ""),
        f"{component}, {instance}" if instance else component, (obj.get("note" if new else "message") or "").strip(GO_SPACE),
        first_seen, count, obj["metadata"].get("name", ""),
    ]  # fmt: skip


@printer("", "Event")
def core_event_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row, in the order core/v1 has."""
    return event_cells(obj, now, new=False)

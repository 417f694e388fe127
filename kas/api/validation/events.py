"""Validation of events (upstream ``pkg/apis/core/validation/events.go``), on the stored form: a core/v1 Event.

An event written through events.k8s.io is held to stricter rules than one through core/v1, where they apply to events
with an eventTime only.
"""

from __future__ import annotations

from typing import Any

from kas.api import field
from kas.api.equality import semantic_equal
from kas.api.field import FieldError
from kas.api.validation import names
from kas.api.validation.checks import dns_subdomain, immutable, qualified_name
from kas.api.validation.coremeta import object_meta, object_meta_update

MAX_NAME = 128  # reporting instance, action and reason
MAX_NOTE = 1024
TYPES = ("Normal", "Warning")
_IMMUTABLE = (
    "involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "reason", "type", "eventTime",
    "action", "related",
)  # fmt: skip


def every_version(event: dict[str, Any], reporting: str) -> list[FieldError]:
    """``legacyValidateEvent``; ``reporting`` is what the request's version calls the reporting controller."""
    errs: list[FieldError] = []
    namespace = event["metadata"].get("namespace") or ""
    about, path = (event.get("involvedObject") or {}).get("namespace") or "", "involvedObject.namespace"
    mismatch = field.invalid(path, about, "does not match event.namespace")
    if not event.get("eventTime"):
        if about != namespace and not (not about and namespace == "default"):
            errs.append(mismatch)
    else:
        if not about and namespace not in ("default", "kube-system"):
            errs.append(mismatch)
        controller = event.get("reportingComponent") or ""
        if not controller:
            errs.append(field.required(reporting))
        errs += qualified_name(controller, reporting)
        for name in ("reportingInstance", "action", "reason"):
            value = event.get(name) or ""
            if not value:
                errs.append(field.required(name))
            if len(value.encode()) > MAX_NAME:
                errs.append(field.invalid(name, "", f"can have at most {MAX_NAME} characters"))
        if len((event.get("message") or "").encode()) > MAX_NOTE:
            errs.append(field.invalid("message", "", f"can have at most {MAX_NOTE} characters"))
    return errs + dns_subdomain(namespace, "namespace")


def create(event: dict[str, Any]) -> list[FieldError]:
    """A new event through events.k8s.io: timed, typed, and without the fields of the old kind."""
    errs = every_version(event, "reportingController") + object_meta(event["metadata"], True, names.dns_subdomain)
    errs += _series(event)
    if not event.get("eventTime"):
        errs.append(field.required("eventTime"))
    kind = event.get("type") or ""
    if kind not in TYPES:
        errs.append(field.invalid("type", "", f"has invalid value: {kind}"))
    for name in ("firstTimestamp", "lastTimestamp", "count"):
        if event.get(name):
            errs.append(field.invalid(name, "", "needs to be unset"))
    source = event.get("source") or {}
    if source.get("component") or source.get("host"):
        errs.append(field.invalid("source", "", "needs to be unset"))
    return errs


def update(event: dict[str, Any], old: dict[str, Any]) -> list[FieldError]:
    """Through events.k8s.io only the series may change."""
    errs = every_version(event, "reportingController") + object_meta_update(event["metadata"], old["metadata"])
    if not semantic_equal(event.get("series"), old.get("series")):
        errs += _series(event)
    for name in _IMMUTABLE:
        errs += immutable(event.get(name), old.get(name), name)
    errs += immutable(event.get("reportingComponent") or "", old.get("reportingComponent") or "", "reportingController")
    return errs + immutable(event.get("reportingInstance") or "", old.get("reportingInstance") or "", "reportingInstance")


def _series(event: dict[str, Any]) -> list[FieldError]:
    series = event.get("series")
    if series is None:
        return []
    errs: list[FieldError] = []
    if (series.get("count") or 0) < 2:
        errs.append(field.invalid("series.count", "", "should be at least 2"))
    if not series.get("lastObservedTime"):
        errs.append(field.required("series.lastObservedTime"))
    return errs

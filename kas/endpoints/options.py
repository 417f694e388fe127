"""Query parameters of the verbs: metav1 ListOptions, and the options of writes.

The conversion from strings is Go's: for a flag anything but "", "0" and "false" is true; numbers are ParseInt's.
Validation and its texts are apimachinery's ``meta/v1/validation`` and ``internalversion/validation``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kas.api import errors, field
from kas.api.errors import bad_request
from kas.api.requestinfo import Query
from kas.api.selectors import SelectorError, parse_field_selector, parse_label_selector

META = "meta.k8s.io"


class ListOptions(NamedTuple):
    label_selector: Any  # Selector or None when everything matches
    field_selector: Any
    watch: bool
    allow_bookmarks: bool
    resource_version: str
    match: str
    timeout_s: int | None
    limit: int
    continue_token: str
    send_initial_events: bool | None


EVERYTHING = ListOptions(None, None, False, False, "", "", None, 0, "", None)


def number(text: str) -> int:
    """``strconv.ParseInt(text, 10, 64)``. Raises 400."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        raise bad_request(f"strconv.ParseInt: parsing {field.go_quote(text)}: invalid syntax")
    n = int(text) if len(digits.lstrip("0")) <= 19 else 1 << 64
    if not -(1 << 63) <= n < 1 << 63:
        raise bad_request(f"strconv.ParseInt: parsing {field.go_quote(text)}: value out of range")
    return n


def list_options(q: Query, force_watch: bool = False) -> ListOptions:
    """The options of a list or watch. Raises 400 and 422 as upstream does.

    A path below ``/watch/`` forces the watch, but its options are read and checked as a list's unless they say ``watch`` too.
    """
    if not q.raw:
        return EVERYTHING._replace(watch=True) if force_watch else EVERYTHING
    get = q.get
    labels = fields = None
    try:
        if text := get("labelSelector"):
            labels = parse_label_selector(text)
            if labels.empty:
                labels = None
        if text := get("fieldSelector"):
            fields = parse_field_selector(text)
            if fields.empty:
                fields = None
    except SelectorError as e:
        raise bad_request(str(e)) from None
    o = ListOptions(
        labels, fields, q.flag("watch"), q.flag("allowWatchBookmarks"), get("resourceVersion"), get("resourceVersionMatch"),
        number(get("timeoutSeconds")) if "timeoutSeconds" in q else None, number(get("limit")) if "limit" in q else 0, get("continue"),
        q.flag("sendInitialEvents") if "sendInitialEvents" in q else None,
    )  # fmt: skip
    if o.match or o.send_initial_events is not None:
        found = _validate(o)
        if found:
            raise errors.invalid(META, "ListOptions", "", found)
    elif o.watch and o.resource_version in ("", "0"):
        # The old way to ask for the current state first (SetListOptionsDefaults with WatchList on).
        o = o._replace(send_initial_events=True, match="NotOlderThan")
    return o._replace(watch=True) if force_watch else o


def _validate(o: ListOptions) -> list[field.FieldError]:
    out = []
    if o.watch:
        if o.send_initial_events is not None:
            if o.match == "":
                out.append(
                    field.forbidden("resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
                )
            elif o.match != "NotOlderThan":
                out.append(field.FieldError(field.NOT_SUPPORTED, "resourceVersionMatch", o.match, 'supported values: "NotOlderThan"'))
        elif o.match:
            out.append(
                field.forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
            )
        return out
    if o.match:
        if not o.resource_version:
            out.append(field.forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"))
        if o.continue_token:
            out.append(field.forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"))
        if o.match not in ("Exact", "NotOlderThan"):
            out.append(
                field.FieldError(field.NOT_SUPPORTED, "resourceVersionMatch", o.match, 'supported values: "Exact", "NotOlderThan", ""')
            )
        if o.match == "Exact" and o.resource_version == "0":
            out.append(field.forbidden("resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
    if o.send_initial_events is not None:
        out.append(field.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return out


def resource_version(text: str) -> int:
    """A resource version of a list or watch ("" and "0" are 0). Raises 400."""
    if text in ("", "0"):
        return 0
    if not text.isascii() or not text.isdigit():
        quoted = field.go_quote(text)
        raise bad_request(
            f"invalid resource version: resourceVersion: Invalid value: {quoted}: strconv.ParseUint: parsing {quoted}: invalid syntax"
        )
    n = int(text) if len(text.lstrip("0")) <= 20 else 1 << 64
    if n >= 1 << 64:
        quoted = field.go_quote(text)
        raise bad_request(
            f"invalid resource version: resourceVersion: Invalid value: {quoted}: strconv.ParseUint: parsing {quoted}: value out of range"
        )
    return n


class WriteOptions(NamedTuple):
    """``dry_run``, ``field_manager``, ``field_validation`` ("" is Warn), ``force`` (None when not given)."""

    dry_run: bool
    field_manager: str
    field_validation: str
    force: bool | None


NO_WRITE_OPTIONS = WriteOptions(False, "", "", None)

# A client sends the same query with each of its writes.
MEMO_SIZE, MEMO_BYTES = 1024, 256
_memo: dict[tuple[str, bytes], WriteOptions] = {}


def write_options(q: Query, kind: str) -> WriteOptions:
    """Options of create, update and patch; ``kind`` names them in errors (CreateOptions, …)."""
    if not q.raw:
        return NO_WRITE_OPTIONS
    found = _memo.get((kind, q.raw))
    if found is None:
        found = _read_write_options(q, kind)
        if len(q.raw) <= MEMO_BYTES:
            if len(_memo) >= MEMO_SIZE:
                _memo.clear()
            _memo[kind, q.raw] = found
    return found


def _read_write_options(q: Query, kind: str) -> WriteOptions:
    values = q.values("dryRun")
    manager, validation = q.get("fieldManager"), q.get("fieldValidation")
    force = q.flag("force") if "force" in q else None
    o = WriteOptions(bool(values), manager, validation, force)
    found = dry_run_errors(values)
    if kind != "PatchOptions":
        found += manager_errors(manager)
    if validation not in ("", "Ignore", "Warn", "Strict"):
        allowed = 'supported values: "", "Ignore", "Strict", "Warn"'
        found.append(field.FieldError(field.NOT_SUPPORTED, "fieldValidation", validation, allowed))
    if found:
        raise errors.invalid(META, kind, "", found)
    return o


def dry_run_errors(values: list[str]) -> list[field.FieldError]:
    bad = [v for v in values if v != "All"]
    return [field.FieldError(field.NOT_SUPPORTED, "dryRun", values, 'supported values: "All"')] if bad else []


def manager_errors(manager: str) -> list[field.FieldError]:
    out = []
    if len(manager) > 128:
        out.append(field.too_long("fieldManager", 128))
    for i, c in enumerate(manager):
        if not c.isprintable():
            out.append(
                field.invalid("fieldManager", manager, f"should only contain printable characters (at position {i}: {field.go_quote(c)})")
            )
            break
    return out

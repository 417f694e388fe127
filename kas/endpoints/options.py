"""Query parameters of the verbs: metav1 ListOptions and the options of writes.

Strings are converted as in Go: a flag is true unless it is "0" or "false", and numbers are read by ParseInt. Validation and its messages
follow apimachinery's ``meta/v1/validation`` and ``internalversion/validation``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kas.config import features
from kas.endpoints import optionsvalidation as validation
from kas.meta import errors, field
from kas.meta.errors import bad_request
from kas.meta.records import NamedTuple
from kas.meta.scalars import int64, parse_uint64
from kas.meta.selectors import SelectorError, parse_field_selector, parse_label_selector
from kas.observe.caches import Cache
from kas.request.negotiation import APPLY_PATCH
from kas.request.requestinfo import Query
from kas.types.scheme import DecodeError

if TYPE_CHECKING:
    from kas.endpoints.sharding import Shards

META = "meta.k8s.io"


class ListOptions(NamedTuple):
    """metav1.ListOptions as given by a request."""

    label_selector: Any  # Selector, or None if everything matches
    field_selector: Any
    watch: bool
    allow_bookmarks: bool
    resource_version: str
    match: str
    timeout_s: int | None
    limit: int
    continue_token: str
    send_initial_events: bool | None
    shards: Shards | None = None  # the parsed shardSelector, if the feature is enabled


EVERYTHING = ListOptions(None, None, False, False, "", "", None, 0, "", None)


def number(text: str) -> int:
    """Parse like ``scalars.int64``. Raises 400."""
    try:
        return int64(text)
    except DecodeError as e:
        raise bad_request(str(e)) from None


# Clients repeat their queries verbatim. The meaning depends on the enabled feature gates, so these are part of the key.
_lists: Cache[tuple[frozenset[str], bytes], ListOptions] = Cache(
    "list_options", "queries of lists and watches and what they ask for", 1 << 20, 2000
)
_PART = 150  # estimated size in characters of a selector's requirement, or of one of its values


def list_options(q: Query, force_watch: bool = False) -> ListOptions:
    """Return the options of a list or watch. Raises 400 and 422.

    A path below ``/watch/`` forces a watch, but its options are decoded and validated as those of a list unless they also set ``watch``.
    """
    if not q.raw:
        found = EVERYTHING
    else:
        key = (features.DEFAULT.on, q.raw)
        kept = _lists.entries.get(key)
        found = kept if kept is not None else _read_list_options(q)
        if kept is None:
            parts = len(q.pairs) + q.get("labelSelector").count(",") + q.get("fieldSelector").count(",")
            _lists.put(key, found, len(q.raw) + _PART * parts)
    return found._replace(watch=True) if force_watch else found


def _read_list_options(q: Query) -> ListOptions:
    first = {key: values[0] for key, values in q.pairs.items()}  # looked up once: a dozen parameters are read from it
    # Upstream converts numbers while it decodes the query, and parses selectors after that.
    timeout = number(first["timeoutSeconds"]) if "timeoutSeconds" in first else None
    limit = number(first["limit"]) if "limit" in first else 0
    labels = fields = None
    try:
        if text := first.get("labelSelector"):
            labels = parse_label_selector(text)
            if labels.empty:
                labels = None
        if text := first.get("fieldSelector"):
            fields = parse_field_selector(text)
            if fields.empty:
                fields = None
    except SelectorError as e:
        raise bad_request(str(e)) from None
    o = ListOptions(
        labels, fields, "watch" in first and q.flag("watch"), "allowWatchBookmarks" in first and q.flag("allowWatchBookmarks"),
        first.get("resourceVersion", ""), first.get("resourceVersionMatch", ""), timeout, limit, first.get("continue", ""),
        q.flag("sendInitialEvents") if "sendInitialEvents" in first else None,
    )  # fmt: skip
    watch_list = features.DEFAULT.enabled("WatchList")
    if o.watch and watch_list and o.resource_version in ("", "0") and o.send_initial_events is None and not o.match:
        # The legacy way to ask for the current state first (SetListOptionsDefaults with WatchList on).
        o = o._replace(send_initial_events=True, match="NotOlderThan")
    if o.match or o.send_initial_events is not None:
        found = validation.validate_list_options(
            {
                "watch": o.watch, "resourceVersion": o.resource_version, "resourceVersionMatch": o.match,
                "continue": o.continue_token, "sendInitialEvents": o.send_initial_events,
            },
            watch_list,
        )  # fmt: skip
        if found:
            raise errors.invalid(META, "ListOptions", "", found)
    if (text := first.get("shardSelector")) and features.DEFAULT.enabled("ShardedListAndWatch"):
        o = o._replace(shards=_shards(text))
    return o


def _shards(text: str) -> Shards:
    from kas.endpoints.sharding import ShardError, parse  # CEL's grammar is large and rarely needed

    try:
        return parse(text)
    except ShardError as e:
        raise bad_request(f"invalid shard selector: {e}") from None


def resource_version(text: str) -> int:
    """Parse the resource version of a get or watch ("" and "0" are 0). Raises 500 without a reason, like an error of upstream's storage."""
    try:
        return _resource_version(text)
    except ValueError as e:
        raise errors.ApiError(500, "", str(e)) from None


def list_resource_version(text: str) -> int:
    """Parse the resource version of a list ("" and "0" are 0). Raises 400."""
    try:
        return _resource_version(text)
    except ValueError as e:
        raise bad_request(f"invalid resource version: {e}") from None


def _resource_version(text: str) -> int:
    if text in ("", "0"):
        return 0
    try:
        return parse_uint64(text)
    except ValueError as e:
        raise ValueError(f"resourceVersion: Invalid value: {field.go_quote(text)}: {e}") from None


class WriteOptions(NamedTuple):
    """The options of a write. ``field_validation`` "" means Warn; ``force`` is None if not given."""

    dry_run: bool
    field_manager: str
    field_validation: str
    force: bool | None


NO_WRITE_OPTIONS = WriteOptions(False, "", "", None)

# A client sends the same query with each of its writes.
_memo: Cache[tuple[str, str, bytes], WriteOptions] = Cache("write_options", "queries of writes and what they ask for", 1 << 20, 512)


def write_options(q: Query, kind: str, patch_type: str = "") -> WriteOptions:
    """Return the options of create, update and patch.

    ``kind`` names them in errors (CreateOptions, …); ``patch_type`` is the media type of a patch. Raises 422.
    """
    if not q.raw and patch_type != APPLY_PATCH:
        return NO_WRITE_OPTIONS
    key = (kind, patch_type, q.raw)
    found = _memo.entries.get(key)
    if found is None:
        found = _read_write_options(q, kind, patch_type)
        _memo.put(key, found, len(q.raw) + len(patch_type))
    return found


def _read_write_options(q: Query, kind: str, patch_type: str) -> WriteOptions:
    values, manager, directive = q.values("dryRun"), q.get("fieldManager"), q.get("fieldValidation")
    force = q.flag("force") if "force" in q else None
    given = {"dryRun": values, "fieldManager": manager, "fieldValidation": directive, "force": force}
    found = validation.validate_patch_options(given, patch_type) if patch_type else validation.validate_create_options(given)
    if found:
        raise errors.invalid(META, kind, "", found)
    return WriteOptions(bool(values), manager, directive, force)

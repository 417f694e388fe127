"""Validation of request options: apimachinery's ``meta/v1/validation`` and ``meta/internalversion/validation``.

Options are plain dicts of their metav1 kinds. The caller turns the errors into a 422 of that kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kas.meta import field
from kas.meta.field import NOT_SUPPORTED, FieldError, go_quote
from kas.meta.objectmeta import validate_field_manager
from kas.request.negotiation import APPLY_PATCH

Options = Mapping[str, Any]

FIELD_VALIDATION = ("", "Ignore", "Strict", "Warn")
PROPAGATION = ("Foreground", "Background", "Orphan")
EXACT = "Exact"
NOT_OLDER_THAN = "NotOlderThan"


def _unsupported(path: str, value: Any, supported: Sequence[str]) -> FieldError:
    """Return NotSupported with the values in upstream's order for this field, which is not alphabetical."""
    return FieldError(NOT_SUPPORTED, path, value, "supported values: " + ", ".join(map(go_quote, supported)))


def validate_dry_run(values: Sequence[str] | None) -> list[FieldError]:
    """``ValidateDryRun``: only "All" is allowed."""
    if values and any(v != "All" for v in values):
        return [_unsupported("dryRun", list(values), ("All",))]
    return []


def validate_field_validation(value: str) -> list[FieldError]:
    """``ValidateFieldValidation``: one of the known values, or ""."""
    return [] if value in FIELD_VALIDATION else [_unsupported("fieldValidation", value, FIELD_VALIDATION)]


def validate_create_options(options: Options) -> list[FieldError]:
    """``ValidateCreateOptions``."""
    return [
        *validate_field_manager(options.get("fieldManager") or "", "fieldManager"),
        *validate_dry_run(options.get("dryRun")),
        *validate_field_validation(options.get("fieldValidation") or ""),
    ]


# Both kinds have the same fields and rules.
validate_update_options = validate_create_options


def validate_patch_options(options: Options, patch_type: str) -> list[FieldError]:
    """Validate PatchOptions. ``patch_type`` is the media type of the patch: apply requires a field manager, the others forbid force."""
    errs: list[FieldError] = []
    if patch_type == APPLY_PATCH:
        if not options.get("fieldManager"):
            errs.append(field.required("fieldManager", "is required for apply patch"))
    elif options.get("force") is not None:
        errs.append(field.forbidden("force", "may not be specified for non-apply patch"))
    return errs + validate_create_options(options)


def validate_delete_options(options: Options) -> list[FieldError]:
    """``ValidateDeleteOptions``: propagation, dry run, and the options that cannot be combined with ignoring read errors."""
    errs: list[FieldError] = []
    policy = options.get("propagationPolicy")
    if policy is not None:
        if options.get("orphanDependents") is not None:
            why = "orphanDependents and deletionPropagation cannot be both set"
            errs.append(field.invalid("propagationPolicy", policy, why))
        if policy not in PROPAGATION:
            errs.append(_unsupported("propagationPolicy", policy, (*PROPAGATION, "nil")))
    errs += validate_dry_run(options.get("dryRun"))
    if options.get("ignoreStoreReadErrorWithClusterBreakingPotential"):
        path = "ignoreStoreReadErrorWithClusterBreakingPotential"
        given = (
            ("dryRun", options.get("dryRun")),
            ("propagationPolicy", policy is not None),
            ("orphanDependents", options.get("orphanDependents") is not None),
            ("gracePeriodSeconds", options.get("gracePeriodSeconds") is not None),
            ("preconditions", options.get("preconditions") is not None),
        )
        errs += [field.invalid(path, True, f"cannot be set together with .{name}") for name, is_set in given if is_set]
    return errs


def validate_list_options(options: Options, watch_list: bool = True) -> list[FieldError]:
    """Validate resourceVersionMatch and sendInitialEvents. ``watch_list`` says whether the WatchList feature is enabled."""
    match, initial = options.get("resourceVersionMatch") or "", options.get("sendInitialEvents")
    if options.get("watch"):
        return _validate_watch(options, match, initial, watch_list)
    errs: list[FieldError] = []
    path = "resourceVersionMatch"
    if match:
        version = options.get("resourceVersion") or ""
        if not version:
            errs.append(field.forbidden(path, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
        if options.get("continue"):
            errs.append(field.forbidden(path, "resourceVersionMatch is forbidden when continue is provided"))
        if match not in (EXACT, NOT_OLDER_THAN):
            errs.append(_unsupported(path, match, (EXACT, NOT_OLDER_THAN, "")))
        if match == EXACT and version == "0":
            errs.append(field.forbidden(path, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
    if initial is not None:
        errs.append(field.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return errs


def _validate_watch(options: Options, match: str, initial: bool | None, watch_list: bool) -> list[FieldError]:
    errs: list[FieldError] = []
    path = "resourceVersionMatch"
    if initial is not None:
        if match != NOT_OLDER_THAN:
            errs.append(field.forbidden(path, f"sendInitialEvents requires setting resourceVersionMatch to {NOT_OLDER_THAN}"))
        if not watch_list:
            why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
            errs.append(field.forbidden("sendInitialEvents", why))
    if match:
        if initial is None:
            errs.append(field.forbidden(path, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"))
        if match != NOT_OLDER_THAN:
            errs.append(_unsupported(path, match, (NOT_OLDER_THAN,)))
        if options.get("continue"):
            errs.append(field.forbidden(path, "resourceVersionMatch is forbidden when continue is provided"))
    return errs

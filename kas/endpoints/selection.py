"""Converts a request's selectors to a matcher for stored records."""

from __future__ import annotations

from typing import Any

from kas.endpoints.options import ListOptions
from kas.meta.errors import bad_request
from kas.store import compile_matcher
from kas.types.fieldlabels import FieldLabelError, convert_field_selector


def matcher_of(o: ListOptions) -> Any:
    """Return a compiled matcher, or None if every record matches."""
    labels, fields = o.label_selector, o.field_selector
    if labels is None and fields is None:
        return None
    return compile_matcher(labels.requirements if labels is not None else (), fields.requirements if fields is not None else ())


def with_served_fields(served: Any, o: ListOptions) -> ListOptions:
    """Return the options with field labels checked and converted for the kind. Raises 400 for an unknown label."""
    if o.field_selector is None:
        return o
    try:
        return o._replace(field_selector=convert_field_selector(served.record, o.field_selector, served.type.custom))
    except FieldLabelError as e:
        raise bad_request(str(e)) from None


def name_requirement(o: ListOptions) -> str:
    """Return the name in ``metadata.name=x``, which limits a field selector to one object, or ""."""
    if o.field_selector is None:
        return ""
    for key, op, value in o.field_selector.requirements:
        if key == "metadata.name" and op in ("=", "=="):
            return value
    return ""

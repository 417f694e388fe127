"""From a request's selectors to a matcher over stored records."""

from __future__ import annotations

from typing import Any

from kas.endpoints.options import ListOptions
from kas.meta.errors import bad_request
from kas.store import compile_matcher
from kas.types.fieldlabels import FieldLabelError, convert_field_selector


def matcher_of(o: ListOptions) -> Any:
    """A compiled matcher, None when every record is wanted."""
    labels, fields = o.label_selector, o.field_selector
    if labels is None and fields is None:
        return None
    return compile_matcher(labels.requirements if labels is not None else (), fields.requirements if fields is not None else ())


def with_served_fields(served: Any, o: ListOptions) -> ListOptions:
    """The options with field labels checked and rewritten for the kind. Raises 400 for a label it does not know."""
    if o.field_selector is None:
        return o
    try:
        return o._replace(field_selector=convert_field_selector(served.record, o.field_selector, served.type.custom))
    except FieldLabelError as e:
        raise bad_request(str(e)) from None


def name_requirement(o: ListOptions) -> str:
    """The one object a field selector can mean ("" when it can be several): ``metadata.name=x``."""
    if o.field_selector is None:
        return ""
    for key, op, value in o.field_selector.requirements:
        if key == "metadata.name" and op in ("=", "=="):
            return value
    return ""

"""How the objects of a definition are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kas.registry.generic import Encoded, Registry
from kas.registry.strategy import Obj
from kas.store import Draft, Store, build_record
from kas.types.fieldlabels import custom_selectable_fields
from kas.types.scheme import Resource, encode_stored


class CustomRegistry(Registry):
    """``selectable`` are the paths that any version can be selected by: records are found by all of them, whichever version asks."""

    def __init__(self, resource: Resource, store: Store, now: Callable[[], str], selectable: Sequence[str]) -> None:
        super().__init__(resource, store, now)
        self.selectable = tuple(selectable)

    def draft(self, obj: Obj, encoded: Encoded | None = None) -> Draft:
        """What the store keeps of an object: JSON, labels and selectable fields."""
        head, tail, prefix_len, metadata_tail, message = encoded or encode_stored(self.type, obj)
        labels = obj["metadata"].get("labels") or {}
        fields = custom_selectable_fields(obj, self.resource.namespaced, self.selectable)
        return build_record(head, tail, labels, fields, prefix_len, self.lease_s, metadata_tail, message)

"""Device selectors (dynamic-resource-allocation ``cel/compile.go``)."""

from __future__ import annotations

from kas.cel.base import BASE
from kas.cel.cost import Path, Span
from kas.cel.declared import Declared, sizes_below
from kas.cel.library.objects import QUANTITY
from kas.cel.types import BOOL, DYN, STRING, Type, map_of, struct

DEVICE = "kubernetes.DRADevice"
MAX_COST = 1_000_000
_MAX_ENTRIES, _MAX_DOMAIN, _MAX_ID, _MAX_VALUE, _MAX_DRIVER = 32, 63, 32, 64, 63
_DOMAIN, _ID = Declared(STRING, _MAX_DOMAIN), Declared(STRING, _MAX_ID)


def _layered(value: Declared) -> Declared:
    """Return the shape of a map from domain to name to value."""
    inner = Declared(map_of(STRING, value.type), _MAX_ENTRIES, item=value, key=_ID)
    return Declared(map_of(STRING, inner.type), _MAX_ENTRIES, item=inner, key=_DOMAIN)


_ATTRIBUTE = Declared(DYN, _MAX_VALUE)
_FIELDS = {
    "driver": Declared(STRING, _MAX_DRIVER),
    "attributes": _layered(_ATTRIBUTE),
    "capacity": _layered(Declared(QUANTITY)),
    "allowMultipleAllocations": Declared(BOOL),
}
ENVIRONMENT = BASE.extended(
    {"device": struct(DEVICE)}, {DEVICE: {name: declared.type for name, declared in _FIELDS.items()}}, bindings=True
)
_BELOW = sizes_below(Declared(struct(DEVICE), 0, _FIELDS), _ATTRIBUTE)


def sizes(path: Path, type: Type) -> Span | None:
    """Return the sizes of a device's contents."""
    return _BELOW(path, type) if path[0] == "device" else None

"""Built-in kinds by what an object says of itself."""

from __future__ import annotations

from kas.types.scheme import BUILTIN, Kind


def kind_for(api_version: str, kind: str) -> Kind:
    """The kind of an object's ``apiVersion`` and ``kind``."""
    group, _, version = api_version.rpartition("/")
    return BUILTIN.known(group, version, kind)

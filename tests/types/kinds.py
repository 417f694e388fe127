"""Looks up built-in kinds by an object's type fields."""

from __future__ import annotations

from kas.types.scheme import BUILTIN, Kind


def kind_for(api_version: str, kind: str) -> Kind:
    """Returns the kind of an object's ``apiVersion`` and ``kind``."""
    group, _, version = api_version.rpartition("/")
    return BUILTIN.known(group, version, kind)

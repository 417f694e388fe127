"""Managed fields of an object and its ``/scale`` subresource (managedfields ``scalehandler.go``).

A Scale shows the entries that own the replica count; a write to it changes that ownership in the object. ``replicas`` maps each served
API version of the object to the path of its replica count ("spec.replicas"), or to None if the version has no scale.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kas.patch._fieldsets import difference, has
from kas.patch.fieldmanager.entries import Managed, Managers, read, write
from kas.patch.fieldmanager.updating import field_set

Entries = list[dict[str, Any]]

SCALE_VERSION = "autoscaling/v1"
REPLICAS: dict[str, Any] = {"f:spec": {"f:replicas": {}}}


def _elements(path: str) -> list[str]:
    return [f"f:{name}" for name in path.split(".")]


def to_scale(entries: Entries | None, replicas: Mapping[str, str | None]) -> Entries:
    """Return the Scale's entries: those of the object that own its replica count, with the Scale's version and path.

    Raises ValueError if the stored entries cannot be read.
    """
    shown: Managers = {}
    for ident, m in read(entries or [], trusted=True).items():
        path = replicas.get(m.api_version)
        if path and has(m.fields, _elements(path)):
            shown[ident] = Managed(REPLICAS, SCALE_VERSION, m.applied, m.time)
    return write(shown)


def to_parent(
    entries: Entries | None, scale_entries: Entries | None, api_version: str, replicas: Mapping[str, str | None]
) -> Entries:
    """Return the object's entries after a write of its Scale in ``api_version``; entries of unknown versions are dropped.

    New owners of the replica count have no time, as upstream. Raises ValueError as ``to_scale`` does.
    """
    scale = read(scale_entries or [], trusted=True)
    out: Managers = {}
    times: dict = {}
    for ident, m in read(entries or [], trusted=True).items():
        times[ident] = m.time
        if m.api_version not in replicas:
            continue
        path = replicas[m.api_version]
        if not path or not has(m.fields, _elements(path)):
            out[ident] = m
        elif ident in scale:
            out[ident] = m
            del scale[ident]
        else:
            left = difference(m.fields, field_set([path]))
            if left:
                out[ident] = m.with_fields(left)
    own = replicas.get(api_version)
    for ident, m in scale.items():
        if own and has(m.fields, ["f:spec", "f:replicas"]):
            out[ident] = Managed(field_set([own]), api_version, m.applied, times.get(ident, ""))
    return write(out)

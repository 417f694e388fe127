"""Computed defaults and the field mirroring of core/v1 (``pkg/apis/core/v1/defaults.go``, ``conversion.go``).

They run after the constant defaults, on every object decoded from a client or read from an older store.
"""

from __future__ import annotations

from typing import Any

Obj = dict[str, Any]


def mirror_first(obj: Obj, one: str, many: str, wrap: bool = False) -> None:
    """Make a singular field and the first item of its plural equal; if they differ, the singular wins."""
    single, plural = obj.get(one) or "", obj.get(many) or []
    first = (plural[0].get("ip") or "" if wrap else plural[0]) if plural else ""
    if single and single != first:
        obj[many] = [{"ip": single}] if wrap else [single]
    elif first and not single:
        obj[one] = first

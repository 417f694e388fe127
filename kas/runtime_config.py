"""``--runtime-config``: which group versions and resources are served (apiserver's ``server/resourceconfig``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Enabled:
    """``versions`` that are on; ``resources`` switched one by one (group, version, plural) -> on."""

    versions: set[tuple[str, str]]
    resources: dict[tuple[str, str, str], bool] = field(default_factory=dict)
    all_of: set[tuple[str, str]] = field(default_factory=set)

    def serves(self, resource: Any) -> bool:
        one = self.resources.get((resource.group, resource.version, resource.resource))
        if one is not None:
            return one
        # A version switched on as a whole brings all its resources; a stable one only those on by default.
        return resource.served_by_default or (resource.group, resource.version) in self.all_of


def enabled_versions(scheme: Any, config: list[str]) -> Enabled:
    """The versions on by default, changed by ``config`` (``api/all``, ``api/beta``, ``group/version``, ``group/version/resource``).

    Raises ValueError, naming the entry, for one that names nothing known.
    """
    versions = {(r.group, r.version) for r in scheme.resources if r.served_by_default}
    known = {(r.group, r.version) for r in scheme.resources}
    out = Enabled(versions)
    parsed = []
    for entry in config:
        key, sep, value = entry.partition("=")
        if value.lower() not in ("true", "false", "") or (sep and not value):
            raise ValueError(f"--runtime-config: {entry!r}: the value must be true or false")
        parsed.append((key.strip(), value.lower() != "false", entry))
    # Classes first and single entries last, so that the more precise wins whatever the order given.
    for key, on, _ in parsed:
        if key in ("api/all", "api/ga", "api/beta", "api/alpha"):
            for gv in known:
                if key == "api/all" or _class_of(gv[1]) == key[4:]:
                    _switch(out, gv, on)
    for key, on, entry in parsed:
        if key in ("api/all", "api/ga", "api/beta", "api/alpha"):
            continue
        parts = key.split("/")
        gv = ("", parts[-1]) if key in ("v1", "api/v1") else (parts[0], parts[1]) if len(parts) >= 2 else ("", key)
        if gv not in known:
            raise ValueError(f"--runtime-config: {entry!r}: unknown API version")
        if len(parts) == 3:
            out.resources[gv[0], gv[1], parts[2]] = on
            if on:
                out.versions.add(gv)
        else:
            _switch(out, gv, on)
    return out


def _class_of(version: str) -> str:
    return "alpha" if "alpha" in version else "beta" if "beta" in version else "ga"


def _switch(out: Enabled, gv: tuple[str, str], on: bool) -> None:
    if on:
        out.versions.add(gv)
        out.all_of.add(gv)
    else:
        out.versions.discard(gv)
        out.all_of.discard(gv)

"""``--runtime-config``: which group versions and resources are served (apiserver's ``server/resourceconfig``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kas.config.flagtypes import parse_bool, quote

_CLASSES = ("api/all", "api/ga", "api/beta", "api/alpha")


class Enabled:
    """The enabled API: ``versions`` that are on; ``resources``, (group, version, plural) -> on, switched individually; ``all_of``, versions
    switched on as a whole; ``partly``, versions that are on only for individual resources.
    """

    def __init__(self, versions: set[tuple[str, str]]) -> None:
        self.versions = versions
        self.resources: dict[tuple[str, str, str], bool] = {}
        self.all_of: set[tuple[str, str]] = set()
        self.partly: set[tuple[str, str]] = set()

    def serves(self, resource: Any) -> bool:
        """Whether a resource of an enabled version is served: as configured individually, else with its version."""
        one = self.resources.get((resource.group, resource.version, resource.resource))
        if one is not None:
            return one
        if (resource.group, resource.version) in self.partly:
            return False
        # A version switched on as a whole serves all its resources; a stable one only those on by default.
        return resource.served_by_default or (resource.group, resource.version) in self.all_of


def enabled_versions(scheme: Any, config: Mapping[str, str]) -> Enabled:
    """Return the versions on by default, changed by ``config`` (``api/all``, ``api/beta``, ``group/version``, ``group/version/resource``).

    Raises ValueError with upstream's text for unknown keys.
    """
    config = completed(config)
    versions = {(r.group, r.version) for r in scheme.resources if r.served_by_default}
    known = {(r.group, r.version) for r in scheme.resources}
    wrong = problems(scheme, config)
    if wrong:
        raise ValueError("; ".join(wrong))
    out = Enabled(versions)
    parsed = [(key, parse_bool(value or "true")) for key, value in config.items()]
    # Independent of the given order: classes first, wider before narrower, then versions, resources last.
    for name, on in sorted((one for one in parsed if one[0] in _CLASSES), key=lambda one: _CLASSES.index(one[0])):
        for gv in known:
            if name == "api/all" or _class_of(gv[1]) == name[4:]:
                _switch(out, gv, on)
    single = [(*_parts(key), on) for key, on in parsed if key not in _CLASSES]
    for gv, resource, on in single:
        if not resource:
            _switch(out, gv, on)
    for gv, resource, on in single:
        if resource:
            out.resources[*gv, resource] = on
            if on and gv not in out.versions:
                out.versions.add(gv)
                out.partly.add(gv)
    return out


# The minimum of an API server: upstream's generic control plane (``pkg/controlplane/apiserver``).
BARE_GROUPS = frozenset((
    "admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "authentication.k8s.io", "authorization.k8s.io",
    "certificates.k8s.io", "coordination.k8s.io", "events.k8s.io", "flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io",
    "rbac.authorization.k8s.io", "storagemigration.k8s.io",
))  # fmt: skip
BARE_CORE = frozenset(("configmaps", "events", "namespaces", "resourcequotas", "secrets", "serviceaccounts"))


def chosen(scheme: Any, kinds: str | Sequence[str]) -> dict[str, str]:
    """Return the ``--runtime-config`` of a server that only has these built-in kinds.

    ``kinds`` is "all", "none", or a list of groups ("apps"), resources of the core group ("pods") and of others ("deployments.apps"). The
    minimum of an API server is always included: namespaces and their configuration objects, definitions, RBAC, admission, reviews. Raises
    ValueError for unknown kinds.
    """
    if kinds == "all":
        return {}
    wanted = [] if kinds == "none" else [kinds] if isinstance(kinds, str) else list(kinds)
    known = {(r.group, r.resource) for r in scheme.resources}
    groups, resources = set(BARE_GROUPS), {("", name) for name in BARE_CORE}
    for text in wanted:
        name, _, group = text.partition(".")
        if any(g == text for g, _ in known if g):
            groups.add(text)
        elif (group, name) in known:
            resources.add((group, name))
        else:
            raise ValueError(f"kinds: {text!r} is neither an API group nor a resource that is built in")
    out = {}
    for r in scheme.resources:
        if r.group not in groups and (r.group, r.resource) not in resources:
            out[f"{r.group}/{r.version}/{r.resource}"] = "false"
    return out


def _parts(key: str) -> tuple[tuple[str, str], str]:
    """Return ((group, version), resource or ""). The core group is empty, ``/v1``."""
    group, version, *resource = key.split("/")
    return (group, version), "/".join(resource)


def completed(config: Mapping[str, str]) -> dict[str, str]:
    """Complete the flag's keys as kube-apiserver does first (``pkg/controlplane/apiserver/options``).

    ``v1`` and ``api/v1``, older names of the core group's version, become ``/v1``; a resource after them is dropped. ``api/legacy`` has no
    meaning any more.
    """
    out = {}
    for key, value in config.items():
        older = key.removeprefix("api/")
        if older == "v1" or older.startswith("v1/"):
            out["/v1"] = value
        elif key != "api/legacy":
            out[key] = value
    return out


def problems(scheme: Any, config: Mapping[str, str]) -> list[str]:
    """Return the errors in the flag's keys and values, in upstream's words."""
    config = completed(config)
    if config == {"api/all": "false"}:  # then nothing would be served
        return ["invalid runtime-config with only api/all=false"]
    keys = [key for key in config if key not in _CLASSES]
    for key in keys:
        if key.count("/") not in (1, 2):
            return [f"runtime-config invalid key {key}"]
    known = {(r.group, r.version) for r in scheme.resources}
    groups = {group for group, _ in known}
    strange = sorted(key for key in keys if _parts(key)[0][0] not in groups)
    if strange:
        return ["unknown api groups " + ",".join(strange)]
    out = []
    for key, value in config.items():
        if key in _CLASSES:  # compared as text
            if value not in ("true", "false"):
                out.append(f"invalid value {key}={value}")
            continue
        try:
            parse_bool(value or "true")
        except ValueError as e:
            out.append(f"invalid value of {key}: {value}, err: {e}")
    versions = [_parts(key)[0] for key in keys]
    for key in keys:
        gv, resource = _parts(key)
        if gv in known and resource != resource.lower():
            out.append(f"invalid key {key}: group/version/resource and resource is always lowercase plural, not {quote(resource)}")
    return out + [f"group version {'/'.join(filter(None, gv))} that has not been registered" for gv in versions if gv not in known]


def _class_of(version: str) -> str:
    return "alpha" if "alpha" in version else "beta" if "beta" in version else "ga"


def _switch(out: Enabled, gv: tuple[str, str], on: bool) -> None:
    if on:
        out.versions.add(gv)
        out.all_of.add(gv)
    else:
        out.versions.discard(gv)
        out.all_of.discard(gv)

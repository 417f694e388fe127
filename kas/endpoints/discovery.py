"""Discovery documents: the groups, versions and resources of this server.

Pure functions over ``Version`` records. The caller collects the records (built-in kinds, custom resources, API services), encodes the
dicts and responds. Nothing is cached here; the server caches the encoded documents until its versions change. Source of the behaviour:
apiserver ``endpoints/discovery`` and ``endpoints/discovery/aggregated``, KEP-3352.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kas.config import features
from kas.meta.kubeversion import version_key
from kas.meta.records import NamedTuple

if TYPE_CHECKING:
    from kas.apiextensions.definition import Definition
    from kas.types.scheme import Group, Resource

AGGREGATED = "v2"  # v2beta1 is no longer served
# The priorities that upstream's controllers give to a custom resource's group and versions.
CUSTOM_GROUP_PRIORITY, CUSTOM_VERSION_PRIORITY = 1000, 100
_FIRST = 20001  # upstream's maximum group priority is one less


class Version(NamedTuple):
    """One served group version. ``resources`` are APIResource dicts in display order, subresources included.

    - The priorities are those of an APIService; higher comes first.
    - ``freshness`` is "Stale" while a version's resources are unknown.
    - ``discovered``, if not None, are the resources in APIGroupDiscoveryList form, of a version that another server serves.
    - ``custom`` versions are those of CustomResourceDefinitions.
    - Versions that are not ``answered`` are custom ones in Kubernetes' own groups: aggregated discovery shows them, but their objects are
      not served.
    """

    group: str
    version: str
    resources: tuple[dict[str, Any], ...] = ()
    group_priority: int = CUSTOM_GROUP_PRIORITY
    version_priority: int = CUSTOM_VERSION_PRIORITY
    freshness: str = "Current"
    discovered: tuple[dict[str, Any], ...] | None = None
    custom: bool = False
    answered: bool = True

    @property
    def group_version(self) -> str:
        """``group/version``, or only the version for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version


def api_resource(
    name: str,
    kind: str,
    *,
    namespaced: bool,
    verbs: Sequence[str],
    singular: str = "",
    group_version: tuple[str, str] | None = None,
    short_names: Sequence[str] = (),
    categories: Sequence[str] = (),
    storage_version_hash: str | None = None,
) -> dict[str, Any]:
    """Return a metav1.APIResource. ``group_version`` is given only if the kind belongs to another one than the resource."""
    out: dict[str, Any] = {"name": name, "singularName": singular, "namespaced": namespaced}
    if group_version is not None:
        out["group"], out["version"] = group_version
    out["kind"], out["verbs"] = kind, list(verbs)
    if short_names:
        out["shortNames"] = list(short_names)
    if categories:
        out["categories"] = list(categories)
    if storage_version_hash and features.DEFAULT.enabled("StorageVersionHash"):
        out["storageVersionHash"] = storage_version_hash
    return out


def describe(resource: Resource) -> list[dict[str, Any]]:
    """Return the APIResources of a built-in resource: the resource, then its subresources."""
    out = [
        api_resource(
            resource.resource,
            resource.kind,
            namespaced=resource.namespaced,
            verbs=resource.verbs,
            singular=resource.singular,
            short_names=resource.short_names,
            categories=resource.categories,
            storage_version_hash=resource.storage_version_hash,
        )
    ]
    home = (resource.group, resource.version)
    for name, sub in resource.subresources.items():
        other = (sub.group, sub.version)
        path = f"{resource.resource}/{name}"
        out.append(
            api_resource(path, sub.kind, namespaced=resource.namespaced, verbs=sub.verbs, group_version=None if other == home else other)
        )
    return out


def builtin_versions(resources: Iterable[Resource], groups: Mapping[str, Group]) -> list[Version]:
    """Return the versions of the enabled ``resources``, with the priorities from the scheme's ``groups``."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for resource in resources:
        found.setdefault((resource.group, resource.version), []).extend(describe(resource))
    out = []
    for (name, version), shown in found.items():
        # apiregistration.k8s.io has no APIService and always comes first.
        priority = groups[name].group_priority_minimum or _FIRST
        out.append(Version(name, version, tuple(shown), priority, groups[name].version_priority.get(version, 1)))
    return out


def by_group(versions: Iterable[Version], by_service: bool = False) -> dict[str, list[Version]]:
    """Return the versions of each group in the order of preference, the core group included.

    Groups of equal priority are sorted by group name, or with ``by_service`` by the name of the APIService that has the priority.
    """
    groups: dict[str, list[Version]] = {}
    for v in versions:
        groups.setdefault(v.group, []).append(v)
    for found in groups.values():
        found.sort(key=lambda v: (-v.version_priority, version_key(v.version)))
    if by_service:
        return dict(sorted(groups.items(), key=lambda item: min((-v.group_priority, f"{v.version}.{v.group}") for v in item[1])))
    return dict(sorted(groups.items(), key=lambda item: (-max(v.group_priority for v in item[1]), item[0])))


def api_versions(versions: Iterable[Version], server_address: str) -> dict[str, Any]:
    """Return the document of ``/api``: the core versions, and the server's address for clients of any address."""
    return {
        "kind": "APIVersions",
        "versions": [v.version for v in by_group(versions).get("", ())],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    }


def _group(name: str, found: Sequence[Version]) -> dict[str, Any]:
    shown = [{"groupVersion": v.group_version, "version": v.version} for v in found]
    return {"name": name, "versions": shown, "preferredVersion": shown[0]}


def group_list(versions: Iterable[Version]) -> dict[str, Any]:
    """Return the document of ``/apis``: every group but the core one."""
    groups = [_group(name, found) for name, found in by_group(versions, by_service=True).items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(grouped: Mapping[str, Sequence[Version]], name: str) -> dict[str, Any] | None:
    """Return the document of ``/apis/<name>``, or None if ``grouped`` (from ``by_group``) has no version of the group."""
    found = grouped.get(name)
    return {"kind": "APIGroup", "apiVersion": "v1"} | _group(name, found) if found and name else None


def resource_list(version: Version) -> dict[str, Any]:
    """Return the document of ``/api/<version>`` or ``/apis/<group>/<version>``. As upstream, only the latter has an apiVersion."""
    head = {"kind": "APIResourceList"} | ({"apiVersion": "v1"} if version.group else {})
    return head | {"groupVersion": version.group_version, "resources": list(version.resources)}


def _response_kind(resource: dict[str, Any], home: tuple[str, str]) -> dict[str, str]:
    return {"group": resource.get("group", home[0]), "version": resource.get("version", home[1]), "kind": resource["kind"]}


def aggregated_resources(resources: Iterable[dict[str, Any]], home: tuple[str, str] = ("", "")) -> list[dict[str, Any]]:
    """Return APIResources in the form of aggregated discovery, each with its subresources.

    ``home`` is the group version of kinds that do not name one. Built-in groups leave it empty for their own kinds.
    """
    parents: dict[str, dict[str, Any]] = {}
    for r in resources:
        name, _, sub = r["name"].partition("/")
        if not sub:
            shown = {
                "resource": name, "responseKind": _response_kind(r, home), "scope": "Namespaced" if r["namespaced"] else "Cluster",
                "singularResource": r["singularName"], "verbs": r["verbs"],
            }  # fmt: skip
            shown |= {key: r[key] for key in ("shortNames", "categories") if r.get(key)}
            parents[name] = shown
            continue
        parent = parents.setdefault(
            name,  # a subresource may be served without its parent
            {"resource": name, "scope": "Namespaced" if r["namespaced"] else "Cluster", "singularResource": "", "verbs": []},
        )
        entry = {"subresource": sub, "responseKind": _response_kind(r, home), "verbs": r["verbs"]}
        parent.setdefault("subresources", []).append(entry)
    return list(parents.values())


def aggregated(versions: Iterable[Version], *, core: bool) -> dict[str, Any]:
    """Return all groups (``core`` False, ``/apis``) or the core group (``/api``) as one APIGroupDiscoveryList."""
    items = []
    for name, found in by_group(versions).items():
        if bool(name) == core:
            continue
        shown = []
        for v in found:
            home = (v.group, v.version) if v.custom else ("", "")
            resources = aggregated_resources(v.resources, home) if v.discovered is None else list(v.discovered)
            shown.append({"version": v.version, **({"resources": resources} if resources else {}), "freshness": v.freshness})
        items.append({"metadata": {"name": name} if name else {}, "versions": shown})
    return {"kind": "APIGroupDiscoveryList", "apiVersion": f"apidiscovery.k8s.io/{AGGREGATED}", "metadata": {}, "items": items}


def etag(body: bytes) -> str:
    """Return the strong entity tag of an encoded document with its quotes, as in ``ETag`` and ``If-None-Match``."""
    return f'"{hashlib.sha512(body).hexdigest().upper()}"'


def paths(versions: Iterable[Version]) -> list[str]:
    """Return the discovery paths of the versions, for the index at ``/``."""
    out = {"/apis", "/apis/"}
    for v in versions:
        out |= {f"/apis/{v.group}", f"/apis/{v.group}/{v.version}"} if v.group else {"/api", f"/api/{v.version}"}
    return sorted(out)


# In the order of upstream's handler for custom resources.
_CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
# Objects of a terminating definition can still be updated, to remove their finalizers, but discovery does not show that.
_TERMINATING_VERBS = ("delete", "deletecollection", "get", "list", "watch")


def custom_resources(d: Definition) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the served versions of a definition with their resources; none unless it is established.

    Versions with the same subresources share the list, because there may be thousands.
    """
    if not d.is_true("Established"):
        return []
    digest = hashlib.sha256(f"{d.group}/{d.stored.name}/{d.names['kind']}".encode()).digest()
    digest_text = base64.b64encode(digest[:8]).decode()
    known: dict[tuple[bool, bool], list[dict[str, Any]]] = {}
    out = []
    for v in d.versions:
        if v.served:
            key = v.status, v.scale is not None
            if key not in known:
                known[key] = _custom_resources(d, digest_text, *key)
            out.append((v.name, known[key]))
    return out


def _custom_resources(d: Definition, digest: str, status: bool, scale: bool) -> list[dict[str, Any]]:
    names = d.names
    plural, namespaced = names["plural"], d.namespaced
    verbs = _TERMINATING_VERBS if d.is_true("Terminating") else _CUSTOM_VERBS
    out = [
        api_resource(
            plural, names["kind"], namespaced=namespaced, verbs=verbs, singular=names.get("singular", ""),
            short_names=names.get("shortNames") or (), categories=names.get("categories") or (), storage_version_hash=digest,
        )
    ]  # fmt: skip
    for name, there, gv, kind in (("status", status, None, names["kind"]), ("scale", scale, ("autoscaling", "v1"), "Scale")):
        if there:
            writes = ("get", "patch", "update")
            out.append(api_resource(f"{plural}/{name}", kind, namespaced=namespaced, verbs=writes, group_version=gv))
    return out


Resources = Callable[["Definition"], list[tuple[str, list[dict[str, Any]]]]]


def custom_versions(definitions: Iterable[Definition], answered: bool = True, resources_of: Resources = custom_resources) -> list[Version]:
    """Return the group versions of established CustomResourceDefinitions, with resources sorted by name.

    ``resources_of`` returns the ``custom_resources`` of a definition.
    """
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for d in sorted(definitions, key=lambda d: d.name):
        for version, shown in resources_of(d):
            found.setdefault((d.group, version), []).extend(shown)
    return [Version(group, version, tuple(shown), custom=True, answered=answered) for (group, version), shown in found.items()]

"""Warnings about valid pods and pod templates that are probably not intended (``pkg/api/pod/warnings.go``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import merge
from itertools import chain, islice
from operator import itemgetter
from typing import Any

from kas.kinds.core.claims import claim_spec_warnings
from kas.kinds.core.pod.scheduling import PREFERRED, REQUIRED
from kas.kinds.core.pod.security import APPARMOR, SECCOMP_CONTAINER, SECCOMP_POD, containers, has_legacy_profiles
from kas.kinds.core.pod.spec import passes_checks
from kas.kinds.core.resources import milli
from kas.meta import names
from kas.meta.field import go_quote
from kas.meta.ipchecks import ip_warnings

Obj = Mapping[str, Any]
_Port = tuple[Any, ...]  # the port, its position in order, and its path
MOST_WARNINGS = 1_000  # about ports or files, whose number can be quadratic; 4 KiB of warnings are sent
MOST_CHARACTERS = 1 << 20  # of these warnings: each may quote two paths of a megabyte
MOST_PARTS = 50_000  # of paths in a volume that are compared: each takes 400 bytes while they are
DEPRECATED_NODE_LABELS = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; use Taints and Tolerations instead",
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}
_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": 'non-functional in v1.16+; use the "priorityClassName" field instead',
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
# (path segment, text) of volume sources of pods and PersistentVolumes, which each use their own order.
DEPRECATED_VOLUMES = {
    "photonPersistentDisk": ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    "gitRepo": ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    "scaleIO": ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    "flocker": ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    "storageos": ("storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    "quobyte": ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    "glusterfs": ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    "cephfs": ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    "rbd": ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
}
_LATE_VOLUMES = ("cephfs", "rbd")
_VOLUMES = tuple(key for key in DEPRECATED_VOLUMES if key not in _LATE_VOLUMES)
# Sources that have warnings of their own, and those that map keys to files.
_PLAIN_VOLUMES = DEPRECATED_VOLUMES.keys() | {"ephemeral"}
_KEYED_VOLUMES = (("configMap", "ConfigMap", "name"), ("secret", "Secret", "secretName"), ("downwardAPI", "DownwardAPI", ""))
_KEYED_SOURCES = (("configMap", "ConfigMap", "name"), ("secret", "Secret", "name"), ("downwardAPI", "DownwardAPI", ""))
# Fields of a spec for the functions named after them; most specs have none.
_NODE_FIELDS = frozenset(("nodeSelector", "affinity", "topologySpreadConstraints"))
_LIST_FIELDS = frozenset(("hostAliases", "dnsConfig", "imagePullSecrets"))
_SECCOMP = 'non-functional in v1.27+; use the "seccompProfile" field instead'
_BYTES = ("memory", "ephemeral-storage")
_NULL_SELECTOR = "a null labelSelector results in matching no pod"


def deprecated_volumes(volume: Obj, path: str, keys: Iterable[str]) -> list[str]:
    """Return the warnings for those sources among ``keys`` that the volume has, in the order of ``keys``; ``path`` is the volume's."""
    texts = ((DEPRECATED_VOLUMES[key], volume.get(key)) for key in keys)
    return [f"{path}.{shown}: {text}" for (shown, text), source in texts if source is not None]


def node_selector_term_warnings(term: Obj, check_values: bool, path: str) -> Iterator[str]:
    """``GetWarningsForNodeSelectorTerm``: deprecated node labels as keys of matchExpressions and, with ``check_values``, values that no
    label can have.
    """
    for i, expression in enumerate(term.get("matchExpressions") or ()):
        key, at = expression.get("key") or "", f"{path}.matchExpressions[{i}]"
        if key in DEPRECATED_NODE_LABELS:
            yield f"{at}.key: {key} is {DEPRECATED_NODE_LABELS[key]}"
        if check_values:
            for j, value in enumerate(expression.get("values") or ()):
                for message in names.is_label_value(value):
                    yield f"{at}.values[{j}]: {value} is invalid, {message}"


def pod_warnings(meta: Obj, spec: Obj, prefix: str = "", passed: bool | None = None) -> list[str]:
    """Return a pod's warnings; ``prefix`` is the path of a template ("spec.template"), "" for a pod; ``passed`` as in ``spec.spec``."""
    if passed is None:
        passed = passes_checks(spec)
    base = f"{prefix}." if prefix else ""
    at_spec, at_notes = f"{base}spec", f"{base}metadata.annotations"
    out = [] if spec.keys().isdisjoint(_NODE_FIELDS) else list(_node_warnings(spec, at_spec))
    annotations = meta.get("annotations") or {}
    if not _ANNOTATIONS.keys().isdisjoint(annotations):
        out += [f"{at_notes}[{key}]: {text}" for key, text in _ANNOTATIONS.items() if key in annotations]
    if spec.get("volumes") and not passed:
        out += _volume_warnings(spec["volumes"], f"{at_spec}.volumes")
    if not spec.keys().isdisjoint(_LIST_FIELDS):
        out += _list_warnings(spec, at_spec)
    if spec.get("overhead"):
        out += _fractions(spec["overhead"], f"{at_spec}.overhead")
    legacy = has_legacy_profiles(annotations)
    if legacy and SECCOMP_POD in annotations and (spec.get("securityContext") or {}).get("seccompProfile") is None:
        out.append(f"{at_notes}[{SECCOMP_POD}]: {_SECCOMP}")
    if legacy or not passed or "ephemeralContainers" in spec:
        context = spec.get("securityContext") or {}
        for container, at in containers(spec, at_spec):
            if legacy:
                out += _profile_warnings(container, annotations, context, at_notes, bool(prefix))
            out += _container_warnings(container, at)
        out += _first(_port_warnings(spec, at_spec))
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0:
        out.append(f"{at_spec}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1")
    if spec.get("affinity"):
        out += _affinity_warnings(spec["affinity"], f"{at_spec}.affinity")
    return out


def _container_warnings(container: Obj, path: str) -> list[str]:
    out: list[str] = []
    resources = container.get("resources")
    if resources:
        for name in _BYTES:
            for kind in ("limits", "requests"):
                out += _fraction((resources.get(kind) or {}).get(name), f"{path}.resources.{kind}[{name}]")
    if len(container.get("env") or ()) > 1:
        out += _env_warnings(container["env"], f"{path}.env")
    return out


def _profile_warnings(container: Obj, annotations: Mapping[str, str], context: Obj, path: str, template: bool) -> Iterator[str]:
    own = container.get("securityContext") or {}
    key = SECCOMP_CONTAINER + (container.get("name") or "")
    if key in annotations and own.get("seccompProfile") is None:
        yield f"{path}[{key}]: {_SECCOMP}"
    key = APPARMOR + (container.get("name") or "")
    if template and key in annotations and not (own.get("appArmorProfile") or context.get("appArmorProfile")):
        yield f'{path}[{key}]: deprecated since v1.30; use the "appArmorProfile" field instead'


def _node_warnings(spec: Obj, path: str) -> Iterator[str]:
    for key in sorted(spec.get("nodeSelector") or ()):
        if key in DEPRECATED_NODE_LABELS:
            yield f"{path}.nodeSelector[{key}]: {DEPRECATED_NODE_LABELS[key]}"
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    at = f"{path}.affinity.nodeAffinity"
    for i, term in enumerate((affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or ()):
        yield from node_selector_term_warnings(term, False, f"{at}.{REQUIRED}.nodeSelectorTerms[{i}]")
    for i, term in enumerate(affinity.get(PREFERRED) or ()):
        yield from node_selector_term_warnings(term.get("preference") or {}, True, f"{at}.{PREFERRED}[{i}].preference")
    for i, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        at, key = f"{path}.topologySpreadConstraints[{i}]", constraint.get("topologyKey") or ""
        if key in DEPRECATED_NODE_LABELS:
            yield f"{at}.topologyKey: {key} is {DEPRECATED_NODE_LABELS[key]}"
        if constraint.get("labelSelector") is None:
            yield f"{at}.labelSelector: {_NULL_SELECTOR}"


def _volume_warnings(volumes: list[dict[str, Any]], path: str) -> list[str]:
    out: list[str] = []
    for i, volume in enumerate(volumes):
        if _PLAIN_VOLUMES.isdisjoint(volume):
            continue
        out += deprecated_volumes(volume, f"{path}[{i}]", _VOLUMES)
        template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
        if template is not None:
            out += claim_spec_warnings(template.get("spec") or {}, f"{path}[{i}].ephemeral.volumeClaimTemplate.spec")
        out += deprecated_volumes(volume, f"{path}[{i}]", _LATE_VOLUMES)
    out += _first(chain.from_iterable(map(_overlapping_files, volumes)))
    return out


def _first(warnings: Iterable[str]) -> Iterator[str]:
    """Yield the first of the warnings: ``MOST_WARNINGS``, or fewer where those have ``MOST_CHARACTERS``."""
    told = 0
    for text in islice(warnings, MOST_WARNINGS):
        yield text
        told += len(text)
        if told >= MOST_CHARACTERS:
            return


# A file of a volume: its path and, in projected volumes, its source.
_File = tuple[str, str]


def _files(source: Obj, owner: str) -> list[_File]:
    return [(item.get("path") or "", owner) for item in source["items"]]


def _named(kind: str, name: str | None) -> str:
    return kind if name is None else f"{kind} {go_quote(name)}"


def _overlapping_files(volume: Obj) -> Iterator[str]:
    """Yield warnings for files of one volume with the same path, or with a path below another file."""
    name = f"volume {go_quote(volume.get('name') or '')}"
    for key, kind, label in _KEYED_VOLUMES:
        source = volume.get(key)
        if source is not None and source.get("items"):
            shown = _named(kind, (source.get(label) or "") if label else None)
            yield from _overlaps(_files(source, ""), _Taken(), f"{name} ({shown})")
    taken = _Taken()
    files: list[_File] = []
    for source in (volume.get("projected") or {}).get("sources") or ():
        if all(part is None for part in source.values()):
            yield f"{name} (Projected) has no sources provided"
            continue
        # If a source does not list its files, upstream repeats the check with the files of the source before.
        files = next(_projected_files(source), files)
        yield from _overlaps(files, taken, f"{name} (Projected)")


def _projected_files(source: Obj) -> Iterator[list[_File]]:
    """Yield the files of each part of a source that lists them; there should be one part."""
    for key, kind, label in _KEYED_SOURCES:
        part = source.get(key)
        if part is not None and part.get("items") is not None:
            yield _files(part, _named(kind, (part.get(label) or "") if label else None))
    token, bundle = source.get("serviceAccountToken"), source.get("clusterTrustBundle")
    if token is not None:
        yield [(token.get("path") or "", "ServiceAccountToken")]
    if bundle is not None:
        named = bundle.get("name")
        yield [(bundle.get("path") or "", _named("ClusterTrustBundle", bundle.get("signerName") or "" if named is None else named))]


class _Taken:
    """A node in the tree of file paths by their parts: the files at this path and those below, each with its position in order. ``size``
    of the root: how many parts the paths have together."""

    __slots__ = ("below", "here", "parts", "size")

    def __init__(self) -> None:
        self.size = 0
        self.parts: dict[str, _Taken] = {}
        self.here: list[tuple[int, _File]] = []
        self.below: list[tuple[int, _File]] = []


def _overlaps(files: list[_File], taken: _Taken, where: str) -> Iterator[str]:
    """Yield warnings for each of ``files`` with those in ``taken``, and add it there, until their paths have ``MOST_PARTS``. All overlaps
    are found along the path's parts."""

    def shown(path: str, owner: str) -> str:
        return f"{go_quote(path)} ({owner})" if owner else go_quote(path)

    for path, owner in files:
        path = path.rstrip("/")
        if not path:
            continue
        taken.size += path.count("/") + 1
        if taken.size > MOST_PARTS:
            return
        at, way = taken, list[_Taken]()
        for part in path.split("/"):
            way.append(at)
            at = at.parts.setdefault(part, _Taken())
        for _, (other, of_other) in merge(*(above.here for above in way if above.here), at.here, at.below, key=itemgetter(0)):
            yield f"{where}: overlapping paths: {shown(path, owner)} with {shown(other, of_other)}"
        entry = (len(taken.below), (path, owner))
        at.here.append(entry)
        for above in way:
            above.below.append(entry)


def _list_warnings(spec: Obj, path: str) -> Iterator[str]:
    seen: set[str] = set()
    for i, alias in enumerate(spec.get("hostAliases") or ()):
        ip = alias.get("ip") or ""
        if ip in seen:
            yield f"{path}.hostAliases[{i}].ip: duplicate ip {go_quote(ip)}"
        seen.add(ip)
    for i, alias in enumerate(spec.get("hostAliases") or ()):
        yield from ip_warnings(f"{path}.hostAliases[{i}].ip", alias.get("ip") or "")
    for i, server in enumerate((spec.get("dnsConfig") or {}).get("nameservers") or ()):
        yield from ip_warnings(f"{path}.dnsConfig.nameservers[{i}]", server)
    seen = set()
    secrets = [item.get("name") or "" for item in spec.get("imagePullSecrets") or ()]
    for i, name in enumerate(secrets):
        if name in seen:
            yield f"{path}.imagePullSecrets[{i}].name: duplicate name {go_quote(name)}"
        seen.add(name)
    for i, name in enumerate(secrets):
        if not name:
            yield f'{path}.imagePullSecrets[{i}].name: invalid empty name ""'


def _fractions(amounts: Obj, path: str) -> list[str]:
    return [text for name in _BYTES for text in _fraction(amounts.get(name), f"{path}[{name}]")]


def _fraction(text: str | None, path: str) -> list[str]:
    if text is not None and milli(text) % 1000:
        return [f"{path}: fractional byte value {go_quote(text)} is invalid, must be an integer"]
    return []


def _env_warnings(items: list[dict[str, Any]], path: str) -> Iterator[str]:
    seen: set[str] = set()
    for i, item in enumerate(items):
        name, value = item.get("name") or "", item.get("value") or ""
        if name in seen:
            reference = f"$({name})"
            if item.get("valueFrom") is not None or value == reference or reference not in value:
                quoted = go_quote(name)
                yield f"{path}[{i}]: hides previous definition of {quoted}, which may be dropped when using apply"
        seen.add(name)


class _SamePort:
    """The earlier definitions of one port and protocol, each with its position in order.

    They are indexed to find those that conflict with another one: a pod may have 60,000 that differ in their hostPort or hostIP.
    """

    def __init__(self) -> None:
        self._all: list[_Port] = []
        self._by_host: dict[int, list[_Port]] = {}
        self._by_address: dict[tuple[int, str], list[_Port]] = {}

    def like(self, port: Obj) -> Iterator[tuple[_Port, str]]:
        """Yield the conflicting definitions in order, and the kind of conflict."""
        ip, host = _address(port)
        if not host:
            among: Iterable[_Port] = self._all
        else:
            of_host = (
                merge(self._by_address.get((host, ip), ()), self._by_address.get((host, ""), ()), key=itemgetter(1)) if ip
                else self._by_host.get(host, ())
            )  # fmt: skip
            among = merge(self._by_host.get(0, ()), of_host, key=itemgetter(1))
        for other in among:
            other_ip, other_host = _address(other[0])
            if ip == other_ip and host == other_host:
                yield other, "duplicate"
            else:
                yield other, "dangerously ambiguous" if host and other_host else "overlapping"

    def add(self, entry: _Port) -> None:
        ip, host = _address(entry[0])
        self._all.append(entry)
        self._by_host.setdefault(host, []).append(entry)
        self._by_address.setdefault((host, ip), []).append(entry)


def _address(port: Obj) -> tuple[str, int]:
    return port.get("hostIP") or "", port.get("hostPort") or 0


def _port_warnings(spec: Obj, path: str) -> Iterator[str]:
    ports = (
        (port, kind, ci, pi)
        for kind in ("initContainers", "containers", "ephemeralContainers")
        for ci, container in enumerate(spec.get(kind) or ())
        for pi, port in enumerate(container.get("ports") or ())
    )
    found: list[_Port] = [(port, i, *place) for i, (port, *place) in enumerate(ports)]
    by_number: dict[tuple[int, str], _SamePort] = {}
    by_name: dict[str, _Port] = {}

    def at(entry: _Port) -> str:
        return f"{path}.{entry[2]}[{entry[3]}].ports[{entry[4]}]"

    for entry in found:
        port = entry[0]
        ip, host = _address(port)
        if ip and not host:
            shown = f"{{Name:{port.get('name') or ''} HostPort:0 ContainerPort:{port.get('containerPort') or 0} "
            yield f"{at(entry)}: hostIP set without hostPort: {shown}Protocol:{port.get('protocol') or ''} HostIP:{ip}}}"
        same = by_number.setdefault((port.get("containerPort") or 0, port.get("protocol") or ""), _SamePort())
        for other, how in same.like(port):
            yield f"{at(entry)}: {how} port definition with {at(other)}"
        same.add(entry)
    for entry in found:
        name = entry[0].get("name")
        if not name:
            continue
        first = by_name.setdefault(name, entry)
        if first[2:4] != entry[2:4]:
            known = at(first)
            text = f"duplicate port name {go_quote(name)} with {known}"
            yield f"{at(entry)}: {text}, services and probes that select ports by name will use {known}"


def _affinity_warnings(affinity: Obj, path: str) -> Iterator[str]:
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(kind) or {}
        for i, term in enumerate(rules.get(REQUIRED) or ()):
            if term.get("labelSelector") is None:
                yield f"{path}.{kind}.{REQUIRED}[{i}].labelSelector: {_NULL_SELECTOR}"
        for i, term in enumerate(rules.get(PREFERRED) or ()):
            if (term.get("podAffinityTerm") or {}).get("labelSelector") is None:
                yield f"{path}.{kind}.{PREFERRED}[{i}].podAffinityTerm.labelSelector: {_NULL_SELECTOR}"


def template_warnings(template: Obj | None, path: str) -> list[str]:
    """``GetWarningsForPodTemplate``: the warnings of a pod made from it, with paths below ``path``; none for None."""
    if template is None:
        return []
    return pod_warnings(template.get("metadata") or {}, template.get("spec") or {}, path)

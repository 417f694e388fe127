"""Facts about pods that several plug-ins need: containers, references, resource needs.

Upstream: ``pkg/api/pod/util.go`` (the visitors) and ``component-helpers/resource/helpers.go`` (the sums).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kas.config import features
from kas.meta.quantity import Quantity
from kas.meta.quantity import cached as quantity

Obj = dict[str, Any]
Amounts = dict[str, Quantity]

NOTHING = Quantity(0)
MIRROR = "kubernetes.io/config.mirror"
EQUAL, EXISTS = "Equal", "Exists"
_COVERING = ("", EQUAL, EXISTS)
# Volume sources with a secret reference, and its field.
SECRET_REFS = {
    "cephfs": "secretRef", "cinder": "secretRef", "flexVolume": "secretRef", "rbd": "secretRef", "scaleIO": "secretRef",
    "iscsi": "secretRef", "storageos": "secretRef", "csi": "nodePublishSecretRef",
}  # fmt: skip


def is_mirror(pod: Obj) -> bool:
    """Return whether the pod mirrors a static pod of a kubelet."""
    return MIRROR in (pod["metadata"].get("annotations") or {})


def containers(spec: Obj) -> Iterator[Obj]:
    """Yield init, regular and ephemeral containers, in upstream's order of visiting."""
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(kind) or ()


def secret_names(spec: Obj) -> Iterator[str]:
    """Yield the name of every secret the pod refers to, including pull secrets and volumes; references without a name are skipped."""
    return filter(None, _secrets(spec))


def _secrets(spec: Obj) -> Iterator[str | None]:
    for ref in spec.get("imagePullSecrets") or ():
        yield ref.get("name")
    yield from _from_containers(spec, "secretRef", "secretKeyRef")
    for volume in spec.get("volumes") or ():
        if volume.get("azureFile"):
            yield volume["azureFile"].get("secretName")
        for kind, field in SECRET_REFS.items():
            ref = (volume.get(kind) or {}).get(field)
            if ref:
                yield ref.get("name")
        for source in (volume.get("projected") or {}).get("sources") or ():
            if source.get("secret"):
                yield source["secret"].get("name")
        if volume.get("secret"):
            yield volume["secret"].get("secretName")


def config_map_names(spec: Obj) -> Iterator[str]:
    """Yield the name of every ConfigMap the pod refers to; references without a name are skipped."""
    return filter(None, _config_maps(spec))


def _config_maps(spec: Obj) -> Iterator[str | None]:
    yield from _from_containers(spec, "configMapRef", "configMapKeyRef")
    for volume in spec.get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            if source.get("configMap"):
                yield source["configMap"].get("name")
        if volume.get("configMap"):
            yield volume["configMap"].get("name")


# Volumes that refer to another object, in upstream's words.
VOLUME_REFS = {
    "configMap": "configmaps (via configmap volumes)", "secret": "secrets (via secret volumes)",
    "csi": "csidrivers (via CSI volumes)", "glusterfs": "endpoints (via glusterFS volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims", "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "azureFile": "secrets (via azureFile volumes)",
}  # fmt: skip
PROJECTED_REFS = {
    "configMap": "configmaps (via projected volumes)", "secret": "secrets (via projected volumes)",
    "serviceAccountToken": "serviceaccounts (via projected volumes)", "clusterTrustBundle": "clustertrustbundles",
    "podCertificate": "podcertificates",
}  # fmt: skip


def api_references(spec: Obj) -> Iterator[str]:
    """Yield the resources the pod refers to, in upstream's order (``HasAPIObjectReference``), possibly repeated."""
    if spec.get("serviceAccountName"):
        yield "serviceaccounts"
    for what, names in (("secrets", secret_names(spec)), ("configmaps", config_map_names(spec))):
        if next(names, None) is not None:
            yield what
    if spec.get("resourceClaims"):
        yield "resourceclaims"
    for volume in spec.get("volumes") or ():
        yield from (what for kind, what in VOLUME_REFS.items() if volume.get(kind) is not None)
        for source in (volume.get("projected") or {}).get("sources") or ():
            yield from (what for kind, what in PROJECTED_REFS.items() if source.get(kind) is not None)


def _from_containers(spec: Obj, all_of: str, key_of: str) -> Iterator[str | None]:
    for container in containers(spec):
        for source in container.get("envFrom") or ():
            if source.get(all_of):
                yield source[all_of].get("name")
        for env in container.get("env") or ():
            ref = (env.get("valueFrom") or {}).get(key_of)
            if ref:
                yield ref.get("name")


def amounts(items: dict[str, str] | None) -> Amounts:
    """Return the parsed quantities; {} for None."""
    return {name: quantity(text) for name, text in (items or {}).items()}


def add(total: Amounts, more: Amounts) -> None:
    """Add ``more`` to ``total``, in place."""
    for name, need in more.items():
        total[name] = total[name] + need if name in total else need


def _at_least(total: Amounts, other: Amounts) -> None:
    for name, need in other.items():
        if name not in total or total[name] < need:
            total[name] = need


def pod_level(name: str) -> bool:
    """Return whether a resource may be requested at pod level."""
    return name in ("cpu", "memory") or name.startswith("hugepages-")


class _Held:
    """The resources held by a pod's containers and by the pod as a whole: the maximum of requested, allocated and actual amounts.

    If a resize is infeasible, the requested amounts do not count. Without a status only they count.
    """

    def __init__(self, status: Obj | None) -> None:
        status = status or {}
        known = (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ()))
        self._containers = {of.get("name"): of for of in known if of.get("resources") is not None}
        whole = status.get("resources") is not None and features.DEFAULT.enabled("InPlacePodLevelResourcesVerticalScaling")
        self._whole = status if whole else None
        pending: Obj = next((c for c in status.get("conditions") or () if c.get("type") == "PodResizePending"), {})
        self._infeasible = pending.get("reason") == "Infeasible"

    def container(self, container: Obj, kind: str, running: bool = True) -> Amounts:
        """Return the amounts of one container. The status counts only if it keeps ``running``, as sidecars do."""
        own = amounts((container.get("resources") or {}).get(kind))
        return self._most(own, self._containers.get(container.get("name")) if running else None, kind)

    def whole(self, own: Obj, kind: str) -> Amounts:
        """Return the amounts requested at pod level, for each resource named there."""
        asked, found = amounts(own.get(kind)), self._whole
        if kind == "limits" and self._infeasible and found is not None and found["resources"].get(kind) is None:
            return asked  # no actual limits replace the requested ones
        most = self._most(asked, found, kind)
        return {name: most.get(name, NOTHING) for name in asked}

    def _most(self, own: Amounts, found: Obj | None, kind: str) -> Amounts:
        if found is None:
            return own
        total = {} if self._infeasible else dict(own)
        _at_least(total, amounts(found["resources"].get(kind)))
        if kind == "requests":
            _at_least(total, amounts(found.get("allocatedResources")))
        return total


def effective(
    spec: Obj, kind: str, overhead: bool = False, status: Obj | None = None, whole: Callable[[str], bool] = pod_level
) -> Amounts:
    """Return the effective ``kind`` ("requests" or "limits") of a pod as the scheduler counts it: the sum of containers and sidecars, or
    the largest init step.

    With ``status``, running containers, and the pod as a whole, count at least what they have. ``whole`` selects the resources that
    pod-level values may replace.
    """
    held = _Held(status)
    total: Amounts = {}
    for container in spec.get("containers") or ():
        add(total, held.container(container, kind))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        sidecar = container.get("restartPolicy") == "Always"
        own = held.container(container, kind, running=sidecar)
        if sidecar:
            add(total, own)
            add(sidecars, own)
        # For resources that this container does not name, the need is not higher than before, so the peak already covers it.
        _at_least(peak, {name: sidecars[name] if sidecar else need + sidecars.get(name, NOTHING) for name, need in own.items()})
    _at_least(total, peak)
    for name, need in held.whole(spec.get("resources") or {}, kind).items():
        if whole(name):
            total[name] = need
    if overhead:
        for name, need in amounts(spec.get("overhead")).items():
            if kind == "requests":
                add(total, {name: need})
            elif name in total and not total[name].is_zero():
                total[name] = total[name] + need
    return total


def merge_tolerations(first: list[Obj], second: list[Obj]) -> list[Obj]:
    """Return both lists without tolerations that another one covers (``pkg/util/tolerations.MergeTolerations``)."""
    everything = [*first, *second]
    later = TolerationIndex()
    covered = [False] * len(everything)
    for i in range(len(everything) - 1, -1, -1):
        covered[i] = later.covers(everything[i], but_itself=True)
        later.add(everything[i])
    out: list[Obj] = []
    before = TolerationIndex()
    for one, is_covered in zip(everything, covered, strict=True):
        if not is_covered and not before.covers(one):
            out.append(one)
            before.add(one)
    return out


class TolerationIndex:
    """Index of the broadest tolerations, to find a covering one without scanning all. Tolerations that differ only in tolerationSeconds
    share an entry."""

    def __init__(self, tolerations: Iterable[Obj] = ()) -> None:
        # By group, the broadest toleration, and the broadest of those not equal to it.
        self._best: dict[tuple[str, ...], tuple[Obj, Obj | None]] = {}
        self._added: set[tuple[Any, ...]] = set()
        for one in tolerations:
            self.add(one)

    def add(self, one: Obj) -> None:
        """Add ``one`` to the index."""
        self._added.add(fields := _fields(one))
        key, operator, value, effect, _ = fields
        if operator not in _COVERING:
            return  # it covers its equals only
        sort = (key, effect, operator, "" if operator == EXISTS else value)
        best, second = self._best.get(sort, (None, None))
        if best is None:
            self._best[sort] = one, None
        elif not _as_long(best, one):
            self._best[sort] = one, best
        elif fields != _fields(best) and (second is None or not _as_long(second, one)):
            self._best[sort] = best, one

    def covers(self, one: Obj, but_itself: bool = False) -> bool:
        """Return whether a toleration in the index covers ``one``; with ``but_itself``, one that is not equal to it."""
        fields = _fields(one)
        if not but_itself and fields in self._added:
            return True
        key, operator, value, effect, _ = fields
        for wider in {effect, ""}:
            sorts = [(key, wider, EXISTS, ""), ("", wider, EXISTS, "")]
            if operator == EQUAL:
                sorts += [(key, wider, EQUAL, value), (key, wider, "", value)]
            for sort in sorts:
                best, second = self._best.get(sort, (None, None))
                found = second if but_itself and best is not None and _fields(best) == fields else best
                if found is not None and tolerates_all_of(found, one):
                    return True
        return False


def _fields(one: Obj) -> tuple[Any, ...]:
    return *(one.get(name) or "" for name in ("key", "operator", "value", "effect")), one.get("tolerationSeconds")


def _as_long(a: Obj, b: Obj) -> bool:
    """Return whether ``a`` tolerates a taint for as long as ``b`` does; seconds count for NoExecute only."""
    if a.get("effect") != "NoExecute" or a.get("tolerationSeconds") is None:
        return True
    return b.get("tolerationSeconds") is not None and a["tolerationSeconds"] >= b["tolerationSeconds"]


def tolerates_all_of(a: Obj, b: Obj) -> bool:
    """Return whether ``a`` tolerates everything ``b`` does (``isSuperset``).

    As upstream, an omitted operator means Equal in ``a`` but not in ``b``, and one of the comparison operators covers nothing else.
    """
    mine, its = _fields(a), _fields(b)
    if mine == its:
        return True
    key, operator, value, effect, _ = mine
    if (key != its[0] and (key or operator != EXISTS)) or effect not in ("", its[3]) or not _as_long(a, b):
        return False
    return operator == EXISTS or (operator in _COVERING and its[1] == EQUAL and value == its[2])

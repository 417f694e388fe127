"""The objects each node may access: those referenced by the pods bound to it, and by their volumes.

``plugin/pkg/auth/authorizer/node/graph.go``. Kept as reference counts per node instead of a graph to traverse: an object that every pod
refers to (a service account, the CA bundle) is found as fast as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Obj = dict[str, Any]
# (resource, namespace, name)
Key = tuple[str, str, str]

MIRROR_POD = "kubernetes.io/config.mirror"
# The resources whose events the graph needs.
SOURCES = ("pods", "persistentvolumes", "volumeattachments", "resourceslices", "podcertificaterequests")


class LargePod:
    """A pod that may have thousands of references, provided by ``load``. Read off the event loop, or when a node first needs it."""

    __slots__ = ("_found", "_load")

    def __init__(self, load: Callable[[], Obj | None]) -> None:
        self._load: Callable[[], Obj | None] | None = load
        self._found: tuple[str, frozenset[Key]] | None = None

    def prepare(self) -> tuple[str, frozenset[Key]]:
        """Return (node, references). Thread-safe: concurrent calls compute equal results."""
        load, found = self._load, self._found  # in this order: another thread sets _found before it clears _load
        if found is not None:
            return found
        assert load is not None
        pod = load()
        self._found = found = _pod_given(pod) if pod is not None else ("", frozenset())
        self._load = None
        return found

    def gives(self, node: str, key: Key) -> bool:
        """Return whether the pod is on the node and refers to the object."""
        here, keys = self.prepare()
        return here == node and key in keys


class NodeGraph:
    """``put`` and ``delete`` take the events of ``SOURCES``; ``reaches`` also answers for the objects these refer to."""

    def __init__(self) -> None:
        # How many pods (or other sources) of a node refer to an object.
        self._nodes: dict[Key, dict[str, int]] = {}
        # What each source contributed, for its removal: (node, keys).
        self._given: dict[Key, tuple[str, tuple[Key, ...]]] = {}
        # A volume is reachable from the nodes of its claim, and a volume's secrets from the nodes of the volume.
        self._volume_claim: dict[str, Key] = {}
        self._volume_secrets: dict[str, tuple[Key, ...]] = {}
        self._secret_volumes: dict[Key, set[str]] = {}
        self._large: dict[str, dict[str, LargePod]] = {}  # by namespace and name; disjoint from the other pods

    def put_large(self, namespace: str, name: str, pod: LargePod) -> None:
        """Add or replace a pod that is read later."""
        self.delete("pods", namespace, name)
        self._large.setdefault(namespace, {})[name] = pod

    def put(self, resource: str, obj: Obj) -> None:
        """Add or replace an object; the references of its previous state are removed."""
        meta, spec = obj["metadata"], obj.get("spec") or {}
        name = meta["name"]
        if resource == "pods":
            namespace = meta["namespace"]
            node = spec.get("nodeName") or ""
            key = ("pods", namespace, name)
            self._drop_large(namespace, name)
            self._give(key, node, tuple(dict.fromkeys((key, *_pod_references(obj)))))
        elif resource == "volumeattachments":
            key = ("volumeattachments", "", name)
            self._give(key, spec.get("nodeName") or "", (key,))
        elif resource == "resourceslices":
            key = ("resourceslices", "", name)
            self._give(key, spec.get("nodeName") or "", (key,))
        elif resource == "podcertificaterequests":
            key = (resource, meta["namespace"], name)
            self._give(key, spec.get("nodeName") or "", (key,))
        elif resource == "persistentvolumes":
            self._drop_volume(name)
            claim = spec.get("claimRef")
            if claim:
                self._volume_claim[name] = ("persistentvolumeclaims", claim.get("namespace") or "", claim.get("name") or "")
                secrets = tuple(dict.fromkeys(_volume_secrets(spec, claim.get("namespace") or "")))
                self._volume_secrets[name] = secrets
                for secret in secrets:
                    self._secret_volumes.setdefault(secret, set()).add(name)

    def delete(self, resource: str, namespace: str, name: str) -> None:
        """Remove an object and its references; an unknown object is not an error."""
        if resource == "persistentvolumes":
            self._drop_volume(name)
        else:
            if resource == "pods":
                self._drop_large(namespace, name)
            self._take((resource, namespace, name))

    def keep_only(self, resource: str, there: set[tuple[str, str]]) -> None:
        """Remove the objects of ``resource`` that are not in ``there`` (namespace, name)."""
        if resource == "persistentvolumes":
            known = [("", name) for name in self._volume_claim]
        else:
            known = [(namespace, name) for r, namespace, name in self._given if r == resource]
            if resource == "pods":
                known += [(namespace, name) for namespace, pods in self._large.items() for name in pods]
        for namespace, name in known:
            if (namespace, name) not in there:
                self.delete(resource, namespace, name)

    def ready(self) -> None:
        """Return None: there is nothing to read first."""

    def reaches(self, node: str, resource: str, namespace: str, name: str) -> bool:
        """Return whether something on the node refers to the object."""
        if resource == "persistentvolumes":
            claim = self._volume_claim.get(name)
            return claim is not None and self._refers(node, claim)
        key = (resource, namespace, name)
        if self._refers(node, key):
            return True
        return any(self.reaches(node, "persistentvolumes", "", v) for v in self._secret_volumes.get(key, ()))

    def _refers(self, node: str, key: Key) -> bool:
        return node in self._nodes.get(key, ()) or any(pod.gives(node, key) for pod in self._large.get(key[1], {}).values())

    def _drop_large(self, namespace: str, name: str) -> None:
        pods = self._large.get(namespace)
        if pods is not None and pods.pop(name, None) is not None and not pods:
            del self._large[namespace]

    def _give(self, source: Key, node: str, keys: tuple[Key, ...]) -> None:
        if self._given.get(source) == (node, keys):
            return
        self._take(source)
        if not node:
            return
        self._given[source] = (node, keys)
        for key in keys:
            counts = self._nodes.setdefault(key, {})
            counts[node] = counts.get(node, 0) + 1

    def _take(self, source: Key) -> None:
        given = self._given.pop(source, None)
        if given is None:
            return
        node, keys = given
        for key in keys:
            counts = self._nodes[key]
            counts[node] -= 1
            if not counts[node]:
                del counts[node]
                if not counts:
                    del self._nodes[key]

    def _drop_volume(self, name: str) -> None:
        self._volume_claim.pop(name, None)
        for secret in self._volume_secrets.pop(name, ()):
            volumes = self._secret_volumes[secret]
            volumes.discard(name)
            if not volumes:
                del self._secret_volumes[secret]


def _pod_given(pod: Obj) -> tuple[str, frozenset[Key]]:
    meta = pod["metadata"]
    return pod["spec"].get("nodeName") or "", frozenset((("pods", meta["namespace"], meta["name"]), *_pod_references(pod)))


def _pod_references(pod: Obj) -> Iterator[Key]:
    meta, spec = pod["metadata"], pod["spec"]
    # A kubelet creates mirror pods itself, so they must never grant it access.
    if MIRROR_POD in (meta.get("annotations") or {}):
        return
    namespace = meta["namespace"]
    if spec.get("serviceAccountName"):
        yield "serviceaccounts", namespace, spec["serviceAccountName"]
    for ref in spec.get("imagePullSecrets") or ():
        yield "secrets", namespace, ref.get("name") or ""
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(kind) or ():
            for resource, name in _container_references(container):
                yield resource, namespace, name
    for volume in spec.get("volumes") or ():
        for resource, name in _volume_references(volume, meta["name"]):
            yield resource, namespace, name
    status = pod.get("status") or {}
    made = {s.get("name"): s.get("resourceClaimName") for s in status.get("resourceClaimStatuses") or ()}
    for claim in spec.get("resourceClaims") or ():
        claimed = claim.get("resourceClaimName") or (made.get(claim.get("name")) if claim.get("resourceClaimTemplateName") else None)
        if claimed:
            yield "resourceclaims", namespace, claimed
    extended = (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName")
    if extended:
        yield "resourceclaims", namespace, extended


def _container_references(container: Obj) -> Iterator[tuple[str, str]]:
    for source in container.get("envFrom") or ():
        for field, resource in (("secretRef", "secrets"), ("configMapRef", "configmaps")):
            if source.get(field):
                yield resource, source[field].get("name") or ""
    for env in container.get("env") or ():
        source = env.get("valueFrom") or {}
        for field, resource in (("secretKeyRef", "secrets"), ("configMapKeyRef", "configmaps")):
            if source.get(field):
                yield resource, source[field].get("name") or ""


# Volume sources that reference their secret in the pod's namespace.
_SECRET_REF_SOURCES = ("cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos")
# Those that, in a PersistentVolume, reference no secret without its namespace; the others then mean the claim's.
_SAYS_NAMESPACE = ("cinder", "storageos")


def _volume_references(volume: Obj, pod: str) -> Iterator[tuple[str, str]]:
    if volume.get("persistentVolumeClaim"):
        yield "persistentvolumeclaims", volume["persistentVolumeClaim"].get("claimName") or ""
    elif volume.get("ephemeral") is not None:
        yield "persistentvolumeclaims", f"{pod}-{volume['name']}"
    if volume.get("secret"):
        yield "secrets", volume["secret"].get("secretName") or ""
    if volume.get("configMap"):
        yield "configmaps", volume["configMap"].get("name") or ""
    if volume.get("azureFile"):
        yield "secrets", volume["azureFile"].get("secretName") or ""
    for kind in _SECRET_REF_SOURCES:
        ref = (volume.get(kind) or {}).get("secretRef")
        if ref:
            yield "secrets", ref.get("name") or ""
    ref = (volume.get("csi") or {}).get("nodePublishSecretRef")
    if ref:
        yield "secrets", ref.get("name") or ""
    for source in (volume.get("projected") or {}).get("sources") or ():
        for field, resource in (("secret", "secrets"), ("configMap", "configmaps")):
            if source.get(field):
                yield resource, source[field].get("name") or ""


def _volume_secrets(spec: Obj, claim_namespace: str) -> Iterator[Key]:
    """Yield the secrets of a PersistentVolume that the kubelet needs; those only controllers use are left out."""
    azure = spec.get("azureFile")
    if azure:
        yield "secrets", azure.get("secretNamespace") or claim_namespace, azure.get("secretName") or ""
    for kind in _SECRET_REF_SOURCES:
        ref = (spec.get(kind) or {}).get("secretRef")
        if ref:
            yield "secrets", ref.get("namespace") or ("" if kind in _SAYS_NAMESPACE else claim_namespace), ref.get("name") or ""
    csi = spec.get("csi") or {}
    for field in ("nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"):
        if csi.get(field):
            yield "secrets", csi[field].get("namespace") or "", csi[field].get("name") or ""

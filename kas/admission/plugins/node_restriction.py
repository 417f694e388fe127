"""NodeRestriction: a kubelet may write only its own node, the status of its own pods and what belongs to them.

Upstream: ``plugin/pkg/admission/noderestriction``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from kas.admission import CREATE, DELETE, UPDATE, Attributes
from kas.admission import pods as pod_objects
from kas.admission.plugins import _requests
from kas.auth.attributes import ALLOW, Authorizer
from kas.auth.attributes import Attributes as Question
from kas.auth.user import NODE_PREFIX, node_name
from kas.config import features
from kas.informers import Objects
from kas.meta import errors
from kas.meta.equality import semantic_equal
from kas.meta.errors import ApiError
from kas.meta.field import go_quote
from kas.meta.waiting import awaited, eager
from kas.types.scheme import builtin_type

Obj = dict[str, Any]
RESTRICTION = "node-restriction.kubernetes.io"
LEASE_NAMESPACE = "kube-node-lease"
KUBELET_LABELS = frozenset((
    "kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region", "node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type", "kubernetes.io/os",
    "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch", "node.kubernetes.io/windows-build",
))  # fmt: skip
KUBELET_LABEL_NAMESPACES = ("kubelet.kubernetes.io", "node.kubernetes.io")
CERTIFICATE_FIELDS = ("nodeName", "nodeUID", "podUID", "serviceAccountName", "serviceAccountUID")
KUBELET_SIGNERS = ("kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet")
# In-tree volume plug-ins and the CSI drivers that replaced them (``csi-translation-lib``).
MIGRATED = {
    "awsElasticBlockStore": "ebs.csi.aws.com", "azureDisk": "disk.csi.azure.com", "azureFile": "file.csi.azure.com",
    "cinder": "cinder.csi.openstack.org", "gcePersistentDisk": "pd.csi.storage.gke.io", "portworxVolume": "pxd.portworx.com",
    "vsphereVolume": "csi.vsphere.vmware.com",
}  # fmt: skip
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
AUDIENCE_VERB = "request-serviceaccounts-token-audience"


class Plugin:
    """Applies to writes by nodes to the resources that kubelets use; other resources are not checked."""

    name = "NodeRestriction"

    def __init__(self, objects: Objects, authorizer: Authorizer) -> None:
        self._objects = objects
        self._authorizer = authorizer
        self._rules: dict[tuple[str, str], Callable[[Attributes, str], Awaitable[None] | None]] = {
            ("", "pods"): self._pods,
            ("", "nodes"): self._node,
            ("", "persistentvolumeclaims"): self._claim,
            ("", "serviceaccounts"): self._token,
            ("coordination.k8s.io", "leases"): self._lease,
            ("storage.k8s.io", "csinodes"): self._csi_node,
            ("resource.k8s.io", "resourceslices"): self._slice,
            ("certificates.k8s.io", "podcertificaterequests"): self._pod_certificate,
            ("certificates.k8s.io", "certificatesigningrequests"): self._certificate,
        }

    def handles(self, a: Attributes) -> bool:
        """Handle creates, updates and deletes of the restricted resources."""
        return a.operation in (CREATE, UPDATE, DELETE) and (a.group, a.resource) in self._rules

    def admit(self, a: Attributes) -> Awaitable[None] | None:
        """Refuse a node's write to what is not its own; returns an awaitable if the check must wait. Other users are admitted."""
        node = node_name(a.user)
        if node is None:
            return None
        if not node:
            raise a.forbid(f"could not determine node from user {go_quote(a.user.name)}")
        return self._rules[a.group, a.resource](a, node)

    def _own_pod(self, a: Attributes, name: str) -> Obj:
        pod = self._objects.get("", "pods", a.namespace, name)
        if pod is None:
            raise errors.not_found("", "pod", name)  # upstream's listers name the resource in the singular
        return pod

    # --- pods

    def _pods(self, a: Attributes, node: str) -> None:
        who = f"node {go_quote(node)}"
        if a.subresource == "":
            if a.operation == CREATE:
                self._create_pod(a, node, who)
            elif a.operation == DELETE:
                if self._own_pod(a, a.name)["spec"].get("nodeName") != node:
                    raise a.forbid(f"{who} can only delete pods with spec.nodeName set to itself")
            else:
                raise a.forbid(f"unexpected operation {go_quote(a.operation)}, {who} can only create and delete mirror pods")
        elif a.subresource == "status":
            self._pod_status(a, node, who)
        elif a.subresource == "eviction":
            if a.operation != CREATE:
                raise a.forbid(f"unexpected operation {a.operation}")
            name = a.name or a.obj["metadata"].get("name", "")
            if not name:
                raise a.forbid("could not determine pod from request data")
            if self._own_pod(a, name)["spec"].get("nodeName") != node:
                raise a.forbid(f"node {node} can only evict pods with spec.nodeName set to itself")
        else:
            raise a.forbid(f"unexpected pod subresource {go_quote(a.subresource)}, only 'status' and 'eviction' are allowed")

    def _create_pod(self, a: Attributes, node: str, who: str) -> None:
        meta, spec = a.obj["metadata"], a.obj["spec"]
        if not pod_objects.is_mirror(a.obj):
            raise a.forbid(f"pod does not have {go_quote(pod_objects.MIRROR)} annotation, {who} can only create mirror pods")
        if spec.get("nodeName") != node:
            raise a.forbid(f"{who} can only create pods with spec.nodeName set to itself")
        self._check_owner(a, meta.get("ownerReferences") or [], node, who)
        named = next(pod_objects.api_references(spec), None)
        if named is not None:
            raise a.forbid(f"{who} can not create pods that reference {named}")

    def _check_owner(self, a: Attributes, owners: list[Obj], node: str, who: str) -> None:
        if len(owners) > 1:
            raise a.forbid(f"{who} can only create pods with a single owner reference set to itself")
        owner = owners[0] if owners else {}
        if (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) != ("v1", "Node", node):
            raise a.forbid(f"{who} can only create pods with an owner reference set to itself")
        if not owner.get("controller"):
            raise a.forbid(f"{who} can only create pods with a controller owner reference set to itself")
        if owner.get("blockOwnerDeletion"):
            raise a.forbid(f"{who} must not set blockOwnerDeletion on an owner reference")
        stored = self._objects.get("", "nodes", "", node)
        if stored is None:
            raise errors.not_found("", "node", node)
        if owner.get("uid") != stored["metadata"].get("uid"):
            raise a.forbid(f"node {node} UID mismatch: expected {owner.get('uid', '')} got {stored['metadata'].get('uid', '')}")

    def _pod_status(self, a: Attributes, node: str, who: str) -> None:
        if a.operation != UPDATE:
            raise a.forbid(f"unexpected operation {go_quote(a.operation)}")
        if a.old["spec"].get("nodeName") != node:
            raise a.forbid(f"{who} can only update pod status for pods with spec.nodeName set to itself")
        if (a.obj["metadata"].get("labels") or {}) != (a.old["metadata"].get("labels") or {}):
            raise a.forbid(f"{who} cannot update labels through pod status")
        new, old = a.obj.get("status") or {}, a.old.get("status") or {}
        of = builtin_type("core.v1.PodStatus").by_name
        if not semantic_equal(new.get("resourceClaimStatuses"), old.get("resourceClaimStatuses"), of["resourceClaimStatuses"]):
            raise a.forbid(f"{who} cannot update resource claim statues")
        name = "extendedResourceClaimStatus"
        if not semantic_equal(new.get(name), old.get(name), of[name]):
            raise a.forbid(f"{who} cannot update extended resource claim status")

    # --- nodes

    def _node(self, a: Attributes, node: str) -> None:
        who = f"node {go_quote(node)}"
        name = a.name or ((a.obj or {}).get("metadata") or {}).get("name") or ""
        if name != node:
            raise a.forbid(f"{who} is not allowed to modify node {go_quote(name)}")
        if a.operation == CREATE:
            if (a.obj.get("spec") or {}).get("configSource") is not None:
                raise a.forbid(f"{who} is not allowed to create pods with a non-nil configSource")
            labels = forbidden_labels(a.obj["metadata"].get("labels") or {}, {})
            if labels:
                raise a.forbid(f"{who} is not allowed to set the following labels: {', '.join(labels)}")
        elif a.operation == UPDATE:
            new, old = a.obj.get("spec") or {}, a.old.get("spec") or {}
            of = builtin_type("core.v1.NodeSpec").by_name
            if new.get("configSource") is not None and not semantic_equal(new["configSource"], old.get("configSource"), of["configSource"]):
                raise a.forbid(f"{who} is not allowed to update configSource to a new non-nil configSource")
            if not semantic_equal(new.get("taints"), old.get("taints"), of["taints"]):
                raise a.forbid(f"{who} is not allowed to modify taints")
            # With an owner that does not exist, the garbage collector would delete the node, which could then be recreated with other
            # labels.
            owners, before = (one["metadata"].get("ownerReferences") for one in (a.obj, a.old))
            if not semantic_equal(owners, before, builtin_type(_META).by_name["ownerReferences"]):
                raise a.forbid(f"{who} is not allowed to modify ownerReferences")
            labels = forbidden_labels(a.obj["metadata"].get("labels") or {}, a.old["metadata"].get("labels") or {})
            if labels:
                raise a.forbid(f"is not allowed to modify labels: {', '.join(labels)}")

    # --- objects of the node's pods

    def _claim(self, a: Attributes, node: str) -> None:
        if a.subresource != "status":
            raise a.forbid("may only update PVC status")
        if a.operation != UPDATE:
            raise a.forbid(f"unexpected operation {go_quote(a.operation)}")
        changed = _claim_changes(a.obj, a.old)
        if changed:
            why = f"is not allowed to update fields other than status.quantity and status.conditions: {', '.join(changed)}"
            raise a.forbid(f"node {go_quote(node)} {why}")

    @eager
    async def _token(self, a: Attributes, node: str) -> None:
        if a.operation != CREATE or a.subresource != "token":
            return
        spec = a.obj.get("spec") or {}
        ref = spec.get("boundObjectRef") or {}
        if (ref.get("apiVersion"), ref.get("kind")) != ("v1", "Pod") or not ref.get("name"):
            raise a.forbid("node requested token not bound to a pod")
        if not ref.get("uid"):
            raise a.forbid("node requested token with a pod binding without a uid")
        pod = self._own_pod(a, ref["name"])
        if ref["uid"] != pod["metadata"].get("uid"):
            raise a.forbid(
                f"the UID in the bound object reference ({ref['uid']}) does not match the UID in record. "
                "The object might have been deleted and then recreated"
            )
        if pod["spec"].get("nodeName") != node:
            raise a.forbid("node requested token bound to a pod scheduled on a different node")
        if features.DEFAULT.enabled("ServiceAccountNodeAudienceRestriction"):
            await self._check_audience(a, pod, spec.get("audiences") or [])

    async def _check_audience(self, a: Attributes, pod: Obj, audiences: list[str]) -> None:
        """Allow only audiences that the pod's own volumes name or an administrator permits (KEP-4412)."""
        if len(audiences) > 1:
            raise a.forbid("node may only request 0 or 1 audiences")
        audience = audiences[0] if audiences else ""
        wrong: dict[str, None] = {}  # an ordered set: volumes may share an error
        if any(audience in found for found in self._pod_audiences(a.namespace, pod, wrong)):
            return
        if wrong:
            why = ", ".join(wrong)
            why = why if len(wrong) == 1 else f"[{why}]"
            raise a.forbid(f"error validating audience {go_quote(audience)}: {why}")
        q = Question(a.user, AUDIENCE_VERB, a.namespace, "", "v1", audience, "", a.name)
        if (await awaited(self._authorizer.authorize(q)))[0] == ALLOW:
            return
        why = f"{a.user.name} is not authorized to request tokens for this audience"
        raise a.forbid(f"audience {go_quote(audience)} not found in pod spec volume, {why}")

    def _pod_audiences(self, namespace: str, pod: Obj, wrong: dict[str, None]) -> Iterator[set[str]]:
        """Yield the audiences of each volume; errors about missing objects are added to ``wrong``."""
        for volume in pod["spec"].get("volumes") or ():
            for source in (volume.get("projected") or {}).get("sources") or ():
                if source.get("serviceAccountToken") is not None:
                    yield {source["serviceAccountToken"].get("audience") or ""}
            try:
                driver = self._driver_of(namespace, pod, volume)
                if driver:
                    stored = self._stored("storage.k8s.io", "csidrivers", "", driver, "csidriver.storage.k8s.io")
                    yield {t.get("audience") or "" for t in (stored.get("spec") or {}).get("tokenRequests") or ()}
            except LookupError as e:
                wrong[str(e)] = None

    def _driver_of(self, namespace: str, pod: Obj, volume: Obj) -> str:
        """Return the CSI driver of a volume, "" for none: its own, that of its claim's volume, or the one that replaced its in-tree
        plug-in. Raises LookupError."""
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName") or ""
        if (volume.get("ephemeral") or {}).get("volumeClaimTemplate") is not None:
            claim = f"{pod['metadata']['name']}-{volume['name']}"
        if not claim:
            return _driver(volume)
        bound = self._stored("", "persistentvolumeclaims", namespace, claim, "persistentvolumeclaim")
        name = (bound.get("spec") or {}).get("volumeName") or ""
        return _driver(self._stored("", "persistentvolumes", "", name, "persistentvolume").get("spec") or {})

    def _stored(self, group: str, resource: str, namespace: str, name: str, kind: str) -> Obj:
        stored: Obj | None = self._objects.get(group, resource, namespace, name) if name else None
        if stored is None:
            raise LookupError(f"{kind} {go_quote(name)} not found")
        return stored

    # --- objects named like the node

    def _lease(self, a: Attributes, node: str) -> None:
        if a.namespace != LEASE_NAMESPACE:
            raise a.forbid(f"can only access leases in the {go_quote(LEASE_NAMESPACE)} system namespace")
        if _name(a) != node:
            raise a.forbid("can only access node lease with the same name as the requesting node")

    def _csi_node(self, a: Attributes, node: str) -> None:
        if _name(a) != node:
            raise a.forbid("can only access CSINode with the same name as the requesting node")

    def _slice(self, a: Attributes, node: str) -> None:
        if a.operation == UPDATE:
            return  # the authorizer checks updates, but neither creates nor collections
        stored = a.obj if a.operation == CREATE else a.old
        # The handler reports a missing object.
        if stored is not None and ((stored.get("spec") or {}).get("nodeName") or "") != node:
            raise a.forbid(f"can only {a.operation.lower()} ResourceSlice with the same NodeName as the requesting node")

    @eager
    async def _certificate(self, a: Attributes, node: str) -> None:
        """Check that a kubelet's certificate is for the requesting node; the signer checks everything else."""
        spec = (a.obj or {}).get("spec") or {}
        if a.operation != CREATE or spec.get("signerName") not in KUBELET_SIGNERS:
            return
        if features.DEFAULT.enabled("AllowInsecureKubeletCertificateSigningRequests"):
            return
        try:
            subject = await _requests.subject(spec.get("request") or "")
        except ValueError as e:
            raise a.forbid(f"unable to parse csr: {e}") from None
        from cryptography.x509 import NameOID

        names = [x.value for x in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        if not names or names[-1] != NODE_PREFIX + node:  # Go uses the last of several
            raise a.forbid(f"can only create a node CSR with CN={NODE_PREFIX}{node}")

    def _pod_certificate(self, a: Attributes, node: str) -> None:
        if a.operation != CREATE:
            raise a.forbid(f"unexpected operation {a.operation}")
        if a.subresource:
            raise a.forbid(f"unexpected subresource {a.subresource}")
        spec = a.obj.get("spec") or {}
        claimed = {key: go_quote(spec.get(key) or "") for key in CERTIFICATE_FIELDS}
        if spec.get("nodeName") != node:
            why = f"which is not the requesting node {go_quote(node)}"
            raise a.forbid(f"PodCertificateRequest.Spec.NodeName={claimed['nodeName']}, {why}")
        account = spec.get("serviceAccountName") or ""
        ref = go_quote(f"{a.namespace}/{spec.get('podName') or ''}")
        of_pod = f"PodCertificateRequest for pod {ref}"
        uid = self._named("node", "nodes", "", node, go_quote(node))["metadata"].get("uid", "")
        if spec.get("nodeUID") != uid:
            raise _bare(f"{of_pod} names node UID {claimed['nodeUID']}, inconsistent with the running node ({go_quote(uid)})")
        pod = self._named("pod", "pods", a.namespace, spec.get("podName") or "", ref)
        uid = pod["metadata"].get("uid", "")
        if spec.get("podUID") != uid:
            raise _bare(f"{of_pod} contains pod UID ({claimed['podUID']}) which differs from running pod {go_quote(uid)}")
        if pod["spec"].get("nodeName") != node:
            raise a.forbid(f"pod {ref} is not running on node {claimed['nodeName']} named in the PodCertificateRequest")
        if pod_objects.is_mirror(pod):
            raise a.forbid(f"pod {ref} is a mirror pod")
        own = pod["spec"].get("serviceAccountName") or ""
        if account != own:
            which = f"({claimed['serviceAccountName']}) that differs from running pod ({go_quote(own)})"
            raise a.forbid(f"{of_pod} contains serviceAccountName {which}")
        stored = self._named("service account", "serviceaccounts", a.namespace, account, go_quote(f"{a.namespace}/{account}"))
        uid = stored["metadata"].get("uid", "")
        if spec.get("serviceAccountUID") != uid:
            which = f"{claimed['serviceAccountUID']}, which differs from the running service account ({go_quote(uid)})"
            raise _bare(f"{of_pod} names service account UID {which}")

    def _named(self, what: str, resource: str, namespace: str, name: str, ref: str) -> Obj:
        """Return an object that the request names; if it is not visible yet, raise an error that makes the kubelet retry."""
        stored: Obj | None = self._objects.get("", resource, namespace, name) if name else None
        if stored is None:
            missing = f"{what.replace(' ', '')} {go_quote(name)} not found"
            raise _bare(f"while retrieving {what} {ref} named in the PodCertificateRequest: {missing}")
        return stored


def _driver(source: Obj) -> str:
    """Return the CSI driver of a volume source or of a PersistentVolume's spec, "" for none."""
    if source.get("csi"):
        return str(source["csi"].get("driver") or "")
    return next((driver for name, driver in MIGRATED.items() if source.get(name) is not None), "")


def _bare(message: str) -> ApiError:
    """Return an error that upstream returns unwrapped: a 500 without a reason."""
    return ApiError(500, "", message)


def _name(a: Attributes) -> str:
    """Return the object's name, which is not in the URL on create."""
    return a.obj["metadata"].get("name", "") if a.operation == CREATE else a.name


def _claim_changes(new: Obj, old: Obj) -> list[str]:
    """Return the changed fields that a node may not change."""
    own_meta = {"resourceVersion", "managedFields"}
    own_status = {"capacity", "conditions", "allocatedResources", "allocatedResourceStatuses"}
    of = builtin_type("core.v1.PersistentVolumeClaim").by_name
    types = {"metadata": builtin_type(_META), "status": builtin_type("core.v1.PersistentVolumeClaimStatus")}
    keys = sorted((new.keys() | old.keys()) - {"metadata", "status"})
    out = [key for key in keys if not semantic_equal(new.get(key), old.get(key), of[key])]
    for part, ignored in (("metadata", own_meta), ("status", own_status)):
        a, b = new.get(part) or {}, old.get(part) or {}
        keys, below = sorted((a.keys() | b.keys()) - ignored), types[part].by_name
        out += [f"{part}.{key}" for key in keys if not semantic_equal(a.get(key), b.get(key), below[key])]
    return out


def forbidden_labels(new: dict[str, str], old: dict[str, str]) -> list[str]:
    """Return the changed labels, sorted, that could attract privileged pods to the node."""
    changed = {key for key in new.keys() | old.keys() if new.get(key) != old.get(key) or (key in new) != (key in old)}
    return sorted(key for key in changed if _is_forbidden(key))


def _within(namespace: str, *domains: str) -> bool:
    return any(namespace == d or namespace.endswith("." + d) for d in domains)


def _is_forbidden(key: str) -> bool:
    namespace, sep, _ = key.partition("/")
    if not sep:
        return False
    if _within(namespace, RESTRICTION):
        return True
    return _within(namespace, "kubernetes.io", "k8s.io") and key not in KUBELET_LABELS and not _within(namespace, *KUBELET_LABEL_NAMESPACES)

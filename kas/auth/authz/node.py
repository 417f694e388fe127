"""Authorization of kubelets: each may access what concerns its own node (``plugin/pkg/auth/authorizer/node``).

Checks that need the object's content are in the NodeRestriction admission plug-in; the two belong together.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from typing import Protocol

from kas._fastpath import Rule as PolicyRule
from kas.auth.attributes import ALLOW, NO_OPINION, Attributes, Outcome
from kas.auth.authz.roles import Rule
from kas.auth.user import UserInfo, node_name
from kas.config import features
from kas.meta.waiting import awaited

_ALLOWED: Outcome = (ALLOW, "", "")
_NO_OPINION: Outcome = (NO_OPINION, "", "")


def _no(reason: str) -> Outcome:
    return NO_OPINION, reason, ""


class Reaches(Protocol):
    """The graph of the objects related to each node."""

    def reaches(self, node: str, resource: str, namespace: str, name: str) -> bool:
        """Return whether something on the node refers to the object."""
        ...

    def ready(self) -> Awaitable[None] | None:
        """Return what to await before the first query if there is much to read, else None."""
        ...


class NodeAuthorizer:
    """``rules`` returns the rules of the bootstrap role system:node, which apply to the resources without a check of their own. It is
    called when the first node makes a request."""

    def __init__(self, graph: Reaches, rules: Callable[[], Sequence[Rule]]) -> None:
        self._graph, self._given = graph, rules
        self._checks = {
            ("", "secrets"): self._read, ("", "configmaps"): self._read, ("", "persistentvolumeclaims"): self._claim,
            ("", "persistentvolumes"): self._get, ("resource.k8s.io", "resourceclaims"): self._get,
            ("storage.k8s.io", "volumeattachments"): self._get, ("", "serviceaccounts"): self._service_account,
            ("coordination.k8s.io", "leases"): self._lease, ("storage.k8s.io", "csinodes"): self._csi_node,
            ("resource.k8s.io", "resourceslices"): self._slice, ("", "nodes"): self._node, ("", "pods"): self._pod,
            ("certificates.k8s.io", "podcertificaterequests"): self._pod_certificate,
        }  # fmt: skip

    @cached_property
    def _rules(self) -> list[PolicyRule]:
        return [PolicyRule(rule) for rule in self._given()]

    @cached_property
    def _certificates(self) -> bool:
        """Whether system:node has a rule for podcertificaterequests; it has none while their feature gate is off."""
        return any("podcertificaterequests" in (rule.get("resources") or ()) for rule in self._given())

    def authorize(self, a: Attributes) -> Outcome | Awaitable[Outcome]:
        """Decide requests of nodes by the rules of system:node and the graph; no opinion on other users."""
        node = node_name(a.user)
        if node is None:
            return _NO_OPINION
        if not node:
            return _no(f'unknown node for user "{a.user.name}"')
        if a.resource_request:
            check = self._checks.get((a.api_group, a.resource))
            if check is not None:
                return check(node, a)
        return _ALLOWED if any(r.allows(a) for r in self._rules) else _NO_OPINION

    async def _once_ready(self, a: Attributes, pending: Awaitable[None]) -> Outcome:
        await pending
        return await awaited(self.authorize(a))

    def rules_for(self, user: UserInfo, namespace: str) -> tuple[list[dict], list[dict], bool, str]:
        """Return no rules; for a node the answer is incomplete, with the reason."""
        if node_name(user) is not None:
            return [], [], True, "node authorizer does not support user rule resolution"
        return [], [], False, ""

    def _related(self, node: str, a: Attributes) -> Outcome | Awaitable[Outcome]:
        if not a.name:
            return _no("No Object name found")
        pending = self._graph.ready()
        if pending is not None:
            return self._once_ready(a, pending)
        # Cluster-scoped objects have no namespace even when the request names one.
        namespace = "" if a.resource in ("persistentvolumes", "volumeattachments", "resourceslices") else a.namespace
        if self._graph.reaches(node, a.resource, namespace, a.name):
            return _ALLOWED
        return _no(f"no relationship found between node '{node}' and this object")

    def _read(self, node: str, a: Attributes) -> Outcome | Awaitable[Outcome]:
        if not a.is_read_only():
            return _no("can only read resources of this type")
        if a.subresource:
            return _no("cannot read subresource")
        if not a.namespace:
            return _no("can only read namespaced object of this type")
        return self._related(node, a)

    def _get(self, node: str, a: Attributes) -> Outcome | Awaitable[Outcome]:
        if a.verb != "get":
            return _no("can only get individual resources of this type")
        if a.subresource:
            return _no("cannot get subresource")
        return self._related(node, a)

    def _claim(self, node: str, a: Attributes) -> Outcome | Awaitable[Outcome]:
        if a.subresource != "status":
            return self._get(node, a)
        if a.verb not in ("update", "patch"):
            return _no("can only get/update/patch this type")
        return self._related(node, a)

    def _service_account(self, node: str, a: Attributes) -> Outcome | Awaitable[Outcome]:
        """Token requests, and reads of the account itself, whose annotations kubelet credential providers use."""
        if a.verb == "get" and not a.subresource:
            if not features.DEFAULT.enabled("KubeletServiceAccountTokenForCredentialProviders") and not self._certificates:
                return _no("not allowed to get service accounts")
            return self._read(node, a)
        if a.verb != "create" or not a.name:
            return _no("can only create tokens for individual service accounts")
        if a.subresource != "token":
            return _no("can only create token subresource of serviceaccount")
        return self._related(node, a)

    def _lease(self, node: str, a: Attributes) -> Outcome | Awaitable[Outcome]:
        if a.verb not in ("get", "create", "update", "patch", "delete"):
            return _no("can only get, create, update, patch, or delete a node lease")
        if a.namespace != "kube-node-lease":
            return _no('can only access leases in the "kube-node-lease" system namespace')
        # On create the name is only known in admission.
        if a.verb != "create" and a.name != node:
            return _no("can only access node lease with the same name as the requesting node")
        return _ALLOWED

    def _csi_node(self, node: str, a: Attributes) -> Outcome | Awaitable[Outcome]:
        if a.verb not in ("get", "create", "update", "patch", "delete"):
            return _no("can only get, create, update, patch, or delete a CSINode")
        if a.subresource:
            return _no("cannot authorize CSINode subresources")
        if a.verb != "create" and a.name != node:
            return _no("can only access CSINode with the same name as the requesting node")
        return _ALLOWED

    def _slice(self, node: str, a: Attributes) -> Outcome | Awaitable[Outcome]:
        if a.subresource:
            return _no("cannot authorize ResourceSlice subresources")
        if a.verb == "create":
            return _ALLOWED
        if a.verb in ("get", "update", "patch", "delete"):
            return self._related(node, a)
        if a.verb in ("watch", "list", "deletecollection"):
            if _selects(a, "spec.nodeName", node):
                return _ALLOWED
            return _no("can only list/watch/deletecollection resourceslices with nodeName field selector")
        verbs = "get, watch, list, create, update, patch, delete, deletecollection"
        return _no(f"only the following verbs are allowed for a ResourceSlice: {verbs}")

    def _pod_certificate(self, node: str, a: Attributes) -> Outcome | Awaitable[Outcome]:
        if not self._certificates:
            return _NO_OPINION
        if a.subresource:
            return _no("nodes may not access the status subresource of PodCertificateRequests")
        if a.verb == "create":  # admission checks for which pods
            return _ALLOWED
        if a.verb == "get":
            return self._related(node, a)
        if a.verb not in ("list", "watch"):
            return _no(f"nodes may not {a.verb} podcertificaterequests")
        if _selects(a, "spec.nodeName", node):
            return _ALLOWED
        return _no("can only list/watch podcertificaterequests with nodeName field selector")

    def _node(self, node: str, a: Attributes) -> Outcome | Awaitable[Outcome]:
        if a.subresource == "":
            if a.verb in ("create", "update", "patch"):
                return _ALLOWED
            if a.is_read_only():
                # By name, not by the graph: a kubelet looks for its Node before it exists.
                if a.name == node:
                    return _ALLOWED
                if not a.name:
                    return _no(f"node '{node}' cannot read all nodes, only its own Node object")
                return _no(f"node '{node}' cannot read '{a.name}', only its own Node object")
        elif a.subresource == "status" and a.verb in ("update", "patch"):
            return _ALLOWED
        return _NO_OPINION

    def _pod(self, node: str, a: Attributes) -> Outcome | Awaitable[Outcome]:
        if a.subresource == "":
            if a.verb == "get":
                return self._get(node, a)
            if a.verb in ("list", "watch"):
                if _selects(a, "spec.nodeName", node):
                    return _ALLOWED
                if a.name:
                    return self._related(node, a)
                return _no("can only list/watch pods with spec.nodeName field selector")
            if a.verb in ("create", "delete"):
                return _ALLOWED
        elif a.subresource == "status":
            if a.verb in ("update", "patch"):
                return _ALLOWED
        elif a.subresource == "eviction" and a.verb == "create":
            return _ALLOWED
        return _NO_OPINION


def _selects(a: Attributes, key: str, value: str) -> bool:
    return any(t.key == key and t.op == "=" and t.value == value for t in a.field_requirements or ())

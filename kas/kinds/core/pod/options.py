"""What a stored pod or template already does wrong stays allowed (``GetValidationOptionsFromPodSpecAndMeta``).

Nearly every stored object is right, so each leniency is worked out only when a rule that found something asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from kas.config import features
from kas.kinds.core.pod import scheduling, security
from kas.kinds.core.pod.volumesources import local_non_reserved_path
from kas.kinds.core.resources import divisible, is_hugepages
from kas.meta import cached, field
from kas.meta.field import FieldError
from kas.meta.labelselectors import label_selector

Spec = Mapping[str, Any]
_DELETION_COST = re.compile("0|-[0-9]+|[1-9][0-9]*")
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


def deletion_cost(annotations: Mapping[str, str], path: str) -> list[FieldError]:
    """An error for a pod deletion cost that is no 32-bit integer in its plain spelling; a missing one is fine."""
    text = annotations.get(DELETION_COST)
    if text is None:
        return []
    # The first character alone decides against a plus and leading zeros: zeros behind a minus are upstream's to allow.
    if _DELETION_COST.fullmatch(text) and len(text.lstrip("-0")) <= 10 and -(1 << 31) <= int(text) < 1 << 31:
        return []
    return [field.invalid(f"{path}[{DELETION_COST}]", text, "must be a 32bit integer")]


class Options:
    """Leniency towards ``old``, the stored spec, and whether this is a pod or the template of one. ``selector_values``: the stored object
    has bad label values in a selector beside its pods'. Each leniency is found out once: rules ask for it at every item."""

    def __init__(
        self, is_pod: bool = False, old: Spec | None = None, meta: Spec | None = None, selector_values: bool = False
    ) -> None:
        self.is_pod, self._old, self._meta, self._selector_values = is_pod, old or {}, meta or {}, selector_values

    @property
    def deletion_cost(self) -> bool:
        """A pod deletion cost that is no 32-bit integer."""
        return not features.DEFAULT.enabled("PodDeletionCost") or bool(deletion_cost(self._meta.get("annotations") or {}, ""))

    @cached_property
    def affinity_values(self) -> bool:
        """Label values in the selectors of pod affinity."""
        if self._selector_values:
            return True
        affinity = self._old.get("affinity") or {}
        for kind in ("podAffinity", "podAntiAffinity"):
            rules = affinity.get(kind) or {}
            terms = [*(rules.get(scheduling.REQUIRED) or ())]
            terms += [t.get("podAffinityTerm") or {} for t in rules.get(scheduling.PREFERRED) or ()]
            for term in terms:
                if label_selector(term.get("labelSelector"), "") or label_selector(term.get("namespaceSelector"), ""):
                    return True
        return False

    @cached_property
    def node_values(self) -> bool:
        """Label values in required node affinity."""
        node = ((self._old.get("affinity") or {}).get("nodeAffinity") or {}).get(scheduling.REQUIRED) or {}
        return any(
            cached.label_value(value)
            for term in node.get("nodeSelectorTerms") or ()
            for expression in term.get("matchExpressions") or ()
            for value in expression.get("values") or ()
        )

    @property
    def comparing_tolerations(self) -> bool:
        """Tolerations that compare numbers."""
        return scheduling.compares(self._old)

    @cached_property
    def spread_selector(self) -> bool:
        """Invalid selectors in topology spread constraints."""
        items = self._old.get("topologySpreadConstraints") or ()
        return any(label_selector(item.get("labelSelector"), "") for item in items)

    @property
    def legacy_match_keys(self) -> bool:
        """Whether the matchLabelKeys of topology spread are validated as they were before they became part of the selector: while they do
        not, unless the stored ones break that; else where the stored ones break what holds since."""
        items = self._old.get("topologySpreadConstraints") or ()
        if not features.DEFAULT.enabled("MatchLabelKeysInPodTopologySpreadSelectorMerge"):
            return not any(scheduling.legacy_match_keys(item, "") for item in items)
        return any(scheduling.match_keys({k: v for k, v in item.items() if k != "mismatchLabelKeys"}, "") for item in items)

    @cached_property
    def host_sysctls(self) -> bool:
        """Sysctls of namespaces that the pod shares with the host."""
        items = (self._old.get("securityContext") or {}).get("sysctls") or ()
        return any(security.host_sysctl(self._old, item.get("name") or "", "") for item in items)

    @property
    def any_selinux_policy(self) -> bool:
        """More than Recursive, which is all there is while the gate SELinuxMount is off."""
        if features.DEFAULT.enabled("SELinuxMount"):
            return True
        return (self._old.get("securityContext") or {}).get("seLinuxChangePolicy") is not None

    @cached_property
    def token_path(self) -> bool:
        """Projected service account tokens at paths that are absolute, or have ".." at the start or as an element."""
        for volume in self._old.get("volumes") or ():
            for source in (volume.get("projected") or {}).get("sources") or ():
                token = source.get("serviceAccountToken")
                if token is not None and local_non_reserved_path(token.get("path") or "", ""):
                    return True
        return False

    @cached_property
    def partial_hugepages(self) -> bool:
        """Amounts that are no multiple of the page size."""
        lists = [self._old.get("overhead") or {}]
        for container, _ in security.containers(self._old, ""):
            resources = container.get("resources") or {}
            lists += [resources.get("limits") or {}, resources.get("requests") or {}]
        return any(is_hugepages(name) and not divisible(name, text) for items in lists for name, text in items.items())

    @cached_property
    def devices_of_users(self) -> bool:
        """Block devices in a user namespace, which never worked."""
        return self._old.get("hostUsers") is False and any(c.get("volumeDevices") for c, _ in security.containers(self._old, ""))

    @property
    def network_of_users(self) -> bool:
        """The host's network in a user namespace."""
        if features.DEFAULT.enabled("UserNamespacesHostNetworkSupport"):
            return True
        return self._old.get("hostUsers") is False and bool(self._old.get("hostNetwork"))

    @property
    def restart_rules(self) -> bool:
        """Containers with a restart policy of their own, other than that of a sidecar, and with rules for it."""
        if features.DEFAULT.enabled("ContainerRestartRules"):
            return True
        regular, init = self._old.get("containers") or (), self._old.get("initContainers") or ()
        own = any(c.get("restartPolicy") is not None for c in regular)
        return own or any(c.get("restartPolicy") not in (None, "Always") or c.get("restartPolicyRules") for c in init)

    @property
    def restart_all(self) -> bool:
        """Rules that start all containers again, and rules of sidecars."""
        if features.DEFAULT.enabled("RestartAllContainersOnContainerExits"):
            return True
        init = self._old.get("initContainers") or ()
        rules = [rule for c in (*(self._old.get("containers") or ()), *init) for rule in c.get("restartPolicyRules") or ()]
        sidecars = any(c.get("restartPolicy") == "Always" and c.get("restartPolicyRules") for c in init)
        return sidecars or any(rule.get("action") == "RestartAllContainers" for rule in rules)

    @cached_property
    def restarting_init(self) -> bool:
        """Init containers that are no sidecars and ask to be restarted on a resize."""
        return any(
            item.get("restartPolicy") == "RestartContainer"
            for container in self._old.get("initContainers") or ()
            if container.get("restartPolicy") != "Always"
            for item in container.get("resizePolicy") or ()
        )


DEFAULT = Options()
FOR_PODS = Options(is_pod=True)


def options_for_template(old: Spec | None, selector_values: bool = False) -> Options:
    """``options_for`` the pod template of a stored workload."""
    return Options(False, (old or {}).get("spec") or {}, (old or {}).get("metadata"), selector_values)


def options_for(old_spec: Spec | None, old_meta: Spec | None, is_pod: bool = False) -> Options:
    """Leniency towards the stored spec and metadata of a pod or a template; towards None there is none of either."""
    return Options(is_pod, old_spec, old_meta)

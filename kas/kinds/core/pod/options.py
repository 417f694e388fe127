"""Ratcheting: errors that a stored pod or template already has stay allowed (``GetValidationOptionsFromPodSpecAndMeta``).

Nearly all stored objects are valid, so each option is computed only when a rule has found an error.
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
    """Return an error for a pod deletion cost that is not a 32-bit integer in canonical form; an absent one is allowed."""
    text = annotations.get(DELETION_COST)
    if text is None:
        return []
    # Only the first character is checked for a plus sign or a leading zero; zeros after a minus are allowed, as upstream.
    if _DELETION_COST.fullmatch(text) and len(text.lstrip("-0")) <= 10 and -(1 << 31) <= int(text) < 1 << 31:
        return []
    return [field.invalid(f"{path}[{DELETION_COST}]", text, "must be a 32bit integer")]


class Options:
    """What is tolerated because the stored spec ``old`` already has it, for a pod or a template.

    ``selector_values``: the stored object has invalid label values in a selector outside its pod spec. Each option is computed once: rules
    read it for every item.
    """

    def __init__(
        self, is_pod: bool = False, old: Spec | None = None, meta: Spec | None = None, selector_values: bool = False
    ) -> None:
        self.is_pod, self._old, self._meta, self._selector_values = is_pod, old or {}, meta or {}, selector_values

    @property
    def deletion_cost(self) -> bool:
        """Whether to tolerate a pod deletion cost that is not a 32-bit integer."""
        return not features.DEFAULT.enabled("PodDeletionCost") or bool(deletion_cost(self._meta.get("annotations") or {}, ""))

    @cached_property
    def affinity_values(self) -> bool:
        """Whether to tolerate invalid label values in the selectors of pod affinity."""
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
        """Whether to tolerate invalid label values in required node affinity."""
        node = ((self._old.get("affinity") or {}).get("nodeAffinity") or {}).get(scheduling.REQUIRED) or {}
        return any(
            cached.label_value(value)
            for term in node.get("nodeSelectorTerms") or ()
            for expression in term.get("matchExpressions") or ()
            for value in expression.get("values") or ()
        )

    @property
    def comparing_tolerations(self) -> bool:
        """Whether tolerations may compare numbers."""
        return scheduling.compares(self._old)

    @cached_property
    def spread_selector(self) -> bool:
        """Whether to tolerate invalid selectors in topology spread constraints."""
        items = self._old.get("topologySpreadConstraints") or ()
        return any(label_selector(item.get("labelSelector"), "") for item in items)

    @property
    def legacy_match_keys(self) -> bool:
        """Whether matchLabelKeys of topology spread constraints are validated by the rules from before they were merged into the selector.

        With the merge's feature gate off: unless the stored ones break these rules. With the gate on: if the stored ones break the new
        rules.
        """
        items = self._old.get("topologySpreadConstraints") or ()
        if not features.DEFAULT.enabled("MatchLabelKeysInPodTopologySpreadSelectorMerge"):
            return not any(scheduling.legacy_match_keys(item, "") for item in items)
        return any(scheduling.match_keys({k: v for k, v in item.items() if k != "mismatchLabelKeys"}, "") for item in items)

    @cached_property
    def host_sysctls(self) -> bool:
        """Whether to tolerate sysctls of namespaces that the pod shares with the host."""
        items = (self._old.get("securityContext") or {}).get("sysctls") or ()
        return any(security.host_sysctl(self._old, item.get("name") or "", "") for item in items)

    @property
    def any_selinux_policy(self) -> bool:
        """Whether policies other than Recursive are allowed; without the gate SELinuxMount only if one is stored."""
        if features.DEFAULT.enabled("SELinuxMount"):
            return True
        return (self._old.get("securityContext") or {}).get("seLinuxChangePolicy") is not None

    @cached_property
    def token_path(self) -> bool:
        """Whether to tolerate service account token paths that are absolute, or have ".." at the start or as an element."""
        for volume in self._old.get("volumes") or ():
            for source in (volume.get("projected") or {}).get("sources") or ():
                token = source.get("serviceAccountToken")
                if token is not None and local_non_reserved_path(token.get("path") or "", ""):
                    return True
        return False

    @cached_property
    def partial_hugepages(self) -> bool:
        """Whether to tolerate amounts of huge pages that are not a multiple of the page size."""
        lists = [self._old.get("overhead") or {}]
        for container, _ in security.containers(self._old, ""):
            resources = container.get("resources") or {}
            lists += [resources.get("limits") or {}, resources.get("requests") or {}]
        return any(is_hugepages(name) and not divisible(name, text) for items in lists for name, text in items.items())

    @cached_property
    def devices_of_users(self) -> bool:
        """Whether to tolerate block devices in a user namespace, which never worked."""
        return self._old.get("hostUsers") is False and any(c.get("volumeDevices") for c, _ in security.containers(self._old, ""))

    @property
    def network_of_users(self) -> bool:
        """Whether the host's network is allowed in a user namespace."""
        if features.DEFAULT.enabled("UserNamespacesHostNetworkSupport"):
            return True
        return self._old.get("hostUsers") is False and bool(self._old.get("hostNetwork"))

    @property
    def restart_rules(self) -> bool:
        """Whether containers may have their own restart policy, other than that of a sidecar, and restart policy rules."""
        if features.DEFAULT.enabled("ContainerRestartRules"):
            return True
        regular, init = self._old.get("containers") or (), self._old.get("initContainers") or ()
        own = any(c.get("restartPolicy") is not None for c in regular)
        return own or any(c.get("restartPolicy") not in (None, "Always") or c.get("restartPolicyRules") for c in init)

    @property
    def restart_all(self) -> bool:
        """Whether rules that restart all containers, and rules of sidecars, are allowed."""
        if features.DEFAULT.enabled("RestartAllContainersOnContainerExits"):
            return True
        init = self._old.get("initContainers") or ()
        rules = [rule for c in (*(self._old.get("containers") or ()), *init) for rule in c.get("restartPolicyRules") or ()]
        sidecars = any(c.get("restartPolicy") == "Always" and c.get("restartPolicyRules") for c in init)
        return sidecars or any(rule.get("action") == "RestartAllContainers" for rule in rules)

    @cached_property
    def restarting_init(self) -> bool:
        """Whether to tolerate init containers, other than sidecars, that are to be restarted on a resize."""
        return any(
            item.get("restartPolicy") == "RestartContainer"
            for container in self._old.get("initContainers") or ()
            if container.get("restartPolicy") != "Always"
            for item in container.get("resizePolicy") or ()
        )


DEFAULT = Options()
FOR_PODS = Options(is_pod=True)


def options_for_template(old: Spec | None, selector_values: bool = False) -> Options:
    """``options_for`` the pod template of a stored workload; None if nothing is stored."""
    return Options(False, (old or {}).get("spec") or {}, (old or {}).get("metadata"), selector_values)


def options_for(old_spec: Spec | None, old_meta: Spec | None, is_pod: bool = False) -> Options:
    """Return the options for the stored spec and metadata of a pod or a template; None for nothing stored."""
    return Options(is_pod, old_spec, old_meta)

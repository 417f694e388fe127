"""Counts what was judged, who was exempt and what could not be judged, under upstream's names (``pod-security-admission/metrics``)."""

from __future__ import annotations

from kas import KUBERNETES_VERSION
from kas.admission import Attributes
from kas.admission.plugins._podsecurity.policy import LATEST, PRIVILEGED, LevelVersion
from kas.observe.metrics import Registry

_OF = ("request_operation", "resource", "subresource")
_NEWEST = int(KUBERNETES_VERSION.split(".")[1])  # of the minor versions that checks may know of


def _of(a: Attributes) -> tuple[str, str, str]:
    resource = "controller" if a.group else {"pods": "pod", "namespaces": "namespace"}.get(a.resource, "controller")
    return a.operation.lower(), resource, a.subresource


def _version(policy: LevelVersion) -> str:
    """Users choose it, and may not make series."""
    if policy.version == LATEST or policy.level == PRIVILEGED:
        return "latest"
    return f"v1.{policy.version}" if policy.version <= _NEWEST else "future"


class PodSecurityMetrics:
    """What is most common begins at 0."""

    def __init__(self, metrics: Registry) -> None:
        self._evaluations = metrics.counter(
            "pod_security_evaluations_total", "Number of policy evaluations that occurred, not counting ignored or exempt requests.",
            ("decision", "policy_level", "policy_version", "mode", *_OF),
        )  # fmt: skip
        self._exemptions = metrics.counter(
            "pod_security_exemptions_total", "Number of exempt requests, not counting ignored or out of scope requests.", _OF
        )
        self._errors = metrics.counter(
            "pod_security_errors_total",
            "Number of errors preventing normal evaluation. Non-fatal errors may result in the latest restricted profile being used for "
            "evaluation.",
            ("fatal", *_OF),
        )
        self._open: dict[tuple[str, str], tuple[str, ...]] = {}  # labels, by operation and subresource
        for operation in ("create", "update"):
            self._evaluations.inc(("allow", PRIVILEGED, "latest", "enforce", operation, "pod", ""), 0)
            for resource in ("pod", "controller"):
                self._exemptions.inc((operation, resource, ""), 0)

    def evaluated(self, a: Attributes, policy: LevelVersion, mode: str, allowed: bool) -> None:
        """A policy was held against a pod; of warnings and audits only what they found is counted."""
        self._evaluations.inc(("allow" if allowed else "deny", policy.level, _version(policy), mode, *_of(a)))

    def open(self, operation: str, subresource: str) -> None:
        """A pod of a namespace where nothing is asked for, as most are."""
        labels = self._open.get((operation, subresource))
        if labels is None:
            labels = self._open[operation, subresource] = ("allow", PRIVILEGED, "latest", "enforce", operation.lower(), "pod", subresource)
        self._evaluations.inc(labels)

    def exempt(self, a: Attributes) -> None:
        """The configuration exempts the request."""
        self._exemptions.inc(_of(a))

    def error(self, a: Attributes, fatal: bool) -> None:
        """There was no policy to judge by; or one that was misread, if not ``fatal``."""
        self._errors.inc(("true" if fatal else "false", *_of(a)))

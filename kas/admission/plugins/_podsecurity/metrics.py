"""Metrics of evaluations, exemptions and errors, under upstream's names (``pod-security-admission/metrics``)."""

from __future__ import annotations

from kas import KUBERNETES_VERSION
from kas.admission import Attributes
from kas.admission.plugins._podsecurity.policy import LATEST, PRIVILEGED, LevelVersion
from kas.observe.metrics import Registry

_OF = ("request_operation", "resource", "subresource")
_NEWEST = int(KUBERNETES_VERSION.split(".")[1])  # the newest minor version known to the checks


def _of(a: Attributes) -> tuple[str, str, str]:
    resource = "controller" if a.group else {"pods": "pod", "namespaces": "namespace"}.get(a.resource, "controller")
    return a.operation.lower(), resource, a.subresource


def _version(policy: LevelVersion) -> str:
    """Return the version label. Users choose the version, so unknown ones are mapped to a fixed value, to bound the number of series."""
    if policy.version == LATEST or policy.level == PRIVILEGED:
        return "latest"
    return f"v1.{policy.version}" if policy.version <= _NEWEST else "future"


class PodSecurityMetrics:
    """The most common series are initialized with 0."""

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
        """Count the evaluation of a policy; for warn and audit only violations are counted."""
        self._evaluations.inc(("allow" if allowed else "deny", policy.level, _version(policy), mode, *_of(a)))

    def open(self, operation: str, subresource: str) -> None:
        """Count a pod in a namespace without restrictions, the most common case."""
        labels = self._open.get((operation, subresource))
        if labels is None:
            labels = self._open[operation, subresource] = ("allow", PRIVILEGED, "latest", "enforce", operation.lower(), "pod", subresource)
        self._evaluations.inc(labels)

    def exempt(self, a: Attributes) -> None:
        """Count a request that the configuration exempts."""
        self._exemptions.inc(_of(a))

    def error(self, a: Attributes, fatal: bool) -> None:
        """Count a missing policy (``fatal``) or an invalid one."""
        self._errors.inc(("true" if fatal else "false", *_of(a)))

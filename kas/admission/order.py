"""Which plug-ins there are, in upstream's order (``pkg/kubeapiserver/options/plugins.go``), and which of them are on."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from kas.admission import Timers, configuration
from kas.observe.metrics import Histogram
from kas.observe.metrics import Registry as Metrics

# Upstream's AllOrderedPlugins. Mutating runs before validating; within each, this is the order.
ORDER = (
    "AlwaysAdmit", "NamespaceAutoProvision", "NamespaceLifecycle", "NamespaceExists", "LimitPodHardAntiAffinityTopology",
    "SecurityContextDeny", "PodPreset", "LimitRanger", "ServiceAccount", "NodeRestriction", "TaintNodesByCondition", "AlwaysPullImages",
    "ImagePolicyWebhook", "PodSecurity", "PodNodeSelector", "Priority", "DefaultTolerationSeconds", "PodTolerationRestriction",
    "EventRateLimit", "ExtendedResourceToleration", "PersistentVolumeLabel", "DefaultStorageClass", "StorageObjectInUseProtection",
    "OwnerReferencesPermissionEnforcement", "PersistentVolumeClaimResize", "RuntimeClass", "CertificateApproval", "CertificateSigning",
    "CertificateSubjectRestriction", "DefaultIngressClass", "DenyServiceExternalIPs", "PodTopologyLabels", "PodResizeValidator",
    "RBACEscalation", "DRAAdminAccess", "ResourceQuota", "AlwaysDeny",
)  # fmt: skip

DEFAULT_ON = frozenset((
    "NamespaceLifecycle", "LimitRanger", "ServiceAccount", "TaintNodesByCondition", "PodSecurity", "Priority", "DefaultTolerationSeconds",
    "DefaultStorageClass", "StorageObjectInUseProtection", "PersistentVolumeClaimResize", "RuntimeClass", "CertificateApproval",
    "CertificateSigning", "CertificateSubjectRestriction", "DefaultIngressClass", "PodTopologyLabels", "PodResizeValidator",
    "ResourceQuota",
))  # fmt: skip

# Not admission plug-ins upstream but parts of a storage; they cannot be switched off.
ALWAYS = frozenset(("RBACEscalation", "DRAAdminAccess"))

# Known upstream and accepted by the flags, but without effect here yet: named, so that a flag set for another server works.
ELSEWHERE = frozenset((
    "MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook",
    "ClusterTrustBundleAttest", "PodGroupProtection", "PodGroupWorkloadExists", "NodeDeclaredFeatureValidator", "JobValidation",
))  # fmt: skip


# An acronym in the plural is one word.
MODULES = {"DenyServiceExternalIPs": "deny_service_external_ips"}


def _snake(name: str) -> str:
    if name in MODULES:
        return MODULES[name]
    out = []
    for i, c in enumerate(name):
        if c.isupper() and i and (not name[i - 1].isupper() or (i + 1 < len(name) and name[i + 1].islower())):
            out.append("_")
        out.append(c.lower())
    return "".join(out)


def available() -> list[str]:
    """The plug-ins that have a module."""
    return [n for n in ORDER if importlib.util.find_spec(f"kas.admission.plugins.{_snake(n)}") is not None]


def enabled(enable: list[str], disable: list[str]) -> list[str]:
    """Names of the plug-ins that are on, in order. Raises ValueError for an unknown name or one in both lists."""
    for flag, names in (("enable", enable), ("disable", disable)):
        for n in names:
            if n not in ORDER and n not in ELSEWHERE:
                raise ValueError(f"--{flag}-admission-plugins: plugin {n!r} is unknown")
    both = set(enable) & set(disable)
    if both:
        raise ValueError(f"{', '.join(sorted(both))} in enable-admission-plugins and disable-admission-plugins overlapped")
    on = (DEFAULT_ON | set(enable)) - set(disable)
    return [n for n in ORDER if n in on or n in ALWAYS]


def build(server: Any) -> list[Any]:
    """The plug-ins that are on. Each module has ``Plugin(server)``; what of the server it uses is in its docstring.

    Those in ``configuration.TAKERS`` get their part of the configuration file, too.
    """
    raw = server.options.raw
    there = set(available())
    config = configuration.read(raw.admission_control_config_file, (set(ORDER) | ELSEWHERE) - ALWAYS)
    names = enabled(raw.enable_admission_plugins, raw.disable_admission_plugins)
    out = []
    for name in names:
        if name in there:
            plugin = importlib.import_module(f"kas.admission.plugins.{_snake(name)}").Plugin
            out.append(configuration.make(plugin, name, server, config))
    configuration.keep_rest(config, names, raw.disable_admission_plugins, speak=server.index == 0)
    return out


class _Timer:
    """Steps run in a microsecond or two, a dozen for a pod: looking for their row and bucket each time would cost as much again."""

    __slots__ = ("_histogram", "_labels", "quick_s", "row")

    def __init__(self, histogram: Histogram, labels: tuple[str, ...]) -> None:
        self._histogram, self._labels, self.quick_s = histogram, labels, histogram.buckets[0]
        self.row: list[float] | None = None

    def add(self, seconds: float) -> None:
        self._histogram.observe(self._labels, seconds)
        self.row = self._histogram.values[self._labels]


def observer(metrics: Metrics) -> Timers:
    """Upstream's admission metrics."""
    buckets = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5)
    seconds = metrics.histogram(
        "apiserver_admission_controller_admission_duration_seconds",
        "Admission controller latency histogram in seconds, identified by name and broken out for each operation and API resource "
        "and type (validate or admit).",
        ("name", "operation", "rejected", "type"), buckets,
    )  # fmt: skip

    return lambda plugin, step, operation, rejected: _Timer(seconds, (plugin, operation, "true" if rejected else "false", step))

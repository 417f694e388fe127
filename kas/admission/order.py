"""The list of plug-ins, in upstream's order (``pkg/kubeapiserver/options/plugins.go``), and which of them are enabled."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from kas.admission import Plugin, Timers, configuration
from kas.admission.initializer import Initializer
from kas.meta.field import go_quote
from kas.meta.suggest import did_you_mean
from kas.observe.metrics import Registry as Metrics
from kas.observe.metrics import Timer

log = logging.getLogger("kas.admission")

# Upstream's AllOrderedPlugins. All mutating steps run before the validating ones; each phase runs in this order.
ORDER = (
    "NamespaceAutoProvision", "NamespaceLifecycle", "NamespaceExists", "LimitPodHardAntiAffinityTopology",
    "SecurityContextDeny", "LimitRanger", "ServiceAccount", "NodeRestriction", "TaintNodesByCondition", "AlwaysPullImages",
    "ImagePolicyWebhook", "PodSecurity", "PodNodeSelector", "Priority", "DefaultTolerationSeconds", "PodTolerationRestriction",
    "EventRateLimit", "ExtendedResourceToleration", "DefaultStorageClass", "StorageObjectInUseProtection",
    "OwnerReferencesPermissionEnforcement", "PersistentVolumeClaimResize", "RuntimeClass", "CertificateApproval", "CertificateSigning",
    "ClusterTrustBundleAttest", "CertificateSubjectRestriction", "DefaultIngressClass", "DenyServiceExternalIPs", "PodTopologyLabels",
    "NodeDeclaredFeatureValidator", "PodResizeValidator", "PodGroupProtection", "PodGroupWorkloadExists", "JobValidation",
    "RBACEscalation", "DRAAdminAccess", "DRAClaimStatus", "PodCertificateSigning", "PolicyParamsAuthorization", "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook", "ResourceQuota", "AlwaysDeny",
)  # fmt: skip

DEFAULT_ON = frozenset((
    "NamespaceLifecycle", "LimitRanger", "ServiceAccount", "TaintNodesByCondition", "PodSecurity", "Priority", "DefaultTolerationSeconds",
    "DefaultStorageClass", "StorageObjectInUseProtection", "PersistentVolumeClaimResize", "RuntimeClass", "CertificateApproval",
    "CertificateSigning", "ClusterTrustBundleAttest", "CertificateSubjectRestriction", "DefaultIngressClass", "PodTopologyLabels",
    "NodeDeclaredFeatureValidator", "PodResizeValidator", "PodGroupProtection", "PodGroupWorkloadExists", "JobValidation",
    "MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook", "ResourceQuota",
))  # fmt: skip

# From this plug-in on, stored objects configure what happens.
FIRST_CONFIGURED = "MutatingAdmissionPolicy"

# Upstream has these in its storage, not as admission plug-ins; they cannot be disabled.
ALWAYS = frozenset(("RBACEscalation", "DRAAdminAccess", "DRAClaimStatus", "PodCertificateSigning", "PolicyParamsAuthorization"))

# Accepted by the flags for compatibility, but without effect; the values are the reasons for the warning at start.
NO_EFFECT = {
    "AlwaysAdmit": "it lets everything pass",
    "PersistentVolumeLabel": "it asked cloud providers that were part of the API server until Kubernetes 1.31",
    "PodPreset": "the API group settings.k8s.io was removed in Kubernetes 1.20",
}
CONFIGURABLE = (set(ORDER) | NO_EFFECT.keys()) - ALWAYS  # the names that the configuration file may contain

# A plural acronym is one word.
MODULES = {"DenyServiceExternalIPs": "deny_service_external_ips"}


def module(name: str) -> str:
    """Return the module of a plug-in: ``DefaultStorageClass`` is in ``kas.admission.plugins.default_storage_class``."""
    out = []
    for i, c in enumerate(name):
        if c.isupper() and i and (not name[i - 1].isupper() or (i + 1 < len(name) and name[i + 1].islower())):
            out.append("_")
        out.append(c.lower())
    return "kas.admission.plugins." + (MODULES.get(name) or "".join(out))


class Settings(Protocol):
    """The flags that enable and disable plug-ins."""

    admission_control: list[str]
    enable_admission_plugins: list[str]
    disable_admission_plugins: list[str]


def wanted(settings: Settings) -> tuple[list[str], list[str]]:
    """Return the plug-ins to enable and to disable. ``--admission-control`` lists all enabled ones, whatever the defaults are."""
    named = settings.admission_control
    if not named:
        return settings.enable_admission_plugins, settings.disable_admission_plugins
    return named, [name for name in (*ORDER, *NO_EFFECT) if name not in ALWAYS and name not in named]


def problems(settings: Settings) -> list[str]:
    """Return the errors in the flags, in upstream's words."""
    named, out = settings.admission_control, []
    if named and (settings.enable_admission_plugins or settings.disable_admission_plugins):
        out.append("admission-control and enable-admission-plugins/disable-admission-plugins flags are mutually exclusive")
    out += [f"admission-control {text}" for text in _unknown(named)]
    return out + wrong_names(settings.enable_admission_plugins, settings.disable_admission_plugins)


def _unknown(names: list[str]) -> list[str]:
    wrong = [n for n in names if (n not in ORDER or n in ALWAYS) and n not in NO_EFFECT]
    return [f"plugin {go_quote(n)} is unknown{did_you_mean(n, set(ORDER) - {n, *ALWAYS})}" for n in wrong]


def wrong_names(enable: list[str], disable: list[str]) -> list[str]:
    """Return the errors in the names, in upstream's words: unknown names, and names in both lists."""
    out = []
    for flag, names in (("enable", enable), ("disable", disable)):
        out += [f"{flag}-admission-plugins {text}" for text in _unknown(names)]
    both = set(enable) & set(disable)
    if both:
        out.append(f"[{' '.join(sorted(both))}] in enable-admission-plugins and disable-admission-plugins overlapped")
    return out


def enabled(enable: list[str], disable: list[str]) -> list[str]:
    """Return the names of the enabled plug-ins, in order. Raises ValueError for an unknown name or one in both lists."""
    wrong = wrong_names(enable, disable)
    if wrong:
        raise ValueError("\n".join(wrong))
    on = (DEFAULT_ON | set(enable)) - set(disable)
    return [n for n in ORDER if n in on or n in ALWAYS]


def misconfigured(settings: Settings, config_file: str) -> list[str]:
    """Return all errors in the configuration file that ``build`` would raise, without creating plug-ins. The files of a static manifest
    directory are not checked, since that takes a plug-in."""
    out: list[str] = []
    try:
        config = configuration.read(config_file)
        names = enabled(*wanted(settings))
    except configuration.ConfigurationError as e:
        return [str(e)]
    except ValueError:
        return []  # reported by ``problems``
    for name in (n for n in names if n in configuration.TAKERS):
        try:
            importlib.import_module(module(name)).Plugin.configured(config.section(name))
        except configuration.ConfigurationError as e:
            out.append(_not_made(name, e))
    return out


def _not_made(name: str, e: configuration.ConfigurationError) -> str:
    what = "failed to initialize" if isinstance(e, configuration.InitializationError) else "couldn't init"
    return f"{configuration.FAILED}: {what} admission plugin {go_quote(name)}: {e}"


def build(
    initializer: Initializer, enable: list[str], disable: list[str], config_file: str = "", speak: bool = True,
    own: Sequence[Plugin | type[Plugin]] = (),
) -> list[Plugin]:  # fmt: skip
    """Create the enabled plug-ins, in order, with ``initializer``; those in ``configuration.TAKERS`` also get their section of the
    configuration file (``section``).

    ``own`` are the plug-ins of an embedding program. They run before the policies and webhooks, which see their changes; classes are
    instantiated like the built-in plug-ins. With ``speak``, a warning is logged for each requested plug-in without effect. Raises
    ``ValueError`` for names that ``enabled`` refuses, ``ConfigurationError`` (a ``ValueError``) for a file that cannot work, and
    ``ImportError`` for a plug-in without a module.
    """
    config = configuration.read(config_file)
    names = enabled(enable, disable)
    out: list[Plugin] = []
    place = next((i for i, name in enumerate(names) if ORDER.index(name) >= ORDER.index(FIRST_CONFIGURED)), len(names))
    for i, name in enumerate(names):
        if i == place:
            out += _own(initializer, own)
        section = config.section(name) if name in configuration.TAKERS else None
        try:
            out.append(initializer.make(importlib.import_module(module(name)).Plugin, section=section))
        except configuration.ConfigurationError as e:
            raise configuration.ConfigurationError(_not_made(name, e)) from None
    if place == len(names):
        out += _own(initializer, own)
    if speak:
        for name in (n for n in enable if n in NO_EFFECT):
            log.warning("--enable-admission-plugins: %s has no effect: %s", name, NO_EFFECT[name])
    configuration.keep_rest(config, names, CONFIGURABLE, speak)
    return out


def periodic(plugins: Sequence[Plugin]) -> list[tuple[str, float, Callable[[], Awaitable[None] | None]]]:
    """Return the periodic work of the plug-ins: (name, interval in seconds, function)."""
    static = (getattr(plugin, "manifests", None) for plugin in plugins)
    return [(f"manifests of {found.plugin}", found.every_s, found.look) for found in static if found is not None]


def _own(initializer: Initializer, plugins: Sequence[Plugin | type[Plugin]]) -> list[Plugin]:
    return [initializer.make(plugin) if isinstance(plugin, type) else plugin for plugin in plugins]


def observer(metrics: Metrics) -> Timers:
    """Return the timers of upstream's admission metrics."""
    buckets = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5)
    seconds = metrics.histogram(
        "apiserver_admission_controller_admission_duration_seconds",
        "Admission controller latency histogram in seconds, identified by name and broken out for each operation and API resource "
        "and type (validate or admit).",
        ("name", "operation", "rejected", "type"), buckets,
    )  # fmt: skip
    steps = metrics.histogram(
        "apiserver_admission_step_admission_duration_seconds",
        "Admission sub-step latency histogram in seconds, broken out for each operation and API resource and step type (validate or "
        "admit).",
        ("operation", "rejected", "type"), buckets,
    )  # fmt: skip

    def timer(plugin: str, step: str, operation: str, rejected: bool) -> Timer:
        labels = (operation, "true" if rejected else "false", step)
        return Timer(seconds, (plugin, *labels)) if plugin else Timer(steps, labels)

    return timer

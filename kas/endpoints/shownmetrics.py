"""The metrics to show, and the allowed values of their labels.

Flags: ``--disabled-metrics``, ``--show-hidden-metrics-for-version``, ``--allow-metric-labels`` and its manifest. Upstream:
``k8s.io/component-base/metrics/options.go``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

from kas.observe.metrics import Shown
from kas.types import configfile

log = logging.getLogger("kas.metrics")


class Settings(Protocol):
    """The flags for metrics."""

    allow_metric_labels: dict[str, str]
    allow_metric_labels_manifest: str
    disabled_metrics: list[str]
    show_hidden_metrics_for_version: str


def shown(settings: Settings, speak: bool) -> Shown:
    """Return the settings of the flags. The manifest is used if ``allow_metric_labels`` is empty.

    As upstream, a manifest that cannot be read counts as empty; ``speak`` logs the error.
    """
    given: Mapping[str, str] = settings.allow_metric_labels
    if not given and settings.allow_metric_labels_manifest:
        given = _manifest(settings.allow_metric_labels_manifest, speak)
    allowed: dict[str, dict[str, frozenset[str]]] = {}
    for key, values in given.items():
        metric, _, label = key.partition(",")
        allowed.setdefault(metric, {})[label] = frozenset(values.split(","))
    return Shown(frozenset(settings.disabled_metrics), allowed, bool(settings.show_hidden_metrics_for_version))


def _manifest(path: str, speak: bool) -> Mapping[str, str]:
    try:
        found = configfile.parse(configfile.read_file(path)).value
        if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
            raise configfile.ConfigurationError("it is not a map of texts")
    except configfile.ConfigurationError as e:
        if speak:
            log.error("--allow-metric-labels-manifest: failed to read allow list %s: %s", path, e)
        return {}
    return found

"""Selects the converter of a custom resource."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kas.apiextensions.definition import Definition
from kas.apiextensions.nopconverter import NopConverter
from kas.endpoints.custom.conversionmetrics import ConversionMetrics
from kas.observe.metrics import Registry as Metrics
from kas.registry.versions import Converter

if TYPE_CHECKING:
    from kas.client.hooks import HookClients


def converters(clients: Callable[[], HookClients], metrics: Metrics) -> Callable[[Definition], Converter]:
    """Return a function that returns the converter for a definition's strategy. Webhooks are called with the result of ``clients``."""
    counts = ConversionMetrics(metrics)

    def converter_of(d: Definition) -> Converter:
        if d.conversion.get("strategy") != "Webhook":
            return NopConverter(d)
        from kas.endpoints.custom.webhookconverter import WebhookConverter  # few servers have a conversion webhook

        return WebhookConverter(d, clients(), counts)

    return converter_of

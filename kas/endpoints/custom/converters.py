"""The converters of custom resources."""

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
    """What gives the converter of a definition by its strategy; webhooks are asked by what ``clients`` gives."""
    counts = ConversionMetrics(metrics)

    def converter_of(d: Definition) -> Converter:
        if d.conversion.get("strategy") != "Webhook":
            return NopConverter(d)
        from kas.endpoints.custom.webhookconverter import WebhookConverter  # few servers have one

        return WebhookConverter(d, clients(), counts)

    return converter_of

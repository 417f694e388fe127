"""The webhook backend: entries are posted as an EventList (``plugin/pkg/audit/webhook``). What it answers beside its code is not read."""

from __future__ import annotations

from collections.abc import Sequence

from kas.audit.backend import AuditError
from kas.audit.event import Entry
from kas.client.webhook import Webhook, WebhookError


class WebhookBackend:
    """Posts to ``webhook``, which tries again after failures that may pass."""

    name = "webhook"

    def __init__(self, webhook: Webhook) -> None:
        self._webhook = webhook

    async def process(self, entries: Sequence[Entry]) -> None:
        """Returns when the backend has taken the list. Raises AuditError."""
        items = b",".join(entry.text for entry in entries)
        body = b'{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[' + items + b"]}\n"
        try:
            await self._webhook.send(body, len)
        except WebhookError as e:
            raise AuditError(str(e)) from None

    async def close(self) -> None:
        """Let go of the connections."""
        self._webhook.close()

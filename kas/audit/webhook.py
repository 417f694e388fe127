"""The webhook backend: posts entries as an EventList (``plugin/pkg/audit/webhook``). Of the response only the status code counts."""

from __future__ import annotations

from collections.abc import Sequence

from kas.audit.backend import AuditError
from kas.audit.event import Entry
from kas.client.pool import LARGE, sending
from kas.client.webhook import Webhook, WebhookError

HEAD, TAIL = b'{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[', b"]}\n"


def _event_list(entries: Sequence[Entry]) -> bytes:
    """Build the list with a single copy, since bodies may be megabytes."""
    parts = [HEAD]
    for entry in entries:
        parts += (b",", entry.text) if len(parts) > 1 else (entry.text,)
    parts.append(TAIL)
    return b"".join(parts)


class WebhookBackend:
    """Posts to ``webhook``, which retries after transient failures."""

    name = "webhook"

    def __init__(self, webhook: Webhook) -> None:
        self._webhook = webhook

    async def process(self, entries: Sequence[Entry]) -> None:
        """Returns when the backend has taken the list. Raises AuditError."""
        if sum(len(entry.line) for entry in entries) >= LARGE and (throttle := sending.throttle).exhausted:
            await throttle.wait()
        try:
            await self._webhook.send(_event_list(entries), len)
        except WebhookError as e:
            raise AuditError(str(e)) from None

    async def close(self) -> None:
        """Close the connections."""
        self._webhook.close()

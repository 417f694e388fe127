"""ValidatingAdmissionWebhook: configured webhooks examine an object before it is stored, concurrently, and may refuse it.

Upstream: ``pkg/admission/plugin/webhook/validating``.
"""

from __future__ import annotations

from collections.abc import Awaitable

from kas.admission import Attributes
from kas.admission.webhook.plugin import WebhookPlugin


class Plugin(WebhookPlugin):
    """Applies to requests that the rules of a stored configuration match; disabled while there are none."""

    name = "ValidatingAdmissionWebhook"
    resource, kind = "validatingwebhookconfigurations", "validating"

    def validate(self, a: Attributes) -> Awaitable[None] | None:
        """Call the matching webhooks, if any. Raises, as the awaitable does, the first refusal in order, and 500 for a failure of a
        webhook with failurePolicy Fail."""
        from kas.admission.webhook.validating import dispatch

        return dispatch(self.webhooks, a)

"""ValidatingAdmissionWebhook: configured webhooks look at what is about to be stored, all at once, and may refuse it.

Upstream: ``pkg/admission/plugin/webhook/validating``.
"""

from __future__ import annotations

from collections.abc import Awaitable

from kas.admission import Attributes
from kas.admission.webhook.plugin import WebhookPlugin


class Plugin(WebhookPlugin):
    """Sees what the rules of a stored configuration name; nothing while there are none."""

    name = "ValidatingAdmissionWebhook"
    resource, kind = "validatingwebhookconfigurations", "validating"

    def validate(self, a: Attributes) -> Awaitable[None] | None:
        """Ask the webhooks, if any is about the request. Raises, as what is to be awaited does, what the first of them refuses with,
        and 500 for one that fails and must not."""
        from kas.admission.webhook.validating import dispatch

        return dispatch(self.webhooks, a)

"""MutatingAdmissionWebhook: configured webhooks change an object before it is written, one after the other.

They are called in order of their configurations' names, each with the result of the previous one. If a webhook changed the object, all
mutating plug-ins run once more. In that round only those webhooks are called again that want to be (``reinvocationPolicy: IfNeeded``),
and only if the object was changed after them.

Upstream: ``pkg/admission/plugin/webhook/mutating``.
"""

from __future__ import annotations

from kas.admission import Attributes
from kas.admission.webhook.plugin import WebhookPlugin


class Plugin(WebhookPlugin):
    """Applies to requests that the rules of a stored configuration match; disabled while there are none."""

    name = "MutatingAdmissionWebhook"
    resource, kind = "mutatingwebhookconfigurations", "admit"

    async def admit(self, a: Attributes) -> None:
        """Call the webhooks and apply their patches. Raises their refusals, and 500 for failures of webhooks with failurePolicy Fail."""
        from kas.admission.webhook.mutating import dispatch

        await dispatch(self.webhooks, a, self.name)

"""MutatingAdmissionWebhook: configured webhooks change what is about to be written, one after the other.

They are asked in the order of their configurations' names, each about what those before it have left. Where one changed the object, all
mutating plug-ins run once more; then only those webhooks are asked again that want to be (``reinvocationPolicy: IfNeeded``), and only
about an object that somebody else changed after them.

Upstream: ``pkg/admission/plugin/webhook/mutating``.
"""

from __future__ import annotations

from kas.admission import Attributes
from kas.admission.webhook.plugin import WebhookPlugin


class Plugin(WebhookPlugin):
    """Sees what the rules of a stored configuration name; nothing while there are none."""

    name = "MutatingAdmissionWebhook"
    resource, kind = "mutatingwebhookconfigurations", "admit"

    async def admit(self, a: Attributes) -> None:
        """Ask the webhooks and do what they want. Raises what they refuse with, and 500 for those that fail and must not."""
        from kas.admission.webhook.mutating import dispatch

        await dispatch(self.webhooks, a, self.name)

"""MutatingAdmissionWebhook: configured webhooks change what is about to be written, one after the other.

They are asked in the order of their configurations' names, each about what those before it have left. Where one changed the object, all
mutating plug-ins run once more; then only those webhooks are asked again that want to be (``reinvocationPolicy: IfNeeded``), and only
about an object that somebody else changed after them.

Upstream: ``pkg/admission/plugin/webhook/mutating``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from kas.admission import Attributes
from kas.admission.configuration import Section
from kas.admission.initializer import Settings
from kas.admission.matching import Equivalents
from kas.admission.webhook.configuration import users_of
from kas.admission.webhook.hooks import Hooks
from kas.auth.attributes import Authorizer
from kas.informers import Informers, Objects
from kas.observe.metrics import Registry as Metrics

if TYPE_CHECKING:
    from kas.admission.webhook.calling import Webhooks


class Plugin:
    """Sees what the rules of a stored configuration name; nothing while there are none."""

    name = "MutatingAdmissionWebhook"

    def __init__(
        self, informers: Informers, objects: Objects, equivalents: Equivalents, authorizer: Authorizer, metrics: Metrics,
        settings: Settings, section: Section | None = None,
    ) -> None:  # fmt: skip
        self._hooks = Hooks("mutatingwebhookconfigurations", informers, equivalents)
        self._users = users_of(section)
        self._given = informers, objects, authorizer, metrics, settings

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` when ``handles`` may answer differently from now on."""
        self._hooks.changed = changed

    def handles(self, a: Attributes) -> bool:
        """What a webhook is configured for, but for the configurations themselves."""
        return self._hooks.handle(a)

    @functools.cached_property
    def webhooks(self) -> Webhooks:
        """What it takes to call somebody: loaded when there is somebody to be called."""
        from kas.admission.webhook.calling import Webhooks

        return Webhooks(self._hooks, "admit", *self._given, self._users)

    async def admit(self, a: Attributes) -> None:
        """Ask the webhooks and do what they want. Raises what they refuse with, and 500 for those that fail and must not."""
        from kas.admission.webhook.mutating import dispatch

        await dispatch(self.webhooks, a, self.name)

"""ValidatingAdmissionWebhook: configured webhooks look at what is about to be stored, all at once, and may refuse it.

Upstream: ``pkg/admission/plugin/webhook/validating``.
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

    name = "ValidatingAdmissionWebhook"

    def __init__(
        self, informers: Informers, objects: Objects, equivalents: Equivalents, authorizer: Authorizer, metrics: Metrics,
        settings: Settings, section: Section | None = None,
    ) -> None:  # fmt: skip
        self._hooks = Hooks("validatingwebhookconfigurations", informers, equivalents)
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

        return Webhooks(self._hooks, "validating", *self._given, self._users)

    async def validate(self, a: Attributes) -> None:
        """Ask the webhooks. Raises what the first of them refuses with, and 500 for one that fails and must not."""
        from kas.admission.webhook.validating import dispatch

        await dispatch(self.webhooks, a)

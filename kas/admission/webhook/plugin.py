"""The common part of both webhook plug-ins: it follows the configurations, and loads the client once there is a webhook."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kas.admission import Attributes
from kas.admission.configuration import DIRECTORY, Section
from kas.admission.matching import Equivalents
from kas.admission.webhook.configuration import fields_of, users_of
from kas.admission.webhook.hooks import Hooks
from kas.auth.attributes import Authorizer
from kas.client.http import Egress
from kas.client.services import Resolve
from kas.informers import Informers, Objects
from kas.observe.metrics import Registry as Metrics
from kas.registry.registries import Registries

if TYPE_CHECKING:
    from kas.admission.manifests import Manifests
    from kas.admission.webhook.calling import Webhooks
    from kas.client.hooks import Shares
    from kas.client.kubeconfig import Users


class WebhookPlugin:
    """``resource`` is the resource of the configurations, ``kind`` the plug-in's label in metrics; ``manifests`` are the configurations
    from files."""

    name: str
    resource: str
    kind: str
    asks_webhooks = True
    manifests: Manifests | None = None

    def __init__(
        self, informers: Informers, objects: Objects, equivalents: Equivalents, authorizer: Authorizer, metrics: Metrics,
        resolve: Resolve, shares: Callable[[], Shares], egress: Egress, registries: Registries, identity: str = "",
        section: Section | None = None,
    ) -> None:  # fmt: skip
        self._hooks = Hooks(self.resource, informers, equivalents)
        fields, self._users = self.configured(section)
        if fields.get(DIRECTORY):
            from kas.admission.manifests import manifests_of  # few servers have any

            self.manifests = manifests_of(self.name, fields, "webhook", [self.resource], self._hooks.use, registries, metrics, identity)
        self._given, self._shares, self._egress = (informers, objects, authorizer, metrics, resolve), shares, egress

    @staticmethod
    def configured(section: Section | None) -> tuple[dict[str, Any], Users | None]:
        """Return the fields of the configuration and the credentials for webhooks, without reading the files of a manifest directory.
        Raises ConfigurationError."""
        fields = fields_of(section)
        users = users_of(fields)
        if fields.get(DIRECTORY):
            from kas.admission.manifests import directory_of

            directory_of(fields)
        return fields, users

    def on_change(self, changed: Callable[[], None]) -> None:
        """Set the function to call when the result of ``handles`` may have changed."""
        self._hooks.changed = changed

    def handles(self, a: Attributes) -> bool:
        """Return whether a webhook may match; never for the configurations themselves, except by webhooks from files."""
        return self._hooks.handle(a)

    @functools.cached_property
    def webhooks(self) -> Webhooks:
        """What is needed to call webhooks, loaded on first use."""
        from kas.admission.webhook.calling import Webhooks

        return Webhooks(self._hooks, self.kind, *self._given, self._shares(), self._egress, self._users)

"""Records on Secrets with a service-account token the day it was last used (``pkg/serviceaccount/legacy.go``).

Runs on every worker, since any may receive the requests; each Secret is written once a day.
"""

from __future__ import annotations

from kas.auth.authn.jwttokens import LAST_USED_LABEL
from kas.registry.registries import Registries
from kas.registry.strategy import Obj

TOKEN_USE_EVERY_S = 1.0


class TokenUse:
    """Collects which tokens of Secrets were used, and writes the day to the Secrets' labels."""

    def __init__(self, registries: Registries) -> None:
        self._registries = registries
        self._used: set[tuple[str, str]] = set()  # (namespace, name); only of valid tokens

    def note(self, namespace: str, name: str) -> None:
        """Record that the token in this Secret was used and its label is out of date."""
        self._used.add((namespace, name))

    async def write(self) -> None:
        """Write the labels of the recorded Secrets. After an error, the rest is recorded again at its next use."""
        if not self._used:
            return
        from kas.controllers.client import Client  # rarely needed: such tokens are rare

        used, self._used = self._used, set()
        client, secrets = Client(self._registries, "kube-apiserver", "system:apiserver"), self._registries.of("", "secrets")
        today = self._registries.now()[:10]

        def label(secret: Obj) -> bool:
            labels = secret["metadata"].setdefault("labels", {})
            if labels.get(LAST_USED_LABEL) == today:
                return False
            labels[LAST_USED_LABEL] = today
            return True

        for namespace, name in used:
            await client.update(secrets, namespace, name, label)

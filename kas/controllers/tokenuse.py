"""Notes on Secrets with a service-account token the day it was last used (``pkg/serviceaccount/legacy.go``).

Runs on every worker, where the requests come; each Secret is written once a day.
"""

from __future__ import annotations

from kas.auth.authn.jwttokens import LAST_USED_LABEL
from kas.registry.registries import Registries
from kas.registry.strategy import Obj

TOKEN_USE_EVERY_S = 1.0


class TokenUse:
    """Collects which tokens of Secrets were used, and writes the day on their labels."""

    def __init__(self, registries: Registries) -> None:
        self._registries = registries
        self._used: set[tuple[str, str]] = set()  # (namespace, name); only of tokens that were good

    def note(self, namespace: str, name: str) -> None:
        """The token in this Secret was used, and its label is not of today."""
        self._used.add((namespace, name))

    async def write(self) -> None:
        """Writes down what was noted since. After an error the rest is noted again by its next use."""
        if not self._used:
            return
        from kas.controllers.client import Client  # wanted by few: such tokens are rare

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

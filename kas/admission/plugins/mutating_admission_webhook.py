"""MutatingAdmissionWebhook: configured webhooks change what is about to be written, one after the other.

They are asked in the order of their configurations' names, each about what those before it have left. Where one changed the object, all
mutating plug-ins run once more; then only those webhooks are asked again that want to be (``reinvocationPolicy: IfNeeded``), and only
about an object that somebody else changed after them.

Upstream: ``pkg/admission/plugin/webhook/mutating``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic

import orjson

from kas.admission import Attributes
from kas.admission.configuration import Section
from kas.admission.initializer import Settings
from kas.admission.matching import Equivalents, Invocation
from kas.admission.rounds import Rounds
from kas.admission.versioned import Versioned
from kas.admission.webhook.calling import CallError, Rejection, Webhooks, shown
from kas.admission.webhook.hooks import Hook, Hooks
from kas.admission.webhook.patching import patch
from kas.auth.attributes import Authorizer
from kas.informers import Informers, Objects
from kas.meta.errors import ApiError
from kas.observe.metrics import Registry as Metrics


class Plugin:
    name = "MutatingAdmissionWebhook"

    def __init__(
        self, informers: Informers, objects: Objects, equivalents: Equivalents, authorizer: Authorizer, metrics: Metrics,
        settings: Settings, section: Section | None = None,
    ) -> None:  # fmt: skip
        hooks = Hooks("mutatingwebhookconfigurations")
        self._webhooks = Webhooks(hooks, "admit", informers, objects, equivalents, authorizer, metrics, settings, section)

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` when ``handles`` may answer differently from now on."""
        self._webhooks.hooks.changed = changed

    def handles(self, a: Attributes) -> bool:
        """What a webhook is configured for, but for the configurations themselves."""
        return self._webhooks.handle(a)

    def admit(self, a: Attributes) -> Awaitable[None]:
        """Ask the webhooks and do what they want. Raises what they refuse with, and 500 for those that fail and must not."""
        return self._dispatch(a)

    async def _dispatch(self, a: Attributes) -> None:
        webhooks, reinvocation = self._webhooks, a.reinvoked()
        rounds: Rounds = reinvocation.values.setdefault(self.name, Rounds())
        objects = Versioned(a, webhooks.equivalents)
        rounds.begin(reinvocation, objects)
        for i, hook in enumerate(webhooks.hooks.all):
            told = await webhooks.invocation(hook, a, objects)
            if told is None or not rounds.due(reinvocation, hook.uid):
                continue
            await shown(objects, told)
            if await self._ask(hook, a, told, objects, int(reinvocation.again), i):
                rounds.changed()
                reinvocation.required = True
            if hook.if_needed:
                rounds.asked(hook.uid)
        await objects.finish()
        rounds.end(reinvocation, objects)

    async def _ask(self, hook: Hook, a: Attributes, told: Invocation, objects: Versioned, round_: int, index: int) -> bool:
        """Whether the webhook changed the object. Raises ApiError."""
        began, changed, error = monotonic(), False, None
        try:
            changed = patch(hook, objects, await self._webhooks.ask(hook, a, told, objects))
        except (CallError, Rejection, ApiError) as e:
            error = e
        self._webhooks.count(hook, a, began, error)
        said = {"configuration": hook.configuration, "webhook": hook.name, "mutated": changed}
        a.annotate(f"mutation.webhook.admission.k8s.io/round_{round_}_index_{index}", orjson.dumps(said).decode())
        if isinstance(error, CallError):
            error = self._webhooks.failed(hook, a, error, round_, index)
        if error is not None:
            raise error.error if isinstance(error, Rejection) else error
        return changed

"""ValidatingAdmissionWebhook: configured webhooks look at what is about to be stored, all at once, and may refuse it.

Upstream: ``pkg/admission/plugin/webhook/validating``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic

from kas.admission import Attributes
from kas.admission.configuration import Section
from kas.admission.initializer import Settings
from kas.admission.matching import GVK, Equivalents, Invocation
from kas.admission.versioned import Versioned
from kas.admission.webhook.calling import CallError, Rejection, Webhooks, shown
from kas.admission.webhook.hooks import Hook, Hooks
from kas.auth.attributes import Authorizer
from kas.informers import Informers, Objects
from kas.meta.errors import ApiError
from kas.observe.metrics import Registry as Metrics


class Plugin:
    name = "ValidatingAdmissionWebhook"

    def __init__(
        self, informers: Informers, objects: Objects, equivalents: Equivalents, authorizer: Authorizer, metrics: Metrics,
        settings: Settings, section: Section | None = None,
    ) -> None:  # fmt: skip
        hooks = Hooks("validatingwebhookconfigurations")
        self._webhooks = Webhooks(hooks, "validating", informers, objects, equivalents, authorizer, metrics, settings, section)

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` when ``handles`` may answer differently from now on."""
        self._webhooks.hooks.changed = changed

    def handles(self, a: Attributes) -> bool:
        """What a webhook is configured for, but for the configurations themselves."""
        return self._webhooks.handle(a)

    def validate(self, a: Attributes) -> Awaitable[None]:
        """Ask the webhooks. Raises what the first of them refuses with, and 500 for one that fails and must not."""
        return self._dispatch(a)

    async def _dispatch(self, a: Attributes) -> None:
        webhooks = self._webhooks
        versions: dict[GVK, Versioned] = {}
        asked: list[tuple[Hook, Invocation, int]] = []
        own = Versioned(a, webhooks.equivalents)
        versions[own.kind] = own
        for i, hook in enumerate(webhooks.hooks.all):
            # Its conditions may want another version to be looked at than the next one's selectors.
            told = await webhooks.invocation(hook, a, Versioned(a, webhooks.equivalents) if hook.conditions else own)
            if told is None:
                continue
            asked.append((hook, told, i))
            if told.kind not in versions:
                versions[told.kind] = Versioned(a, webhooks.equivalents)
                await shown(versions[told.kind], told)
        if len(asked) == 1:
            hook, told, i = asked[0]
            refused = [await self._ask(hook, a, told, versions[told.kind], i)]
        elif asked:
            async with asyncio.TaskGroup() as group:
                calls = [group.create_task(self._ask(hook, a, told, versions[told.kind], i)) for hook, told, i in asked]
            refused = [call.result() for call in calls]
        else:
            return
        for error in refused:
            if error is not None:
                raise error

    async def _ask(self, hook: Hook, a: Attributes, told: Invocation, objects: Versioned, index: int) -> ApiError | None:
        """The refusal, None when the request may go on."""
        began = monotonic()
        error: CallError | Rejection | ApiError | None = None
        try:
            await self._webhooks.ask(hook, a, told, objects)
        except (CallError, Rejection, ApiError) as e:
            error = e
        self._webhooks.count(hook, a, began, error)
        if isinstance(error, CallError):
            return self._webhooks.failed(hook, a, error, 0, index)
        return error.error if isinstance(error, Rejection) else error

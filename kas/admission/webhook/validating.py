"""Validating webhooks asked about one request, all at once (upstream ``plugin/webhook/validating/dispatcher.go``)."""

from __future__ import annotations

import asyncio
from time import monotonic

from kas.admission import Attributes
from kas.admission.matching import Invocation
from kas.admission.versioned import Versioned
from kas.admission.webhook.calling import CallError, Rejection, Webhooks
from kas.admission.webhook.hooks import Hook
from kas.meta.errors import ApiError
from kas.meta.waiting import Stint
from kas.observe.latencies import VALIDATING_WEBHOOK


async def dispatch(webhooks: Webhooks, a: Attributes) -> None:
    """Ask the webhooks that the request is for. Raises what the first of them, in their order, refuses with."""
    own = Versioned(a, webhooks.equivalents)
    versions = {own.kind: own}

    asked: list[tuple[Hook, Invocation, int]] = []
    stint = Stint()
    for i, hook in enumerate(webhooks.hooks.all):
        if stint.over:
            await stint.pause()
        told = webhooks.matched(hook, a, own)
        if told is None:
            continue
        if told.kind not in versions:
            versions[told.kind] = Versioned(a, webhooks.equivalents)
            await versions[told.kind].show(told)
        if hook.conditions is None or await webhooks.meets(hook, a, told, versions[told.kind]):
            asked.append((hook, told, i))
    began = monotonic()
    if len(asked) == 1:
        hook, told, i = asked[0]
        refused = [await _ask(webhooks, hook, a, told, versions[told.kind], i)]
    else:
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(_ask(webhooks, hook, a, told, versions[told.kind], i)) for hook, told, i in asked]
        refused = [call.result() for call in calls]
    if asked:
        a.waited(VALIDATING_WEBHOOK, monotonic() - began)
    for error in refused:
        if error is not None:
            raise error


async def _ask(webhooks: Webhooks, hook: Hook, a: Attributes, told: Invocation, objects: Versioned, index: int) -> ApiError | None:
    """The refusal, None when the request may go on."""
    began = monotonic()
    error: CallError | Rejection | ApiError
    try:
        await webhooks.ask(hook, a, told, objects)
    except (CallError, Rejection, ApiError) as e:
        error = e
    else:
        webhooks.metrics.allowed(hook.name, a.operation, monotonic() - began)
        return None
    webhooks.count(hook, a, began, error)
    if isinstance(error, CallError):
        return webhooks.failed(hook, a, error, 0, index)
    return error.error if isinstance(error, Rejection) else error

"""Calls the validating webhooks for one request, concurrently (upstream ``plugin/webhook/validating/dispatcher.go``)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from itertools import islice
from time import monotonic

from kas.admission import Attributes
from kas.admission.matching import Invocation
from kas.admission.versioned import Versioned
from kas.admission.webhook._texts import only
from kas.admission.webhook.calling import CallError, Rejection, Webhooks
from kas.admission.webhook.hooks import Hook
from kas.meta.errors import ApiError
from kas.meta.waiting import TimeSlice
from kas.observe.latencies import VALIDATING_WEBHOOK

FEW = 8  # webhooks matched without yielding


def dispatch(webhooks: Webhooks, a: Attributes) -> Awaitable[None] | None:
    """Call the matching webhooks; return None if there are none, else an awaitable. Both raise the refusal of the first webhook in order
    that refuses."""
    hooks, asked = tuple(islice(webhooks.hooks.of(a), FEW + 1)), None
    if len(hooks) > FEW or webhooks.hooks.uncompiled:
        return _several(webhooks, a)
    own = Versioned(a, webhooks.equivalents)
    for hook in hooks:
        invocation = webhooks.matched(hook, a, own)
        if invocation is not None:
            if asked is not None or hook.conditional or invocation.kind != own.kind:
                return _several(webhooks, a)
            asked = hook, invocation
    if asked is None:
        return None
    hook, invocation = asked
    return only(webhooks, a, own, hook, invocation, partial(_refuse, webhooks, a, hook))


async def _several(webhooks: Webhooks, a: Attributes) -> None:
    """Call all matching webhooks concurrently, each in its version."""
    if webhooks.hooks.uncompiled:
        await webhooks.hooks.uncompiled.read()
    own = Versioned(a, webhooks.equivalents)
    versions = {own.kind: own}

    asked: list[tuple[Hook, Invocation]] = []
    time_slice = TimeSlice()
    for hook in tuple(webhooks.hooks.of(a)):  # a snapshot: configurations replaced meanwhile apply to later requests
        if time_slice.over:
            await time_slice.pause()
        invocation = webhooks.matched(hook, a, own)
        if invocation is None:
            continue
        if invocation.kind not in versions:
            versions[invocation.kind] = Versioned(a, webhooks.equivalents)
            await versions[invocation.kind].show(invocation)
        if not hook.conditional or await webhooks.meets(hook, a, invocation, versions[invocation.kind]):
            asked.append((hook, invocation))
    began = monotonic()
    if len(asked) == 1:
        hook, invocation = asked[0]
        refused = [await _ask(webhooks, hook, a, invocation, versions[invocation.kind], 0)]
    elif asked:
        async with asyncio.TaskGroup() as group:
            calls = [
                group.create_task(_ask(webhooks, hook, a, invocation, versions[invocation.kind], i))
                for i, (hook, invocation) in enumerate(asked)
            ]
        refused = [call.result() for call in calls]
    else:
        return
    a.waited(VALIDATING_WEBHOOK, monotonic() - began)
    refusal = next((error for error in refused if error is not None), None)
    del refused
    try:
        if refusal is not None:
            raise refusal
    finally:
        del refusal  # break the cycle error -> traceback -> this frame, which would keep the object in memory


async def _ask(webhooks: Webhooks, hook: Hook, a: Attributes, invocation: Invocation, objects: Versioned, index: int) -> ApiError | None:
    """Call a webhook; return its refusal, or None if the request may continue. ``index`` is its position among the matching ones."""
    began = monotonic()
    try:
        await webhooks.ask(hook, a, invocation, objects)
    except (CallError, Rejection, ApiError) as e:
        return _refusal(webhooks, a, hook, index, e, monotonic() - began)
    webhooks.metrics.allowed(hook.name, a.operation, monotonic() - began)
    return None


def _refusal(
    webhooks: Webhooks, a: Attributes, hook: Hook, index: int, error: CallError | Rejection | ApiError, took: float
) -> ApiError | None:
    """Count a call that did not allow the request; return the refusal, or None if the request may continue."""
    webhooks.count(hook, a, took, error)
    if isinstance(error, CallError):
        return webhooks.failed(hook, a, error, 0, index)
    return error.error if isinstance(error, Rejection) else error


def _refuse(webhooks: Webhooks, a: Attributes, hook: Hook, error: Exception, took: float) -> None:
    """Raise the refusal of the only matching webhook, or an error that is not about webhooks."""
    if not isinstance(error, CallError | Rejection | ApiError):
        raise error
    refusal = _refusal(webhooks, a, hook, 0, error, took)
    try:
        if refusal is not None:
            raise refusal
    finally:
        del refusal, error

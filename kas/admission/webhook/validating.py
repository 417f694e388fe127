"""Validating webhooks asked about one request, all at once (upstream ``plugin/webhook/validating/dispatcher.go``)."""

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

FEW = 8  # that are looked at without a pause


def dispatch(webhooks: Webhooks, a: Attributes) -> Awaitable[None] | None:
    """Ask the webhooks that the request is for; None when it is for none. Raises, as what is to be awaited does, what the first of them, in
    their order, refuses with."""
    hooks, asked = tuple(islice(webhooks.hooks.of(a), FEW + 1)), None
    if len(hooks) > FEW or webhooks.hooks.unread:
        return _several(webhooks, a)
    own = Versioned(a, webhooks.equivalents)
    for hook in hooks:
        told = webhooks.matched(hook, a, own)
        if told is not None:
            if asked is not None or hook.conditional or told.kind != own.kind:
                return _several(webhooks, a)
            asked = hook, told
    if asked is None:
        return None
    hook, told = asked
    return only(webhooks, a, own, hook, told, partial(_refuse, webhooks, a, hook))


async def _several(webhooks: Webhooks, a: Attributes) -> None:
    """Ask all that the request is for, each in its version, all at once."""
    if webhooks.hooks.unread:
        await webhooks.hooks.unread.read()
    own = Versioned(a, webhooks.equivalents)
    versions = {own.kind: own}

    asked: list[tuple[Hook, Invocation]] = []
    time_slice = TimeSlice()
    for hook in tuple(webhooks.hooks.of(a)):  # one that is put in another's place meanwhile is the next request's
        if time_slice.over:
            await time_slice.pause()
        told = webhooks.matched(hook, a, own)
        if told is None:
            continue
        if told.kind not in versions:
            versions[told.kind] = Versioned(a, webhooks.equivalents)
            await versions[told.kind].show(told)
        if not hook.conditional or await webhooks.meets(hook, a, told, versions[told.kind]):
            asked.append((hook, told))
    began = monotonic()
    if len(asked) == 1:
        hook, told = asked[0]
        refused = [await _ask(webhooks, hook, a, told, versions[told.kind], 0)]
    elif asked:
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(_ask(webhooks, hook, a, told, versions[told.kind], i)) for i, (hook, told) in enumerate(asked)]
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
        del refusal  # it leads back to this frame, and so would keep the object


async def _ask(webhooks: Webhooks, hook: Hook, a: Attributes, told: Invocation, objects: Versioned, index: int) -> ApiError | None:
    """The refusal, None when the request may go on. ``index`` counts those that are asked."""
    began = monotonic()
    try:
        await webhooks.ask(hook, a, told, objects)
    except (CallError, Rejection, ApiError) as e:
        return _refusal(webhooks, a, hook, index, e, monotonic() - began)
    webhooks.metrics.allowed(hook.name, a.operation, monotonic() - began)
    return None


def _refusal(
    webhooks: Webhooks, a: Attributes, hook: Hook, index: int, error: CallError | Rejection | ApiError, took: float
) -> ApiError | None:
    """What it means that a webhook does not allow the request; None when the request may go on."""
    webhooks.count(hook, a, took, error)
    if isinstance(error, CallError):
        return webhooks.failed(hook, a, error, 0, index)
    return error.error if isinstance(error, Rejection) else error


def _refuse(webhooks: Webhooks, a: Attributes, hook: Hook, error: Exception, took: float) -> None:
    """Raises what ``_refusal`` says of the only one that is asked, or the error that is none of a webhook's."""
    if not isinstance(error, CallError | Rejection | ApiError):
        raise error
    refusal = _refusal(webhooks, a, hook, 0, error, took)
    try:
        if refusal is not None:
            raise refusal
    finally:
        del refusal, error

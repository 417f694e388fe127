"""Calls the mutating webhooks for one request, one after the other (upstream ``plugin/webhook/mutating/dispatcher.go``)."""

from __future__ import annotations

from time import monotonic

import orjson

from kas.admission import Attributes
from kas.admission.matching import Invocation
from kas.admission.reinvocation import Rounds
from kas.admission.versioned import Versioned
from kas.admission.webhook.calling import CallError, Rejection, Webhooks
from kas.admission.webhook.hooks import Hook
from kas.admission.webhook.patching import patch
from kas.admission.webhook.review import Response
from kas.audit import escaped
from kas.meta.errors import ApiError
from kas.meta.offload import LARGE, in_turn, is_large, step
from kas.meta.waiting import TimeSlice
from kas.observe.latencies import MUTATING_WEBHOOK
from kas.patch import jsonpatch


async def dispatch(webhooks: Webhooks, a: Attributes, plugin: str) -> None:
    """Call the matching webhooks and apply their patches. ``plugin`` is the key of the reinvocation state. Raises ApiError."""
    if webhooks.hooks.uncompiled:
        await webhooks.hooks.uncompiled.read()
    reinvocation = a.reinvoked()
    rounds: Rounds = reinvocation.values.setdefault(plugin, Rounds())
    objects = Versioned(a, webhooks.equivalents)
    rounds.begin(reinvocation, objects)

    time_slice = TimeSlice()
    for hook in tuple(webhooks.hooks.of(a)):  # a snapshot: configurations replaced meanwhile apply to later requests
        if time_slice.over:
            await time_slice.pause()
        invocation = webhooks.matched(hook, a, objects)
        if invocation is None:
            continue
        if hook.conditional:
            await objects.show(invocation)
            if not await webhooks.meets(hook, a, invocation, objects):
                continue
        if not rounds.due(reinvocation, hook.uid):
            continue
        if invocation.kind != objects.kind:
            await objects.show(invocation)
        if await _ask(webhooks, hook, a, invocation, objects, int(reinvocation.again)):
            rounds.changed()
            reinvocation.required = True
        if hook.if_needed:
            rounds.asked(hook.uid)
    await objects.finish()
    rounds.end(reinvocation, objects)


async def _ask(webhooks: Webhooks, hook: Hook, a: Attributes, invocation: Invocation, objects: Versioned, round_: int) -> bool:
    """Call a webhook and apply its patch; return whether it changed the object. Raises ApiError."""
    began, changed, index = monotonic(), False, webhooks.hooks.index(hook)
    about, place = {"configuration": hook.configuration, "webhook": hook.name}, f"round_{round_}_index_{index}"
    error: Exception | None = None
    try:
        found = await webhooks.ask(hook, a, invocation, objects)
        in_thread = bool(found.patch) and (len(found.patch) >= LARGE or is_large(objects.obj))
        changed = await in_turn(in_thread, patch, hook, objects, found)
        if found.patch and a.bodies_recorded and (shown := await step(in_thread, _shown, about, found)):
            a.annotate(f"patch.webhook.admission.k8s.io/{place}", shown)
    except (CallError, Rejection, ApiError) as e:
        error = e
    took = monotonic() - began
    webhooks.count(hook, a, took, error)
    a.waited(MUTATING_WEBHOOK, took)
    a.annotate(f"mutation.webhook.admission.k8s.io/{place}", orjson.dumps({**about, "mutated": changed}).decode())
    if isinstance(error, CallError):
        error = webhooks.failed(hook, a, error, round_, index)
    try:
        if error is not None:
            raise error.error if isinstance(error, Rejection) else error
    finally:
        error = None  # break the cycle error -> traceback -> this frame, which would keep the object in memory
    return changed


def _shown(about: dict[str, str], found: Response) -> str:
    """Return the patch as the audit log records it, in the form of Go's encoder; "" for one without operations."""
    operations = [dict(sorted(operation.items())) for operation in jsonpatch.decode(found.patch)]
    return escaped(orjson.dumps({**about, "patch": operations, "patchType": found.patch_type})).decode() if operations else ""

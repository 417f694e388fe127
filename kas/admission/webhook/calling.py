"""Calling webhooks: whether one matches a request, the call itself, and the consequences for the client.

Upstream: ``plugin/webhook/generic`` and the two ``dispatcher.go``.
"""

from __future__ import annotations

import logging
from time import monotonic
from typing import Any

from kas._fastpath import audit_id
from kas.admission import Attributes
from kas.admission.matching import Invocation, Namespaces
from kas.admission.versioned import Versioned
from kas.admission.webhook import review
from kas.admission.webhook.hooks import REVIEW_VERSIONS, Hook, Hooks
from kas.admission.webhook.metrics import CALLING_ERROR, NO_ERROR, SERVER_ERROR, WebhookMetrics
from kas.auth.attributes import Authorizer
from kas.client.hooks import HookClients, HookError, Shares
from kas.client.http import Egress
from kas.client.kubeconfig import Users
from kas.client.services import Resolve
from kas.informers import Informers, Objects
from kas.meta import errors
from kas.meta.errors import ApiError
from kas.meta.field import go_quote
from kas.meta.offload import LARGE, POOL
from kas.meta.waiting import TimeSlice
from kas.observe.logs import RateLimitedLog
from kas.observe.metrics import Registry as Metrics

log = logging.getLogger("kas.admission.webhook")

Obj = dict[str, Any]
MAX_STATUS = 999  # the largest status code HTTP can carry


class CallError(Exception):
    """A webhook gave no usable answer; its failure policy decides what follows. ``code`` is for the metrics; ``call`` is the HTTP
    client's error."""

    def __init__(self, hook: Hook, reason: str, code: int, call: HookError | None = None) -> None:
        super().__init__(f"failed calling webhook {go_quote(hook.name)}: {reason}")
        self.code, self.call = code, call


class Rejection(Exception):
    """A webhook denied the request; ``error`` is what the client receives."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.message)
        self.error = error


class Webhooks:
    """The webhooks of one plug-in, and what is needed to call them. ``users`` holds the credentials for webhooks."""

    def __init__(
        self, hooks: Hooks, kind: str, informers: Informers, objects: Objects, authorizer: Authorizer, metrics: Metrics, resolve: Resolve,
        shares: Shares, egress: Egress, users: Users | None,
    ) -> None:  # fmt: skip
        self.hooks, self.equivalents, self.mutating = hooks, hooks.equivalents, kind == "admit"
        self.metrics = WebhookMetrics(metrics, kind)
        self._authorizer, self._failure_log = authorizer, RateLimitedLog(log, "%d more webhooks could not be called")
        self._spaces = Namespaces(informers, objects)
        self.clients = HookClients(users or Users({}), resolve, shares, egress)

    def matched(self, hook: Hook, a: Attributes, objects: Versioned) -> Invocation | None:
        """Return the version in which the webhook sees the request; None if it does not match. Match ``conditions`` are not evaluated
        here. ``objects`` are what selectors see. Raises ApiError."""
        return hook.matcher.match(a, objects.obj, objects.old, self._spaces, self.equivalents, objects.own)

    async def meets(self, hook: Hook, a: Attributes, invocation: Invocation, seen: Versioned) -> bool:
        """Return whether the match ``conditions``, which the webhook must have, hold. ``seen`` are the objects in the version
        ``invocation``. Raises ApiError."""
        from kas.admission.expressions import MATCH_CONDITIONS_BUDGET, Evaluator, Failed, activation

        conditions = hook.conditions
        assert conditions is not None
        await seen.ready(values=True)
        variables = activation(a, invocation, seen, self._authorizer)
        try:
            evaluator = Evaluator(variables, MATCH_CONDITIONS_BUDGET)
            matches = await conditions.match(evaluator, self.metrics.conditions, hook.name, a.operation)
        except Failed as e:
            if hook.ignore:
                return False
            log.warning("Failed evaluating match conditions, failing closed %s: %s", hook.name, e)
            raise errors.forbidden(a.group, a.resource, a.name, str(e)) from None
        if not matches:
            self.metrics.conditions.excluded(hook.name, a.operation)
        return matches

    async def ask(self, hook: Hook, a: Attributes, invocation: Invocation, objects: Versioned) -> review.Response:
        """Call the webhook and return its answer if it allows the request. ``objects`` are in the version ``invocation``. Raises CallError,
        Rejection and ApiError."""
        reviews = hook.reviews
        if reviews is None or (a.dry_run and not hook.dry_run):
            reviews = self._reviews(hook, a)
        texts = objects.small()
        if texts is None:
            await objects.ready(values=False)
            texts = objects.encoded()
        uid = audit_id()  # matches the answer to the request; it is not a secret
        try:
            sent = reviews.request(a, invocation, objects.own, uid, texts[0], texts[1])
            client = self.clients.found(hook.client_key) or await self.clients.ready(hook.client_config, hook.client_key)
            # The request's own deadline is enforced elsewhere: if it passes first, the webhook has not failed, and no client waits.
            answer = await client.post(sent, hook.timeout_s, a.deadline - monotonic())
            found: review.Response
            if len(answer) < LARGE:
                found = reviews.response(answer, uid)
            else:
                found = await POOL.run(reviews.response, answer, uid)
        except (HookError, review.InvalidResponseError) as e:
            raise self.unanswered(hook, e) from None
        if found.annotations or found.warnings or not found.allowed:
            await self.record_response(hook, a, found)
        return found

    @staticmethod
    def unanswered(hook: Hook, error: Exception) -> Exception:
        """Return the error to raise for an error of the call or of reading its answer."""
        if isinstance(error, HookError):
            what = "could not get REST client" if error.client else "failed to call webhook"
            return CallError(hook, f"{what}: {error}", error.code, error)
        if isinstance(error, review.InvalidResponseError):
            return CallError(hook, f"received invalid webhook response: {error}", 503)
        return error

    async def record_response(self, hook: Hook, a: Attributes, found: review.Response) -> None:
        """Record the annotations and warnings of an answer. Raises Rejection if it does not allow the request."""
        if found.annotations or found.warnings:
            await self._tell(hook, a, found)
        if not found.allowed:
            raise Rejection(rejection(hook.name, found.status))

    def _reviews(self, hook: Hook, a: Attributes) -> review.Reviews:
        """Return the webhook's review builder. Raises CallError or ApiError if the webhook cannot be called."""
        if a.dry_run and not hook.dry_run:
            if hook.dry_run is None:
                raise CallError(hook, "Webhook SideEffects is nil", 400)
            raise errors.bad_request(f"admission webhook {go_quote(hook.name)} does not support dry run")
        if not hook.version:
            why = f"webhook does not accept known AdmissionReview versions ({', '.join(REVIEW_VERSIONS)})"
            raise CallError(hook, f"could not create admission objects: {why}", 400)
        made = hook.reviews = review.Reviews(hook.version, self.mutating)
        return made

    @staticmethod
    async def _tell(hook: Hook, a: Attributes, found: review.Response) -> None:
        """Record annotations and warnings. Of each kind of invalid annotation only the first is logged, since there may be 100,000."""
        time_slice, unfit, twice = TimeSlice(), list[str](), list[str]()
        for key, value in found.annotations.items():
            full = review.annotation_key(hook.name, key)
            if full is None:
                unfit.append(f"{hook.name}/{key}")
            elif not a.annotate(full, value):
                twice.append(full)
            if time_slice.over:
                await time_slice.pause()
        for wrong, why in (unfit, "it is no qualified name"), (twice, "it has already been set to another value"):
            if wrong:
                more = f", and {len(wrong) - 1} more like it" if len(wrong) > 1 else ""
                log.warning("Failed to set admission audit annotation %s: %s%s", wrong[0], why, more)
        for text in found.warnings:
            a.warn(text)

    def count(self, hook: Hook, a: Attributes, took: float, error: Exception | None) -> None:
        """Count a call that ended with ``error``, or successfully if that is None."""
        if error is None:
            self.metrics.allowed(hook.name, a.operation, took)
            return
        operation, why = a.operation, ""
        if isinstance(error, CallError):
            code, why = error.code, "" if hook.ignore else CALLING_ERROR
            if error.call is not None and (annotation := self.metrics.outdated.seen(error.call)) is not None:
                a.annotate(*annotation)
        elif isinstance(error, Rejection):
            code, why = error.error.code, NO_ERROR
        else:
            code, why = 0, SERVER_ERROR
        self.metrics.called(hook.name, operation, took, code, bool(why))
        if why:
            self.metrics.rejected(hook.name, operation, why, code)

    def failed(self, hook: Hook, a: Attributes, error: CallError, round_: int, index: int) -> ApiError | None:
        """Apply the failure policy to a failed call: return the refusal, or None if the request continues."""
        if self._failure_log.one(monotonic()):
            log.warning("Failed calling webhook, failing %s %s: %s", "open" if hook.ignore else "closed", hook.name, error)
        if not hook.ignore:
            return errors.internal(str(error))
        self.metrics.failed_open(hook.name)
        prefix = "failed-open.mutation" if self.mutating else "failed-open.validating"
        a.annotate(f"{prefix}.webhook.admission.k8s.io/round_{round_}_index_{index}", hook.name)
        return None


def rejection(name: str, status: Obj) -> ApiError:
    """Return a webhook's refusal as clients receive it (``ToStatusErr``): its Status, with an error code."""
    code = status.get("code") or 0
    denied = f"admission webhook {go_quote(name)} denied the request"
    said = status.get("message") or status.get("reason")
    details = status.get("details")
    seconds = (details or {}).get("retryAfterSeconds") or 0
    headers = {"retry-after": str(seconds)} if seconds > 0 else None
    message = f"{denied}: {said}" if said else f"{denied} without explanation"
    return ApiError(code if 400 <= code <= MAX_STATUS else 400, status.get("reason") or "", message, details, headers)

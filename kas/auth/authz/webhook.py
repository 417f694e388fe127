"""The mode Webhook: an external service decides, by a SubjectAccessReview for each request.

Answers are cached by the attributes. If the webhook cannot be called or its answer is invalid, its failure policy decides, with an error,
which the client receives as a 500 unless another authorizer allows. Upstream: ``apiserver/plugin/pkg/authorizer/webhook``.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import orjson

from kas.auth.attributes import ALLOW, DENY, NO_OPINION, Attributes, Outcome, long_selectors
from kas.auth.user import UserInfo
from kas.client.hooks import HookError, read_review
from kas.client.webhook import Webhook, WebhookError
from kas.meta.offload import LOOP_BUDGET, POOL, BudgetSpentError
from kas.meta.waiting import awaited
from kas.observe import caches
from kas.observe.logs import RateLimitedLog
from kas.observe.metrics import Registry
from kas.types.scheme import builtin_kind

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from kas.auth.authz.matchconditions import MatchConditions, Verdict

log = logging.getLogger("kas.auth")

TYPE = "Webhook"
GROUP, KIND = "authorization.k8s.io", "SubjectAccessReview"
_KNOWN = frozenset(((f"{GROUP}/v1", KIND), (f"{GROUP}/v1beta1", KIND)))
# Attributes with more characters than this, chosen by the client, are not cached.
MAX_REMEMBERED = 10_000
CACHE_BYTES, LONGEST_REASON = 16 << 20, 4096
BOTH = "webhook subject access review returned both allow and deny response"
DURATIONS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
CONDITION_DURATIONS = (0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25)
# A review can only express In and NotIn of a selector's comparisons; ``<`` and ``>`` are left out, which only widens the request.
_OPERATORS = {"=": "In", "==": "In", "in": "In", "!=": "NotIn", "notin": "NotIn", "exists": "Exists", "!": "DoesNotExist"}


class Metrics:
    """The metrics of authorization webhooks."""

    def __init__(self, registry: Registry) -> None:
        name, by, of = "apiserver_authorization_", ("name", "result"), ("type", "name")
        self.evaluations = registry.counter(f"{name}webhook_evaluations_total", "Round-trips to authorization webhooks.", by)
        self.durations = registry.histogram(f"{name}webhook_duration_seconds", "Request latency in seconds.", by, DURATIONS)
        self.failed_open = registry.counter(
            f"{name}webhook_evaluations_fail_open_total", "NoOpinion results due to webhook timeout or error.", by
        )
        self.condition_errors = registry.counter(
            f"{name}match_condition_evaluation_errors_total",
            "Total number of errors when an authorization webhook encounters a match condition error split by authorizer type and name.",
            of,
        )  # fmt: skip
        self.exclusions = registry.counter(
            f"{name}match_condition_exclusions_total",
            "Total number of exclusions when an authorization webhook is skipped because match conditions exclude it.", of,
        )  # fmt: skip
        self.condition_durations = registry.histogram(
            f"{name}match_condition_evaluation_seconds",
            "Authorization match condition evaluation time in seconds, split by authorizer type and name.", of, CONDITION_DURATIONS,
        )  # fmt: skip


class WebhookAuthorizer:
    """One webhook, identified by ``name``.

    ``version`` is the version of the review, v1 or v1beta1. ``ttls`` are the seconds for which allowing and other answers are cached, 0
    for not at all. ``on_error`` is DENY or NO_OPINION.
    """

    def __init__(
        self, name: str, webhook: Webhook, version: str, ttls: tuple[float, float], on_error: int, metrics: Metrics,
        conditions: MatchConditions | None = None, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._name, self._webhook, self._on_error, self._metrics = name, webhook, on_error, metrics
        self._version, self._ttls, self._conditions, self._clock = version, ttls, conditions, clock
        self._labels, self._failure_log = (TYPE, name), RateLimitedLog(log, "%d more webhook authorizer requests failed")
        webhook.tried = self._tried
        self._answers: caches.Cache[bytes, tuple[float, Outcome]] = caches.Cache(
            "authorization_reviews", "what webhooks that authorize answered", CACHE_BYTES, LONGEST_REASON
        )

    def authorize(self, a: Attributes) -> Outcome | Awaitable[Outcome]:
        """Return the webhook's decision: at once if it is cached or the match conditions exclude the request, else an awaitable."""
        return self._parse_in_pool(a) if long_selectors(a) else self._judged(a, spec_of(a))

    async def _parse_in_pool(self, a: Attributes) -> Outcome:
        return await awaited(self._judged(a, await POOL.run(spec_of, a)))

    def _judged(self, a: Attributes, spec: dict[str, Any]) -> Outcome | Awaitable[Outcome]:
        """Evaluate the match conditions, then the webhook."""
        if not self._conditions:
            return self._answered(a, spec)
        began = time.perf_counter()
        try:
            verdict = LOOP_BUDGET.within(self._conditions.match, spec)
        except BudgetSpentError:  # expressions over lists, which a client may make as long as a request
            return self._match_in_pool(a, spec, self._conditions, began)
        excluded = self._excluded(verdict, began)
        return self._answered(a, spec) if excluded is None else excluded

    async def _match_in_pool(self, a: Attributes, spec: dict[str, Any], conditions: MatchConditions, began: float) -> Outcome:
        excluded = self._excluded(await POOL.run(conditions.match, spec), began)
        return await awaited(self._answered(a, spec)) if excluded is None else excluded

    def _answered(self, a: Attributes, spec: dict[str, Any]) -> Outcome | Awaitable[Outcome]:
        """Return the cached answer, or call the webhook."""
        body = orjson.dumps(spec)
        key = hashlib.sha256(body).digest() if _length(a) < MAX_REMEMBERED else None
        if key is not None:
            known = self._answers.entries.get(key)
            if known is not None and self._clock() < known[0]:
                return known[1]
        return self._ask(spec, key)

    def rules_for(self, user: UserInfo, namespace: str) -> tuple[list[dict], list[dict], bool, str]:
        """Return no rules; the answer is incomplete, with the reason."""
        return [], [], True, "webhook authorizer does not support user rule resolution"

    def close(self) -> None:
        """Close idle connections."""
        self._webhook.close()

    def _excluded(self, verdict: Verdict, began: float) -> Outcome | None:
        """Return the outcome if the verdict of the conditions decides, else None. The evaluation started at ``began``."""
        self._metrics.condition_durations.observe(self._labels, time.perf_counter() - began)
        if verdict.error:
            self._metrics.condition_errors.inc(self._labels)
            return self._on_error, "", verdict.error
        if not verdict.matches:
            self._metrics.exclusions.inc(self._labels)
            return NO_OPINION, "", ""
        return None

    async def _ask(self, spec: dict[str, Any], key: bytes | None) -> Outcome:
        review = {"kind": KIND, "apiVersion": f"{GROUP}/{self._version}", "metadata": {}, "spec": _as(spec, self._version),
                  "status": {"allowed": False}}  # fmt: skip
        try:
            status = await self._webhook.send(orjson.dumps(review), self._read)
        except WebhookError as e:
            if self._failure_log.one(self._clock()):
                log.error("Failed to make webhook authorizer request: %s: %s", self._name, e)
            if self._on_error == NO_OPINION:
                self._metrics.failed_open.inc((self._name, "timeout" if e.timed_out else "error"))
            return self._on_error, "", str(e)
        outcome = _outcome(status)
        ttl = self._ttls[0 if status.get("allowed") else 1]
        if key is not None and ttl > 0:
            self._answers.put(key, (self._clock() + ttl, outcome), len(outcome[1]))
        return outcome

    def _read(self, answer: bytes) -> dict[str, Any]:
        """Return the status in an answer. Raises WebhookError."""
        if not answer:
            raise WebhookError("0-length response with status code: 200 and content type: ")
        wanted = (f"{GROUP}/{self._version}", KIND)
        # Of a v1beta1 answer only the status is read, which equals v1's.
        try:
            review = read_review(answer, wanted, _KNOWN, builtin_kind(GROUP, "v1", KIND).type)
        except HookError as e:
            raise WebhookError(str(e)) from None
        status: dict[str, Any] = review.get("status") or {}
        return status

    def _tried(self, result: str, seconds: float) -> None:
        self._metrics.evaluations.inc((self._name, result))
        self._metrics.durations.observe((self._name, result), seconds)


def _outcome(status: dict[str, Any]) -> Outcome:
    allowed, denied, reason = status.get("allowed"), status.get("denied"), status.get("reason") or ""
    if denied:
        return DENY, reason, BOTH if allowed else ""
    return (ALLOW if allowed else NO_OPINION), reason, ""


def _length(a: Attributes) -> int:
    """Return the number of characters in the attributes that the client chose."""
    return sum(map(len, (a.namespace, a.verb, a.api_group, a.api_version, a.resource, a.subresource, a.name, a.path)))


def _as(spec: dict[str, Any], version: str) -> dict[str, Any]:
    """Return the spec in that version of the review."""
    if version == "v1" or "groups" not in spec:
        return spec
    return {"group" if key == "groups" else key: value for key, value in spec.items()}


def spec_of(a: Attributes) -> dict[str, Any]:
    """Return the spec of the SubjectAccessReview (v1) for these attributes, without empty fields."""
    spec: dict[str, Any] = {}
    if a.resource_request:
        named = (("namespace", a.namespace), ("verb", a.verb), ("group", a.api_group), ("version", a.api_version),
                 ("resource", a.resource), ("subresource", a.subresource), ("name", a.name))  # fmt: skip
        resource: dict[str, Any] = {key: value for key, value in named if value}
        fields = [{"key": t.key, "operator": _OPERATORS[t.op], "values": [t.value]} for t in a.field_requirements or ()]
        if fields:
            resource["fieldSelector"] = {"requirements": fields}
        labels = [_label(r.key, _OPERATORS[r.op], r.values) for r in a.label_requirements or () if r.op in _OPERATORS]
        if labels:
            resource["labelSelector"] = {"requirements": labels}
        spec["resourceAttributes"] = resource
    else:
        spec["nonResourceAttributes"] = {key: value for key, value in (("path", a.path), ("verb", a.verb)) if value}
    user = a.user
    if user.name:
        spec["user"] = user.name
    if user.groups:
        spec["groups"] = list(user.groups)
    if user.extra:
        spec["extra"] = {key: user.extra[key] for key in sorted(user.extra)}
    if user.uid:
        spec["uid"] = user.uid
    return spec


def _label(key: str, operator: str, values: tuple[str, ...]) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)} if values else {"key": key, "operator": operator}

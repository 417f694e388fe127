"""Impersonation: the ``Impersonate-*`` headers, each checked against the rights of the authenticated user."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic

from kas.auth.attributes import ALLOW, Attributes, Authorizer, Outcome, attributes_of
from kas.auth.impersonation import CONSTRAINT, ModeCache, impersonate, is_impersonation, mode_of, wanted_user
from kas.filters.handler import Filter
from kas.meta.errors import NOSNIFF, ApiError
from kas.meta.waiting import awaited, eager
from kas.observe.caches import Expiring
from kas.observe.latencies import IMPERSONATION
from kas.observe.metrics import ATTEMPT_SECONDS, Histogram, Registry
from kas.request.http import Request

LABELS = ("mode", "decision")
ALLOWED, DENIED = "allowed", "denied"
ACTED_S = 10.0


class RecentImpersonations:
    """Remembers who impersonated whom a moment ago. It lets the requests that a proxy sends for its users, with one
    credential, count for these users; but only for a client that may impersonate them."""

    __slots__ = ("_pairs",)

    def __init__(self) -> None:
        self._pairs: Expiring[tuple[str, bytes]] = Expiring("impersonations", "who acted as whom, for 10 s", 4 << 20, 1 << 10)

    def keep(self, requester: str, wanted: bytes) -> None:
        """Remembers that ``requester`` was allowed to impersonate with this Impersonate-User header."""
        self._pairs.put((requester, wanted), (None, monotonic() + ACTED_S), len(requester) + len(wanted))

    def has(self, requester: str, wanted: bytes) -> bool:
        """Whether that is remembered."""
        kept = self._pairs.entries.get((requester, wanted))
        return kept is not None and monotonic() < kept[1]

    def who(
        self, shown: Callable[[bytes, str], str | None], certificates: bytes, named: str, wanted: bytes | None
    ) -> tuple[bytes, str, bytes | None] | None:
        """A key for the client that was authenticated with these certificates a moment ago: by the user that a proxy
        named, else by the certificates' own user, and by the user that is impersonated. None if there was no such
        client. ``shown(certificates, name)`` is the user who was authenticated, with a name given by a proxy or with
        ""."""
        for name in dict.fromkeys((named, "")):
            user = shown(certificates, name)
            if user is not None:
                return certificates, name, wanted if wanted is not None and self.has(user, wanted) else None
        return None


class _Timed:
    """An authorizer that records its decisions by mode of impersonation."""

    def __init__(self, authorizer: Authorizer, seconds: Histogram) -> None:
        self._authorizer, self._seconds = authorizer, seconds

    def authorize(self, a: Attributes) -> Outcome | Awaitable[Outcome]:
        """The authorizer's decision."""
        began = monotonic()
        outcome = self._authorizer.authorize(a)
        return self._observed(a, outcome, began) if isinstance(outcome, tuple) else self._later(a, outcome, began)

    async def _later(self, a: Attributes, pending: Awaitable[Outcome], began: float) -> Outcome:
        return self._observed(a, await pending, began)

    def _observed(self, a: Attributes, outcome: Outcome, began: float) -> Outcome:
        self._seconds.observe((mode_of(a.verb), ALLOWED if outcome[0] == ALLOW else DENIED), monotonic() - began)
        return outcome


def impersonation(authorizer: Authorizer, registry: Registry, acted: RecentImpersonations | None = None) -> Filter:
    """Replaces the request's user by the one that the Impersonate headers name, if the authenticated user may do
    that, and drops the headers. ``acted`` remembers it. A refused attempt is counted without a mode."""
    seconds = registry.histogram(
        "apiserver_impersonation_attempts_duration_seconds", "Latency of impersonation attempts in seconds split by mode and decision.",
        LABELS, ATTEMPT_SECONDS,
    )  # fmt: skip
    registry.observations(
        "apiserver_impersonation_attempts_total", "Total number of impersonation attempts split by mode and decision.", seconds
    )
    asking = registry.histogram(
        "apiserver_impersonation_authorization_attempts_duration_seconds",
        "Latency of authorization checks made by the impersonation handler in seconds split by mode and decision.", LABELS, ATTEMPT_SECONDS,
    )  # fmt: skip
    registry.observations(
        "apiserver_impersonation_authorization_attempts_total",
        "Total number of authorization checks made by the impersonation handler split by mode and decision.", asking,
    )  # fmt: skip
    last, timed = ModeCache(), _Timed(authorizer, asking)

    def before(req: Request) -> Awaitable[None] | None:
        return become(req) if req.impersonates else None

    def observe(req: Request, mode: str, decision: str, began: float) -> None:
        seconds.observe((mode, decision), took := monotonic() - began)
        if req.audit is not None:
            req.audit.took[IMPERSONATION] = took

    @eager
    async def become(req: Request) -> None:
        try:
            wanted = wanted_user((k.decode("latin-1"), v.decode("utf-8", "replace")) for k, v in req.headers)
        except ApiError as e:
            e.headers = NOSNIFF
            raise
        if wanted is None:
            return
        began = monotonic()
        try:
            user, constraint = await awaited(impersonate(timed, attributes_of(req), wanted, last))
        except ApiError as e:
            observe(req, "", DENIED, began)
            e.headers = NOSNIFF
            raise
        observe(req, mode_of(constraint), ALLOWED, began)
        if constraint:
            req.annotate(CONSTRAINT, constraint)
        if acted is not None:
            acted.keep(req.user.name, req.raw_header(b"impersonate-user"))
        req.user = user
        req.headers = [h for h in req.headers if not is_impersonation(h[0])]

    return Filter("impersonation", before)

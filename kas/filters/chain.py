"""The filters that every request passes, in the order of upstream's ``DefaultBuildHandlerChain``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from kas.auth.attributes import Authorizer
from kas.filters.audit_id import audit_id
from kas.filters.authentication import Authenticator, Remembered, authentication
from kas.filters.authorization import authorization
from kas.filters.cache_control import cache_control
from kas.filters.catch_up import catch_up
from kas.filters.consistent_read import Fallback, PartOf, consistent_read
from kas.filters.cors import cors
from kas.filters.deadline import deadline
from kas.filters.goaway import goaway
from kas.filters.handler import Filter
from kas.filters.handshake import handshake
from kas.filters.host import host
from kas.filters.hsts import hsts
from kas.filters.http_logging import http_logging
from kas.filters.impersonation import RecentImpersonations, impersonation
from kas.filters.latency import latency
from kas.filters.max_in_flight import InFlight, max_in_flight
from kas.filters.mux_complete import mux_complete
from kas.filters.panic_recovery import panic_recovery
from kas.filters.priority_and_fairness import Gate, priority_and_fairness
from kas.filters.read_only import read_only
from kas.filters.request_info import request_info
from kas.filters.shutdown_retry import not_ready_retry, shutdown_retry
from kas.filters.slow_requests import slow_requests
from kas.filters.storage_version import Registration, storage_version
from kas.filters.tracing import tracing
from kas.filters.trusted import trusted
from kas.filters.wait_group import WaitGroup, wait_group
from kas.filters.warnings import warnings
from kas.meta.records import NamedTuple
from kas.observe.logs import current_verbosity, verbosity_of
from kas.observe.metrics import Registry
from kas.observe.tracing import Tracer
from kas.types.scheme import Scheme

if TYPE_CHECKING:
    from kas.audit.auditor import Auditor

Port = Literal["secure", "insecure", "read-only"]
LOGGING = "filters/http_logging"  # a file name, for --vmodule


class Settings(Protocol):
    """The flags that configure filters."""

    v: int
    vmodule: str
    profiling: bool
    debug_socket_path: str
    shutdown_send_retry_after: bool
    send_retry_after_while_not_ready_once: bool
    strict_transport_security_directives: list[str]
    goaway_chance: float
    request_timeout: float
    cors_allowed_origins: list[str]
    api_rate: float
    api_burst: int
    max_requests_inflight: int
    max_mutating_requests_inflight: int


class Readiness(Protocol):
    """The part of the health checks that filters use."""

    def been_ready(self) -> bool:
        """Whether /readyz has passed once."""


class State(Protocol):
    """The server's state between start and end."""

    @property
    def started(self) -> bool:
        """Whether every path that will be served is installed."""

    @property
    def health(self) -> Readiness:
        """The health checks."""

    @property
    def not_accepting(self) -> bool:
        """Whether requests in flight are being ended and new ones refused."""


class Parts(NamedTuple):
    """What the filters of all ports share."""

    state: State
    waiting: WaitGroup
    in_flight: InFlight
    authenticator: Callable[[], Authenticator]  # credentials are loaded after the chain is built
    revoked: Callable[[Callable[[], None]], None]
    vouching: tuple[Sequence[bytes], Sequence[bytes]]
    authorizer: Authorizer
    to_newest: Callable[[], None]
    fresh: tuple[PartOf, Fallback] | None
    registration: Registration | None
    # Filters with counters of their own are made once, for all ports.
    latency: Filter
    flow_control: Filter
    audit: Filter
    tracer: Tracer | None
    remembered: Remembered
    acted: RecentImpersonations
    run_dir: Path


def parts(
    settings: Settings, metrics: Registry, scheme: Scheme, state: State, waiting: WaitGroup, in_flight: InFlight,
    authenticator: Callable[[], Authenticator], revoked: Callable[[Callable[[], None]], None], authorizer: Authorizer,
    to_newest: Callable[[], None], auditor: Auditor | None, run_dir: Path, vouching: tuple[Sequence[bytes], Sequence[bytes]] = ((), ()),
    fresh: tuple[PartOf, Fallback] | None = None, gate: Gate | None = None, tracer: Tracer | None = None,
    deprecated_custom: Callable[[str, str, str], bool] = lambda group, version, resource: False, registration: Registration | None = None,
) -> Parts:  # fmt: skip
    """Builds what the filters of all ports share.

    - ``to_newest()`` brings derived state up to date with the store.
    - ``revoked(f)`` registers ``f()`` to be called when a credential may have been revoked.
    - ``vouching`` are the names and prefixes of the headers of authenticating proxies.
    - ``fresh`` makes reads wait until they are as new as the cluster.
    - ``gate`` is API Priority and Fairness; None for max-in-flight.
    - ``tracer`` makes spans; None if tracing is off.
    - ``deprecated_custom(group, version, resource)`` tells whether a custom resource definition deprecates the
      version.
    - ``registration`` delays writes until the storage version of their resource is registered.
    """
    if gate is None:
        flow_control = max_in_flight(in_flight, settings.max_requests_inflight, settings.max_mutating_requests_inflight, metrics)
    else:
        flow_control = priority_and_fairness(gate)
    recording = Filter("audit")
    if auditor is not None:
        from kas.filters.audit import audit  # with its event types, which few servers need

        recording = audit(auditor)
    return Parts(
        state, waiting, in_flight, authenticator, revoked, vouching, authorizer, to_newest, fresh, registration,
        latency(metrics, scheme.resource, deprecated_custom), flow_control, recording, tracer, Remembered(), RecentImpersonations(),
        run_dir,
    )  # fmt: skip


def _rate_limit(settings: Settings, run_dir: Path) -> Callable[[], bool]:
    """Whether the read-only port may answer one more request; all workers count together."""
    from kas.meta.buckets import Buckets  # few servers need it

    buckets = Buckets(run_dir / "read-only", 1, settings.api_rate, settings.api_burst)
    return lambda: buckets.take("", time.monotonic())


def handler_chain(port: Port, settings: Settings, metrics: Registry, p: Parts) -> list[Filter]:
    """The filters of a port, outermost first. Each line says why the filter is where it is."""
    if port == "insecure":
        who = trusted(settings.cors_allowed_origins)
    else:
        who = authentication(p.authenticator, metrics, p.revoked, p.vouching, p.remembered)
    few: Sequence[Filter] = (read_only(_rate_limit(settings, p.run_dir)),) if port == "read-only" else ()
    changing = partial(current_verbosity, LOGGING) if settings.profiling or settings.debug_socket_path else None  # by /debug/flags/v
    early = (not_ready_retry(lambda: p.state.health.been_ready()),) if settings.send_retry_after_while_not_ready_once else ()
    held = (storage_version(p.registration),) if p.registration is not None else ()
    last = (consistent_read(*p.fresh),) if p.fresh is not None else ()
    return [
        panic_recovery(metrics),  # outermost: no exception goes unanswered
        audit_id(),  # before anything that logs or answers, because every response carries the id
        mux_complete(lambda: p.state.started),  # 503 during the start: a path that is not installed yet must not be answered 404
        request_info(),  # everything below uses RequestInfo
        p.latency,  # with the next three: covers everything below, refusals too
        slow_requests(),
        http_logging(verbosity_of(LOGGING, settings.v, settings.vmodule), changing),
        host(),  # what is not valid HTTP is refused, but counted and logged
        # Requests that come too late or too early are refused before they cost anything.
        shutdown_retry(lambda: p.state.not_accepting, settings.shutdown_send_retry_after),
        *early,
        hsts(settings.strict_transport_security_directives),  # with the next two: headers of every response, also of refusals
        cache_control(),
        warnings(),
        goaway(settings.goaway_chance),  # before the work is done: it asks the client to reconnect elsewhere
        wait_group(p.waiting),  # the shutdown waits for the requests that have passed here
        deadline(settings.request_timeout),  # starts the clock before anything that may wait; no filter further out does
        handshake(),  # it may answer, so it is behind the filters that measure and mark responses
        cors(settings.cors_allowed_origins),  # a preflight carries no credentials
        *few,  # what this port never serves is refused before authentication
        catch_up(p.to_newest),  # revoked tokens and roles must not count any more
        who,  # a failure here is final: nothing below runs for an unauthenticated request
        tracing(p.tracer),  # it depends on the user; everything before is one span
        p.audit,  # from here on the user of the audit record is known
        impersonation(p.authorizer, metrics, p.acted),  # after audit: the record names the authenticated user
        p.flow_control,  # counts against the impersonated user, and comes before the costly part
        authorization(p.authorizer, metrics),  # last of the filters that refuse: it needs the final user
        *held,  # as in upstream: a client that may not write is refused before it waits
        *last,  # waits, for requests that are allowed
    ]

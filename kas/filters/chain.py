"""The filters of every request, in order: upstream's ``DefaultBuildHandlerChain``."""

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
from kas.filters.consistent_read import Beside, PartOf, consistent_read
from kas.filters.cors import cors
from kas.filters.deadline import deadline
from kas.filters.goaway import goaway
from kas.filters.handler import Filter
from kas.filters.handshake import handshake
from kas.filters.host import host
from kas.filters.hsts import hsts
from kas.filters.http_logging import http_logging
from kas.filters.impersonation import Acted, impersonation
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
LOGGING = "filters/http_logging"  # a file, for verbosities


class Settings(Protocol):
    """The flags that concern filters."""

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
    """What of the health checks filters ask."""

    def been_ready(self) -> bool:
        """Whether /readyz has passed once."""


class State(Protocol):
    """Where the server is between start and end."""

    @property
    def started(self) -> bool:
        """Every path that will be served is."""

    @property
    def health(self) -> Readiness:
        """The health checks."""

    @property
    def not_accepting(self) -> bool:
        """Requests in flight are ended, new ones are sent away."""


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
    fresh: tuple[PartOf, Beside] | None
    registration: Registration | None
    # Counters of their own: made once, whatever the number of ports.
    latency: Filter
    flow_control: Filter
    audit: Filter
    tracer: Tracer | None
    remembered: Remembered
    acted: Acted
    run_dir: Path


def parts(
    settings: Settings, metrics: Registry, scheme: Scheme, state: State, waiting: WaitGroup, in_flight: InFlight,
    authenticator: Callable[[], Authenticator], revoked: Callable[[Callable[[], None]], None], authorizer: Authorizer,
    to_newest: Callable[[], None], auditor: Auditor | None, run_dir: Path, vouching: tuple[Sequence[bytes], Sequence[bytes]] = ((), ()),
    fresh: tuple[PartOf, Beside] | None = None, gate: Gate | None = None, tracer: Tracer | None = None,
    deprecated_custom: Callable[[str, str, str], bool] = lambda group, version, resource: False, registration: Registration | None = None,
) -> Parts:  # fmt: skip
    """``to_newest()`` brings what is derived from the store up to date; ``revoked(f)`` has ``f()`` called when a credential may have lost
    its meaning; ``vouching`` are names and prefixes of the headers of authenticating proxies; ``fresh`` has reads wait until they are
    as new as the cluster; ``gate`` is flow control's, None for max-in-flight; ``tracer`` makes spans, if somebody wants them;
    ``deprecated_custom(group, version, resource)`` says whether a definition calls it so; ``registration`` holds up writes until what they
    are stored in is told."""
    if gate is None:
        flow_control = max_in_flight(in_flight, settings.max_requests_inflight, settings.max_mutating_requests_inflight, metrics)
    else:
        flow_control = priority_and_fairness(gate)
    recording = Filter("audit")
    if auditor is not None:
        from kas.filters.audit import audit  # with its events, which few servers have

        recording = audit(auditor)
    return Parts(
        state, waiting, in_flight, authenticator, revoked, vouching, authorizer, to_newest, fresh, registration,
        latency(metrics, scheme.resource, deprecated_custom), flow_control, recording, tracer, Remembered(), Acted(), run_dir,
    )  # fmt: skip


def _few(settings: Settings, run_dir: Path) -> Callable[[], bool]:
    """Whether the read-only port may answer one more; all workers count together."""
    from kas.meta.buckets import Buckets  # which few servers need

    buckets = Buckets(run_dir / "read-only", 1, settings.api_rate, settings.api_burst)
    return lambda: buckets.take("", time.monotonic())


def handler_chain(port: Port, settings: Settings, metrics: Registry, p: Parts) -> list[Filter]:
    """The filters of a port, outermost first. Each line says why it stands where it does."""
    if port == "insecure":
        who = trusted(settings.cors_allowed_origins)
    else:
        who = authentication(p.authenticator, metrics, p.revoked, p.vouching, p.remembered)
    few: Sequence[Filter] = (read_only(_few(settings, p.run_dir)),) if port == "read-only" else ()
    changing = partial(current_verbosity, LOGGING) if settings.profiling or settings.debug_socket_path else None  # by /debug/flags/v
    early = (not_ready_retry(lambda: p.state.health.been_ready()),) if settings.send_retry_after_while_not_ready_once else ()
    held = (storage_version(p.registration),) if p.registration is not None else ()
    last = (consistent_read(*p.fresh),) if p.fresh is not None else ()
    return [
        panic_recovery(metrics),  # outside of everything: nothing escapes unanswered
        audit_id(),  # before anything that logs or answers: every answer carries the id
        mux_complete(lambda: p.state.started),  # 503 while starting: a 404 would be a lie about a path that is about to exist
        request_info(),  # everything below asks what the request is about
        p.latency,  # with the next three: measures all that is below, refusals too
        slow_requests(),
        http_logging(verbosity_of(LOGGING, settings.v, settings.vmodule), changing),
        host(),  # what is no HTTP is not looked at further, but counted and logged
        # Late and early arrivals are sent away before they cost anything.
        shutdown_retry(lambda: p.state.not_accepting, settings.shutdown_send_retry_after),
        *early,
        hsts(settings.strict_transport_security_directives),  # with the next two: headers of every answer, also of refusals
        cache_control(),
        warnings(),
        goaway(settings.goaway_chance),  # before the work is done: it asks the client to go elsewhere
        wait_group(p.waiting),  # shutting down waits for what passed here
        deadline(settings.request_timeout),  # the clock runs before anything that may wait; nothing further out does
        handshake(),  # an answer, so behind what measures and marks answers
        cors(settings.cors_allowed_origins),  # a preflight carries no credentials
        *few,  # what this port never does is refused before anybody is asked who it is
        catch_up(p.to_newest),  # tokens and roles that are gone must not count any more
        who,  # a refusal here is final: nothing below runs for somebody unknown
        tracing(p.tracer),  # whose word counts is known; what comes before is one span
        p.audit,  # from here on it is known whom the record is about
        impersonation(p.authorizer, metrics, p.acted),  # after audit: the record shows who really asked
        p.flow_control,  # counts against the user whose request it has become, before the costly part
        authorization(p.authorizer, metrics),  # last of those that refuse: it needs the final user
        *held,  # as upstream's: whoever may not write is told that, not to wait
        *last,  # waits, for those who may
    ]

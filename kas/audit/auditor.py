"""The audit log of a worker: its policy and backends, built from the ``--audit-*`` flags.

As upstream, nothing is recorded without both a policy and a backend.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kas.audit._engine import Recording, arrival
from kas.audit.backend import AuditError, Backend, Truncate, Union
from kas.audit.batch import Batch
from kas.audit.event import Event
from kas.audit.logfile import DAY_S, DEFAULT_MAX_SIZE, MEGABYTE, LogFile, ThreadedLogFile, json_line, legacy_line
from kas.audit.policy import LEVELS, AuditPolicy, load_file
from kas.audit.webhook import WebhookBackend
from kas.auth.attributes import attributes_of
from kas.auth.user import UserInfo
from kas.client.http import Via
from kas.client.kubeconfig import load as load_kubeconfig
from kas.client.webhook import Webhook
from kas.config.auditing import BATCH, BLOCKING_STRICT, LEGACY, BackendFlags, log_flags, webhook_flags
from kas.meta.buckets import Buckets
from kas.observe.metrics import Registry
from kas.request.http import Request, Response

if TYPE_CHECKING:
    from kas.config.options import Options

NOBODY = UserInfo("")
_LABELS = {level: (level,) for level in LEVELS}

class Auditor:
    """Creates the events of requests and passes their entries to ``backends``."""

    def __init__(self, policy: AuditPolicy, backends: Union, metrics: Registry) -> None:
        self._policy, self._backends = policy, backends
        self._levels = metrics.counter(
            "apiserver_audit_level_total", "Counter of policy levels for audit events (1 per request).", ("level",)
        )
        self._events = metrics.counter("apiserver_audit_event_total", "Counter of audit events generated and sent to the audit backend.")
        self._rejected = metrics.counter(
            "apiserver_audit_requests_rejected_total", "Counter of apiserver requests rejected due to an error in audit logging backend."
        )

    def begin(self, req: Request) -> Event | None:
        """Return the event of a request after authentication; None if the policy's level is None."""
        verdict = self._policy.always
        if verdict is None:
            a = attributes_of(req)
            if a.user is None:
                a.user = NOBODY
            verdict = self._policy.verdict(a)
        self._levels.inc(_LABELS[verdict.level])
        return Event(req, verdict, arrival(req)) if verdict.level != "None" else None

    def record(self, event: Event, stage: str) -> Awaitable[None] | None:
        """Store the entry of a stage, unless the policy omits it. Raises AuditError, or its awaitable does, if a strict backend
        failed."""
        if not event.records(stage):
            return None
        self._events.inc()
        return self._backends.process((event.entry(stage),))

    def recording(
        self, received: Callable[[Request, Event], Response | Awaitable[Response | None] | None],
        otherwise: Callable[[Request, Response], None], later: Callable[[Awaitable[None], Response], None],
    ) -> Recording:  # fmt: skip
        """Return the fast path of the filter; the arguments handle what it leaves to the caller."""
        return Recording(
            self.begin, self._policy.verdicts, Event, self._levels.values, received, otherwise, later, self._backends.process, AuditError,
            self._events.values, self._backends.buffer,
        )  # fmt: skip

    def rejected(self) -> None:
        """Count a request that is refused because it could not be recorded."""
        self._rejected.inc()

    async def close(self, within_s: float) -> None:
        """Store the waiting entries. As upstream this includes all retries of the backends; entries not stored after ``within_s`` are
        counted as failed and logged."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._backends.close()


def build(options: Options, run_dir: Path, metrics: Registry, via: Via | None = None, alone: bool = False) -> Auditor | None:
    """Return the audit log that the flags configure, None without a policy or a backend.

    ``via`` is the route to the webhook, ``alone`` says that there is one worker. Raises PolicyError and KubeconfigError for invalid
    files.
    """
    if not options.audit_policy_file:
        return None
    policy = load_file(options.audit_policy_file)
    errors = metrics.counter(
        "apiserver_audit_error_total",
        "Counter of audit events that failed to be audited properly. Plugin identifies the plugin affected by the error.", ("plugin",),
    )  # fmt: skip
    union = Union(errors)
    if options.audit_log_path:
        line = legacy_line if options.audit_log_format == LEGACY else json_line
        log = LogFile(
            options.audit_log_path, None if alone else run_dir / "audit.lock", line,
            (options.audit_log_maxsize or DEFAULT_MAX_SIZE) * MEGABYTE,
            options.audit_log_maxage * DAY_S, options.audit_log_maxbackup, options.audit_log_compress,
        )  # fmt: skip
        f = log_flags(options)
        _add(union, ThreadedLogFile(log) if f.mode == BATCH else log, f, run_dir, joins=True)
    if options.audit_webhook_config_file:
        backend = load_kubeconfig(options.audit_webhook_config_file)
        # Upstream retries after any failure, since hardly any justifies losing events.
        webhook = Webhook(backend, options.audit_webhook_initial_backoff, via=via, persistent=True)
        _add(union, WebhookBackend(webhook), webhook_flags(options), run_dir)
    return Auditor(policy, union, metrics) if union.backends else None


def _add(union: Union, backend: Backend, f: BackendFlags, run_dir: Path, joins: bool = False) -> None:
    if f.truncate_enabled:
        backend = Truncate(backend, f.truncate_max_event_size, f.truncate_max_batch_size, union.failed)
    if f.mode == BATCH:
        throttle = None
        if f.batch_throttle_enable:  # shared by all workers
            throttle = Buckets(run_dir / f"audit-{backend.name}-throttle", 1, f.batch_throttle_qps, f.batch_throttle_burst)
        backend = Batch(backend, f.batch_buffer_size, f.batch_max_size, f.batch_max_wait, throttle, union.failed, joins)
    union.backends.append((backend, f.mode == BLOCKING_STRICT))

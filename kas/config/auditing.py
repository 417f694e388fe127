"""The flags ``--audit-*``: the common flags of the log and the webhook in one form, and the validation of all
(``pkg/server/options/audit.go``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kas.config.flagtypes import quote
from kas.meta.records import NamedTuple

if TYPE_CHECKING:
    from kas.config.options import Options

BATCH, BLOCKING_STRICT = "batch", "blocking-strict"
MODES = (BATCH, "blocking", BLOCKING_STRICT)
LEGACY = "legacy"
FORMATS = (LEGACY, "json")
VERSIONS = ("audit.k8s.io/v1",)


class BackendFlags(NamedTuple):
    """The flags that both backends have; ``batch_max_wait`` is in seconds, truncation sizes in bytes."""

    mode: str
    version: str
    batch_buffer_size: int
    batch_max_size: int
    batch_max_wait: float
    batch_throttle_enable: bool
    batch_throttle_qps: float
    batch_throttle_burst: int
    truncate_enabled: bool
    truncate_max_event_size: int
    truncate_max_batch_size: int


def log_flags(o: Options) -> BackendFlags:
    """Return the flags ``--audit-log-*``."""
    return BackendFlags(
        o.audit_log_mode, o.audit_log_version, o.audit_log_batch_buffer_size, o.audit_log_batch_max_size, o.audit_log_batch_max_wait,
        o.audit_log_batch_throttle_enable, o.audit_log_batch_throttle_qps, o.audit_log_batch_throttle_burst,
        o.audit_log_truncate_enabled, o.audit_log_truncate_max_event_size, o.audit_log_truncate_max_batch_size,
    )  # fmt: skip


def webhook_flags(o: Options) -> BackendFlags:
    """Return the flags ``--audit-webhook-*``."""
    return BackendFlags(
        o.audit_webhook_mode, o.audit_webhook_version, o.audit_webhook_batch_buffer_size, o.audit_webhook_batch_max_size,
        o.audit_webhook_batch_max_wait, o.audit_webhook_batch_throttle_enable, o.audit_webhook_batch_throttle_qps,
        o.audit_webhook_batch_throttle_burst, o.audit_webhook_truncate_enabled, o.audit_webhook_truncate_max_event_size,
        o.audit_webhook_truncate_max_batch_size,
    )  # fmt: skip


def problems(o: Options) -> Iterator[str]:
    """Yield a message in upstream's words for each invalid flag. Flags of unused backends are not checked."""
    if o.audit_log_path:
        yield from _backend("log", log_flags(o))
        if o.audit_log_format not in FORMATS:
            yield f'invalid audit log format {o.audit_log_format}, allowed formats are "{",".join(FORMATS)}"'
        for name, value in (("age", o.audit_log_maxage), ("backup", o.audit_log_maxbackup), ("size", o.audit_log_maxsize)):
            if value < 0:
                yield f"--audit-log-max{name} {value} can't be a negative number"
    if o.audit_webhook_config_file:
        yield from _backend("webhook", webhook_flags(o))


def _backend(kind: str, f: BackendFlags) -> Iterator[str]:
    if f.mode not in MODES:
        yield f'invalid audit {kind} mode {f.mode}, allowed modes are "{",".join(MODES)}"'
    positive = "must be a positive number"
    # Of the batch flags, and of the truncation flags, upstream reports only the first error.
    if f.mode == BATCH:
        if f.batch_buffer_size <= 0:
            yield f"invalid audit batch {kind} buffer size {f.batch_buffer_size}, {positive}"
        elif f.batch_max_size <= 0:
            yield f"invalid audit batch {kind} max batch size {f.batch_max_size}, {positive}"
        elif f.batch_throttle_enable and f.batch_throttle_qps <= 0:
            yield f"invalid audit batch {kind} throttle QPS {f.batch_throttle_qps:g}, {positive}"
        elif f.batch_throttle_enable and f.batch_throttle_burst <= 0:
            yield f"invalid audit batch {kind} throttle burst {f.batch_throttle_burst}, {positive}"
    event, batch = f.truncate_max_event_size, f.truncate_max_batch_size
    if event <= 0:
        yield f"invalid audit truncate {kind} max event size {event}, {positive}"
    elif batch < event:
        yield f"invalid audit truncate {kind} max batch size {batch}, must be greater than max event size ({event})"
    if f.version not in VERSIONS:
        yield f"invalid group version, allowed versions are [{' '.join(map(quote, VERSIONS))}]"

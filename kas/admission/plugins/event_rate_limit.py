"""EventRateLimit: keeps a flood of Events from filling the store.

The configuration limits the rate of Events in total, per namespace, per user, and per source and object. There is no default: a server
without a configuration does not start. Each limit evicts its least recently used buckets beyond ``cacheSize``. As upstream, only Events
of the core group count. The workers of a server share the limits.

Upstream: ``plugin/pkg/admission/eventratelimit``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kas.admission import CREATE, UPDATE, Attributes
from kas.admission.configuration import Section, versioned
from kas.meta.buckets import Buckets
from kas.meta.errors import ApiError
from kas.meta.field import FieldError, invalid, not_supported
from kas.types.configfile import INT32, STRING, Struct, check

Obj = dict[str, Any]
CACHE_SIZE = 4096  # the default of a limit
KINDS = {
    ("eventratelimit.admission.k8s.io/v1alpha1", "Configuration"): Struct("Configuration", {
        "limits": [Struct("Limit", {"type": STRING, "qps": INT32, "burst": INT32, "cacheSize": INT32})],
    }),
}  # fmt: skip


def _source_and_object(a: Attributes) -> str:
    source, about = a.obj.get("source") or {}, a.obj.get("involvedObject") or {}
    parts = [source.get("component"), source.get("host")]
    parts += [about.get(name) for name in ("kind", "namespace", "name", "uid", "apiVersion")]
    return "".join(part or "" for part in parts)


# The key of an Event's bucket.
KEYS: dict[str, Callable[[Attributes], str]] = {
    "Server": lambda a: "",
    "Namespace": lambda a: a.namespace,
    "User": lambda a: a.user.name,
    "SourceAndObject": _source_and_object,
}


class Limit:
    """One configured limit; ``path`` is the file with its buckets."""

    def __init__(self, config: Obj, path: Path) -> None:
        self.type = config["type"]
        self._key = KEYS[self.type]
        size = 1 if self.type == "Server" else config.get("cacheSize") or CACHE_SIZE
        self._buckets = Buckets(path, size, config["qps"], config["burst"])

    def exceeded(self, a: Attributes, now: float) -> str:
        """Take a token; return "" if there was one, else the error text."""
        key = self._key(a)
        return "" if self._buckets.take(key, now) else f"limit reached on type {self.type} for key {key}"


class Plugin:
    """Counts in files of the run directory, which all workers of a server share."""

    name = "EventRateLimit"

    def __init__(self, run_dir: Path, section: Section | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._limits = [Limit(config, run_dir / f"event-rate-limit-{i}") for i, config in enumerate(self.configured(section))]

    @staticmethod
    def configured(section: Section | None) -> list[Obj]:
        """Return the configured limits. Raises ConfigurationError."""
        limits = versioned(section, KINDS).get("limits")
        check(_wrong(limits))
        return limits or []

    def handles(self, a: Attributes) -> bool:
        """Handle creates and updates of core events."""
        return a.resource == "events" and not a.group and a.operation in (CREATE, UPDATE)

    def validate(self, a: Attributes) -> None:
        """Refuse with 429 what exceeds a limit; a dry run takes no token."""
        if a.dry_run:
            return
        now = self._clock()
        # Every limit is evaluated, so that a token is taken from each.
        refused = list(dict.fromkeys(filter(None, [limit.exceeded(a, now) for limit in self._limits])))
        if refused:
            text = refused[0] if len(refused) == 1 else "[" + ", ".join(refused) + "]"
            raise ApiError(429, "TooManyRequests", f"Too many requests: {text}")


def _wrong(limits: list[Obj] | None) -> list[FieldError]:
    found: list[FieldError] = []
    if not limits:
        found.append(invalid("limits", limits, "must not be empty"))
    for i, limit in enumerate(limits or ()):
        at, kind = f"limits[{i}]", limit.get("type") or ""
        if kind not in KEYS:
            found.append(not_supported(f"{at}.type", kind, list(KEYS)))
        for name in ("burst", "qps"):
            value = limit.get(name) or 0
            if value <= 0:
                found.append(invalid(f"{at}.{name}", value, "must be positive"))
        size = limit.get("cacheSize") or 0
        if kind != "Server" and size < 0:
            found.append(invalid(f"{at}.cacheSize", size, "must not be negative"))
    return found

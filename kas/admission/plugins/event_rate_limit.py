"""EventRateLimit: a flood of Events does not fill the store.

The configuration says how many a second may come from all, from each namespace, from each user, and about each object from each source;
there is no default, so a server without one does not start. Of each limit the least recently used buckets are forgotten beyond its
``cacheSize``. Only Events of the core group count, which is what upstream looks at; the workers of a server count together.

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
CACHE_SIZE = 4096  # of a limit that does not say
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


# Whose bucket an Event takes from.
KEYS: dict[str, Callable[[Attributes], str]] = {
    "Server": lambda a: "",
    "Namespace": lambda a: a.namespace,
    "User": lambda a: a.user.name,
    "SourceAndObject": _source_and_object,
}


class Limit:
    """One limit of the configuration; ``path`` is the file of its buckets."""

    def __init__(self, config: Obj, path: Path) -> None:
        self.type = config["type"]
        self._key = KEYS[self.type]
        size = 1 if self.type == "Server" else config.get("cacheSize") or CACHE_SIZE
        self._buckets = Buckets(path, size, config["qps"], config["burst"])

    def exceeded(self, a: Attributes, now: float) -> str:
        """Takes a token; why there was none, "" when there was."""
        key = self._key(a)
        return "" if self._buckets.take(key, now) else f"limit reached on type {self.type} for key {key}"


class Plugin:
    """Counts in files of the run directory, so that all workers of a server count together."""

    name = "EventRateLimit"

    def __init__(self, run_dir: Path, section: Section | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._limits = [Limit(config, run_dir / f"event-rate-limit-{i}") for i, config in enumerate(self.configured(section))]

    @staticmethod
    def configured(section: Section | None) -> list[Obj]:
        """Its limits. Raises ConfigurationError."""
        limits = versioned(section, KINDS).get("limits")
        check(_wrong(limits))
        return limits or []

    def handles(self, a: Attributes) -> bool:
        """Creates and updates of core events."""
        return a.resource == "events" and not a.group and a.operation in (CREATE, UPDATE)

    def validate(self, a: Attributes) -> None:
        """Refuse with 429 what exceeds a limit; a dry run costs nothing."""
        if a.dry_run:
            return
        now = self._clock()
        # Every limit is asked, so that a token is taken from each.
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

"""Levels, versions, and the policy in a namespace's labels (``pod-security-admission/api/helpers.go``)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kas.meta import field
from kas.meta.field import FieldError
from kas.meta.records import NamedTuple

PRIVILEGED, BASELINE, RESTRICTED = "privileged", "baseline", "restricted"
LEVELS = {PRIVILEGED: 0, BASELINE: 1, RESTRICTED: 2}
LATEST = 1 << 30
PREFIX = "pod-security.kubernetes.io/"
_VERSION = re.compile(r"v1\.([0-9]|[1-9][0-9]*)\Z")


class LevelVersion(NamedTuple):
    """``version`` is the minor version of 1.x, or LATEST."""

    level: str = PRIVILEGED
    version: int = LATEST

    def __str__(self) -> str:
        return f"{self.level}:{'latest' if self.version == LATEST else f'v1.{self.version}'}"


class Policy(NamedTuple):
    """Level and version of each of the three modes; privileged if a namespace specifies none."""

    enforce: LevelVersion = LevelVersion()
    audit: LevelVersion = LevelVersion()
    warn: LevelVersion = LevelVersion()

    @property
    def open(self) -> bool:
        """Whether there is never anything to check."""
        return self.enforce.level == self.audit.level == self.warn.level == PRIVILEGED


NO_DEFAULTS = Policy()


def parse_version(text: str) -> int | None:
    """Return the minor version of ``latest`` or ``v1.x``; None for anything else."""
    if text == "latest":
        return LATEST
    match = _VERSION.match(text)
    return int(match[1]) if match is not None and len(match[1]) < 10 else None


def policy_of(labels: Mapping[str, str] | None, defaults: Policy = NO_DEFAULTS) -> tuple[Policy, list[FieldError]]:
    """Return the policy in the labels, and the errors in them; ``defaults`` apply to missing labels.

    An invalid level enforces the strictest one but audits and warns nothing; an invalid version is the latest. Without a level of its
    own, warn is as strict as enforce.
    """
    if not labels or not any(key.startswith(PREFIX) for key in labels):
        return defaults, []
    found: list[FieldError] = []
    parts = []
    for mode, (level, version) in zip(("enforce", "audit", "warn"), defaults, strict=True):
        key = PREFIX + mode
        if key in labels:
            level = labels[key]
            if level not in LEVELS:
                found.append(field.invalid(f"metadata.labels[{key}]", level, "must be one of privileged, baseline, restricted"))
                level = RESTRICTED if mode == "enforce" else PRIVILEGED
        key += "-version"
        if key in labels:
            said = parse_version(labels[key])
            if said is None:
                found.append(field.invalid(f"metadata.labels[{key}]", labels[key], 'must be "latest" or "v1.x"'))
            version = LATEST if said is None else said
        parts.append(LevelVersion(level, version))
    enforce, audit, warn = parts
    # A namespace with only an enforce level also warns: for a workload, nothing else would say that its pods will be refused.
    if PREFIX + "enforce" in labels and PREFIX + "warn" not in labels and LEVELS[enforce.level] > LEVELS[warn.level]:
        warn = LevelVersion(enforce.level, warn.version if PREFIX + "warn-version" in labels else enforce.version)
    return Policy(enforce, audit, warn), found

"""Levels, versions and the policy that a namespace's labels ask for (``pod-security-admission/api/helpers.go``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from kas.api import field
from kas.api.field import FieldError

PRIVILEGED, BASELINE, RESTRICTED = "privileged", "baseline", "restricted"
STRICTNESS = {PRIVILEGED: 0, BASELINE: 1, RESTRICTED: 2}
LATEST = 1 << 30
PREFIX = "pod-security.kubernetes.io/"
_VERSION = re.compile(r"v1\.([0-9]|[1-9][0-9]*)\Z")


class LevelVersion(NamedTuple):
    """``version`` is the minor of 1.x, or LATEST."""

    level: str = PRIVILEGED
    version: int = LATEST

    def __str__(self) -> str:
        return f"{self.level}:{'latest' if self.version == LATEST else f'v1.{self.version}'}"


class Policy(NamedTuple):
    enforce: LevelVersion = LevelVersion()
    audit: LevelVersion = LevelVersion()
    warn: LevelVersion = LevelVersion()

    @property
    def open(self) -> bool:
        """Whether there is nothing to check, ever."""
        return self.enforce.level == self.audit.level == self.warn.level == PRIVILEGED


def policy_of(labels: Mapping[str, str] | None) -> tuple[Policy, list[FieldError]]:
    """The policy and what is wrong with the labels. A wrong label enforces the strictest level, audits and warns none."""
    if not labels or not any(key.startswith(PREFIX) for key in labels):
        return Policy(), []
    found: list[FieldError] = []
    parts = []
    for mode in ("enforce", "audit", "warn"):
        level, version = PRIVILEGED, LATEST
        key = PREFIX + mode
        if key in labels:
            level = labels[key]
            if level not in STRICTNESS:
                found.append(field.invalid(f"metadata.labels[{key}]", level, "must be one of privileged, baseline, restricted"))
                level = RESTRICTED if mode == "enforce" else PRIVILEGED
        key += "-version"
        if key in labels and labels[key] != "latest":
            match = _VERSION.match(labels[key])
            if match is not None and len(match[1]) < 10:
                version = int(match[1])
            else:
                found.append(field.invalid(f"metadata.labels[{key}]", labels[key], 'must be "latest" or "v1.x"'))
        parts.append(LevelVersion(level, version))
    return Policy(*parts), found

"""The order of API versions by their names (apimachinery ``pkg/version/helpers.go``)."""

from __future__ import annotations

import re
from typing import Any

_KUBE_VERSION = re.compile(r"v([0-9]+)(?:(alpha|beta)([0-9]+))?")
_STAGE = {"alpha": 0, "beta": 1, None: 2}


def version_key(version: str) -> tuple[Any, ...]:
    """A sort key that puts preferred versions first: v2, v1, v1beta2, v1beta1, v1alpha1, then other names alphabetically."""
    number = version[1:]
    if version.startswith("v") and number.isdecimal() and number.isascii():  # the common case
        return (0, -2, -int(number), 0)
    match = _KUBE_VERSION.fullmatch(version)
    if match is None:
        return (1, version)
    major, stage, minor = match.groups()
    return (0, -_STAGE[stage], -int(major), -int(minor or 0))

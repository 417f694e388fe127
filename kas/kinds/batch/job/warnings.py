"""Warnings about job specs, in Jobs and in CronJobs (``pkg/api/job/warnings.go``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kas.kinds.core.pod.warnings import template_warnings

COMPLETIONS_SOFT_LIMIT, PARALLELISM_SOFT_LIMIT = 100_000, 10_000
MANY_INDEXES = (
    "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be "
    "able to track completedIndexes when a big number of indexes fail"
)


def job_warnings(spec: Mapping[str, Any], path: str) -> list[str]:
    """``WarningsForJobSpec``: too many indexes for the status, and the warnings of the pod template."""
    out = []
    many = (spec.get("completions") or 0) > COMPLETIONS_SOFT_LIMIT and (spec.get("parallelism") or 0) > PARALLELISM_SOFT_LIMIT
    if spec.get("completionMode") == "Indexed" and many:
        out.append(f"{path}: {MANY_INDEXES}")
    return out + template_warnings(spec.get("template"), f"{path}.template")

"""JobValidation: a Job whose pods are gang-scheduled cannot change its parallelism.

Upstream: ``plugin/pkg/admission/job`` (KEP-5547).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kas.admission import UPDATE, Attributes
from kas.config import features
from kas.informers import Informers
from kas.informers.informer import whole
from kas.meta.field import go_quote

Obj = dict[str, Any]


class Plugin:
    """Applies to updates of Jobs while the gate GenericWorkload is on; reads their PodGroups."""

    name = "JobValidation"

    def __init__(self, informers: Informers) -> None:
        self._groups = informers.lister("scheduling.k8s.io", "podgroups", whole)

    def handles(self, a: Attributes) -> bool:
        """Handle updates of Jobs."""
        if a.operation != UPDATE or (a.group, a.resource, a.subresource) != ("batch", "jobs", ""):
            return False
        return features.DEFAULT.enabled("GenericWorkload")

    def validate(self, a: Attributes) -> None:
        """Raise 403 if the parallelism changes and the PodGroup named by the pod template, or else one that the Job controls, is a
        gang."""
        assert a.old is not None
        if a.obj["spec"].get("parallelism") == a.old["spec"].get("parallelism"):
            return
        for name, group in self._of(a.old, a.namespace):
            if ((group.get("spec") or {}).get("schedulingPolicy") or {}).get("gang") is not None:
                raise a.forbid(f"cannot change parallelism for a Job referencing gang-scheduled PodGroup {go_quote(name)}")

    def _of(self, job: Obj, namespace: str) -> Iterable[tuple[str, Obj]]:
        groups = self._groups.namespace(namespace)
        named = (job["spec"]["template"]["spec"].get("schedulingGroup") or {}).get("podGroupName")
        if named is not None:
            return [(named, groups[named])] if named in groups else []
        uid = job["metadata"].get("uid", "")
        return [(name, group) for name, group in groups.items() if _controller(group) == uid]


def _controller(obj: Obj) -> str | None:
    return next((o["uid"] for o in obj["metadata"].get("ownerReferences") or () if o.get("controller")), None)

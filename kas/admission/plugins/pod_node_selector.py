"""PodNodeSelector: a namespace says on which nodes its pods run.

Uses ``server.object``. The cluster-wide defaults and white lists of upstream's configuration file do not exist: the namespace's
annotation is what counts. Upstream: ``plugin/pkg/admission/podnodeselector``.
"""

from __future__ import annotations

from typing import Any

from kas.admission import CREATE, Attributes
from kas.api import errors

ANNOTATION = "scheduler.alpha.kubernetes.io/node-selector"
CONFLICT = "pod node label selector conflicts with its namespace node label selector"


class Plugin:
    name = "PodNodeSelector"

    def __init__(self, server: Any) -> None:
        self._server = server

    def handles(self, a: Attributes) -> bool:
        return a.operation == CREATE and a.resource == "pods" and not a.group and not a.subresource

    def _wanted(self, a: Attributes) -> dict[str, str]:
        namespace = self._server.object("", "namespaces", "", a.namespace)
        if namespace is None:
            raise errors.not_found("", "namespaces", a.namespace)
        text = (namespace["metadata"].get("annotations") or {}).get(ANNOTATION, "")
        out = {}
        for part in text.split(",") if text else ():
            key, sep, value = part.partition("=")
            if not sep:
                raise errors.internal(f"invalid selector: {part}")
            out[key.strip()] = value.strip().removeprefix("=")
        return out

    def mutate(self, a: Attributes) -> None:
        wanted = self._wanted(a)
        own = a.obj["spec"].get("nodeSelector") or {}
        self._check(a, wanted, own)
        if wanted:
            a.obj["spec"]["nodeSelector"] = {**wanted, **own}

    def validate(self, a: Attributes) -> None:
        self._check(a, self._wanted(a), a.obj["spec"].get("nodeSelector") or {})

    @staticmethod
    def _check(a: Attributes, wanted: dict[str, str], own: dict[str, str]) -> None:
        if any(key in own and own[key] != value for key, value in wanted.items()):
            raise errors.forbidden(a.group, a.resource, a.obj["metadata"].get("name", ""), CONFLICT)

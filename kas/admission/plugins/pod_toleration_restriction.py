"""PodTolerationRestriction: a namespace says what its pods tolerate, by default and at most.

Uses ``server.object``. Upstream: ``plugin/pkg/admission/podtolerationrestriction``; without its configuration file the namespace's
annotations are what counts.
"""

from __future__ import annotations

from typing import Any

import orjson

from kas.admission import CREATE, UPDATE, Attributes
from kas.admission.plugins import _pods
from kas.api import errors
from kas.registry.core.pod import quality_of_service

Obj = dict[str, Any]
DEFAULTS = "scheduler.alpha.kubernetes.io/defaultTolerations"
WHITELIST = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
MEMORY_PRESSURE = {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}
CONFLICT = "pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist"


class Plugin:
    name = "PodTolerationRestriction"

    def __init__(self, server: Any) -> None:
        self._server = server

    def handles(self, a: Attributes) -> bool:
        return a.resource == "pods" and not a.group and not a.subresource and a.operation in (CREATE, UPDATE)

    def _annotation(self, a: Attributes, key: str) -> list[Obj]:
        namespace = self._server.object("", "namespaces", "", a.namespace)
        if namespace is None:
            raise errors.not_found("", "namespaces", a.namespace)
        text = (namespace["metadata"].get("annotations") or {}).get(key, "")
        try:
            found = orjson.loads(text) if text else []
        except orjson.JSONDecodeError as e:
            raise errors.internal(f"annotation {key} of namespace {a.namespace}: {e}") from None
        if not isinstance(found, list) or not all(isinstance(t, dict) for t in found):
            raise errors.internal(f"annotation {key} of namespace {a.namespace}: must be a list of tolerations")
        return found

    def mutate(self, a: Attributes) -> None:
        spec = a.obj["spec"]
        own = spec.get("tolerations") or []
        final = own
        if a.operation == CREATE:
            defaults = self._annotation(a, DEFAULTS)
            final = _pods.merge_tolerations(defaults, own) if defaults and own else defaults or own
        if quality_of_service(a.obj) != "BestEffort":
            final = _pods.merge_tolerations(final, [MEMORY_PRESSURE])
        if final:
            spec["tolerations"] = final

    def validate(self, a: Attributes) -> None:
        own = a.obj["spec"].get("tolerations") or []
        allowed = self._annotation(a, WHITELIST) if own else []
        if allowed and not all(any(_pods.tolerates_all_of(w, t) for w in allowed) for t in own):
            # Upstream gives a bare error here, which the client sees as a 500.
            raise errors.ApiError(500, "", CONFLICT)

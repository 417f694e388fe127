"""PodTolerationRestriction: a namespace has default tolerations and a whitelist for its pods.

Both are annotations of the namespace; without them the configuration's ``default`` and ``whitelist`` apply. Upstream:
``plugin/pkg/admission/podtolerationrestriction``.
"""

from __future__ import annotations

from typing import Any

from kas.admission import CREATE, UPDATE, Attributes
from kas.admission import pods as pod_objects
from kas.admission.configuration import Section, versioned
from kas.informers import Objects
from kas.kinds.core.pod import scheduling
from kas.kinds.core.pod.qos import quality_of_service
from kas.meta import errors, gojson
from kas.types.configfile import INT64, STRING, ConfigurationError, Struct

Obj = dict[str, Any]
DEFAULTS = "scheduler.alpha.kubernetes.io/defaultTolerations"
WHITELIST = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
MEMORY_PRESSURE = {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}
CONFLICT = "pod tolerations (possibly merged with namespace default tolerations) conflict with its {} whitelist"
_TOLERATION = Struct("Toleration", {"key": STRING, "operator": STRING, "value": STRING, "effect": STRING, "tolerationSeconds": INT64})
_ANNOTATED = {
    "key": "string", "operator": "v1.TolerationOperator", "value": "string", "effect": "v1.TaintEffect", "tolerationSeconds": "int64",
}  # fmt: skip
KINDS = {
    ("podtolerationrestriction.admission.k8s.io/v1alpha1", "Configuration"): Struct(
        "Configuration", {"default": [_TOLERATION], "whitelist": [_TOLERATION]}
    ),
}


class Plugin:
    """Applies to new and updated pods; reads their namespace's annotations."""

    name = "PodTolerationRestriction"

    def __init__(self, objects: Objects, section: Section | None = None) -> None:
        self._objects = objects
        self._otherwise = self.configured(section)

    @staticmethod
    def configured(section: Section | None) -> dict[str, list[Obj]]:
        """Return the tolerations for namespaces without annotations, by annotation. Raises ConfigurationError."""
        config = versioned(section, KINDS)
        out = {DEFAULTS: config.get("default") or [], WHITELIST: config.get("whitelist") or []}
        wrong = scheduling.tolerations(out[DEFAULTS], "podtolerationrestriction.default")
        wrong += scheduling.tolerations(out[WHITELIST], "podtolerationrestriction.whitelist")
        if wrong:
            raise ConfigurationError(f"invalid config: [{' '.join(map(str, wrong))}]")
        return out

    def handles(self, a: Attributes) -> bool:
        """Handle creates and updates of pods."""
        return a.resource == "pods" and not a.group and not a.subresource and a.operation in (CREATE, UPDATE)

    def _annotation(self, a: Attributes, key: str) -> list[Obj]:
        namespace = self._objects.get("", "namespaces", "", a.namespace)
        if namespace is None:
            raise errors.not_found("", "namespaces", a.namespace)
        text = (namespace["metadata"].get("annotations") or {}).get(key)
        if text is None:
            return self._otherwise[key]
        try:
            return gojson.structs(text, "v1.Toleration", _ANNOTATED) if text else []
        except gojson.JSONError as e:
            # As upstream, a bare error, which the client receives as a 500.
            raise errors.ApiError(500, "", str(e)) from None

    def admit(self, a: Attributes) -> None:
        """On create, add the namespace's default tolerations, and memory pressure's unless the pod is BestEffort; then ``validate``."""
        spec = a.obj["spec"]
        more = list(self._annotation(a, DEFAULTS)) if a.operation == CREATE else []
        if quality_of_service(a.obj) != "BestEffort":
            more.append(MEMORY_PRESSURE)
        if more:
            a.adds(len(more))
            # Copies, since the cached tolerations are shared by all pods.
            spec["tolerations"] = [dict(t) for t in pod_objects.merge_tolerations(spec.get("tolerations") or [], more)]
        self.validate(a)

    def validate(self, a: Attributes) -> None:
        """Raise a 500, as upstream, for a toleration outside the whitelist."""
        own = a.obj["spec"].get("tolerations") or []
        allowed = self._annotation(a, WHITELIST) if own else []
        if allowed and not all(map(pod_objects.TolerationIndex(allowed).covers, own)):
            scope = "cluster" if allowed is self._otherwise[WHITELIST] else "namespace"
            # As upstream, a bare error, which the client receives as a 500.
            raise errors.ApiError(500, "", CONFLICT.format(scope))

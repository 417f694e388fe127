"""DefaultIngressClass: sets the default class on an Ingress without a class.

Upstream: ``plugin/pkg/admission/network/defaultingressclass``.
"""

from __future__ import annotations

from typing import Any

from kas.admission import CREATE, Attributes
from kas.informers import Informers
from kas.informers.informer import whole

GROUP = "networking.k8s.io"
DEFAULT = "ingressclass.kubernetes.io/is-default-class"
OLD_ANNOTATION = "kubernetes.io/ingress.class"


def _marked(ingress_class: dict[str, Any]) -> list[str]:
    """Index function for classes that are marked as default."""
    return ["true"] if (ingress_class["metadata"].get("annotations") or {}).get(DEFAULT) == "true" else []


class Plugin:
    """Applies to new Ingresses; reads IngressClasses."""

    name = "DefaultIngressClass"

    def __init__(self, informers: Informers) -> None:
        self._classes = informers.lister(GROUP, "ingressclasses", whole, {"default": _marked})

    def handles(self, a: Attributes) -> bool:
        """Handle creates of Ingresses."""
        return a.operation == CREATE and a.resource == "ingresses" and a.group == GROUP and not a.subresource

    def admit(self, a: Attributes) -> None:
        """Set the default class, the newest if there are several, on an Ingress that specifies no class."""
        spec = a.obj.get("spec") or {}
        if spec.get("ingressClassName") is not None or OLD_ANNOTATION in (a.obj["metadata"].get("annotations") or {}):
            return
        found = self._classes.by_index("default", "true")
        marked = [(c["metadata"].get("creationTimestamp") or "", name) for (_, name), c in found.items()]
        if marked:
            newest = max(created for created, _ in marked)
            a.obj["spec"] = {**spec, "ingressClassName": min(name for created, name in marked if created == newest)}

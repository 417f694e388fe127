"""DefaultIngressClass: an ingress that names no class gets the default one.

Uses ``server.store`` (IngressClasses, followed). Upstream: ``plugin/pkg/admission/network/defaultingressclass``.
"""

from __future__ import annotations

from typing import Any

from kas.admission import CREATE, Attributes
from kas.admission.plugins._derived import Followed

GROUP = "networking.k8s.io"
DEFAULT = "ingressclass.kubernetes.io/is-default-class"
OLD_ANNOTATION = "kubernetes.io/ingress.class"


class Plugin:
    name = "DefaultIngressClass"

    def __init__(self, server: Any) -> None:
        self._classes = Followed(server, GROUP, "ingressclasses")

    def handles(self, a: Attributes) -> bool:
        return a.operation == CREATE and a.resource == "ingresses" and a.group == GROUP and not a.subresource

    def mutate(self, a: Attributes) -> None:
        spec = a.obj.get("spec") or {}
        if spec.get("ingressClassName") is not None or OLD_ANNOTATION in (a.obj["metadata"].get("annotations") or {}):
            return
        marked = [
            (c["metadata"].get("creationTimestamp") or "", name)
            for name, c in self._classes.all().items()
            if (c["metadata"].get("annotations") or {}).get(DEFAULT) == "true"
        ]
        if marked:
            newest = max(created for created, _ in marked)
            a.obj["spec"] = {**spec, "ingressClassName": min(name for created, name in marked if created == newest)}

"""PodTopologyLabels: a pod learns the zone and region of its node when it is bound.

Uses ``server.object``. Upstream: ``plugin/pkg/admission/podtopologylabels`` (KEP-4742).
"""

from __future__ import annotations

from typing import Any

from kas.admission import CREATE, Attributes

LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


class Plugin:
    name = "PodTopologyLabels"

    def __init__(self, server: Any) -> None:
        self._server = server

    def handles(self, a: Attributes) -> bool:
        return a.operation == CREATE and a.resource == "pods" and not a.group and a.subresource in ("", "binding")

    def mutate(self, a: Attributes) -> None:
        if a.subresource:
            target = a.obj.get("target") or {}
            node = target.get("name") if target.get("kind") == "Node" else None
        else:
            node = a.obj["spec"].get("nodeName")
        if not node:
            return
        found = self._server.object("", "nodes", "", node)
        if found is None:
            return
        labels = found["metadata"].get("labels") or {}
        new = {key: labels[key] for key in LABELS if key in labels}
        if new:
            meta = a.obj["metadata"]
            meta["labels"] = {**(meta.get("labels") or {}), **new}

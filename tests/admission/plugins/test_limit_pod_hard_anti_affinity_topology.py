"""The LimitPodHardAntiAffinityTopology plug-in alone."""

from __future__ import annotations

from kas.admission.plugins import limit_pod_hard_anti_affinity_topology
from tests.admission.admission_fakes import Request, pod, refused


def test_topologies_of_hard_anti_affinity(server):
    term = {"topologyKey": "zone"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    refused(Request(server.plugin(limit_pod_hard_anti_affinity_topology), obj=pod(affinity=apart)))

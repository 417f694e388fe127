"""The Priority plug-in alone."""

from __future__ import annotations

from kas.admission.plugins import priority
from tests.admission.admission_fakes import Request, pod, refused


def test_priority(server):
    plugin = server.plugin(priority)
    spec = Request(plugin, obj=pod()).run()["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    usual = {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True, "preemptionPolicy": "Never"}
    server.add("scheduling.k8s.io", "priorityclasses", usual)
    spec = Request(plugin, obj=pod()).run()["spec"]
    assert (spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"]) == ("usual", 7, "Never")
    assert "no PriorityClass with name gone was found" in refused(Request(plugin, obj=pod(priorityClassName="gone"))).message
    assert "the integer value of priority (8) must not be provided" in refused(Request(plugin, obj=pod(priority=8))).message
    other = {"metadata": {"name": "b"}, "value": 1, "globalDefault": True}
    e = refused(Request(plugin, group="scheduling.k8s.io", resource="priorityclasses", namespace="", obj=other))
    assert "PriorityClass usual is already marked as default. Only one default can exist" in e.message

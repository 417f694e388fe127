"""The Priority plug-in alone."""

from __future__ import annotations

from kas.admission.plugins import priority
from kas.config import features
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


def test_a_mirror_pod_gets_only_the_priority_of_its_class(server):
    """Every user may set that annotation on a pod (kubernetes#58471)."""
    plugin = server.plugin(priority)
    mirror = {**pod(priority=2_000_001_000), "metadata": {"name": "p", "annotations": {"kubernetes.io/config.mirror": "x"}}}
    assert "the integer value of priority (2000001000) must not be provided" in refused(Request(plugin, obj=mirror)).message
    mirror["spec"].pop("priority")
    assert Request(plugin, obj=mirror).run()["spec"]["priority"] == 0


def test_priority_of_a_group_of_pods(server):
    plugin = server.plugin(priority)
    server.add("scheduling.k8s.io", "priorityclasses", {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True})
    server.add("scheduling.k8s.io", "priorityclasses", {"metadata": {"name": "other"}, "value": 3})

    def group(**spec):
        obj = {"metadata": {"name": "g"}, "spec": spec}
        return Request(plugin, group="scheduling.k8s.io", resource="podgroups", obj=obj)

    assert group(priorityClassName="gone").run()["spec"] == {"priorityClassName": "gone"}
    with features.DEFAULT.overridden(WorkloadAwarePreemption=True):
        assert group().run()["spec"] == {"priorityClassName": "usual", "priority": 7}
        assert group(priorityClassName="other", priority=3).run()["spec"] == {"priorityClassName": "other", "priority": 3}
        assert "no PriorityClass with name gone was found" in refused(group(priorityClassName="gone")).message
        assert "the integer value of priority (9) must not be provided" in refused(group(priorityClassName="other", priority=9)).message


def test_the_effective_default_may_change_beside_another(server):
    """Concurrent writes can create two; the one with the lowest value counts, and only it prevents others."""
    plugin = server.plugin(priority)
    low, high = ({"metadata": {"name": name}, "value": value, "globalDefault": True} for name, value in (("z-low", 1), ("a-high", 2)))
    for one in (low, high):
        server.add("scheduling.k8s.io", "priorityclasses", one)

    def update(obj):
        return Request(plugin, operation="UPDATE", group="scheduling.k8s.io", resource="priorityclasses", namespace="", obj=obj, old=obj)

    update(low).run()
    assert "PriorityClass z-low is already marked as default" in refused(update(high)).message


def test_the_default_is_found_without_scanning_all_classes(server, monkeypatch):
    """There may be tens of thousands of classes, and each pod without a class needs the default."""
    plugin = server.plugin(priority)
    for name, value, default in (("c", 5, True), ("b", 3, True), ("a", 3, True), ("low", 1, False)):
        server.add("scheduling.k8s.io", "priorityclasses", {"metadata": {"name": name}, "value": value, "globalDefault": default})
    assert Request(plugin, obj=pod()).run()["spec"]["priorityClassName"] == "a"
    monkeypatch.setattr(type(plugin._classes), "all", None)
    assert Request(plugin, obj=pod()).run()["spec"]["priorityClassName"] == "a"
    new = {"metadata": {"name": "d"}, "value": 1, "globalDefault": True}
    e = refused(Request(plugin, group="scheduling.k8s.io", resource="priorityclasses", namespace="", obj=new))
    assert "PriorityClass a is already marked as default." in e.message

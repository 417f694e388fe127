"""The DefaultTolerationSeconds plug-in alone."""

from __future__ import annotations

from kas.admission.plugins import default_toleration_seconds
from kas.config.options import Options
from tests.admission.admission_fakes import Request, pod


def test_default_tolerations_unless_tolerated(server):
    plugin = server.plugin(default_toleration_seconds)
    out = Request(plugin, obj=pod(tolerations=[{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}])).run()
    assert [t["key"] for t in out["spec"]["tolerations"]] == ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
    everything = [{"operator": "Exists"}]
    assert Request(plugin, obj=pod(tolerations=everything)).run()["spec"]["tolerations"] == everything


def test_the_duration_of_default_tolerations_follows_the_flags():
    settings = Options({"default-not-ready-toleration-seconds": 5, "default-unreachable-toleration-seconds": 0})
    out = Request(default_toleration_seconds.Plugin(settings), obj=pod()).run()["spec"]["tolerations"]
    assert [(t["key"].rpartition("/")[2], t["tolerationSeconds"]) for t in out] == [("not-ready", 5), ("unreachable", 0)]

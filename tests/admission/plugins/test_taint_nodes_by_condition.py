"""The TaintNodesByCondition plug-in alone."""

from __future__ import annotations

from kas.admission.plugins import taint_nodes_by_condition
from tests.admission.admission_fakes import Request


def test_a_new_node_is_tainted(server):
    out = Request(server.plugin(taint_nodes_by_condition), resource="nodes", obj={"metadata": {"name": "n"}}).run()
    assert out["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]

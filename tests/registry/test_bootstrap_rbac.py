"""Bootstrap roles and bindings at a start, after somebody has changed them: upstream's tables, as far as they concern a start."""

import pytest

from kas.auth.authz.rules import MOST_STEPS
from kas.registry.bootstrap_rbac import AUTOUPDATE, reconcile


def role(rules=None, labels=None, annotations=None, aggregation=None):
    meta = {"name": "r", **({"labels": labels} if labels else {}), **({"annotations": annotations} if annotations else {})}
    rule = {} if aggregation is None else {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": one} for one in aggregation]}}
    return {"metadata": meta, **({"rules": rules} if rules else {}), **rule}


def rules(*resources):
    return [{"apiGroups": [""], "verbs": ["get"], "resources": [resource]} for resource in resources]


@pytest.mark.parametrize("wanted, old, new", [
    (role(), role(), None),
    (role(rules("a")), role(rules("a")), None),
    (role(rules("a")), role(rules("b")), role(rules("b", "a"))),
    (role(rules("a"), {"1": "a"}), role(rules("a"), {"1": "a"}), None),
    (role(rules("a"), {"1": "a"}), role(rules("a"), {"2": "b"}), role(rules("a"), {"1": "a", "2": "b"})),
    (role(rules("a"), {"1": "a"}), role(rules("b"), {"1": "b"}), role(rules("b", "a"), {"1": "b"})),
    (role(rules("a"), {"3": "d"}, {"1": "a"}), role(rules("b"), {"4": "e"}, {"1": "b"}),
     role(rules("b", "a"), {"3": "d", "4": "e"}, {"1": "b"})),
    (role(rules("pods", "nodes", "secrets"), {"env": "prod", "color": "blue", "manager": "randy"}, {"system": "true", "up": "true"}),
     role(rules("nodes", "images", "projects"), {"color": "red", "team": "pm"}, {"system": "false", "owner": "admin"}),
     role(rules("nodes", "images", "projects", "pods", "secrets"), {"env": "prod", "manager": "randy", "color": "red", "team": "pm"},
          {"system": "false", "owner": "admin", "up": "true"})),
    (role(aggregation=[]), role(), None),
    (role(aggregation=[{"foo": "bar"}]), role(aggregation=[{"foo": "bar"}]), None),
    (role(aggregation=[{"foo": "bar"}]), role(aggregation=[{"alpha": "bravo"}]), role(aggregation=[{"alpha": "bravo"}, {"foo": "bar"}])),
    (role(rules("pods", "nodes")), role(aggregation=[{"alpha": "bravo"}]), role(rules("pods", "nodes"))),
    (role(rules("pods", "nodes")), role(rules("deployments"), aggregation=[{"alpha": "bravo"}]),
     role(rules("deployments", "pods", "nodes"))),
    (role(rules("a")), role(rules("b"), None, {AUTOUPDATE: "false"}, [{"alpha": "bravo"}]), None),
])  # fmt: skip
def test_roles(wanted, old, new):
    assert reconcile("clusterroles", wanted, old) == (("", old) if new is None else ("update", new))


def binding(name, *subjects, **meta):
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    return {"metadata": {"name": "b", **meta}, "roleRef": ref, "subjects": [{"kind": "User", "name": subject} for subject in subjects]}


@pytest.mark.parametrize("wanted, old, action, new", [
    (binding("role", "a"), binding("role", "a"), "", None),
    (binding("role", "a"), binding("other", "a"), "recreate", binding("role", "a")),
    (binding("role", "a"), binding("other", "a", "b", labels={"x": "y"}), "recreate", binding("role", "a")),
    (binding("role", "a"), binding("role", "a", "b"), "", None),
    (binding("role", "a", "c"), binding("role", "a", "b"), "update", binding("role", "a", "b", "c")),
])  # fmt: skip
def test_bindings(wanted, old, action, new):
    """A subject does not get a role because it was bound to another one under the name of a bootstrap binding."""
    assert reconcile("clusterrolebindings", wanted, old) == (action, new or old)


def test_a_role_too_large_to_compare_gets_missing_rules():
    everything = [f"r{i}" for i in range(2000)]
    many = [{"verbs": ["get"], "apiGroups": ["", "x"], "resources": everything, "resourceNames": [str(i)]} for i in range(1000)]
    wanted = rules(*everything) + [{"apiGroups": ["x"], "verbs": ["get"], "resources": ["r1"]}]
    assert len(wanted) * len(many) > MOST_STEPS
    action, new = reconcile("clusterroles", role(wanted), role(many))
    assert (action, len(new["rules"])) == ("update", len(many) + len(wanted))

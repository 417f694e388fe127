"""The compiled checks of kinds never pass what the rules refuse, and pass the usual objects that kube-apiserver accepted."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kas.kinds.core.pod.checks import PARTS, REST
from kas.registry import pipeline
from kas.registry.strategy import Context, Obj, strategy_of
from kas.types.checktables import ANY, ENUM, TABLES, Checked
from kas.types.scheme import BUILTIN, DecodeError, Resource, decode
from tests.checks.mutations import changed, each_place
from tests.vectors.files import lines
from tests.vectors.kinds.strategy import sent


@dataclass
class Kind:
    """A table of checks, the resource whose objects it applies to, and the place in them; ``least`` of the recorded ones must pass.

    ``others`` are fields with further rules.
    """

    module: str
    name: str
    resource: str
    path: str = ""
    least: int = 1
    key: Any = None
    others: tuple[str, ...] = ()

    def table(self) -> Checked:
        found = getattr(importlib.import_module(f"kas.kinds.{self.module}"), self.name)
        return found if self.key is None else found[self.key]

    def of(self, obj: Obj) -> Any:
        return obj.get(self.path) if self.path else obj


KINDS = [
    Kind("core.configmap", "CHECK", "v1/configmaps", least=3), Kind("core.secret", "CHECK", "v1/secrets"),
    Kind("core.service.validation", "CHECK", "v1/services", "spec", least=0), Kind("core.node", "STATUS_CHECK", "v1/nodes", "status",
    others=("spec",)),
    Kind("core.event", "CHECK", "events.k8s.io/v1/events", least=0), Kind("coordination.lease", "CHECK", "coordination.k8s.io/v1/leases",
    "spec"),
    Kind("discovery.endpointslice", "CHECK", "discovery.k8s.io/v1/endpointslices", least=0),
    Kind("apps.deployment", "CHECK", "apps/v1/deployments", "spec"), Kind("apps.replicaset", "CHECK", "apps/v1/replicasets", "spec"),
    Kind("apps.daemonset", "CHECK", "apps/v1/daemonsets", "spec"), Kind("apps.statefulset", "CHECK", "apps/v1/statefulsets", "spec",
    least=0),
    Kind("batch.job.validation", "CHECK", "batch/v1/jobs", "spec", others=("spec.selector",)),
    Kind("rbac.validation", "RULES_CHECK", "rbac.authorization.k8s.io/v1/roles", key=True),
    Kind("rbac.validation", "RULES_CHECK", "rbac.authorization.k8s.io/v1/clusterroles", key=False, others=("aggregationRule",)),
    Kind("rbac.validation", "BINDING_CHECK", "rbac.authorization.k8s.io/v1/rolebindings", key=True),
    Kind("rbac.validation", "BINDING_CHECK", "rbac.authorization.k8s.io/v1/clusterrolebindings", key=False),
]  # fmt: skip
META = {"name": "a", "namespace": "ns1"}
POD_TEMPLATE = {
    "metadata": {"labels": {"app": "a"}},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}  # fmt: skip
RUN = {"selector": {"matchLabels": {"app": "a"}}, "template": POD_TEMPLATE}
# Objects as clients send them, in addition to the recorded ones.
SAMPLES: dict[str, list[Obj]] = {
    "v1/configmaps": [{"data": {"a.txt": "é", "b": ""}, "binaryData": {"c": "AAEC"}, "immutable": False}],
    "v1/secrets": [{"data": {"a": "AAEC"}, "type": "Opaque"}, {"data": {"release": "AAEC"}, "type": "helm.sh/release.v1"}],
    "v1/services": [
        {"spec": {
            "type": "ClusterIP", "selector": {"app": "a"}, "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "http", "port": 80, "targetPort": "web"}, {"name": "dns", "port": 80, "protocol": "UDP", "targetPort": 53}],
        }},
        {"spec": {"type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"], "ports": [{"port": 80}]}},
    ],
    "v1/nodes": [{
        "status": {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "110", "hugepages-2Mi": "0"}, "allocatable": {"cpu": "3900m"}},
        "spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]},
    }],
    "events.k8s.io/v1/events": [{
        "eventTime": "2024-01-02T03:04:05.000000Z", "reportingController": "kubelet", "reportingInstance": "n", "action": "Pull",
        "reason": "Pulled", "note": "text", "type": "Normal", "regarding": {"kind": "Pod", "name": "p", "namespace": "ns1"},
        "series": {"count": 2, "lastObservedTime": "2024-01-02T03:04:05.000000Z"},
    }],
    "coordination.k8s.io/v1/leases": [{"spec": {
        "holderIdentity": "n", "leaseDurationSeconds": 40, "renewTime": "2024-01-02T03:04:05.000000Z", "leaseTransitions": 1,
    }}],
    "discovery.k8s.io/v1/endpointslices": [
        {
            "addressType": "IPv4", "ports": [{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "m", "port": 81,
            "appProtocol": "a.b/c"}],
            "endpoints": [{
                "addresses": ["10.0.0.1", "10.0.0.2"], "nodeName": "n", "zone": "z", "conditions": {"ready": True}, "hostname": "h",
                "targetRef": {"kind": "Pod", "name": "p"}, "hints": {"forZones": [{"name": "z"}], "forNodes": [{"name": "n"}]},
            }],
        },
        {"addressType": "IPv4", "ports": [{"name": "", "port": 80}], "endpoints": []},
    ],
    "apps/v1/deployments": [{"spec": RUN}, {"spec": {**RUN, "strategy": {"type": "Recreate"}, "replicas": 2, "minReadySeconds": 1}}],
    "apps/v1/replicasets": [{"spec": {**RUN, "replicas": 3}}], "apps/v1/daemonsets": [{"spec": RUN}],
    "apps/v1/statefulsets": [{"spec": {**RUN, "serviceName": "a", "ordinals": {"start": 1}}}],
    "batch/v1/jobs": [{"spec": {
        "template": {"spec": {**POD_TEMPLATE["spec"], "restartPolicy": "Never"}}, "backoffLimit": 2, "completions": 1, "parallelism": 1,
    }}],
    "rbac.authorization.k8s.io/v1/roles": [{"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"],
    "resourceNames": ["a"]}]}],
    "rbac.authorization.k8s.io/v1/clusterroles": [{"rules": [
        {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}, {"verbs": ["get"], "nonResourceURLs": ["/metrics"]},
    ]}],
    "rbac.authorization.k8s.io/v1/clusterrolebindings": [{
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"}, "subjects": [
            {"kind": "User", "name": "u"}, {"kind": "Group", "name": "system:g"},
            {"kind": "ServiceAccount", "name": "default", "namespace": "ns1"},
        ],
    }],
}  # fmt: skip
SAMPLES["rbac.authorization.k8s.io/v1/rolebindings"] = SAMPLES["rbac.authorization.k8s.io/v1/clusterrolebindings"]


def resource_of(text: str) -> Resource:
    parts = text.split("/")
    found = BUILTIN.resource(*(parts if len(parts) == 3 else ("", *parts)))
    assert found is not None
    return found


def context(resource: Resource) -> Context:
    return Context(
        now="2024-01-02T03:04:05Z", namespace="ns1" if resource.namespaced else "", uid="00000000-0000-4000-8000-000000000001"
    )


def stored(resource: Resource, given: Obj) -> Obj:
    """Returns the object as its validation sees it. Raises ApiError for one that is refused."""
    api_version = f"{resource.group}/{resource.version}".lstrip("/")
    meta = {key: value for key, value in META.items() if resource.namespaced or key != "namespace"}
    whole = {"apiVersion": api_version, "kind": resource.kind, "metadata": dict(meta), **copy.deepcopy(given)}
    obj, _ = pipeline.build_create(resource, sent(resource, whole), context(resource))
    return obj


def samples(kind: Kind) -> list[Obj]:
    """Returns the objects that were accepted in recordings, and our own."""
    resource = resource_of(kind.resource)
    recorded = [
        v["in"]["object"] for v in lines("strategy")
        if v["in"]["resource"] == kind.resource and "oldObject" not in v["in"] and "object" in v["out"]
    ]  # fmt: skip
    return [stored(resource, obj) for obj in [*recorded, *SAMPLES[kind.resource]]]


@contextmanager
def rules_alone(*tables: Checked) -> Iterator[None]:
    had = [table.passes for table in tables]
    for table in tables:
        table.passes = lambda obj: False
    try:
        yield
    finally:
        for table, passes in zip(tables, had, strict=True):
            table.passes = passes


def refused(kind: Kind, obj: Obj) -> list[str]:
    """Returns the errors of the rules for the table's part. A document that does not decode never reaches them."""
    resource = resource_of(kind.resource)
    try:
        typed, _ = decode(pipeline.stored_type(resource), copy.deepcopy(obj))
        with rules_alone(kind.table()):
            found = strategy_of(resource).validate(context(resource), typed)
    except (DecodeError, UnicodeEncodeError):  # lone surrogates are no JSON
        return []
    return [str(e) for e in found if not e.field.startswith((*OTHERS, *kind.others))]


# Metadata and pod templates have checks of their own.
SKIPPED = ("metadata", "template")
OTHERS = ("metadata", "spec.template")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.resource)
def test_one_invalid_change(kind):
    table = kind.table()
    passing = [obj for obj in samples(kind) if table.passes(kind.of(obj))]
    assert len(passing) >= len(SAMPLES[kind.resource]) + kind.least
    for obj in passing[-4:]:
        assert refused(kind, obj) == []
        for what in each_place(kind.of(obj), SKIPPED):
            if table.passes(kind.of(obj)):
                assert refused(kind, obj) == [], what


@settings(max_examples=1200)
@given(st.data())
def test_several_invalid_changes(data):
    kind = data.draw(st.sampled_from(KINDS))
    obj = stored(resource_of(kind.resource), data.draw(st.sampled_from(SAMPLES[kind.resource])))
    kept = {key: obj[key] for key in ("apiVersion", "kind", "metadata")}
    wrong = {**data.draw(changed({key: value for key, value in obj.items() if key not in kept})), **kept}
    if kind.table().passes(kind.of(wrong)):
        assert refused(kind, wrong) == []


def test_unlisted_fields_are_left_to_the_rules():
    for kind in KINDS:
        obj = stored(resource_of(kind.resource), SAMPLES[kind.resource][0])
        table = kind.table()
        if kind.path != "status":  # of which the table covers two fields
            assert table.passes(kind.of(obj)) and not table.passes({**kind.of(obj), "new": 1}), kind


def test_common_pods_pass_all_tables():
    pod = stored(resource_of("v1/pods"), {"spec": POD_TEMPLATE["spec"]})
    assert PARTS.passes(pod["spec"]) and REST.passes(pod["spec"])


def test_a_table_names_only_fields_of_its_type():
    for table in ({"date": ANY}, {"immutable": ENUM}, {"metadata": ENUM}):
        wrong = Checked("core.v1.ConfigMap", table)
        TABLES.remove(wrong)  # tables that are built when a server has started
        with pytest.raises(KeyError):
            wrong.build()

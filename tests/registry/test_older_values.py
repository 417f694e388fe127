"""Values that old servers left in etcd, in versions that are no longer served: none of it is lost."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from kas import kinds
from kas.registry.etcdvalues import StoredValues
from kas.registry.registries import Registries
from kas.types import kindloader
from kas.types.conversion import _CONVERTERS
from kas.types.scheme import BUILTIN, encode_protobuf, envelope
from tests.types.kinds import kind_for

kinds.install()
META = {"name": "a", "namespace": "ns", "uid": "u", "creationTimestamp": "2019-01-02T03:04:05Z"}
WIDE = {"name": "a", "uid": "u", "creationTimestamp": "2019-01-02T03:04:05Z"}
EMPTY = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"
KEPT_ZERO = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"
RBAC = "rbac.authorization.k8s.io"
POD = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "x"}]}}
WORKLOAD = {"selector": {"matchLabels": {"a": "b"}}, "template": POD}


def ingress(api_version: str) -> dict:
    return {
        "apiVersion": api_version, "kind": "Ingress", "metadata": META,
        "spec": {
            "ingressClassName": "c", "backend": {"serviceName": "s", "servicePort": 80},
            "rules": [
                {"host": "h", "http": {"paths": [
                    {"path": "/a", "backend": {"serviceName": "t", "servicePort": "web"}},
                    {"path": "/b", "pathType": "Exact", "backend": {"resource": {"kind": "Bucket", "name": "b"}}},
                ]}},
                {"host": "i"},
            ],
        },
    }  # fmt: skip


INGRESS = {
    "ingressClassName": "c", "defaultBackend": {"service": {"name": "s", "port": {"number": 80}}},
    "rules": [
        {"host": "h", "http": {"paths": [
            {"path": "/a", "pathType": "ImplementationSpecific", "backend": {"service": {"name": "t", "port": {"name": "web"}}}},
            {"path": "/b", "pathType": "Exact", "backend": {"resource": {"apiGroup": None, "kind": "Bucket", "name": "b"}}},
        ]}},
        {"host": "i"},
    ],
}  # fmt: skip


def subjects(api_version: str, *given: dict) -> dict:
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "r"}
    return {"apiVersion": f"{RBAC}/{api_version}", "kind": "ClusterRoleBinding", "metadata": WIDE, "roleRef": role, "subjects": list(given)}


def level(version: str, limited: dict, **annotations: str) -> dict:
    return {
        "apiVersion": f"flowcontrol.apiserver.k8s.io/{version}", "kind": "PriorityLevelConfiguration",
        "metadata": {**WIDE, **({"annotations": annotations} if annotations else {})}, "spec": {"type": "Limited", "limited": limited},
    }  # fmt: skip


def budget(selector: Any) -> dict:
    return {"apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget", "metadata": META, "spec": {"selector": selector}}


def expression(operator: str, key: str = EMPTY) -> dict:
    return {"key": key, "operator": operator}


def slice_of(**endpoint: Any) -> dict:
    return {
        "apiVersion": "discovery.k8s.io/v1beta1", "kind": "EndpointSlice", "metadata": META, "addressType": "IPv4", "ports": [],
        "endpoints": [{"addresses": ["10.0.0.1"], **endpoint}],
    }  # fmt: skip


def workload(api_version: str, kind: str, **spec: Any) -> dict:
    return {"apiVersion": api_version, "kind": kind, "metadata": META, "spec": {**WORKLOAD, **spec}}


ZONED = {"topology.kubernetes.io/zone": "z", "kubernetes.io/hostname": "n"}
# Its key, the value, a place in it, and the content there.
CASES: dict[str, tuple[str, dict, str, Any]] = {
    "ingress": ("ingress/ns/a", ingress("networking.k8s.io/v1beta1"), "spec", INGRESS),
    "ingress of extensions": ("ingress/ns/a", ingress("extensions/v1beta1"), "spec", INGRESS),
    "network policy": (
        "networkpolicies/ns/a",
        {"apiVersion": "extensions/v1beta1", "kind": "NetworkPolicy", "metadata": META,
         "spec": {"podSelector": {"matchLabels": {"a": "b"}}}},
        "spec.podSelector", {"matchLabels": {"a": "b"}},
    ),
    "runtime class": (
        "runtimeclasses/a",
        {"apiVersion": "node.k8s.io/v1alpha1", "kind": "RuntimeClass", "metadata": WIDE,
         "spec": {"runtimeHandler": "h", "overhead": {"podFixed": {"cpu": "1"}}, "scheduling": {"nodeSelector": {"a": "b"}}}},
        "", {"handler": "h", "overhead": {"podFixed": {"cpu": "1"}}, "scheduling": {"nodeSelector": {"a": "b"}}},
    ),
    "subjects": (
        "clusterrolebindings/a",
        subjects(
            "v1alpha1", {"kind": "User", "name": "u", "apiVersion": f"{RBAC}/v1alpha1"}, {"kind": "Group", "name": "g"},
            {"kind": "ServiceAccount", "name": "s", "namespace": "ns", "apiVersion": "v1"}, {"kind": "User", "name": "*"},
            {"kind": "Odd", "name": "o", "apiVersion": "x.io/v1"},
        ),
        "subjects",
        [
            {"kind": "User", "apiGroup": RBAC, "name": "u"}, {"kind": "Group", "apiGroup": RBAC, "name": "g"},
            {"kind": "ServiceAccount", "name": "s", "namespace": "ns"}, {"kind": "Group", "apiGroup": RBAC, "name": "system:authenticated"},
            {"kind": "Odd", "apiGroup": "x.io", "name": "o"},
        ],
    ),
    "a later user *": (
        "clusterrolebindings/a", subjects("v1beta1", {"kind": "User", "name": "*", "apiGroup": RBAC}),
        "subjects", [{"kind": "User", "apiGroup": RBAC, "name": "*"}],
    ),
    "zone and node": ("endpointslices/ns/a", slice_of(topology=ZONED), "endpoints.0", {"nodeName": "n", "zone": "z"}),
    "another node": (
        "endpointslices/ns/a", slice_of(topology={**ZONED, "x": "y"}, nodeName="m"),
        "endpoints.0", {"nodeName": "m", "zone": "z", "deprecatedTopology": {"kubernetes.io/hostname": "n", "x": "y"}},
    ),
    "shares": (
        "prioritylevelconfigurations/a", level("v1beta1", {"assuredConcurrencyShares": 7}), "spec.limited.nominalConcurrencyShares", 7,
    ),
    "shares, v1beta2": (
        "prioritylevelconfigurations/a", level("v1beta2", {"assuredConcurrencyShares": 7}), "spec.limited.nominalConcurrencyShares", 7,
    ),
    "no shares": ("prioritylevelconfigurations/a", level("v1beta3", {}), "spec.limited.nominalConcurrencyShares", 30),
    "no shares, and it is meant": (
        "prioritylevelconfigurations/a", level("v1beta3", {}, **{KEPT_ZERO: "", "x": "y"}), "spec.limited.nominalConcurrencyShares", 0,
    ),
    "no pods": ("poddisruptionbudgets/ns/a", budget({}), "spec.selector", {"matchExpressions": [expression("Exists")]}),
    "all pods": ("poddisruptionbudgets/ns/a", budget({"matchExpressions": [expression("DoesNotExist")]}), "spec.selector", {}),
    "some pods": (
        "poddisruptionbudgets/ns/a",
        budget({"matchLabels": {"a": "b"}, "matchExpressions": [expression("Exists"), expression("Exists", "x")]}),
        "spec.selector", {"matchLabels": {"a": "b"}, "matchExpressions": [expression("Exists", "x")]},
    ),
    "rollback": (
        "deployments/ns/a", workload("apps/v1beta1", "Deployment", rollbackTo={"revision": 3}),
        "metadata.annotations", {"deprecated.deployment.rollback.to": "3"},
    ),
    "deployment": ("deployments/ns/a", workload("extensions/v1beta1", "Deployment", replicas=3), "spec.replicas", 3),
    "daemon set": (
        "daemonsets/ns/a", workload("extensions/v1beta1", "DaemonSet", templateGeneration=4),
        "metadata.annotations", {"deprecated.daemonset.template.generation": "4"},
    ),
    "replica set": ("replicasets/ns/a", workload("extensions/v1beta1", "ReplicaSet", replicas=3), "spec.replicas", 3),
    "event": (
        "events/ns/a",
        {"apiVersion": "events.k8s.io/v1beta1", "kind": "Event", "metadata": META, "note": "n", "regarding": {"kind": "Pod", "name": "p"}},
        "", {"message": "n", "involvedObject": {"kind": "Pod", "name": "p"}},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def values() -> StoredValues:
    registries = Registries(None, lambda: "")  # type: ignore[arg-type]
    registries.add_stored(BUILTIN.resources, BUILTIN.resource, 0, {})
    return StoredValues(registries)


@pytest.mark.parametrize("name", CASES)
def test_an_older_value_is_read_completely(values: StoredValues, name: str) -> None:
    path, old, where, wanted = CASES[name]
    kind = kind_for(old["apiVersion"], old["kind"])
    assert kind is not None
    message = encode_protobuf(kind.type, old, api_version=old["apiVersion"], kind=old["kind"])
    for value in (orjson.dumps(old), message if message.startswith(b"k8s\0") else envelope(old["apiVersion"], old["kind"], message)):
        found = orjson.loads(values.decode(f"/registry/{path}", value).json)
        assert KEPT_ZERO not in found["metadata"].get("annotations", {})
        for step in where.split(".") if where else ():
            found = found[int(step) if isinstance(found, list) else step]
        if isinstance(wanted, dict) and where not in ("spec", "spec.selector"):
            found = {key: found.get(key) for key in wanted}
        assert found == wanted


def _lost(old: Any, new: Any, path: str, above: frozenset[tuple[str, str]]) -> list[str]:
    """Returns the fields that one type has and another one lacks."""
    if old.name == new.name or (old.name, new.name) in above:
        return []
    there, out = {f.name: f for f in new.fields}, []
    for f in old.fields:
        other = there.get(f.name)
        if other is None:
            out.append(f"{path}.{f.name}")
        elif f.message is not None and other.message is not None:
            out += _lost(f.message, other.message, f"{path}.{f.name}", above | {(old.name, new.name)})
    return out


def test_no_older_version_has_unconverted_fields(values: StoredValues) -> None:
    """A version without a conversion function is read as the current one: fields that this lacks would be lost silently."""
    resources = [registry.resource for registry in values._by_root.values()]
    homes = {r.storage_kind or BUILTIN.known(r.group, r.version, r.kind) for r in resources}
    lost = {}
    for home in homes:
        kindloader.load(home.group)
        for kind in BUILTIN.kinds:
            if kind.kind == home.kind and kind.group in (home.group, "extensions"):
                way = (kind.group, kind.version, kind.kind), (home.group, home.version, home.kind)
                missing = [] if way in _CONVERTERS else _lost(kind.type, home.type, "", frozenset())
                if missing or (kind.group != home.group and way not in _CONVERTERS):
                    lost[way] = missing
    assert not lost

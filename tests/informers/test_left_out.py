"""A stored object with fields of wrong types, which only another program can write, is reported and left out of derived state; everything
else is served."""

from __future__ import annotations

import functools
from pathlib import Path

import orjson
import pytest
import requests

from kas.auth.authz.rbac import RbacIndex
from kas.informers.reflector import Handlers, Reflector
from kas.meta.stored import object_of
from kas.registry.etcdvalues import custom
from kas.store import Op, open_store
from kas.testing.server import KasServer
from tests.controllers.waiting import until
from tests.storage.places import opened

RBAC = "rbac.authorization.k8s.io/v1"
ADMIN = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}


def obj(api_version: str, kind: str, name: str, namespace: str = "", **fields) -> bytes:
    meta = {"name": name, "uid": f"u-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"} | ({"namespace": namespace} if namespace else {})
    return orjson.dumps({"apiVersion": api_version, "kind": kind, "metadata": meta, **fields})


# The stored object, and the log message about it.
WRONG = {
    "/registry/clusterroles/cluster-admin": (obj(RBAC, "ClusterRole", "cluster-admin", rules="all"), "ClusterRole.rules"),
    "/registry/clusterrolebindings/wrong": (obj(RBAC, "ClusterRoleBinding", "wrong", roleRef="x"), "ClusterRoleBinding.roleRef"),
    "/registry/rolebindings/default/wrong": (
        obj(RBAC, "RoleBinding", "wrong", "default", roleRef=ADMIN, subjects=["jane"]), "RoleBinding.subjects",
    ),
    "/registry/flowschemas/wrong": (obj("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", "wrong", spec="x"), "FlowSchema.spec"),
    "/registry/prioritylevelconfigurations/wrong": (
        obj("flowcontrol.apiserver.k8s.io/v1", "PriorityLevelConfiguration", "wrong", spec=[]), "PriorityLevelConfiguration.spec",
    ),
    "/registry/apiextensions.k8s.io/customresourcedefinitions/wrongs.acme.io": (
        obj("apiextensions.k8s.io/v1beta1", "CustomResourceDefinition", "wrongs.acme.io", spec="x"), "CustomResourceDefinition.spec",
    ),
    "/registry/apiregistration.k8s.io/apiservices/v1.wrong": (
        obj("apiregistration.k8s.io/v1", "APIService", "v1.wrong", spec="x"), "APIService.spec",
    ),
    "/registry/services/specs/default/kubernetes": (obj("v1", "Service", "kubernetes", "default", spec="x"), "Service.spec"),
    "/registry/servicecidrs/kubernetes": (obj("networking.k8s.io/v1", "ServiceCIDR", "kubernetes", spec="x"), "ServiceCIDR.spec"),
}  # fmt: skip


def is_named(server: KasServer, name: str, field: str) -> bool:
    return any("stored with wrong types" in line and name in line and field in line for line in server.output.splitlines())


@pytest.mark.lmdb  # in etcd, the error is found by the reader
def test_a_server_starts_with_wrongly_typed_objects_and_reports_them(tmp_path: Path):
    with KasServer(tmp_path, "--unsafe-no-fsync", "--controllers=none"):
        pass
    store = opened(tmp_path / "data")
    for key, (value, _) in WRONG.items():
        store.commit_now(Op(key, custom(value, ())))
    store.close()
    with KasServer(tmp_path, "--unsafe-no-fsync", "--controllers=none") as server:
        ask = functools.partial(requests.get, headers={"Authorization": f"Bearer {server.token}"}, verify=server.ca, timeout=30)
        assert {"default", "kube-system"} <= {ns["metadata"]["name"] for ns in ask(server.url + "/api/v1/namespaces").json()["items"]}
        for key, (_, field) in WRONG.items():
            named = functools.partial(is_named, server, key.rpartition("/")[2], field)
            until(named)  # some components read once it is ready


def test_an_object_without_a_name_is_reported_by_its_key_and_left_out(tmp_path: Path, caplog):
    store = open_store(str(tmp_path), sync=False)
    prefix = "/registry/clusterroles/"
    for name, meta in (("a", {"name": "a"}), ("b", {})):
        store.commit_now(Op(prefix + name, custom(orjson.dumps({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": meta}), ())))
    names: list[str] = []
    target = Handlers(lambda records: names.extend([object_of(r)["metadata"]["name"] for r in records]), print)
    Reflector(Source(store), prefix, target).start()
    assert names == ["a"] and f"{prefix}b is stored with wrong types and left out: it has no name" in caplog.text
    store.close()


def test_an_object_without_its_namespace_is_left_out(tmp_path: Path, caplog):
    """A RoleBinding without one must not apply everywhere, nor prevent others from applying."""
    store = open_store(str(tmp_path), sync=False)
    prefix, rbac = "/registry/rolebindings/", RbacIndex()
    for name, namespace in (("a", "ns1"), ("b", "")):
        subjects = [{"kind": "User", "name": "jane"}]
        value = obj(RBAC, "RoleBinding", name, namespace, roleRef=ADMIN, subjects=subjects)
        store.commit_now(Op(f"{prefix}ns1/{name}", custom(value, ())))
    names: list[str] = []

    def replaced(records) -> None:
        names.clear()
        for rec in records:
            rbac.put("rolebindings", object_of(rec))
            names.append(rec.key)

    Reflector(Source(store), prefix, Handlers(replaced, print)).start()
    assert names == [f"{prefix}ns1/a"] and f"{prefix}ns1/b is stored with wrong types and left out: it has no namespace" in caplog.text
    store.close()


class Target:
    """A target that relies on the types of its objects."""

    def __init__(self) -> None:
        self.verbs: dict[str, list[str]] = {}

    def replace(self, records) -> None:
        self.verbs = {rec.key: [v for rule in object_of(rec)["rules"] for v in rule["verbs"]] for rec in records}

    def apply(self, events) -> None:
        raise NotImplementedError


class Source:
    """A source with one list."""

    def __init__(self, store) -> None:
        self.range = store.range

    def listen(self, prefix, changed, lost):
        return lambda: None


def test_a_target_that_fails_with_a_valid_object_fails(tmp_path: Path, caplog):
    store = open_store(str(tmp_path), sync=False)
    prefix, target = "/registry/clusterroles/", Target()
    store.commit_now(Op(f"{prefix}a", custom(obj(RBAC, "ClusterRole", "a", rules=[{"verbs": ["get"]}]), ())))
    store.commit_now(Op(f"{prefix}b", custom(obj(RBAC, "ClusterRole", "b", rules=[{"verbs": 5}]), ())))
    Reflector(Source(store), prefix, target).start()
    assert target.verbs == {f"{prefix}a": ["get"]}
    assert [r.getMessage() for r in caplog.records if f"{prefix}b is stored with wrong types" in r.getMessage()]
    # may have no rules: the error is the target's, not the object's
    store.commit_now(Op(f"{prefix}c", custom(obj(RBAC, "ClusterRole", "c"), ())))
    with pytest.raises(KeyError):
        Reflector(Source(store), prefix, target).start()
    store.close()

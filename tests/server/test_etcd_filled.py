"""Custom resources that are stored without all defaults of the stored version, as upstream stores them, and get them when they are read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kas.storage.places import Forms
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.atrevision import AtRevision
from kas.store.etcd.client import PUT, Client
from kas.store.etcd.layout import Keys
from kas.store.etcd.sealing import Sealing
from kas.testing.server import KasServer
from tests.conftest import Client as HTTP
from tests.controllers.waiting import until
from tests.endpoints.customs import Customs, definition, version
from tests.etcd import Etcd

GROUP = "filled.example.com"
MERGE = "application/merge-patch+json"


def flags(etcd: Etcd) -> tuple[str, ...]:
    return "--storage-backend=etcd3", f"--etcd-servers={etcd.url}", "--advertise-address=127.0.0.1"


def two_versions(size: int) -> dict[str, Any]:
    """``v1``, the stored version, has another default than ``v2``."""
    stored = version("v1", {"color": {"type": "string"}, "size": {"type": "integer", "default": size}}, subresources={"status": {}})
    stored["selectableFields"] = [{"jsonPath": ".spec.size"}]
    return definition(GROUP, stored, version("v2", {"color": {"type": "string", "default": "red"}}, storage=False))


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    with Etcd(tmp_path_factory.mktemp("etcd")) as etcd:
        yield etcd


@pytest.fixture(scope="module")
def served(etcd: Etcd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HTTP]:
    with KasServer(tmp_path_factory.mktemp("kas"), *flags(etcd)) as kas:
        yield HTTP(kas)


@pytest.fixture
def widgets(served: HTTP) -> Iterator[Customs]:
    customs = Customs(served, two_versions(1)).install()
    yield customs
    customs.remove()


def value_of(etcd: Etcd, name: str, plural: str = "widgets") -> dict[str, Any]:
    value = etcd.value(f"/registry/{GROUP}/{plural}/default/{name}")
    assert value is not None
    found: dict[str, Any] = json.loads(value)
    return found


def test_missing_defaults_are_applied_when_an_object_is_read(etcd: Etcd, served: HTTP, widgets: Customs) -> None:
    other = widgets.obj("a", version="v2")
    tried = served("POST", widgets.path("", "v2") + "?dryRun=All", other)[1]
    status, made = served("POST", widgets.path("", "v2"), other)
    assert (status, made["spec"]) == (201, tried["spec"]) == (201, {"color": "red"})
    stored = value_of(etcd, "a")
    assert (stored["apiVersion"], stored["spec"]) == (f"{GROUP}/v1", {"color": "red"})
    whole = {"color": "red", "size": 1}
    read = served("GET", widgets.path("a"))[1]
    assert read["spec"] == whole
    assert [o["spec"] for o in served("GET", widgets.path() + "?fieldSelector=spec.size%3D1")[1]["items"]] == [whole]
    # A change that changes nothing stored is not written; a write in the stored version has all defaults.
    unchanged = served("PUT", widgets.path("a", "v2"), served("GET", widgets.path("a", "v2"))[1])[1]
    assert unchanged["metadata"]["resourceVersion"] == read["metadata"]["resourceVersion"]
    assert served("PATCH", widgets.path("a"), {"metadata": {"labels": {"a": "b"}}}, MERGE)[0] == 200
    assert value_of(etcd, "a")["spec"] == whole


def test_the_status_that_a_create_drops_is_not_stored(etcd: Etcd, served: HTTP) -> None:
    crd = definition(GROUP, version(subresources={"status": {}}), plural="gadgets", kind="Gadget")
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["default"] = {"replicas": 0}
    gadgets = Customs(served, crd).install()
    assert gadgets.create("a", status={"replicas": 3})["status"] == {"replicas": 0}
    assert "status" not in value_of(etcd, "a", "gadgets")
    assert served("GET", gadgets.path("a"))[1]["status"] == {"replicas": 0}
    gadgets.remove()


def test_objects_of_another_server_are_read_with_the_current_defaults(etcd: Etcd, served: HTTP, widgets: Customs, tmp_path) -> None:
    served("POST", widgets.path(), widgets.obj("a", {"color": "red"}))
    stored = value_of(etcd, "a")
    del stored["spec"]["size"]
    client = Client(etcd.config)
    client.call(PUT, pb.PutRequest(key=f"/registry/{GROUP}/widgets/default/a".encode(), value=json.dumps(stored).encode()))
    client.close()

    def specs() -> list[Any]:
        read = served("GET", widgets.path("a"))[1]["spec"], served("GET", widgets.path())[1]["items"][0]["spec"]
        return [spec.get("size") for spec in read]

    assert specs() == [1, 1]
    key, client = f"/registry/{GROUP}/widgets/default/a", Client(etcd.config)
    for place, one in ((key, True), (key.removesuffix("a"), False)):  # where the replica is too old
        found = AtRevision(client, Keys(), Forms().values, Sealing(None, Keys()), str(tmp_path)).read(place, one, 0)
        assert json.loads(found.get(key).json)["spec"]["size"] == 1
        found.close()
    client.close()
    crd = served("GET", widgets.where)[1]
    crd["spec"]["versions"] = two_versions(2)["spec"]["versions"]
    assert served("PUT", widgets.where, crd)[0] == 200
    until(lambda: specs() == [2, 2])
    served("PATCH", widgets.path("a"), {"metadata": {"labels": {"a": "b"}}}, MERGE)
    assert value_of(etcd, "a")["spec"] == {"color": "red", "size": 2}


def test_a_replica_with_applied_defaults_is_reused(etcd: Etcd, tmp_path) -> None:
    with KasServer(tmp_path, *flags(etcd)) as kas:
        widgets = Customs(HTTP(kas), two_versions(1)).install()
        widgets.create("a", version="v2")
    with KasServer(tmp_path, *flags(etcd)) as kas:
        http = HTTP(kas)
        assert http("GET", widgets.path("a"))[1]["spec"] == {"color": "red", "size": 1}
        assert "is discarded" not in kas.output

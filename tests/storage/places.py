"""Stores and clusters with a few objects, for the commands that move them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson

from kas.storage.lmdbplace import claim
from kas.storage.places import Forms, leased
from kas.store import Op, open_store
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import GRANT, PUT, Client
from kas.store.lmdb import LMDBStore
from tests.etcd import Etcd

MAPS = "/registry/configmaps/ns/"
EVENT = "/registry/events/ns/e"
MADE = "2024-01-02T03:04:05Z"
WIDGET = "/registry/acme.io/widgets/ns/w"
DEFINITION = {
    "kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
    "metadata": {"name": "widgets.acme.io", "uid": "u", "creationTimestamp": MADE},
    "spec": {
        "group": "acme.io", "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget", "listKind": "WidgetList", "singular": "widget"},
        "versions": [{
            "name": "v1", "served": True, "storage": True, "selectableFields": [{"jsonPath": ".spec.color"}],
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        }],
    },
}  # fmt: skip


def kas(*args: object) -> subprocess.CompletedProcess[str]:
    """Runs the command line in a process of its own."""
    return subprocess.run([sys.executable, "-m", "kas.cli", *map(str, args)], capture_output=True, text=True, timeout=120)


def config_map(name: str, data: str = "x", **meta) -> bytes:
    return orjson.dumps({
        "kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "ns", "uid": "u", "creationTimestamp": MADE, **meta}, "data": {"x": data},
    })  # fmt: skip


def objects(n: int) -> dict[str, bytes]:
    """Returns ConfigMaps, a definition and an object of it, as JSON."""
    out = {f"{MAPS}c{i:04}": config_map(f"c{i:04}", labels={"l": str(i)}) for i in range(n)}
    out["/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.acme.io"] = orjson.dumps(DEFINITION)
    out[WIDGET] = orjson.dumps({
        "kind": "Widget", "apiVersion": "acme.io/v1", "spec": {"color": "red"},
        "metadata": {"name": "w", "namespace": "ns", "uid": "u", "creationTimestamp": MADE},
    })  # fmt: skip
    return out


def event() -> bytes:
    return orjson.dumps({
        "kind": "Event", "apiVersion": "v1", "metadata": {"name": "e", "namespace": "ns", "uid": "u", "creationTimestamp": MADE},
        "involvedObject": {"namespace": "ns"}, "message": "m",
    })  # fmt: skip


def opened(data_dir: Path) -> LMDBStore:
    return open_store(str(data_dir / "store"), max_size=1 << 28, sync=False)


def write(store: LMDBStore, objects: dict[str, bytes], lease_s: int = 0, forms: Forms | None = None) -> None:
    """Writes as a server would, in the order of the keys."""
    forms = forms or Forms()
    for key in sorted(objects, key=lambda key: (not key.startswith("/registry/apiextensions"), key)):
        store.commit_now(Op(key, leased(forms.values.decode(key, objects[key]), lease_s)))


def make_lmdb(data_dir: Path, n: int = 25) -> str:
    """Creates a data directory with ``n`` ConfigMaps and more; returns its place."""
    claim(data_dir).close()
    store = opened(data_dir)
    try:
        write(store, objects(n))
        write(store, {EVENT: event()}, lease_s=1000)
    finally:
        store.close()
    return f"lmdb:{data_dir}"


def put(etcd: Etcd, prefix: str, objects: dict[str, bytes], lease_s: int = 0) -> None:
    """Writes directly into etcd, as kube-apiserver would."""
    forms, client = Forms(), Client(etcd.config)
    try:
        lease = client.call(GRANT, pb.LeaseGrantRequest(TTL=lease_s)).ID if lease_s else 0
        for key in sorted(objects):
            value = forms.values.encode(key, forms.values.decode(key, objects[key]))
            client.call(PUT, pb.PutRequest(key=(prefix + key.removeprefix("/registry")).encode(), value=value, lease=lease))
    finally:
        client.close()


def make_etcd(etcd: Etcd, prefix: str, n: int = 25) -> str:
    put(etcd, prefix, objects(n))
    put(etcd, prefix, {EVENT: event()}, lease_s=1000)
    return f"etcd:{etcd.url}"

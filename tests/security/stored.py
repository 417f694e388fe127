"""The values of a server's store as they are in the file, and recorded values of etcd written in their place."""

from __future__ import annotations

import base64
import contextlib
import re
from pathlib import Path
from typing import Any

import lmdb
import orjson

from kas import kinds
from kas._codecs import TypeDesc
from kas.encryption.atrest import EncryptionAtRest
from kas.encryption.ciphers import SealError
from kas.meta import clock
from kas.registry.registries import Registries
from kas.store import Draft, Op, build_record, open_store
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import PUT, RANGE, Client, Config
from kas.store.lmdb import LMDBStore
from kas.types.defaults import apply_defaults
from kas.types.scheme import BUILTIN
from tests.security import layout
from tests.types.kinds import kind_for

SEALED = re.compile(rb"k8s:enc:[a-z0-9]+:v\d+:([A-Za-z0-9._-]+:)?")


class Raw:
    """Stores its argument, encrypted or not."""

    plain, waits, refuses_plain = False, False, ""

    def __init__(self, value: bytes) -> None:
        self._value = value

    def seal(self, plain: bytes, key: bytes) -> bytes:
        return self._value

    def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
        raise SealError("not here")


def raw(data_dir: Path, key: str) -> bytes | None:
    """Returns the bytes of a key's value in the file; the JSON of an unencrypted one."""
    with lmdb.open(str(data_dir / "store"), readonly=True, max_dbs=8, lock=True) as env:
        bodies = env.open_db(b"body", create=False)
        with env.begin() as txn:
            return txn.get(key.encode(), db=bodies)


class Values:
    """The values of a server with its data in ``data_dir`` and the encryption configuration in ``config``."""

    def __init__(self, data_dir: Path, config: Path) -> None:
        self._data_dir, self._config = data_dir, config
        kinds.install()

    def value(self, key: str) -> bytes | None:
        """Returns the value as etcd would have it: encrypted as it is in the file, otherwise in etcd's format."""
        found = raw(self._data_dir, key)
        if found is None or SEALED.match(found):
            return found
        obj = orjson.loads(found)
        return layout.encode(_type(obj["apiVersion"], obj["kind"]), obj)

    def put(self, key: str, value: bytes) -> None:
        """Stores a value of etcd: an object in its format, encrypted again if the configuration can decrypt it, otherwise unchanged."""
        encryption = EncryptionAtRest(str(self._config), False, False, BUILTIN.resources)
        try:
            encryption.begin()
            transformer = encryption.transformer(key)
            assert transformer is not None
            try:
                plain, _ = transformer.open(value, key.encode())
            except SealError:
                plain = b""
            with_ours = plain if plain.startswith((b"k8s\0", b"{")) else b""
            store = self._store(lambda k: transformer if with_ours else Raw(value))
            try:
                store.commit_now(Op(key, self._draft(store, key, self._object(with_ours)) if with_ours else build_record(b"{", b'"a":1}')))
            finally:
                store.close()
        finally:
            encryption.close()

    def _store(self, transformers: Any) -> LMDBStore:
        return open_store(str(self._data_dir / "store"), sync=False, transformers=transformers)

    def _draft(self, store: LMDBStore, key: str, obj: dict[str, Any]) -> Draft:
        if "creationTimestamp" in obj["metadata"]:
            return self._registry(store, key).draft(obj)
        # Written directly: nothing follows the place of the resourceVersion.
        front = b'{"kind":%b,"apiVersion":%b,' % (orjson.dumps(obj.pop("kind")), orjson.dumps(obj.pop("apiVersion")))
        metadata = orjson.dumps(obj.pop("metadata"))[:-1]
        return build_record(front + b'"metadata":' + metadata + b",", b"}," + orjson.dumps(obj)[1:], {}, {}, len(front))

    def _registry(self, store: LMDBStore, key: str):
        registries = Registries(store, clock.now)
        registries.add_stored(BUILTIN.resources, BUILTIN.resource, 3600, {})
        return next(r for r in registries if key.startswith(r.root))

    def _object(self, value: bytes) -> dict[str, Any]:
        obj = layout.read(value, _type)
        obj["metadata"].pop("resourceVersion", None)
        apply_defaults(kind_for(obj["apiVersion"], obj["kind"]), obj)
        return obj


class EtcdValues:
    """The same for a server whose keys are under ``/registry`` in the etcd at ``url``, without changes."""

    def __init__(self, url: str) -> None:
        self._config = Config((url,))

    def value(self, key: str) -> bytes | None:
        """Returns the value."""
        with contextlib.closing(Client(self._config)) as client:
            kvs = client.call(RANGE, pb.RangeRequest(key=key.encode())).kvs
        return kvs[0].value if kvs else None

    def put(self, key: str, value: bytes) -> None:
        """Stores a value."""
        with contextlib.closing(Client(self._config)) as client:
            client.call(PUT, pb.PutRequest(key=key.encode(), value=value))


def _type(version: str, kind: str) -> TypeDesc | None:
    found = kind_for(version, kind)
    return found.type if found is not None else None


def described(value: bytes | None) -> dict[str, Any]:
    """Returns what a step ``etcd`` reports of a value."""
    if value is None:
        return {"stored": None}
    found = SEALED.match(value)
    return {"stored": {"prefix": found.group().decode() if found else value[:4].decode("latin-1"), "plain": b"s3cr3t" in value}}


def b64(value: bytes) -> dict[str, str]:
    """Returns it as a later step refers to it."""
    return {"value": base64.b64encode(value).decode()}

"""``kas storage migrate`` on etcd: the values of a cluster written again as a server would write them today, while servers use it."""

from __future__ import annotations

from collections.abc import Iterator

from kas.registry.etcdvalues import StoredValues
from kas.storage.places import PAGE, ROOT
from kas.store.errors import TransformError
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import RANGE, TXN, Client, Config, prefix_end
from kas.store.etcd.layout import Keys, Undecodable
from kas.store.etcd.sealing import PREFIX
from kas.store.rewrite import Rewritten
from kas.store.transform import Transformers

CALL_S = 60.0


class EtcdMigration:
    """One pass over the keys of a cluster."""

    def __init__(self, config: Config, keys: Keys, values: StoredValues, transformers: Transformers | None) -> None:
        """``values`` say how objects are stored."""
        self._client, self._keys, self._values, self._transformers = Client(config), keys, values, transformers

    def close(self) -> None:
        """Ends the connections."""
        self._client.close()

    def run(self) -> Rewritten:
        """Writes each object again that is sealed, or stored, otherwise than it would be today. One that somebody else writes meanwhile
        is as of today. Raises ``StoreError``."""
        done = Rewritten()
        for kv in self._pages():
            if kv.key == self._keys.fence:
                continue
            done.seen += 1
            try:
                done.written += self._one(kv)
            except TransformError as e:
                done.failed.append(e)
        return done

    def _pages(self) -> Iterator[pb.KeyValue]:
        first = self._keys.to_etcd(ROOT)
        key, stop, revision = first, prefix_end(first), 0
        while True:
            page = self._client.call(RANGE, pb.RangeRequest(key=key, range_end=stop, limit=PAGE, revision=revision), CALL_S)
            yield from page.kvs
            if not page.more or not page.kvs:
                return
            revision, key = revision or page.header.revision, page.kvs[-1].key + b"\0"

    def _one(self, kv: pb.KeyValue) -> bool:
        """Whether it was written. Raises ``TransformError`` for what cannot be read or sealed."""
        try:
            key = self._keys.from_etcd(kv.key)
        except UnicodeDecodeError as e:
            raise TransformError(kv.key.decode(errors="replace"), str(e)) from None
        transformer = self._transformers(key) if self._transformers is not None else None
        plain, stale = kv.value, False
        try:
            if transformer is not None:
                plain, stale = transformer.open(kv.value, kv.key)
            elif kv.value.startswith(PREFIX):
                raise TransformError(key, "identity transformer tried to read encrypted data")
            new = self._values.today(key, plain)
            if new == plain and not stale:
                return False
            sealed = new if transformer is None or transformer.plain else transformer.seal(new, kv.key)
        except TransformError:
            raise
        except (Undecodable, ValueError) as e:
            raise TransformError(key, str(e)) from None
        put = pb.PutRequest(key=kv.key, value=sealed, ignore_lease=bool(kv.lease))
        compare = pb.Compare(target=pb.Compare.MOD, key=kv.key, mod_revision=kv.mod_revision)
        return bool(self._client.call(TXN, pb.TxnRequest(compare=[compare], success=[pb.RequestOp(request_put=put)])).succeeded)

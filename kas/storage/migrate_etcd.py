"""``kas storage migrate`` on etcd: rewrites the values of a cluster in the form of today's writes, while servers use it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from kas.registry.etcdvalues import StoredValues
from kas.storage.etcdplace import holds_only_others
from kas.storage.imageplace import only_elsewhere
from kas.storage.places import PAGE, ROOT
from kas.store.errors import TransformError
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import TXN, Client, Config, Denied
from kas.store.etcd.layout import Keys, Undecodable
from kas.store.etcd.pages import pages
from kas.store.etcd.sealing import PREFIX
from kas.store.rewrite import Rewritten
from kas.store.transform import Transformers

CALL_S = 60.0
TOGETHER = 16  # concurrent writes: etcd syncs once for all that have arrived. Each has a revision of its own, for watches


class EtcdMigration:
    """One pass over the keys of a cluster."""

    def __init__(self, config: Config, keys: Keys, values: StoredValues, transformers: Transformers | None) -> None:
        """``values`` encodes objects in their stored form."""
        self._client, self._keys, self._values, self._transformers = Client(config), keys, values, transformers

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def look(self) -> None:
        """Raises ``Refused`` for a cluster that only has objects of other prefixes: old encryption keys might be given up by
        mistake."""
        with contextlib.suppress(Denied):  # if etcd does not permit the read
            if holds_only_others(self._client, self._keys):
                raise only_elsewhere("etcd", self._keys)

    def run(self) -> Rewritten:
        """Rewrites each object that is sealed, or stored, in another form than today's. An object that another client writes
        meanwhile is up to date. Raises ``StoreError``."""
        done = Rewritten()
        with ThreadPoolExecutor(TOGETHER, "kas-migrate") as pool:
            for kvs in self._pages():
                puts = []
                for kv in kvs:
                    if kv.key == self._keys.fence:
                        continue
                    done.seen += 1
                    try:
                        if (put := self._today(kv)) is not None:
                            puts.append(put)
                    except TransformError as e:
                        done.failed.append(e)
                done.written += sum(pool.map(self._carry_out, puts))
        return done

    def _pages(self) -> Iterator[Sequence[pb.KeyValue]]:
        """Yields all keys in order, each page at its own revision: a single revision for all might be compacted meanwhile."""
        for page in pages(self._client, self._keys.to_etcd(ROOT), most=PAGE, within_s=CALL_S, moving=True):
            yield page.kvs

    def _today(self, kv: pb.KeyValue) -> pb.TxnRequest | None:
        """Returns the transaction that rewrites the object; None if it is up to date. Raises ``TransformError`` for a value
        that cannot be read or sealed."""
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
                return None
            sealed = new if transformer is None or transformer.plain else transformer.seal(new, kv.key)
        except TransformError:
            raise
        except (Undecodable, ValueError) as e:
            raise TransformError(key, str(e)) from None
        put = pb.PutRequest(key=kv.key, value=sealed, ignore_lease=bool(kv.lease))
        compare = pb.Compare(target=pb.Compare.MOD, key=kv.key, mod_revision=kv.mod_revision)
        return pb.TxnRequest(compare=[compare], success=[pb.RequestOp(request_put=put)])

    def _carry_out(self, txn: pb.TxnRequest) -> bool:
        """Commits; returns False if another client has written the object meanwhile. For any thread."""
        return bool(self._client.call(TXN, txn).succeeded)

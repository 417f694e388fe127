"""EtcdStore as the contract's tests use it: with a prefix of its own in a shared etcd, and revisions counted from the one where it began.

Only revisions are translated: a read at revision 3 reads etcd's third revision after the beginning.
"""

from __future__ import annotations

import itertools
import re
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from kas.store import Compacted, Conflict, FutureRevision, Op, build_record
from kas.store.etcd.client import Client
from kas.store.etcd.layout import Keys
from kas.store.etcd.replicator import Replicator
from kas.store.etcd.store import EtcdStore
from tests.etcd import Etcd

PREFIXES = itertools.count()
REVISION = re.compile(rb'"resourceVersion":"(\d+)"')


class Whole:
    """Stores a whole draft as the value."""

    first, whole = (), True

    def before(self, key: str) -> str:
        return ""

    def encode(self, key: str, draft: Any) -> bytes:
        parts = (draft.head.decode(), draft.tail.decode(), draft.label_map, draft.field_map, draft.type_prefix_len, draft.metadata_tail)
        return orjson.dumps(parts)

    def decode(self, key: str, value: bytes) -> Any:
        head, tail, labels, fields, type_prefix_len, metadata_tail = orjson.loads(value)
        return build_record(head.encode(), tail.encode(), labels, fields, type_prefix_len, metadata_tail=metadata_tail)


class Counted:
    """A record, event or result of the store, with the suite's revisions."""

    def __init__(self, inner: Any, base: int) -> None:
        self._inner, self._base = inner, base

    def __len__(self) -> int:
        return len(self._inner)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if isinstance(value, bytes):
            return REVISION.sub(lambda m: b'"resourceVersion":"%d"' % (int(m[1]) - self._base), value)
        if name in ("revision", "create_revision"):
            return value - self._base
        if name == "records":
            return [Counted(record, self._base) for record in value]
        return Counted(value, self._base) if name in ("record", "previous") and value is not None else value


class Following:
    """A watcher."""

    def __init__(self, inner: Any, store: OnEtcd) -> None:
        self._inner, self._store = inner, store

    def take(self, *args: int) -> list[Any]:
        return [self._store.event(e) for e in self._store.asked(self._inner.take, *args)]

    @property
    def progress(self) -> int:
        return self._inner.progress - self._store.base

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class OnEtcd:
    """The store and its replicator. ``close`` stops both."""

    def __init__(self, etcd: Etcd) -> None:
        self._path = tempfile.TemporaryDirectory(prefix="kas-replica-")
        self._etcd, self._keys = etcd, Keys(f"/test{next(PREFIXES)}")
        self._client = Client(etcd.config)
        self._replicator = Replicator(self._client, lambda store: Whole(), self._keys, Path(self._path.name) / "replica", self._open)
        self.inner = self._replicator.begin()
        self.base = self.inner.revision
        self._events: dict[int, Any] = {}
        self._thread = threading.Thread(target=self._replicator.run, daemon=True)
        self._thread.start()
        self.hub = self

    def _open(self) -> EtcdStore:
        return EtcdStore(
            str(Path(self._path.name) / "replica"), self._etcd.config, lambda store: Whole(), keys=self._keys, max_size=1 << 28,
            ask_progress=lambda: self._replicator.request_progress(), ordered_progress=lambda: True,
        )  # fmt: skip

    def close(self) -> None:
        self._replicator.stop()
        self._thread.join(60)
        assert not self._thread.is_alive()
        self.inner.close()
        self._client.close()
        self._path.cleanup()

    # -- translation of revisions

    def event(self, event: Any) -> Any:
        """Returns the same object for each event of the store, because watchers share events."""
        return self._events.setdefault(id(event), (event, Counted(event, self.base)))[1]

    def asked(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except Compacted as e:
            raise Compacted(e.requested - self.base, e.compacted - self.base) from None
        except FutureRevision as e:
            raise FutureRevision(e.requested - self.base, e.current - self.base) from None
        except Conflict as e:
            raise Conflict(None if e.current is None else Counted(e.current, self.base), e.key) from None

    def _at(self, revision: int) -> int:
        return revision + self.base if revision else 0

    # -- the contract

    @property
    def revision(self) -> int:
        return self.inner.revision - self.base

    @property
    def compacted_revision(self) -> int:
        return self.inner.compacted_revision - self.base

    def get(self, key: str, revision: int = 0) -> Any:
        record = self.asked(self.inner.get, key, self._at(revision))
        return None if record is None else Counted(record, self.base)

    def range(self, prefix: str, start: str = "", limit: int = 0, revision: int = 0, *args: Any, **kwargs: Any) -> Any:
        return Counted(self.asked(self.inner.range, prefix, start, limit, self._at(revision), *args, **kwargs), self.base)

    def range_json(self, prefix: str, start: str = "", limit: int = 0, revision: int = 0, *args: Any, wrap: Any = None, **more: Any) -> Any:
        told = None if wrap is None else lambda result: wrap(Counted(result, self.base))
        return Counted(self.asked(self.inner.range_json, prefix, start, limit, self._at(revision), *args, wrap=told, **more), self.base)

    def count(self, prefix: str, most: int = 0) -> int:
        return self.inner.count(prefix, most)

    def commit_now(self, *ops: Op, one_revision: bool = False) -> None:
        given = [Op(op.key, op.draft, op.expected and op.expected + self.base, op.check) for op in ops]
        self.asked(self.inner.commit_now, *given, one_revision=one_revision)

    def events(self, prefix: str, after: int, *args: int) -> tuple[list[Any], int]:
        events, reached = self.asked(self.inner.events, prefix, after + self.base, *args)
        return [self.event(e) for e in events], reached - self.base

    def watch(
        self, prefix: str, after: int, on_ready: Any, key: str | None = None, limit: int = 1024, trigger: Any = None
    ) -> Any:  # fmt: skip
        return Following(self.asked(self.inner.watch, prefix, after + self.base, on_ready, key, limit, trigger), self)

    def listen(self, prefix: str, callback: Any, reset: Any = None) -> Any:
        return self.inner.listen(prefix, lambda events: callback([self.event(e) for e in events]), reset)

    def catch_up(self, revision: int = 0) -> None:
        self.inner.catch_up(self._at(revision))

    def compact(self, revision: int, *args: int) -> bool:
        return self.inner.compact(revision + self.base, *args)

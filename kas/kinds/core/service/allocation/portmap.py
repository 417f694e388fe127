"""The bitmap in which kube-apiserver records taken node ports (upstream ``pkg/registry/core/rangeallocation``).

In etcd it is a RangeAllocation at ``KEY``: the range as text, and in ``data`` a big-endian number whose lowest bit stands for the first
port. A server on etcd updates it in the transaction of each Service that takes or releases a port, so that a kube-apiserver on the same
etcd does not allocate the port, too. If the value is not a RangeAllocation, allocations fail until the repair has rebuilt it from the
Services; kube-apiserver's repair gives up there, and the server exits a minute later.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable

import orjson

from kas.meta.stored import object_of
from kas.store import Op, Record, Store, TransformError, build_record

KEY = "/registry/ranges/servicenodeports"
LEAK_PASSES = 3  # of the repair: an allocator may be about to write the Service

log = logging.getLogger("kas.controllers")


class PortMap:
    """The bitmap of the ports ``low`` to ``high``."""

    def __init__(self, store: Store, low: int, high: int) -> None:
        self._store, self._low, self._high = store, low, high
        self._leaks: dict[int, int] = {}

    @property
    def range(self) -> str:
        """The range as text, as in the object."""
        return f"{self._low}-{self._high}"

    def _read(self) -> tuple[Record | None, int]:
        """Return the record and its bits; no bits if it is for another range, in which case the repair replaces it."""
        record = self._store.get(KEY)
        if record is None:
            return None, 0
        obj = object_of(record)
        return record, int.from_bytes(base64.b64decode(obj.get("data") or ""), "big") if obj.get("range") == self.range else 0

    def taken(self, port: int) -> bool:
        """Whether the port is taken."""
        return self._low <= port <= self._high and bool(self._read()[1] >> (port - self._low) & 1)

    def all_taken(self) -> set[int]:
        """Return all taken ports."""
        bits = self._read()[1]
        return {self._low + i for i in range(bits.bit_length()) if bits >> i & 1}

    def op(self, take: Iterable[int], give: Iterable[int]) -> list[Op]:
        """Return the write that takes and releases ports in the same transaction; none if no port is in the range."""
        mine, gone = self._bits(take), self._bits(give)
        if not mine | gone:
            return []
        record, bits = self._read()
        return [self._write(record.revision if record is not None else 0, (bits | mine) & ~gone)]

    def _bits(self, ports: Iterable[int]) -> int:
        return sum(1 << (port - self._low) for port in set(ports) if self._low <= port <= self._high)

    def _write(self, over: int, bits: int) -> Op:
        """Return the write that replaces the value of revision ``over``, 0 if there is none."""
        data = base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "big")).decode()
        tail = b'},"range":%b,"data":%b}' % (orjson.dumps(self.range), orjson.dumps(data))
        return Op(KEY, build_record(b'{"metadata":{', tail, {}, {}, 1), over)

    def repaired(self, held: Iterable[int]) -> Op | None:
        """Return the write that makes the bitmap match the Services, None if it does. Unused ports are kept for ``LEAK_PASSES`` calls."""
        wanted = self._bits(held)
        try:
            record, bits = self._read()
        except TransformError as e:
            if not e.revision:  # it is encrypted, and no key here decrypts it
                raise
            log.warning("%s; it is rebuilt from the Services", e)
            return self._write(e.revision, wanted)
        leaked = bits & ~wanted
        self._leaks = {i: self._leaks.get(i, 0) + 1 for i in range(leaked.bit_length()) if leaked >> i & 1}
        wanted |= sum(1 << i for i, passes in self._leaks.items() if passes < LEAK_PASSES)
        whole = record is not None and object_of(record).get("range") == self.range
        return None if whole and wanted == bits else self._write(record.revision if record is not None else 0, wanted)

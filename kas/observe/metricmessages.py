"""Prometheus' protobuf format: length-delimited ``io.prometheus.client.MetricFamily`` messages (``client_model/metrics.proto``).

Prometheus requests it to get native histograms, which the text format cannot express. Fields that the Go library sets are written even if
they are empty or 0. Creation timestamps of counters are omitted.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from kas.meta.protowire import BYTES, FIXED64, VARINT, varint
from kas.observe.metrics import Histogram, Labels, Metric, help_of, in_order
from kas.observe.nativebuckets import ZERO, native

TYPES = {"counter": 0, "gauge": 1, "histogram": 4}
VALUES = {"counter": 3, "gauge": 2}  # in a Metric
HISTOGRAM = 7
_double = struct.Struct("<d").pack


def _bytes(number: int, value: bytes) -> bytes:
    return varint(number << 3 | BYTES) + varint(len(value)) + value


def _number(number: int, value: float) -> bytes:
    return varint(number << 3 | VARINT) + varint(int(value))


def _float(number: int, value: float) -> bytes:
    return varint(number << 3 | FIXED64) + _double(value)


def delimited(families: Iterable[tuple[Metric, dict[Labels, Any]]]) -> bytes:
    """All ``families``, as yielded by ``metrics.merged_families``, each preceded by its length."""
    out = []
    for metric, values in families:
        message = family(metric, values)
        out += [varint(len(message)), message]
    return b"".join(out)


def family(m: Metric, values: dict[Labels, Any]) -> bytes:
    """Encodes one ``MetricFamily``."""
    out = [_bytes(1, m.name.encode()), _bytes(2, help_of(m).encode()), _number(3, TYPES[m.kind])]
    names, ordered = in_order(m, values)
    keys = [_bytes(1, name.encode()) for name in names]
    for labels in sorted(ordered):
        pairs = [_bytes(1, key + _bytes(2, value.encode())) for key, value in zip(keys, labels, strict=True)]
        v = ordered[labels]
        pairs.append(_bytes(HISTOGRAM, _histogram(m, v)) if isinstance(m, Histogram) else _bytes(VALUES[m.kind], _float(1, v)))
        out.append(_bytes(4, b"".join(pairs)))
    return b"".join(out)


def _histogram(m: Histogram, row: Any) -> bytes:
    """Encodes a ``Histogram``. The infinite bucket equals the count and is omitted."""
    buckets = [_bytes(3, _number(1, total) + _float(2, bound)) for bound, total in m.cumulative(row)]
    out = _number(1, sum(row[:-1])) + _float(2, row[-1]) + b"".join(buckets)
    if not m.native:
        return out
    sparse = native(row, m.buckets)
    out += _number(5, _zigzag(sparse.schema)) + _float(6, ZERO) + _number(7, sparse.zero)
    out += b"".join(_bytes(12, _number(1, _zigzag(offset)) + _number(2, length)) for offset, length in sparse.spans)
    return out + b"".join(_number(13, _zigzag(delta)) for delta in sparse.deltas)


def _zigzag(n: int) -> int:
    """The zigzag encoding of sint32 and sint64."""
    return n << 1 if n >= 0 else (-n << 1) - 1

"""Reads ranges of etcd in pages of bounded size: values may be 1.5 MiB each, or more if etcd is configured so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import RANGE, Client, TooLarge, prefix_end

PAGE = 1000
PAGE_BYTES = 16 << 20


def pages(
    client: Client, prefix: bytes, *, start: bytes = b"", revision: int = 0, most: int = PAGE, within_s: float = 60.0, moving: bool = False,
    **more: Any,
) -> Iterator[pb.RangeResponse]:  # fmt: skip
    """Yields the keys that begin with ``prefix``, from ``start`` on, at ``revision`` (0: that of the first page; with
    ``moving``, each page at its own revision), in pages of at most ``most`` keys and ``PAGE_BYTES``, or of one key. A page
    that would be larger is not read, but requested again with fewer keys. Raises ``StoreError``."""
    key, end, limit = start or prefix, prefix_end(prefix), most
    while True:
        request = pb.RangeRequest(key=key, range_end=end, limit=limit, revision=revision, **more)
        try:
            page = client.call(RANGE, request, within_s, PAGE_BYTES if limit > 1 else 0)
        except TooLarge:
            limit = max(1, limit // 4)
            continue
        yield page
        if not page.more or not page.kvs:
            return
        revision = 0 if moving else revision or page.header.revision
        key, limit = page.kvs[-1].key + b"\0", min(most, 2 * limit)

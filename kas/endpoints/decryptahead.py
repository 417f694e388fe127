"""What a request will read is opened before it reads, where a plug-in is asked for the key of each value (KMS version 1).

Handlers read the store on the loop, which must not wait for a plug-in. So a request about such a resource becomes a task, reads in a thread
what it is about (the object; the page of a list; what a watch begins with), and only then goes its way: the keys are remembered for a
minute, ``encryption/kms/keys.py``. What cannot be opened is told by the handler. Events of other workers and what is read besides (an
owner, a quota's objects) are not opened so: those wait on the loop, a second at most.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from kas.encryption.kms import keys
from kas.endpoints.options import list_options
from kas.endpoints.read import limit_of, position
from kas.endpoints.served import Served
from kas.meta.errors import ApiError
from kas.meta.threads import Threads
from kas.request.http import Request
from kas.store import StoreError

THREADS, PAGE = 16, 100
LISTED = {"list", "watch", "deletecollection"}


class DecryptAhead:
    """``waits(key)`` says whether the values of a key, or behind a prefix, may have to be asked for."""

    def __init__(self, waits: Callable[[str], bool]) -> None:
        self._waits = waits
        self._threads = Threads(THREADS, "kas-opening")

    def begun(self, req: Request, resources: dict[tuple[str, str], dict[str, Any]]) -> Awaitable[None] | None:
        """To be awaited before the request is handled; None when nothing is to be opened."""
        info = req.info
        served = resources.get((info.api_group, info.api_version), {}).get(info.resource)
        if not isinstance(served, Served) or not self._waits(served.registry.root):
            return None
        namespace = info.namespace if served.record.namespaced else ""
        if info.verb in LISTED:
            return self._listed(req, served, namespace)
        if info.name and (namespace or not served.record.namespaced):
            return self._in_thread(_one, served.registry.store, served.registry.key(namespace, info.name))
        return None

    async def _listed(self, req: Request, served: Served, namespace: str) -> None:
        try:
            o = list_options(req.params, req.info.verb == "watch")
            revision, start, wanted = position(served, namespace, o)
        except ApiError:
            return  # the handler says what is wrong
        store = served.registry.store
        if wanted > store.revision or (o.watch and o.resource_version not in ("", "0")):
            return
        await self._in_thread(_page, store, served.registry.prefix(namespace), start, 0 if o.watch else limit_of(o), revision)

    async def _in_thread(self, read: Callable[..., None], *args: Any) -> None:
        ended = threading.Event()
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads, _opened, partial(read, *args, ended))
        finally:
            ended.set()  # whoever asked may be gone

    def close(self) -> None:
        """Begins nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _opened(read: Callable[[], None]) -> None:
    with keys.opening():
        try:
            read()
        except StoreError:
            return  # whoever reads it meets the same


def _one(store: Any, key: str, ended: threading.Event) -> None:
    if not ended.is_set():
        store.get(key)


def _page(store: Any, prefix: str, start: str, limit: int, revision: int, ended: threading.Event) -> None:
    """Page by page: a client that leaves ends it with the page."""
    left, more = limit, True
    while more and not ended.is_set():
        page = store.range(prefix, start, min(left, PAGE) if limit else PAGE, revision)
        start, more, left = page.next_key, page.more and (not limit or left > page.count), left - page.count

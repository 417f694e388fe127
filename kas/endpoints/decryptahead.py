"""Decrypts what a request will read before its handler runs.

Used where a KMS plug-in must be called for the key of each value (KMS version 1).

Handlers read the store on the event loop, which must not wait for a plug-in. A request for such a resource therefore becomes a task. It
first reads its objects in a thread (the object, the page of a list, or the initial objects of a watch), and runs the handler after that,
because the keys are cached for a minute (``encryption/kms/keys.py``). Decryption errors are left to the handler. Events of other workers
and other reads (an owner, a quota's objects) are not decrypted ahead: they wait on the event loop, for at most a second.
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
    """Decrypts ahead of handlers. ``waits(key)`` says whether values of a key, or below a prefix, may need a call of a plug-in."""

    def __init__(self, waits: Callable[[str], bool]) -> None:
        self._waits = waits
        self._threads = Threads(THREADS, "kas-decrypt")

    def begun(self, req: Request, resources: dict[tuple[str, str], dict[str, Any]]) -> Awaitable[None] | None:
        """Return an awaitable to wait for before the request is handled, or None if nothing has to be decrypted."""
        info = req.info
        served = resources.get((info.api_group, info.api_version), {}).get(info.resource)
        if not isinstance(served, Served) or not self._waits(served.registry.root):
            return None
        namespace = info.namespace if served.record.namespaced else ""
        if info.verb in LISTED:
            return self._decrypt_list(req, served, namespace)
        if info.name and (namespace or not served.record.namespaced):
            return self._in_thread(_read_one, served.registry.store, served.registry.key(namespace, info.name))
        return None

    async def _decrypt_list(self, req: Request, served: Served, namespace: str) -> None:
        try:
            o = list_options(req.params, req.info.verb == "watch")
            revision, start, wanted = position(served, namespace, o)
        except ApiError:
            return  # the handler reports the error
        store = served.registry.store
        if wanted > store.revision or (o.watch and o.resource_version not in ("", "0")):
            return
        await self._in_thread(_read_pages, store, served.registry.prefix(namespace), start, 0 if o.watch else limit_of(o), revision)

    async def _in_thread(self, read: Callable[..., None], *args: Any) -> None:
        ended = threading.Event()
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads, _run_decrypting, partial(read, *args, ended))
        finally:
            ended.set()  # the request may have been cancelled

    def close(self) -> None:
        """Start no more reads."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _run_decrypting(read: Callable[[], None]) -> None:
    with keys.opening():
        try:
            read()
        except StoreError:
            return  # the handler's read reports the same error


def _read_one(store: Any, key: str, ended: threading.Event) -> None:
    if not ended.is_set():
        store.get(key)


def _read_pages(store: Any, prefix: str, start: str, limit: int, revision: int, ended: threading.Event) -> None:
    """Read page by page, so that a cancelled request stops after the current page."""
    left, more = limit, True
    while more and not ended.is_set():
        page = store.range(prefix, start, min(left, PAGE) if limit else PAGE, revision)
        start, more, left = page.next_key, page.more and (not limit or left > page.count), left - page.count

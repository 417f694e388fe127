"""Encryption at rest in one worker: the configuration in force, for reads, writes, health checks and metrics."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from kas.encryption.ciphers import SealError
from kas.encryption.configuration import Loaded, load
from kas.encryption.kms.keys import opening
from kas.encryption.kms.plugins import KMSPlugins
from kas.encryption.observed import Observed
from kas.encryption.providers import GroupResource, Members, Sealing, build, find
from kas.encryption.resources import ROOT, Resources
from kas.store.errors import TransformError
from kas.types.configfile import ConfigurationError

log = logging.getLogger("kas.encryption")

RETRY_S = 10.0  # until a changed but unusable file is tried again: its plug-ins may have started
CLOSE_S = 60.0  # after which no write uses a replaced configuration
TAKEN_S = 4.0  # within which all workers have read a changed file; they check every second
PAGE, READING_S = 100, 5.0


class Readable(Protocol):
    """The part of the store that is read to check that values can be opened."""

    def range(self, prefix: str, start: str = "", limit: int = 0) -> Any:
        """See ``kas.store``."""
        ...


class _InForce:
    """One version of the file, with its providers."""

    def __init__(self, loaded: Loaded, plugins: KMSPlugins, members: dict[GroupResource, Members], observed: Observed) -> None:
        self.digest, self.plugins, self.members, self._observed = loaded.digest, plugins, members, observed
        self._made: dict[GroupResource, Sealing | None] = {}
        self.by_root: dict[str, Sealing | None] = {}  # for resources that are determined by the first part of a key

    def sealing(self, resource: GroupResource) -> Sealing | None:
        """Returns the transformer of a resource, None for one that the file does not name."""
        try:
            return self._made[resource]
        except KeyError:
            members = find(self.members, resource)
            made = Sealing(resource, members, self._observed) if members is not None else None
            self._made[resource] = made  # bounded by the number of resources
            return made


class _Between:
    """Used while the workers take over a changed file: writes as before, reads the old and the new form. So no worker meets a
    value that it cannot open."""

    def __init__(self, before: Sealing | None, after: Sealing | None) -> None:
        self._both = [s for s in (before, after) if s is not None]
        self._before = before
        self.plain = before is None or before.plain
        self.waits = any(s.waits for s in self._both)
        self.refuses_plain = "" if before is None else min(s.refuses_plain for s in self._both)

    def seal(self, plain: bytes, key: bytes) -> bytes:
        """Seals as before."""
        assert self._before is not None  # otherwise ``plain`` is set
        return self._before.seal(plain, key)

    def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
        """Opens the old or the new form."""
        for sealing in self._both[:-1]:
            with contextlib.suppress(SealError):
                return sealing.open(sealed, key)
        return self._both[-1].open(sealed, key)

    def key_of(self, sealed: bytes) -> bytes:
        """See ``kas/store/transform.py``."""
        return next((found for s in self._both if (found := s.key_of(sealed))), b"")

    def writes_with(self, key: bytes) -> bool:
        """See ``kas/store/transform.py``; of the old or the new form."""
        return any(s.writes_with(key) for s in self._both)


class EncryptionAtRest:
    """Reads the file at ``path``: ConfigurationError with a single line if it is invalid. ``records`` are the built-in
    resources; ``directory`` is where workers share keys, ``own`` this worker's name there."""

    def __init__(
        self, path: str, reload: bool, kms_v1: bool, records: Iterable[Any], directory: Path | None = None, own: str = "0"
    ) -> None:
        self.path, self.reload, self._kms_v1 = path, reload, kms_v1
        self._resources, self.observed = Resources(records), Observed()
        self._directory, self._own = directory, own
        self._stamp, self._retry_at = _stamp(path), 0.0
        self._replaced: list[tuple[float, KMSPlugins]] = []
        self._now = self._make(load(path, reload))
        self._next: tuple[float, _InForce] | None = None  # (time, the version in force from then on)
        self.observed.in_force(self._now.digest)
        self.unreadable = ""

    def _make(self, loaded: Loaded) -> _InForce:
        plugins = KMSPlugins(self._directory, self._own, self.observed)
        return _InForce(loaded, plugins, build(loaded.resources, plugins, self._kms_v1), self.observed)

    # --- values

    def transformer(self, key: str) -> Sealing | _Between | None:
        """Returns the transformer of a key (``store.Transformers``). Called for plain records, too: takes half a microsecond."""
        coming, now = self._next, self._now
        if coming is None:
            try:
                return now.by_root[key[: key.find("/", len(ROOT))]]
            except KeyError:
                return self._sealing(key, now)
        resource = self._resources.of(key)
        if resource is None:
            return None
        before, after = self._now.sealing(resource), coming[1].sealing(resource)
        return _Between(before, after) if before is not None or after is not None else None

    @property
    def may_wait(self) -> bool:
        """Whether there may be values whose keys a plug-in opens one by one (version 1)."""
        return self._kms_v1

    def waits(self, key: str) -> bool:
        """Returns whether the values of a key, or below a prefix of one resource, are such."""
        found = self.transformer(key)
        return found is not None and found.waits

    def _sealing(self, key: str, now: _InForce) -> Sealing | None:
        resource, root = self._resources.of(key), key[: key.find("/", len(ROOT))]
        found = now.sealing(resource) if resource is not None else None
        if root in self._resources.simple:
            now.by_root[root] = found
        return found

    def prefixes(self) -> list[str]:
        """Returns the prefixes of values that are, or were, sealed: of built-in resources, and of those of definitions named
        in the file."""
        return self._resources.prefixes(self._now.members)

    def read_all(self, store: Readable) -> str:
        """Reads all values that may be sealed, for at most ``READING_S``: keys are opened before requests need them, and are
        kept for listers that are filled at the start. Returns the first error, or "". Blocks; not for the loop's thread."""
        with opening():
            return self._read_all(store)

    def _read_all(self, store: Readable) -> str:
        until = time.monotonic() + READING_S
        for prefix in self.prefixes():
            start, more = "", True
            while more and time.monotonic() < until:
                try:
                    page = store.range(prefix, start, PAGE)
                except TransformError as e:
                    self.unreadable = f"unable to transform key {e.key}: {e.why}"
                    return self.unreadable
                start, more = page.next_key, page.more
        self.unreadable = ""
        return ""

    async def read_again(self, store: Readable) -> None:
        """Runs ``read_all`` in a thread, if there was an error."""
        if self.unreadable:
            await asyncio.to_thread(self.read_all, store)

    # --- plug-ins

    def begin(self) -> str:
        """Checks the plug-ins for the first time, and periodically from then on. Returns the first problem, or "". Blocks."""
        why = self._now.plugins.check_all()
        if why:
            log.error("KMS provider %s", why)
        self._now.plugins.start()
        return why

    def checks(self) -> dict[str, Callable[[], str]]:
        """Returns the health checks, by name: one for each plug-in, or a single one if the file is followed, or if no
        plug-in has version 1."""
        if self.reload or (self._now.plugins.providers and not self._now.plugins.first_version):
            return {"kms-providers": lambda: self._now.plugins.problems}
        providers = self._now.plugins.providers.values()
        return {f"kms-provider-{i}": lambda p=provider: p.problem for i, provider in enumerate(providers)}  # type: ignore[misc]

    # --- the file

    def changed(self) -> bool:
        """Returns whether ``reread`` has something to do. Only checks the file's status."""
        if not self.reload:
            return False
        now = time.monotonic()
        if self._next is not None:
            return now >= self._next[0]
        stamp = _stamp(self.path)
        if stamp == self._stamp:
            return bool(self._retry_at and now >= self._retry_at) or bool(self._replaced and now >= self._replaced[0][0])
        self._stamp, self._retry_at = stamp, now
        return True

    async def follow(self) -> None:
        """Runs ``reread`` in a thread, if it has something to do."""
        if self.changed():
            await asyncio.to_thread(self.reread)

    def reread(self) -> None:
        """Takes over the changed file if it is valid and its plug-ins answer; otherwise the error is logged and counted, and
        it is tried again later. Blocks."""
        self._close_replaced()
        if self._next is not None:
            self._put_in_force(self._next[1])
            return
        if not self._retry_at:
            return
        try:
            loaded = load(self.path, True)
            if loaded.digest == self._now.digest:
                self._retry_at = 0.0
                return
            new = self._make(loaded)
            if why := new.plugins.check_all():
                new.plugins.close()
                raise ConfigurationError(f"KMS provider {why}")
        except ConfigurationError as e:
            log.error("failed to process new encryption config: %s", e)
            self.observed.reloaded(False)
            self._retry_at = time.monotonic() + RETRY_S
            return
        new.plugins.start()
        self._retry_at = 0.0
        if self._directory is None:
            self._put_in_force(new)
        else:
            self._next = time.monotonic() + TAKEN_S, new

    def _put_in_force(self, new: _InForce) -> None:
        before, self._now = self._now, new
        self._next = None
        self._replaced.append((time.monotonic() + CLOSE_S, before.plugins))
        log.warning("loaded new encryption config: %s", new.digest)
        self.observed.in_force(new.digest)
        self.observed.reloaded(True)

    def _close_replaced(self) -> None:
        now = time.monotonic()
        for at, plugins in [row for row in self._replaced if row[0] <= now]:
            plugins.close()
            self._replaced.remove((at, plugins))

    def close(self) -> None:
        """Stops using the plug-ins."""
        for _, plugins in self._replaced:
            plugins.close()
        self._now.plugins.close()
        if self._next is not None:
            self._next[1].plugins.close()


def _stamp(path: str) -> tuple[int, int, int]:
    try:
        s = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (s.st_mtime_ns, s.st_size, s.st_ino)

"""The KMS plug-ins of a worker: one provider for each configured name, checked periodically in a thread, and the keys that
workers share.

Each worker writes with seeds of its own. Before it uses a new one it writes the encrypted seed to the run directory, where
the other workers find it within a second and let their plug-in open it, in a thread: so no event loop waits for a plug-in
when it reads a value of another worker. Reading a value whose key is unknown since the start (``Opened``) still waits, for at
most a second.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

from kas.auth.attributes import aggregate
from kas.encryption.ciphers import SealError
from kas.encryption.configuration import V1
from kas.encryption.kms import v1
from kas.encryption.kms.client import KMSClient
from kas.encryption.kms.messages import DEKSource, read_stored, stored
from kas.encryption.kms.v2 import SERVICE, SPREAD_S, KMSv2
from kas.encryption.observed import Observed
from kas.meta.field import go_quote
from kas.types.configfile import ConfigurationError

log = logging.getLogger("kas.encryption")
Obj = dict[str, Any]

LOOK_S, HEALTHY_S, UNHEALTHY_S = 1.0, 10.0, 2.0
MAX_TOLD = 1024  # maximum of files in the run directory that are read
MAX_OWN = 64  # maximum of files of a worker for one plug-in: workers that have read the older ones do not need them any more


def problem(kms: Obj) -> str:
    """Returns why this program cannot use a configured plug-in, or ""."""
    if importlib.util.find_spec("grpc") is None:
        return f"the KMS provider {go_quote(kms['name'])} needs gRPC: install kas[kms]"
    return ""


class KMSPlugins:
    """``directory``: where workers share their keys, None for a single worker; ``own`` distinguishes this worker's files."""

    def __init__(self, directory: Path | None = None, own: str = "0", observed: Observed | None = None) -> None:
        self._directory, self._own, self._observed = directory, own, observed or Observed()
        self.providers: dict[str, KMSv2 | v1.KMSv1] = {}
        self._seen: set[str] = set()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def provider(self, kms: Obj) -> KMSv2 | v1.KMSv1:
        """See ``Plugins``. Raises ConfigurationError."""
        why = problem(kms)
        if why:
            raise ConfigurationError(f"error while building transformers: {why}")
        name, first = kms["name"], kms["apiVersion"] == V1
        known = f"{name} at {kms['endpoint']}" if first else name  # several of version 1 may have the same name
        found = self.providers.get(known)
        if found is None:
            measure = functools.partial(self._observed.call, name)
            client = KMSClient(kms["endpoint"], kms["timeout"] / 1e9, v1.SERVICE if first else SERVICE, measure)
            if first:
                found = v1.KMSv1(name, client, kms["cachesize"])
            else:
                spread_s = SPREAD_S if self._directory else 0.0
                found = KMSv2(client, lambda source: self._tell(name, source), spread_s, name=name, observed=self._observed)
            self.providers[known] = found
        return found

    @property
    def first_version(self) -> bool:
        """Whether any plug-in has version 1."""
        return any(isinstance(provider, v1.KMSv1) for provider in self.providers.values())

    @property
    def problems(self) -> str:
        """The results of the last checks, by the plug-in's number."""
        return aggregate([f"kms-provider-{i}: {p.problem}" for i, p in enumerate(self.providers.values()) if p.problem])

    def check_all(self) -> str:
        """Checks every plug-in; returns the first problem, or "". Blocks."""
        problems = [f"{name}: {why}" for name, p in self.providers.items() if (why := p.check())]
        return problems[0] if problems else ""

    def start(self) -> None:
        """Checks every plug-in periodically from now on."""
        if self.providers and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="kas-kms-check", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        due = dict.fromkeys(self.providers, 0.0)
        while not self._end.wait(LOOK_S):
            self._look()
            for name, provider in self.providers.items():
                if time.monotonic() < due[name]:
                    continue
                before, why = provider.problem, provider.check()
                if why and provider.problem != before and not self._end.is_set():
                    log.error("KMS provider %s: %s", name, why)
                due[name] = time.monotonic() + (UNHEALTHY_S if why else HEALTHY_S)

    # --- sharing keys among workers

    def _tell(self, name: str, source: DEKSource) -> None:
        if self._directory is None:
            return
        self._directory.mkdir(mode=0o700, exist_ok=True)
        path = self._directory / f"{_digest(name)}.{source.digest().hex()[:16]}.{self._own}"
        new = path.with_suffix(".new")
        # A message like a stored one, but without data.
        new.write_bytes(stored(b"-", source))
        os.replace(new, path)
        own = [p for p in self._directory.iterdir() if p.name.startswith(_digest(name) + ".") and p.suffix == f".{self._own}"]
        for old in sorted(own, key=lambda p: p.stat().st_mtime_ns)[:-MAX_OWN]:
            old.unlink()

    def _look(self) -> None:
        if self._directory is None:
            return
        try:
            names = sorted(os.listdir(self._directory))[:MAX_TOLD]
        except OSError:  # no worker has written anything yet
            return
        for provider_name, provider in self.providers.items():
            if isinstance(provider, v1.KMSv1):
                continue
            for file in names:
                if file in self._seen or file.endswith(".new") or not file.startswith(_digest(provider_name) + "."):
                    continue
                try:
                    provider.opened.get(read_stored((self._directory / file).read_bytes())[1])
                except (SealError, OSError) as e:
                    log.info("KMS provider %s: another worker's key: %s", provider_name, e)
                    continue
                self._seen.add(file)

    def close(self) -> None:
        """Stops using the plug-ins."""
        self._end.set()
        for provider in self.providers.values():
            provider.close()


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:16]

"""The server's authorizer, made of a configuration, and made again when ``--authorization-config`` changes.

Node, RBAC and ABAC follow the store or were read when the server started; they persist, and must be in every later configuration that
the first one had them in. A file that cannot be used changes nothing. Upstream: ``pkg/kubeapiserver/authorizer/reload.go``.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Awaitable, Callable

from kas.auth.attributes import DENY, NO_OPINION, Attributes, Authorizer, Outcome
from kas.auth.authz.configuration import SECOND, WEBHOOK, Authorizers, AuthorizerSettings, conditions_of, load
from kas.auth.authz.modes import Union, build
from kas.auth.user import UserInfo
from kas.observe.metrics import Registry
from kas.types.configfile import ConfigurationError, read_file

log = logging.getLogger("kas.auth")

BACKOFF_S = 0.5  # of webhooks, before the second try (``DefaultAuthWebhookRetryBackoff``)
LOOK_EVERY_S = 1.0
KEPT = ("Node", "RBAC", "ABAC")


class Builder:
    """Makes an authorizer of a configuration, with these parts of it that last."""

    def __init__(self, metrics: Registry, rbac: Authorizer, node: Authorizer, abac: Authorizer | None = None) -> None:
        self._metrics, self._rbac, self._node, self._abac = metrics, rbac, node, abac
        self._decisions = metrics.counter(
            "apiserver_authorization_decisions_total",
            "Total number of terminal decisions made by an authorizer split by authorizer type, name, and decision.",
            ("type", "name", "decision"),
        )

    def build(self, authorizers: Authorizers) -> Union:
        """Raises ValueError for what there cannot be."""
        hooks = [(s.name, self._webhook(s)) for s in authorizers if s.type == WEBHOOK]
        return build([s.type for s in authorizers], self._rbac, self._node, self._abac, hooks, decisions=self._decisions)

    def _webhook(self, settings: AuthorizerSettings) -> Authorizer:
        from kas.auth.authz.webhook import Metrics, WebhookAuthorizer  # with the HTTP client; few servers have one
        from kas.client.kubeconfig import load as load_kubeconfig
        from kas.client.webhook import Webhook

        hook = settings.webhook
        assert hook is not None  # the configuration says so
        webhook = Webhook(load_kubeconfig(hook.kubeconfig), BACKOFF_S, hook.timeout / SECOND)
        ttls = (hook.authorized_ttl / SECOND, hook.unauthorized_ttl / SECOND)
        on_error = DENY if hook.deny_on_error else NO_OPINION
        return WebhookAuthorizer(settings.name, webhook, hook.version, ttls, on_error, Metrics(self._metrics), conditions_of(hook))


class Reloading:
    """The authorizer of the file at ``path``. ``look`` is called now and then. Only one worker of a server counts its reloads, the one
    with ``identity``, the server's name. Raises ValueError for a file that cannot be used."""

    def __init__(self, path: str, builder: Builder, metrics: Registry, identity: str = "", clock: Callable[[], float] = time.time) -> None:
        self._path, self._builder, self._clock = path, builder, clock
        self._counts = _Counts(metrics, identity) if identity else None
        self._wrong = ""  # what was said last of a file that cannot be used
        self._stamp = self._stat()
        self._data = read_file(path)
        self._loaded = load(self._data)
        self._needed = {s.type for s in self._loaded if s.type in KEPT}
        self._current = builder.build(self._loaded)
        if self._counts is not None:
            self._counts.info(self._data)

    def authorize(self, a: Attributes) -> Outcome | Awaitable[Outcome]:
        """As the newest configuration that can be used says."""
        return self._current.authorize(a)

    def rules_for(self, user: UserInfo, namespace: str) -> tuple[list[dict], list[dict], bool, str]:
        """Those of all authorizers that can list their rules."""
        return self._current.rules_for(user, namespace)

    def look(self) -> None:
        """Read the file again if it changed; it counts from now on, or changes nothing and is logged."""
        try:
            stamp = self._stat()
            if stamp == self._stamp:
                return
            data = read_file(self._path)
            self._stamp = stamp
            if data == self._data:
                return
            self._data = data
            changed = self._read(data)
        except ValueError as e:
            if self._wrong != str(e):
                self._wrong = str(e)
                log.error("reloading authorization config: %s", e)
                if self._counts is not None:
                    self._counts.reloaded("failure", self._clock())
            return
        self._wrong = ""
        if changed:
            log.warning("reloaded authz config")
            if self._counts is not None:
                self._counts.reloaded("success", self._clock())
                self._counts.info(data)

    def _read(self, data: bytes) -> bool:
        loaded = load(data, self._needed)
        if loaded == self._loaded:
            return False
        for s in loaded:
            if s.type in KEPT and s.type not in self._needed:
                raise ValueError(f"authorizer type {s.type} is not allowed if it was not enabled at initial server startup")
        built = self._builder.build(loaded)
        before, self._current, self._loaded = self._current, built, loaded
        before.close()
        return True

    def _stat(self) -> tuple[int, int, int]:
        try:
            s = os.stat(self._path)
        except OSError as e:
            raise ConfigurationError(f"open {self._path}: {(e.strerror or str(e)).lower()}") from None
        return s.st_mtime_ns, s.st_size, s.st_ino


class _Counts:
    def __init__(self, metrics: Registry, identity: str) -> None:
        name, by = "apiserver_authorization_config_controller_", ("apiserver_id_hash", "status")
        self._reloads = metrics.counter(
            f"{name}automatic_reloads_total",
            "Total number of automatic reloads of authorization configuration split by status and apiserver identity.", by,
        )  # fmt: skip
        self._last = metrics.gauge(
            f"{name}automatic_reload_last_timestamp_seconds",
            "Timestamp of the last automatic reload of authorization configuration split by status and apiserver identity.", by,
        )  # fmt: skip
        self._info = metrics.gauge(
            f"{name}last_config_info",
            "Information about the last applied authorization configuration with hash as label, split by apiserver identity.",
            ("apiserver_id_hash", "hash"),
        )  # fmt: skip
        self._identity = _hash(identity.encode())

    def reloaded(self, status: str, now: float) -> None:
        self._reloads.inc((self._identity, status))
        self._last.set((self._identity, status), now)

    def info(self, data: bytes) -> None:
        self._info.values.clear()
        self._info.set((self._identity, _hash(data)), 1)


def _hash(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"

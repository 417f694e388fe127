"""The server's authorizer, built from a configuration and rebuilt when ``--authorization-config`` changes.

The Node, RBAC and ABAC authorizers keep their state: they follow the store, or were read when the server started. Every later
configuration must contain those of them that the first one had. A file that cannot be used changes nothing. Upstream:
``pkg/kubeapiserver/authorizer/reload.go``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from kas.auth.attributes import DENY, NO_OPINION, Attributes, Authorizer, Outcome, Rules
from kas.auth.authz.configuration import SECOND, WEBHOOK, Authorizers, AuthorizerSettings, conditions_of, from_flags, load
from kas.auth.authz.modes import Union, build
from kas.auth.user import UserInfo
from kas.meta.goerrors import unreadable
from kas.meta.records import NamedTuple
from kas.observe.metrics import Registry
from kas.observe.reloads import Reloads
from kas.types.configfile import ConfigurationError, read_file

if TYPE_CHECKING:
    from kas.auth.authz.matchconditions import MatchConditions
    from kas.client.http import Via
    from kas.client.kubeconfig import Backend
    from kas.config.options import Options

log = logging.getLogger("kas.auth")

BACKOFF_S = 0.5  # of webhooks, before the second attempt (``DefaultAuthWebhookRetryBackoff``)
LOOK_EVERY_S = 1.0
KEPT = ("Node", "RBAC", "ABAC")


class Parts(NamedTuple):
    """The parts of a webhook authorizer that take long to build and may be built in any thread: its kubeconfig and its compiled
    conditions."""

    kubeconfig: Backend
    conditions: MatchConditions | None


def parts_of(authorizers: Authorizers) -> list[Parts]:
    """Return the parts of the webhooks, in order. Raises ValueError for a file that cannot be used."""
    hooks = [s.webhook for s in authorizers if s.webhook is not None and s.type == WEBHOOK]
    if not hooks:
        return []
    from kas.client.kubeconfig import load as load_kubeconfig  # few servers have a webhook

    return [Parts(load_kubeconfig(hook.kubeconfig), conditions_of(hook)) for hook in hooks]


class Builder:
    """Builds an authorizer from a configuration and the given long-lived authorizers. ``via`` is the route to webhooks."""

    def __init__(
        self, metrics: Registry, rbac: Authorizer, node: Authorizer, abac: Authorizer | None = None, via: Via | None = None
    ) -> None:
        self._metrics, self._rbac, self._node, self._abac, self._via = metrics, rbac, node, abac, via
        self._decisions = metrics.counter(
            "apiserver_authorization_decisions_total",
            "Total number of terminal decisions made by an authorizer split by authorizer type, name, and decision.",
            ("type", "name", "decision"),
        )

    def build(self, authorizers: Authorizers, parts: Sequence[Parts] | None = None) -> Union:
        """Build the authorizer. ``parts`` is the result of ``parts_of(authorizers)`` if it is known. Raises ValueError for a
        configuration that is not valid."""
        webhooks = [s for s in authorizers if s.type == WEBHOOK]
        made = zip(webhooks, parts_of(authorizers) if parts is None else parts, strict=True)
        hooks = [(s.name, self._webhook(s, part)) for s, part in made]
        return build([s.type for s in authorizers], self._rbac, self._node, self._abac, hooks, decisions=self._decisions)

    def _webhook(self, settings: AuthorizerSettings, part: Parts) -> Authorizer:
        from kas.auth.authz.webhook import Metrics, WebhookAuthorizer  # imports the HTTP client; few servers have a webhook
        from kas.client.webhook import Webhook

        hook = settings.webhook
        assert hook is not None  # guaranteed by validation
        webhook = Webhook(part.kubeconfig, BACKOFF_S, hook.timeout / SECOND, via=self._via)
        ttls = (hook.authorized_ttl / SECOND, hook.unauthorized_ttl / SECOND)
        on_error = DENY if hook.deny_on_error else NO_OPINION
        return WebhookAuthorizer(settings.name, webhook, hook.version, ttls, on_error, Metrics(self._metrics), part.conditions)


class Reloading:
    """The authorizer of the file at ``path``, reloaded by ``look``, which is called periodically. The initial load counts as a reload, as
    upstream. Raises ValueError for a file that cannot be used."""

    def __init__(self, path: str, builder: Builder, reloads: Reloads) -> None:
        self._path, self._builder, self._reloads = path, builder, reloads
        self._wrong = ""  # the last error logged about the file
        self._stamp = self._stat()
        self._data = read_file(path)
        self._loaded = load(self._data)
        self._needed = {s.type for s in self._loaded if s.type in KEPT}
        self._current = builder.build(self._loaded)
        self._done(True)

    def authorize(self, a: Attributes) -> Outcome | Awaitable[Outcome]:
        """Decide by the newest valid configuration."""
        return self._current.authorize(a)

    def ready(self, user: UserInfo, namespace: str) -> Awaitable[None] | None:
        """Return what to await before ``rules_for``, or None."""
        return self._current.ready(user, namespace)

    def rules_for(self, user: UserInfo, namespace: str) -> Rules | Awaitable[Rules]:
        """Return the rules of all authorizers that can list theirs."""
        return self._current.rules_for(user, namespace)

    def look(self) -> Awaitable[None] | None:
        """Reload the file if it changed. A valid file takes effect; an invalid one changes nothing and is logged."""
        try:
            stamp = self._stat()
        except ValueError as e:
            self._refuse(e)
            return None
        return None if stamp == self._stamp else self._again(stamp)

    async def _again(self, stamp: tuple[int, int, int]) -> None:
        changed = False
        try:
            data = await asyncio.to_thread(read_file, self._path)
            self._stamp = stamp
            if data == self._data:
                return
            self._data = data
            # In a thread: it may have many conditions to compile, while requests are being authorized.
            loaded, parts = await asyncio.to_thread(self._read, data)
            if parts is not None:
                built = self._builder.build(loaded, parts)
                before, self._current, self._loaded, changed = self._current, built, loaded, True
                before.close()
        except ValueError as e:
            self._refuse(e)
            return
        self._wrong = ""
        if changed:
            log.warning("reloaded authz config")
            self._done(True)

    def _refuse(self, e: ValueError) -> None:
        if self._wrong != str(e):
            self._wrong = str(e)
            log.error("reloading authorization config: %s", e)
            self._done(False)

    def _read(self, data: bytes) -> tuple[Authorizers, list[Parts] | None]:
        """Return the configuration and its parts, or None instead of parts if it equals the current one. Raises ValueError."""
        loaded = load(data, self._needed)
        if loaded == self._loaded:
            return loaded, None
        for s in loaded:
            if s.type in KEPT and s.type not in self._needed:
                raise ValueError(f"authorizer type {s.type} is not allowed if it was not enabled at initial server startup")
        return loaded, parts_of(loaded)

    def _done(self, good: bool) -> None:
        self._reloads.done(good, time.time())
        if good:
            self._reloads.applied(self._data)

    def _stat(self) -> tuple[int, int, int]:
        try:
            s = os.stat(self._path)
        except OSError as e:
            raise ConfigurationError(unreadable(self._path, e)) from None
        return s.st_mtime_ns, s.st_size, s.st_ino


def authorizer_of(
    o: Options, metrics: Registry, rbac: Authorizer, node: Authorizer, server: str, via: Via | None = None
) -> Union | Reloading:
    """Return the authorizer that the flags configure.

    ``server`` is the server's name in the metrics of reloads, "" if this process does not count them. ``via`` is the route to webhooks.
    Raises ValueError for files that cannot be used, OSError for a policy file that cannot be read.
    """
    abac = None
    if o.authorization_policy_file:
        from kas.auth.authz.abac import load_policy_file

        abac = load_policy_file(o.authorization_policy_file)
    builder = Builder(metrics, rbac, node, abac, via)
    if not o.authorization_config:
        return builder.build(from_flags(o))
    return Reloading(o.authorization_config, builder, Reloads(metrics, "authorization", server))

"""Follows the file of ``--authentication-config``: changes of ``jwt`` take effect once all issuers have answered. As upstream,
``anonymous`` is only read when the server starts.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from time import monotonic, time

from kas.auth.authn.oidc.authenticator import JWTAuthenticator, JWTAuthenticators
from kas.auth.authn.oidc.configuration import AuthenticationConfiguration, AuthenticationConfigurationError, load_file
from kas.config.options import Options
from kas.observe.reloads import Reloads
from kas.types.configfile import ConfigurationError, read_file

log = logging.getLogger("kas.authn")

LOOK_EVERY_S = 1.0
AGAIN_S = 60.0  # an invalid file is retried, as upstream
READY_S = 60.0  # time that issuers in a new file have to answer
POLL_S = 0.1


class Reload:
    """``look`` is called every ``LOOK_EVERY_S``. ``changed`` is called when the issuers were replaced. An invalid file, or one whose
    issuers do not answer, changes nothing."""

    def __init__(
        self, options: Options, current: AuthenticationConfiguration, authenticators: JWTAuthenticators, changed: Callable[[], None],
        reloads: Reloads,
    ) -> None:  # fmt: skip
        self._options, self._authenticators, self._changed, self._reloads = options, authenticators, changed, reloads
        self._path, self._data = options.authentication_config, current.data
        self._stamp: tuple[int, int, int] | None = None
        self._tried = monotonic()
        reloads.applied(current.data)

    async def look(self) -> None:
        """Load the file if it changed."""
        stamp = self._stat()
        if stamp == self._stamp and monotonic() - self._tried < AGAIN_S:
            return
        self._stamp, self._tried = stamp, monotonic()
        try:
            data = await asyncio.to_thread(read_file, self._path)
            if data == self._data:
                return
            await self._use(data)
        except (AuthenticationConfigurationError, ConfigurationError) as e:
            log.error("failed to reload authentication configuration: %s", e)
            self._reloads.done(False, time())
        else:
            log.warning("reloaded authentication configuration from %s", self._path)
            self._reloads.done(True, time())

    async def _use(self, data: bytes) -> None:
        configuration = await asyncio.to_thread(load_file, self._options, data)
        made = await asyncio.to_thread(self._authenticators.made, configuration.issuers)
        for authenticator in made.values():
            authenticator.provider.start()
        try:
            await _ready(made)
        except BaseException:
            for authenticator in made.values():
                authenticator.provider.close()
            raise
        self._authenticators.use(made)
        self._data = data
        self._changed()
        self._reloads.applied(data)

    def _stat(self) -> tuple[int, int, int] | None:
        try:
            s = os.stat(self._path)
        except OSError:
            return None
        return s.st_mtime_ns, s.st_size, s.st_ino


async def _ready(made: dict[str, JWTAuthenticator]) -> None:
    """Return once every issuer has answered. Raises AuthenticationConfigurationError if one does not in time."""
    until = monotonic() + READY_S
    while waiting := [a.provider for a in made.values() if a.provider.verifier is None]:
        if monotonic() > until:
            raise AuthenticationConfigurationError("; ".join(provider.error for provider in waiting))
        await asyncio.sleep(POLL_S)

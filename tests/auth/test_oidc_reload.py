"""A configuration file that changes while its issuers do not answer."""

from __future__ import annotations

import asyncio

import pytest

from kas.auth.authn import AuthenticationError
from kas.auth.authn.oidc import reload
from kas.auth.authn.oidc.authenticator import JWTAuthenticators
from kas.auth.authn.oidc.configuration import load
from kas.config.options import Options
from kas.meta.waiting import awaited
from kas.observe.metrics import Registry
from kas.observe.reloads import Reloads
from tests.auth.issuer import Issuer
from tests.auth.test_oidc import configuration, entry, replace
from tests.tlsstub import authority

RELOADS = "apiserver_authentication_config_controller_automatic_reloads_total"
LAST = "apiserver_authentication_config_controller_automatic_reload_last_timestamp_seconds"


@pytest.fixture
def issuers(tmp_path):
    ca = authority(tmp_path)
    made = [Issuer(tmp_path, ca, name) for name in ("one", "two")]
    yield made
    for issuer in made:
        issuer.close()


class World:
    def __init__(self, path) -> None:
        self.path, self.metrics, self.changes = path, Registry(), 0
        options = Options({"authentication-config": str(path)})
        first = load(options)
        self.authenticators = JWTAuthenticators(self.metrics)
        made = self.authenticators.made(first.issuers)
        for authenticator in made.values():
            authenticator.provider.start()
        self.authenticators.use(made)
        self.reload = reload.Reload(options, first, self.authenticators, self.changed, Reloads(self.metrics, "authentication", "me"))

    def changed(self) -> None:
        self.changes += 1

    async def who(self, token):
        async with asyncio.timeout(60):
            while True:
                try:
                    user = await awaited(self.authenticators.authenticate_token(token))
                except AuthenticationError as e:
                    if "not initialized" not in str(e):
                        raise
                    await asyncio.sleep(0.01)
                else:
                    return user and user.name

    def counted(self):
        return {status: n for (_, status), n in self.metrics.metrics[RELOADS].values.items()}


def test_issuers_that_do_not_answer_change_nothing(issuers, tmp_path, monkeypatch):
    one, two = issuers
    monkeypatch.setattr(reload, "READY_S", 0.3)
    path, ca = tmp_path / "authn.yaml", tmp_path / "stub-ca.crt"

    def say(issuer, prefix):
        replace(path, configuration(entry(issuer, ca, {"claim": "sub", "prefix": prefix})))

    async def run():
        say(one, "one:")
        world = World(path)
        assert await world.who(one.token()) == "one:jane"
        await world.reload.look()
        assert (world.changes, world.counted()) == (0, {})  # as it was
        two.fault = "down"
        say(two, "two:")
        await world.reload.look()
        assert (world.changes, world.counted()) == (0, {"failure": 1})
        assert await world.who(one.token()) == "one:jane" and await world.who(two.token()) is None
        path.unlink()
        await world.reload.look()
        assert await world.who(one.token()) == "one:jane" and world.counted() == {"failure": 2}
        two.fault = ""
        monkeypatch.setattr(reload, "READY_S", 60.0)
        say(two, "two:")
        await world.reload.look()
        assert (world.changes, world.counted()) == (1, {"failure": 2, "success": 1})
        last = {status: at for (_, status), at in world.metrics.metrics[LAST].values.items()}
        assert 0 < last["failure"] <= last["success"]
        assert await world.who(two.token()) == "two:jane" and await world.who(one.token()) is None

    asyncio.run(run())

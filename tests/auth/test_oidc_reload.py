"""A configuration file that changes while its issuers do not answer."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from kas.auth.authn import AuthenticationError
from kas.auth.authn.oidc import reload
from kas.auth.authn.oidc.authenticator import JWTAuthenticators, Metrics
from kas.auth.authn.oidc.configuration import load
from kas.config import features
from kas.config.options import Options
from kas.meta.waiting import awaited
from kas.observe.metrics import Registry
from kas.observe.reloads import Reloads
from tests.auth.issuer import Issuer
from tests.auth.test_oidc import configuration, entry, replace
from tests.tlsstub import authority

RELOADS = "apiserver_authentication_config_controller_automatic_reloads_total"
FETCHED = "apiserver_authentication_jwt_authenticator_jwks_fetch_last"
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
        self.authenticators = JWTAuthenticators(self.metrics, identity="me")
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

    def told_of_keys(self):
        """Returns (issuer, server) of the key metrics, and those that have a fetch time."""
        info, last = (self.metrics.metrics[f"{FETCHED}_{what}"].values for what in ("key_set_info", "timestamp_seconds"))
        return sorted(labels[:2] for labels in info), sorted(labels[1:] for labels in last if labels[0] == "success")

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
        assert world.told_of_keys() == ([of(one)],) * 2
        await world.reload.look()
        assert (world.changes, world.counted()) == (0, {})  # unchanged
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
        assert world.told_of_keys() == ([of(two)],) * 2, "nobody asks the other one any more"

    asyncio.run(run())


def test_a_token_that_waits_for_keys_during_a_reload_is_accepted(issuers, tmp_path):
    one, two = issuers
    path, ca = tmp_path / "authn.yaml", tmp_path / "stub-ca.crt"
    names = {"claim": "sub", "prefix": ""}

    async def run():
        replace(path, configuration(entry(one, ca, names)))
        world = World(path)
        one.fault = "slow"
        waiting = asyncio.create_task(world.who(one.token()))
        async with asyncio.timeout(60):
            while not one.fetches():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            replace(path, configuration(entry(two, ca, names)))
            await world.reload.look()
            assert world.counted() == {"success": 1} and not waiting.done()
            one.release.set()
            assert await waiting == "jane"
            assert await world.who(two.token()) == "jane" and await world.who(one.token()) is None
        assert world.told_of_keys() == ([of(two)],) * 2, "of keys that came later nobody is told"

    asyncio.run(run())


def test_key_metrics_change_once_for_each_set_and_need_their_gate():
    metrics = Metrics(Registry(), "me")
    for document in (b"a", b"b", None):
        metrics.fetched("x", document)
    assert [labels[0] for labels in metrics._when.values] == ["success", "failure"]
    assert list(metrics._what.values) == [("x", digest("me"), digest("b"))]
    with features.DEFAULT.overridden(StructuredAuthenticationConfigurationJWKSMetrics=False):
        metrics.fetched("y", b"c")
    assert {labels[0] for labels in metrics._what.values} == {"x"}


def digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def of(issuer) -> tuple[str, str]:
    return digest(issuer.url), digest("me")

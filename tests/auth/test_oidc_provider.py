"""An issuer that does not answer yet is asked until it answers correctly."""

from __future__ import annotations

import asyncio

from kas.auth.authn.oidc.configuration import Issuer
from kas.auth.authn.oidc.provider import AGAIN_S, Provider
from kas.auth.authn.oidc.validation import Mapper
from tests.auth import issuer as issuers
from tests.tlsstub import authority


def test_an_issuer_is_asked_every_ten_seconds_until_it_answers(tmp_path):
    made = issuers.Issuer(tmp_path, authority(tmp_path))
    made.fault = "down"
    slept: list[float] = []
    errors: list[str] = []
    ways = iter(("stranger", ""))

    async def run() -> None:
        async def sleep(seconds: float) -> None:
            assert provider.verifier is None
            slept.append(seconds)
            errors.append(provider.error)
            made.fault = next(ways)

        described = Issuer(made.url, "", (tmp_path / "stub-ca.crt").read_text(), ("client",), ("RS256",), Mapper())
        provider = Provider(described, sleep=sleep)
        provider.start()
        assert provider._task is not None
        await provider._task
        assert provider.verifier is not None
        provider.close()

    try:
        asyncio.run(run())
    finally:
        made.close()
    assert slept == [AGAIN_S, AGAIN_S] == [10.0, 10.0]
    assert all(f'oidc: authenticator for issuer "{made.url}" is not initialized: ' in error for error in errors)
    assert "issuer did not match the issuer returned by provider" not in errors[0]
    assert "issuer did not match the issuer returned by provider" in errors[1]

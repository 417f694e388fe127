"""The keys of an issuer, when they are fetched, and distributed claims."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest

from kas.auth.authn import AuthenticationError
from kas.auth.authn.oidc.configuration import Issuer
from kas.auth.authn.oidc.distributed import DistributedClaim
from kas.auth.authn.oidc.keys import EVERY_S, MAX_KEYS, MAX_WAITING, RemoteKeys, parse
from kas.auth.authn.oidc.provider import trusting
from kas.auth.authn.oidc.validation import Mapper
from kas.client.fetch import Fetched, get
from kas.client.http import BackendError
from kas.client.kubeconfig import client_tls
from tests.auth import issuer as issuers
from tests.auth.issuer import ec_key, jwk, rsa_key
from tests.tlsstub import Answer, TLSStub, authority, serving

RS = ("RS256",)


def document(*keys):
    return json.dumps({"keys": list(keys)}).encode()


def test_keys_for_verification_are_used():
    from cryptography.hazmat.primitives.asymmetric import ec

    found = parse(document(
        jwk(rsa_key(), "r"), jwk(ec_key(), "e"), jwk(ec_key(ec.SECP256K1()), "k"), {"kty": "oct", "k": "AAAA"}, {"kty": "RSA", "n": "%"},
        {"kty": "OKP", "crv": "Ed25519", "x": "AAAA"}, 5, {},
    ))  # fmt: skip
    assert [(key.id, key.algorithms[0]) for key in found] == [("r", "RS256"), ("e", "ES256")]


@pytest.mark.parametrize(("bits", "exponent"), [(3072, 3000), (16_384, 17), (1_000_000, 17)])
def test_costly_keys_are_ignored(bits, exponent):
    """256 of 3,072 bits, with exponents as long, took 1.6 s for each token without a key id."""
    numbers = ((1 << bits) - 1, (1 << exponent) - 1)
    n, e = (base64.urlsafe_b64encode(x.to_bytes((x.bit_length() + 7) // 8, "big")).decode().rstrip("=") for x in numbers)
    assert [key.id for key in parse(document({"kty": "RSA", "n": n, "e": e, "kid": "bad"}, jwk(rsa_key(), "r")))] == ["r"]


@pytest.mark.parametrize("bad", [b"", b"[]", b"{}", b'{"keys": 5}', b"[" * 100_000, json.dumps({"keys": [{}] * (MAX_KEYS + 1)}).encode()])
def test_invalid_key_sets(bad):
    with pytest.raises(ValueError):
        parse(bad)


class Fake:
    """Returns ``keys`` once ``gate`` is open; has a clock that a test sets."""

    def __init__(self, *keys) -> None:
        self.keys, self.gate, self.asked, self.now = list(keys), asyncio.Event(), 0, 100.0
        self.gate.set()
        self.remote = RemoteKeys("https://x/keys", self.get, clock=lambda: self.now)

    async def get(self, url):
        self.asked += 1
        await self.gate.wait()
        return Fetched(200, "OK", document(*self.keys))

    async def payload(self, token):
        found = self.remote.payload(token, RS)
        return found if isinstance(found, bytes) else await found


def test_fetched_once_a_second_and_when_needed():
    import jwt

    async def run():
        key, other = rsa_key(), rsa_key()
        fake = Fake(jwk(key, "a"))
        good, bad = (jwt.encode({}, k, "RS256", {"kid": "a"}) for k in (key, other))
        assert await fake.payload(good) == b"{}" and fake.asked == 1
        assert isinstance(fake.remote.payload(good, RS), bytes)  # without a delay from here on
        for _ in range(3):
            with pytest.raises(AuthenticationError, match="failed to verify"):
                await fake.payload(bad)
        assert fake.asked == 1
        fake.now += EVERY_S
        with pytest.raises(AuthenticationError):
            await fake.payload(bad)
        assert fake.asked == 2

    asyncio.run(run())


def test_all_tokens_wait_for_one_fetch_and_their_number_is_bounded():
    import jwt

    async def run():
        key = rsa_key()
        fake = Fake(jwk(key))
        fake.gate.clear()
        token = jwt.encode({}, key, "RS256")
        tasks = [asyncio.create_task(fake.payload(token)) for _ in range(MAX_WAITING + 5)]
        while sum(t.done() for t in tasks) < 5:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert [t for t in tasks if t.done() and "too many requests" not in str(t.exception())] == []
        tasks[0].cancel()  # one that is cancelled does not affect the others
        await asyncio.sleep(0)
        fake.gate.set()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(d == b"{}" for d in done) == MAX_WAITING - 1 and fake.asked == 1

    asyncio.run(run())


# --- over TLS


@pytest.fixture
def issuer(tmp_path):
    made = issuers.Issuer(tmp_path, authority(tmp_path))
    yield made, (tmp_path / "stub-ca.crt").read_text()
    made.close()


def expanded(made, ca, claims):
    async def run():
        described = Issuer(made.url, "", ca, ("client",), ("RS256", "ES256"), Mapper())
        claim = DistributedClaim("groups", described, trusting(ca))
        found = claim.expand(claims)
        return found if isinstance(found, dict) else await found

    return asyncio.run(run())


def elsewhere(url, **source):
    return {"_claim_names": {"groups": "s"}, "_claim_sources": {"s": {"endpoint": url, **source}}}


def test_distributed_claims(issuer, tmp_path):
    made, ca = issuer
    said = {"token": made.token(groups=["far"])}

    def answer(asked):
        return Answer(200 if asked.headers.get("authorization") == "Bearer at" else 403, said["token"].encode())

    with TLSStub(*serving(tmp_path, made_ca(tmp_path), "source"), answer) as source:
        assert expanded(made, ca, {"groups": ["near"], **elsewhere(source.url)})["groups"] == ["near"]
        assert expanded(made, ca, elsewhere(source.url, access_token="at"))["groups"] == ["far"]
        for claims, why in (
            (elsewhere(source.url), 'while getting distributed claim "groups": error while getting distributed claim JWT: 403'),
            ({"_claim_names": {"groups": "s"}}, "no claim sources"), ({"_claim_names": 5}, "error parsing distributed claim names"),
            ({"_claim_names": {"groups": "s"}, "_claim_sources": {}}, "missing in _claims_sources"),
            (elsewhere("https://127.0.0.1:1/"), "connection refused"),
        ):  # fmt: skip
            with pytest.raises(AuthenticationError, match=why):
                expanded(made, ca, claims)
        for token, why in (
            (made.token(), "did not contain claim: groups"),
            (made.token(aud="x", groups=[]), "claims: verify distributed claim token: oidc: expected audience"),
            (made.token(key=rsa_key(), groups=[]), "failed to verify"), ("x", "getting untrusted issuer"),
        ):  # fmt: skip
            said["token"] = token
            with pytest.raises(AuthenticationError, match=why):
                expanded(made, ca, elsewhere(source.url, access_token="at"))
    others = {"_claim_names": {"other": "s"}, "_claim_sources": {}}
    assert expanded(made, ca, others) == others


def made_ca(directory):
    """Returns the CA that is trusted as the first one: the file is not read again, so it is the same."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    from tests.pki import Issued

    pem = (directory / "stub-ca.crt").read_bytes()
    return Issued(x509.load_pem_x509_certificate(pem), load_pem_private_key((directory / "stub-ca.key").read_bytes(), None))


def test_redirects_limits_and_other_issuers(tmp_path):
    ca = authority(tmp_path)
    secret = [(b"authorization", b"Bearer s")]

    def answer(asked):
        if asked.path == "/far":
            return Answer(302, b"", (("Location", other.url + "/end"),))
        if asked.path == "/loop":
            return Answer(301, b"", (("Location", "loop"),))
        if asked.path == "/odd":
            return Answer(302, b"", (("Location", "file:///etc/passwd"),))
        return Answer(200, b"x" * 100)

    async def of(url, limit=1000, pem=ca.pem):
        return await get(url, client_tls(pem), secret, limit, 30.0)

    with TLSStub(*serving(tmp_path, ca), answer) as stub, TLSStub(*serving(tmp_path, ca, "two"), answer) as other:
        assert asyncio.run(of(stub.url + "/far")).body == b"x" * 100
        assert "authorization" in stub.asked[0].headers and "authorization" not in other.asked[0].headers
        for url, why in (("/loop", "stopped after 10 redirects"), ("/odd", 'unsupported protocol scheme "file"')):
            with pytest.raises(BackendError, match=why):
                asyncio.run(of(stub.url + url))
        with pytest.raises(BackendError, match="larger than 99 bytes"):
            asyncio.run(of(stub.url, 99))
        with pytest.raises(BackendError, match="unknown authority"):
            asyncio.run(of(stub.url, pem=issuers.pki.issue([("CN", "x")], ca=True).pem))

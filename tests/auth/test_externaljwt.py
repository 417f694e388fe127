"""Service account tokens signed by a process behind a socket: creation, verification, key rotation; and a signer that is faulty or away."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kas.auth import externaljwt
from kas.auth.authn import AuthenticationError
from kas.auth.externaljwt import ExternalSigner, FreshKeys
from kas.auth.tokens import SignerError
from kas.config.options import Options
from kas.config.validation import validate
from kas.request.http import Request, Response
from tests.auth.signer import Signer, field, number
from tests.server.whole import World

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
ISSUER = "https://kubernetes.default.svc"


@pytest.fixture
def outside(tmp_path):
    found = Signer(tmp_path / "signer.sock")
    yield found
    found.close()


class Served:
    """A whole server whose tokens the signer makes."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def __call__(self, method: str, path: str, body: Any = None, token: str = "") -> tuple[int, Any]:
        headers = [(b"authorization", f"Bearer {token or self.world.token}".encode()), (b"content-type", b"application/json")]
        result = self.world.server.chain(Request(method, path, "", headers, json.dumps(body).encode()))
        resp = result if isinstance(result, Response) else await asyncio.ensure_future(result)
        return resp.status, json.loads(resp.body)

    async def token(self, seconds: int = 3600) -> tuple[int, Any]:
        return await self("POST", f"{ACCOUNTS}/bot/token", {"spec": {"expirationSeconds": seconds}})


def serving(directory: Path, outside: Signer, use, **flags: Any) -> None:
    async def run() -> None:
        flags["service_account_signing_endpoint"] = str(outside.socket)
        world = World(directory / "data", loop=asyncio.get_running_loop(), **flags)
        try:
            served = Served(world)
            assert (await served("POST", ACCOUNTS, {"metadata": {"name": "bot"}}))[0] == 201
            await use(served)
        finally:
            world.close()

    (directory / "data").mkdir()
    asyncio.run(run())


def test_a_token_is_signed_externally_and_accepted(tmp_path, outside):
    async def use(served: Served) -> None:
        status, answer = await served.token()
        assert status == 201 and "Sign" in outside.asked
        token = answer["status"]["token"]
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        status, who = await served("POST", path, review, token)
        assert status == 201 and who["status"]["userInfo"]["username"] == "system:serviceaccount:default:bot"
        assert (await served("POST", path, review, token[:-8] + "AAAAAAAA"))[0] == 401
        tokens = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status, reviewed = await served("POST", "/apis/authentication.k8s.io/v1/tokenreviews", tokens)
        assert status == 201 and reviewed["status"]["authenticated"] is True
        jwks = await served("GET", "/openid/v1/jwks")
        assert [k["kid"] for k in jwks[1]["keys"]] == ["one"]
        assert not (served.world.server.options.data_dir / "pki" / "sa.key").exists()

    serving(tmp_path, outside, use)


def test_the_signer_limits_lifetime_and_extension(tmp_path, outside):
    outside.longest_s = 7200

    async def use(served: Served) -> None:
        status, answer = await served.token(10_000)
        assert status == 201 and answer["spec"]["expirationSeconds"] == 7200
        issuer = served.world.server._issuer()
        assert (issuer.max_expiration_s, issuer.extended_s) == (7200, 7200)

    serving(tmp_path, outside, use)


WRONG_HEADERS = [
    ({"typ": "JOSE"}, "while validating header: bad type"), ({"kid": ""}, "while validating header: key id missing"),
    ({"kid": "k" * 1025}, "while validating header: key id longer than 1 kb"),
    ({"alg": "none"}, 'while validating header: bad signing algorithm "none"'),
    ({"jku": "http://x"}, 'while validating header: while parsing header JSON: json: unknown field "jku"'),
]  # fmt: skip


def test_a_faulty_signer_makes_no_token(tmp_path, outside):
    async def use(served: Served) -> None:
        for header, text in WRONG_HEADERS:
            outside.header = header
            text = f"failed to generate token: {text}"
            assert (await served.token()) == (500, {
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 500, "reason": "InternalError",
                "message": f"Internal error occurred: {text}", "details": {"causes": [{"message": text}]},
            })  # fmt: skip
        outside.header = {}
        outside.answers["Sign"] = lambda: field(1, "e30")
        assert "bad type" in (await served.token())[1]["message"]
        outside.answers.clear()
        outside.hidden.add("one")
        served.world.server.keys.external._due = 0.0
        await served.world.server.keys.external.follow()
        text = "failed to generate token: while validating header: key used for signing JWT (kid: one) is excluded from OIDC discovery docs"
        assert (await served.token())[1]["message"] == f"Internal error occurred: {text}"

    serving(tmp_path, outside, use)


class Asked:
    def __init__(self, signer: ExternalSigner) -> None:
        self.signer = signer

    def authenticate_token(self, token: str) -> Any:
        return self.signer.verifier.claims(token)


def _endless(claims: dict[str, Any]) -> str:
    """Returns a token that any client may send: of a known issuer, with a header too deep to parse."""
    head, payload = b'{"kid":' + b"[" * 3000 + b"]" * 3000 + b"}", json.dumps(claims).encode()
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (head, payload, b"x"))


def test_keys_are_rotated_without_a_restart(outside, monkeypatch):
    monkeypatch.setattr("kas.auth.externaljwt.monotonic", lambda: 100.0)  # all of it happens within one second
    signer = ExternalSigner(str(outside.socket), [ISSUER])
    signer.begin()
    fresh = FreshKeys(Asked(signer), signer)

    async def run() -> None:
        from cryptography.hazmat.primitives.asymmetric import ec

        old = await signer.sign({"iss": ISSUER, "n": 1})
        assert (await fresh.authenticate_token(old))["n"] == 1
        outside.keys, outside.kid = {"two": ec.generate_private_key(ec.SECP256R1())}, "two"
        new = await signer.sign({"iss": ISSUER, "n": 2})
        fetched = outside.asked.count("FetchKeys")
        signer._asked = float("-inf")
        results = await asyncio.gather(*(fresh.authenticate_token(new) for _ in range(5)))
        assert [r["n"] for r in results] == [2] * 5 and outside.asked.count("FetchKeys") == fetched + 1
        with pytest.raises(AuthenticationError):
            await fresh.authenticate_token(old)
        assert outside.asked.count("FetchKeys") == fetched + 1  # a flood of unknown keys causes one fetch a second
        assert await fresh.authenticate_token("not.a.token") is None
        with pytest.raises(AuthenticationError):
            await fresh.authenticate_token(_endless({"iss": ISSUER}))

    asyncio.run(run())


def test_known_keys_are_used_while_the_signer_is_away(outside):
    signer = ExternalSigner(str(outside.socket), [ISSUER])
    signer.begin()

    async def run() -> None:
        token = await signer.sign({"iss": ISSUER})
        outside.answers["FetchKeys"] = lambda: b""
        signer._due = 0.0
        await signer.follow()
        assert signer._due > 0 and signer.verifier.claims(token) == {"iss": ISSUER}

    asyncio.run(run())


PREFIX = (
    "while setting up external-jwt-signer: while initially filling key cache: while performing initial cache fill: while fetching token "
)
WRONG_KEYS = [
    (b"", "verification keys: found invalid refresh hint (0s)"), (number(3, 60), "verification keys: found no keys"),
    (field(1, field(2, b"x")) + number(3, 60), 'verification keys: found invalid public key id ""'),
    (field(1, field(1, "a")) + number(3, 60), "verification keys: found empty public key"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "text"), WRONG_KEYS)
def test_an_unusable_signer_prevents_the_start(outside, answer, text):
    outside.answers["FetchKeys"] = lambda: answer
    with pytest.raises(SignerError) as e:
        ExternalSigner(str(outside.socket), [ISSUER]).begin()
    assert str(e.value) == PREFIX + text


def test_keys_of_an_invalid_answer_are_not_used(outside):
    """Nor those of one whose only error is the time of its data."""
    signer = ExternalSigner(str(outside.socket), [ISSUER])
    signer.begin()
    before = signer.keys
    outside.answers["FetchKeys"] = lambda: outside._fetch(b"") + field(2, bytes([0xFF]))
    with pytest.raises(SignerError, match="while fetching token verification keys"):
        signer._fetch(30)
    assert signer.keys is before


def test_a_signer_with_too_short_lifetimes_and_a_missing_one(outside, tmp_path, monkeypatch):
    outside.longest_s = 599
    with pytest.raises(SignerError, match=r"\A" + r"max token life supported by external-jwt-signer \(599s\) is less than acceptable"):
        ExternalSigner(str(outside.socket), [ISSUER]).begin()
    outside.longest_s = 3600
    with pytest.raises(SignerError, match="supported by service-account-signing-endpoint: 2h0m0s > 1h0m0s"):
        ExternalSigner(str(outside.socket), [ISSUER]).begin(7200)
    monkeypatch.setattr(externaljwt, "SYNC_TIMEOUT_S", 0.2)
    with pytest.raises(SignerError, match="code = DeadlineExceeded"):
        ExternalSigner(str(tmp_path / "none.sock"), [ISSUER]).begin()


def test_repeated_slashes_count_as_one(outside):
    signer = ExternalSigner(f"/{outside.socket}", [ISSUER])
    signer.begin()
    assert signer.keys


def test_a_start_that_waits_for_a_signer_can_be_stopped(tmp_path):
    """Not only when a minute is over, after which workers were killed."""
    flags = ("--secure-port=auto", "--workers=1", "-v=1", f"--service-account-signing-endpoint={tmp_path / 'none.sock'}")
    flags += ("--service-account-issuer=https://x", "--api-audiences=x", f"--data-dir={tmp_path / 'data'}")
    with subprocess.Popen([sys.executable, "-m", "kas", "serve", *flags], stderr=subprocess.PIPE, text=True) as server:
        try:
            assert any("start: derived state loaded" in line for line in server.stderr), "it ended by itself"
            server.terminate()
            assert "killed" not in server.stderr.read()
            assert server.wait() == 0
        finally:
            server.kill()


def test_key_files_exclude_a_signer(tmp_path):
    for name in ("service-account-signing-key-file", "service-account-key-file"):
        path = tmp_path / "key.pem"
        path.touch()
        value = str(path) if "signing" in name else [str(path)]
        found = validate(Options({"service-account-signing-endpoint": "/run/s.sock", name: value}))
        assert [text for text in found if "mutually exclusive" in text] == [
            "can't set `--service-account-signing-key-file` and/or `--service-account-key-file` with `--service-account-signing-endpoint` "
            "(They are mutually exclusive)"
        ]

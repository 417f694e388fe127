"""Users by tokens of an issuer: a whole server, and an issuer over TLS."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kas.testing.server import KasServer
from tests.auth.issuer import Issuer, ec_key, rsa_key
from tests.conftest import Client
from tests.controllers.waiting import until
from tests.intervals import shorter_intervals
from tests.tlsstub import authority

REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
METRICS = "apiserver_authentication_config_controller_automatic_reloads_total"


def as_(server: KasServer, token: str) -> Client:
    """A client with this token, "" for none."""
    client = Client(server)
    del client.session.headers["Authorization"]
    if token:
        client.session.headers["Authorization"] = f"Bearer {token}"
    return client


def who(server: KasServer, token: str):
    """The user that a token authenticates, None for a 401."""
    status, body = as_(server, token)("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", REVIEW)
    assert status in (201, 401), body
    return body["status"]["userInfo"] if status == 201 else None


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("issuers")


@pytest.fixture(scope="module")
def ca(place):
    return authority(place)


@pytest.fixture(scope="module")
def issuer(place, ca):
    made = Issuer(place, ca)
    yield made
    made.close()


@pytest.fixture(scope="module")
def flagged(place, issuer, tmp_path_factory):
    flags = (
        f"--oidc-issuer-url={issuer.url}", "--oidc-client-id=client", f"--oidc-ca-file={place}/stub-ca.crt", "--oidc-groups-claim=groups",
        "--oidc-groups-prefix=o:", "--oidc-username-prefix=u:", "--oidc-signing-algs=RS256,ES256", "--controllers=none",
        "--unsafe-no-fsync",
    )  # fmt: skip
    with KasServer(tmp_path_factory.mktemp("kas"), *flags) as server:
        until(lambda: who(server, issuer.token()))
        yield server


@pytest.fixture(autouse=True)
def healthy(issuer):
    yield
    issuer.fault, issuer.shown = "", None


def loop_ran():
    """Keys are fetched at most once a second; after this they may be fetched again."""
    time.sleep(1.1)


def test_a_good_token(flagged, issuer):
    user = who(flagged, issuer.token(groups=["a", "b"], jti="7"))
    assert user == {
        "username": "u:jane", "groups": ["o:a", "o:b", "system:authenticated"],
        "extra": {"authentication.kubernetes.io/credential-id": ["JTI=7"]},
    }  # fmt: skip
    assert who(flagged, issuer.token(kid="e1"))["username"] == "u:jane"
    assert who(flagged, issuer.token(kid=None))["username"] == "u:jane"


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "other"}, {"aud": None}, {"aud": 5}, {"exp": 1700000000}, {"exp": None}, {"exp": "soon"}, {"exp": 10**30},
        {"nbf": 4102444800}, {"iss": "https://stranger.example.com"}, {"sub": 5}, {"sub": None}, {"groups": [1]},
        {"groups": {"a": 1}}, {"iat": "x"}, {"_claim_names": {"x": "s"}}, {"_claim_names": {"x": ""}}, {"_claim_names": 5},
        {"_claim_sources": {"s": {"endpoint": 5}}}, {"groups": ["a"], "_claim_names": {"x": "s"}, "_claim_sources": {"t": {}}},
    ],
    ids=str,
)  # fmt: skip
def test_bad_claims(flagged, issuer, claims):
    said = {k: v for k, v in {**_claims(issuer), **claims}.items() if v is not None}
    assert who(flagged, _signed(issuer, {"alg": "RS256", "kid": "k1"}, said)) is None


def _claims(issuer):
    now = int(time.time())
    return {"iss": issuer.url, "aud": "client", "sub": "jane", "exp": now + 600, "iat": now}


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _signed(issuer, header, claims, sign=None):
    """A token signed as given, whether or not a library would accept it."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    first = f"{_b64(json.dumps(header).encode())}.{_b64(json.dumps(claims).encode())}"
    made = sign(first.encode()) if sign else issuer.keys["k1"].sign(first.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{first}.{_b64(made)}"


def test_forged_tokens(flagged, issuer):
    public = issuer.keys["k1"].public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    claims = _claims(issuer)
    forged = {
        "alg none": _signed(issuer, {"alg": "none"}, claims, lambda data: b""),
        "alg none, signed": _signed(issuer, {"alg": "none", "kid": "k1"}, claims),
        "public key as a secret": _signed(
            issuer, {"alg": "HS256", "kid": "k1"}, claims, lambda data: hmac.new(public, data, hashlib.sha256).digest()
        ),
        "another key": issuer.token(key=rsa_key()),
        "another key, no id": issuer.token(kid=None, key=rsa_key()),
        "a curve that is not the algorithm's": issuer.token(key=ec_key(ec.SECP384R1()), kid="e1", alg="ES384"),
        "an algorithm that is not allowed": issuer.token(alg="RS512"),
        "a critical header": _signed(issuer, {"alg": "RS256", "kid": "k1", "crit": ["x"], "x": 1}, claims),
        "other claims below the signature": _moved(issuer),
        "no signature": ".".join(issuer.token().split(".")[:2]) + ".",
        "an id that is no text": _signed(issuer, {"alg": "RS256", "kid": 5}, claims),
        "deep": "e30." + _b64(b'{"iss":"' + issuer.url.encode() + b'","x":' + b"[" * 5000 + b"]" * 5000 + b"}") + ".AAAA",
    }  # fmt: skip
    assert {name: user for name, token in forged.items() if (user := who(flagged, token)) is not None} == {}


def _moved(issuer):
    """The signature of one token with the claims of another."""
    head, _, signature = issuer.token().split(".")
    return f"{head}.{issuer.token(sub='root').split('.')[1]}.{signature}"


def test_keys_are_rotated(flagged, issuer):
    issuer.keys["k2"] = rsa_key()
    until(lambda: who(flagged, issuer.token(kid="k2")), 60)
    assert who(flagged, issuer.token())["username"] == "u:jane"
    before = issuer.keys.pop("k1")
    loop_ran()
    issuer.keys["k3"] = rsa_key()
    until(lambda: who(flagged, issuer.token(kid="k3")), 60)  # the newest set counts, and it does not have the first key
    assert who(flagged, issuer.token(kid="k1", key=before, sub="other")) is None
    issuer.keys["k1"] = before


@pytest.mark.parametrize("fault", ["huge", "garbage", "error", "loop"])
def test_bad_answers_change_nothing(flagged, issuer, fault):
    until(lambda: who(flagged, issuer.token(sub=f"before {fault}")))
    loop_ran()
    issuer.fault, asked = fault, issuer.fetches()
    assert who(flagged, issuer.token(kid="k9", key=rsa_key())) is None
    assert issuer.fetches() > asked
    assert who(flagged, issuer.token(sub=f"after {fault}"))["username"] == f"u:after {fault}"  # the keys from before are kept
    loop_ran()
    issuer.fault = "redirect"
    issuer.keys[fault] = rsa_key()
    until(lambda: who(flagged, issuer.token(kid=fault)))
    assert b"/elsewhere" in b" ".join(a.path.encode() for a in issuer.stub.asked)


def test_a_slow_issuer_delays_no_user_whose_key_is_known(flagged, issuer):
    import threading

    until(lambda: who(flagged, issuer.token(sub="first")))
    loop_ran()
    issuer.fault, asked = "slow", issuer.fetches()
    issuer.release.clear()
    issuer.keys["late"] = rsa_key()
    found: list = []
    waiting = [threading.Thread(target=lambda: found.append(who(flagged, issuer.token(kid="late")))) for _ in range(5)]
    for thread in waiting:
        thread.start()
    until(lambda: issuer.fetches() > asked)
    for i in range(20):
        assert who(flagged, issuer.token(sub=f"known {i}"))["username"] == f"u:known {i}"
    assert not found
    issuer.release.set()
    for thread in waiting:
        thread.join(60)
    assert [user["username"] for user in found] == ["u:jane"] * 5
    assert issuer.fetches() == asked + 1  # one request for all of them


def test_many_bad_tokens_cause_one_fetch_a_second_at_most(flagged, issuer):
    loop_ran()
    asked, began, stranger = issuer.fetches(), time.monotonic(), rsa_key()
    for i in range(50):
        assert who(flagged, issuer.token(key=stranger, sub=str(i))) is None
    assert issuer.fetches() - asked <= time.monotonic() - began + 1


def test_logs_show_no_secrets(flagged, issuer):
    tokens = [issuer.token(sub="secretive"), issuer.token(aud="other", sub="secretive"), issuer.token(key=rsa_key(), sub="secretive")]
    for token in tokens:
        who(flagged, token)
    assert not [part for token in tokens for part in token.split(".")[1:] if part in flagged.output]


# --- a configuration file


def configuration(*jwt, **more):
    return yaml.safe_dump({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": list(jwt), **more})


def entry(issuer, ca_file, username, **more):
    said = {"url": issuer.url, "audiences": ["client"], "certificateAuthority": ca_file.read_text()}
    return {"issuer": said, "claimMappings": {"username": username}, **more}


@pytest.fixture
def configured(place, issuer, tmp_path, tmp_path_factory):
    """A server of two workers with a configuration file of one issuer: (server, path of the file)."""
    path = tmp_path / "authn.yaml"
    path.write_text(configuration(entry(issuer, place / "stub-ca.crt", {"claim": "sub", "prefix": "one:"}), anonymous={
        "enabled": True, "conditions": [{"path": "/livez"}],
    }))  # fmt: skip
    flags = (f"--authentication-config={path}", "--controllers=none", "--unsafe-no-fsync")
    with KasServer(tmp_path_factory.mktemp("kas"), *flags, workers=2) as server:
        until(lambda: who(server, issuer.token()))
        yield server, path


def replace(path, text):
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


def everywhere(server, token, name):
    """Whether all workers authenticate the token as this user, None for nobody."""
    found = [who(server, token) for _ in range(12)]
    return all(user is None if name is None else user is not None and user["username"] == name for user in found)


def test_the_file_is_read_again(configured, place, issuer, ca):
    server, path = configured
    token = issuer.token()
    other = Issuer(place, ca, "other")
    try:
        replace(path, configuration(
            entry(issuer, place / "stub-ca.crt", {"expression": "'two:' + claims.sub"}),
            entry(other, place / "stub-ca.crt", {"claim": "sub", "prefix": "other:"}),
        ))  # fmt: skip
        until(lambda: everywhere(server, token, "two:jane") and everywhere(server, other.token(), "other:jane"))
        replace(path, configuration({"issuer": {"url": "http://x"}}))
        until(lambda: _metrics(server, 'status="failure"} 1'))
        until(lambda: "failed to reload authentication configuration" in server.output)
        assert everywhere(server, token, "two:jane")
        replace(path, configuration(entry(other, place / "stub-ca.crt", {"claim": "sub", "prefix": ""})))
        until(lambda: everywhere(server, other.token(), "jane") and everywhere(server, token, None))
        text = until(lambda: _metrics(server, 'status="success"} 2'))
        assert f'{METRICS}{{apiserver_id_hash="sha256:' in text and 'status="failure"} 1' in text
        assert "apiserver_authentication_config_controller_last_config_info" in text
        took = [line for line in text.splitlines() if line.startswith("apiserver_authentication_jwt_authenticator_latency_seconds_count{")]
        assert any('result="success"' in line for line in took)
    finally:
        other.close()


def _metrics(server, part):
    status, text = Client(server)("GET", "/metrics")
    assert status == 200
    text = text if isinstance(text, str) else text.decode()
    return text if any(line.startswith(METRICS) and part in line for line in text.splitlines()) else ""


def test_the_time_of_fetching_keys_is_a_metric(flagged, issuer):
    """It is recorded by the worker that fetched them; a connection may reach another."""
    name = "apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds{"

    def told() -> bool:
        lines = str(Client(flagged)("GET", "/metrics")[1]).splitlines()
        return any(line.startswith(name) and 'result="success"' in line for line in lines)

    until(lambda: who(flagged, issuer.token()) and told())


def test_anonymous_by_path(configured):
    server, _ = configured
    assert as_(server, "")("GET", "/livez")[0] == 200
    for path in ("/livez/", "/readyz", "/api"):
        assert as_(server, "")("GET", path)[0] == 401, path


def test_an_issuer_with_another_name_is_asked_again(place, ca, tmp_path_factory):
    late = Issuer(place, ca, "late")
    late.fault = "stranger"
    flags = (
        f"--oidc-issuer-url={late.url}", "--oidc-client-id=client", f"--oidc-ca-file={place}/stub-ca.crt", "--controllers=none",
        "--unsafe-no-fsync",
    )  # fmt: skip
    try:
        again = shorter_intervals("kas.auth.authn.oidc.provider.AGAIN_S=0.5")
        with KasServer(tmp_path_factory.mktemp("kas"), *flags, prefix=again) as server:
            assert who(server, late.token()) is None
            assert who(server, server.token)["username"] == "admin"  # other requests are served
            until(lambda: "issuer did not match the issuer returned by provider" in server.output)
            late.fault = ""
            assert until(lambda: who(server, late.token()))["username"] == f"{late.url}#jane"
    finally:
        late.close()


def test_an_issuer_with_a_certificate_of_another_ca_is_refused(place, issuer, tmp_path_factory):
    authority(place, "other-ca")
    flags = (
        f"--oidc-issuer-url={issuer.url}", "--oidc-client-id=client", f"--oidc-ca-file={place}/other-ca.crt", "--controllers=none",
        "--unsafe-no-fsync",
    )  # fmt: skip
    with KasServer(tmp_path_factory.mktemp("kas"), *flags) as server:
        until(lambda: "certificate signed by unknown authority" in server.output)
        assert who(server, issuer.token()) is None

"""Authenticators through their public seam."""

import base64
import json

import pytest

from kas.auth.authn import AuthenticationError
from kas.auth.authn.bearer import BearerToken, websocket_token
from kas.auth.authn.requestheader import RequestHeader
from kas.auth.authn.serviceaccount import ServiceAccountTokens
from kas.auth.authn.tokenfile import TokenFileError, admin_token, parse_token_file
from kas.auth.authn.union import Authenticators, TokenUnion
from kas.auth.authn.x509 import ClientCertificate, Peer
from kas.auth.tokens import Signer, Verifier, bound_claims, generate_key, key_id, legacy_claims
from kas.auth.user import ANONYMOUS_USER, CREDENTIAL_ID, POD_NAME, UserInfo

ISSUER = "https://kubernetes.default.svc"


def headers(**given):
    return {k.replace("_", "-"): v for k, v in given.items()}.get


def test_token_file():
    users = parse_token_file('t1,alice,1,"a, b"\n\nt2,bob,2\n')
    assert users["t1"] == UserInfo("alice", ("a", "b"), "1")
    assert users["t2"] == UserInfo("bob", (), "2")


@pytest.mark.parametrize("text", ["t1,alice\n", "\nt1", ',alice,1,"x"'])
def test_token_file_errors_name_the_line(text):
    line = 2 if text.startswith("\n") else 1
    with pytest.raises(TokenFileError, match=f"^f:{line}: "):
        parse_token_file(text, "f")


def test_bearer_success_is_marked_authenticated_and_remembered():
    asked = []

    class Tokens:
        def authenticate_token(self, token):
            asked.append(token)
            return UserInfo("u") if token == "good" else None

    now = [0.0]
    bearer = BearerToken(Tokens(), ttl_s=10, clock=lambda: now[0])
    get = headers(authorization="Bearer good")
    first = bearer.authenticate(get)
    assert first.groups == ("system:authenticated",)
    assert bearer.authenticate(get) is first and asked == ["good"]
    now[0] = 10.0
    bearer.authenticate(get)
    assert asked == ["good", "good"]
    bearer.invalidate()
    bearer.authenticate(get)
    assert len(asked) == 3


@pytest.mark.parametrize("header", ["Basic abc", "Bearer", "", "Bearer "])
def test_other_schemes_are_not_mine(header):
    assert BearerToken(admin_token("t")).authenticate(headers(authorization=header)) is None


def test_bad_token_never_becomes_anonymous():
    chain = Authenticators([BearerToken(admin_token("t"))])
    with pytest.raises(AuthenticationError):
        chain.authenticate(headers(authorization="Bearer nope"))
    assert chain.authenticate(headers()) is ANONYMOUS_USER
    assert chain.authenticate(headers(authorization="Bearer t")).groups == ("system:masters", "system:authenticated")
    assert Authenticators([], anonymous=False).authenticate(headers()) is None
    only = Authenticators([], anonymous_paths=["/livez"])
    assert only.authenticate(headers(), path="/livez") is ANONYMOUS_USER
    assert only.authenticate(headers(), path="/api") is None


def test_websocket_token():
    proto = "base64url.bearer.authorization.k8s.io." + base64.urlsafe_b64encode(b"t").decode().rstrip("=")
    assert websocket_token(f"{proto}, v5.channel.k8s.io") == ("t", ["v5.channel.k8s.io"])
    bearer = BearerToken(admin_token("t"))
    assert bearer.authenticate(headers(upgrade="websocket", sec_websocket_protocol=f"{proto},x")).name == "admin"
    with pytest.raises(AuthenticationError):
        bearer.authenticate(headers(upgrade="websocket", sec_websocket_protocol=proto))
    with pytest.raises(AuthenticationError):
        websocket_token(f"{proto},{proto}")


class Objects(dict):
    def put(self, resource, obj):
        self[resource, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]] = obj
        return obj

    def lookup(self, resource, namespace, name):
        return self.get((resource, namespace, name))


@pytest.fixture
def world():
    objects = Objects()
    sa = objects.put("serviceaccounts", {"metadata": {"name": "sa", "namespace": "ns", "uid": "u-sa"}})
    pod = objects.put("pods", {"metadata": {"name": "p", "namespace": "ns", "uid": "u-p"}})
    node = objects.put("nodes", {"metadata": {"name": "n", "uid": "u-n"}})
    key = generate_key()
    signer = Signer(key, ISSUER)
    tokens = ServiceAccountTokens(Verifier([key], [ISSUER, "kubernetes/serviceaccount"]), [ISSUER], objects.lookup, clock=lambda: 1000.0)
    return objects, signer, tokens, sa, pod, node


def test_bound_token(world):
    objects, signer, tokens, sa, pod, node = world
    token = signer.sign(bound_claims(ISSUER, sa, [ISSUER], 1000, 3600, pod=pod, node=node, jti="j"))
    header = json.loads(base64.urlsafe_b64decode(token.split(".")[0] + "=="))
    assert header == {"alg": "ES256", "kid": key_id(signer.public_key())}
    user = tokens.authenticate_token(token)
    assert user.name == "system:serviceaccount:ns:sa" and user.uid == "u-sa"
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:ns")
    assert user.extra[CREDENTIAL_ID] == ["JTI=j"] and user.extra[POD_NAME] == ["p"]
    pod["metadata"]["uid"] = "other"
    with pytest.raises(AuthenticationError, match=r"pod UID \(other\) does not match"):
        tokens.authenticate_token(token)
    del objects["pods", "ns", "p"]
    with pytest.raises(AuthenticationError, match="invalidated"):
        tokens.authenticate_token(token)


@pytest.mark.parametrize(
    "change,text",
    [
        ({"exp": 900}, "expired"),
        ({"nbf": 2000}, "not valid yet"),
        ({"iat": 2000}, "issued in the future"),
        ({"aud": ["other"]}, "audiences"),
        ({"exp": "soon"}, "not a number"),
        ({"kubernetes.io": []}, "kubernetes.io"),
    ],
)
def test_bound_token_refused(world, change, text):
    _, signer, tokens, sa, _, _ = world
    claims = {**bound_claims(ISSUER, sa, [ISSUER], 1000, 600), **change}
    with pytest.raises(AuthenticationError, match=text):
        tokens.authenticate_token(signer.sign(claims))


def test_token_of_another_key_or_issuer(world):
    _, _, tokens, sa, _, _ = world
    other = Signer(generate_key(), ISSUER)
    with pytest.raises(AuthenticationError, match="signature"):
        tokens.authenticate_token(other.sign(bound_claims(ISSUER, sa, [ISSUER], 1000, 600)))
    assert tokens.authenticate_token(other.sign(bound_claims("https://else", sa, [ISSUER], 1000, 600))) is None
    for junk in ("", "a.b.c", "..", "x" * 20000, "e30.e30.e30"):
        assert tokens.authenticate_token(junk) is None


def test_unsigned_token_is_refused(world):
    _, _, tokens, sa, _, _ = world

    def part(obj):
        return base64.urlsafe_b64encode(json.dumps(obj).encode()).decode().rstrip("=")

    token = f"{part({'alg': 'none'})}.{part(bound_claims(ISSUER, sa, [ISSUER], 1000, 600))}."
    with pytest.raises(AuthenticationError):
        tokens.authenticate_token(token)


def test_public_key_is_no_shared_secret(world):
    """The classic confusion: a token signed by HMAC with the public key everybody can read."""
    import hashlib
    import hmac

    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    _, signer, tokens, sa, _, _ = world

    def part(obj):
        return base64.urlsafe_b64encode(obj if isinstance(obj, bytes) else json.dumps(obj).encode()).decode().rstrip("=")

    pem = signer.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    body = f"{part({'alg': 'HS256', 'kid': key_id(signer.public_key())})}.{part(bound_claims(ISSUER, sa, [ISSUER], 1000, 600))}"
    token = f"{body}.{part(hmac.digest(pem, body.encode(), hashlib.sha256))}"
    with pytest.raises(AuthenticationError):
        tokens.authenticate_token(token)


def test_legacy_token_lives_and_dies_with_its_secret(world):
    objects, signer, tokens, sa, _, _ = world
    secret = objects.put("secrets", {"metadata": {"name": "s", "namespace": "ns", "uid": "u-s"}})
    token = signer.sign(legacy_claims(sa, secret))
    secret["data"] = {"token": base64.b64encode(token.encode()).decode()}
    assert tokens.authenticate_token(token).name == "system:serviceaccount:ns:sa"
    secret["data"] = {"token": base64.b64encode(b"else").decode()}
    with pytest.raises(AuthenticationError, match="match"):
        tokens.authenticate_token(token)


def test_token_union_tries_all_before_it_fails(world):
    _, _, tokens, _sa, _, _ = world
    union = TokenUnion([tokens, admin_token("t")])
    assert union.authenticate_token("t").name == "admin"
    assert union.authenticate_token("u") is None


def certificate(name, orgs):
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    attrs = [x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, o) for o in orgs]
    subject = x509.Name([*attrs, x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    day = datetime.datetime(2024, 1, 1)
    cert = x509.CertificateBuilder(subject, subject, key.public_key(), 1, day, day + datetime.timedelta(days=1)).sign(key, hashes.SHA256())
    return cert.public_bytes(serialization.Encoding.DER)


def test_client_certificate():
    der = certificate("jane", ["dev", "ops"])
    auth = ClientCertificate()
    user = auth.authenticate(headers(), Peer(der, client_ca=True))
    assert (user.name, user.groups) == ("jane", ("dev", "ops"))
    assert user.extra[CREDENTIAL_ID][0].startswith("X509SHA256=")
    assert auth.authenticate(headers(), Peer(der, client_ca=False)) is None
    assert auth.authenticate(headers()) is None


def test_request_header_needs_a_proven_proxy():
    der = certificate("proxy", [])
    pairs = [("x-remote-user", "jane"), ("x-remote-group", "a"), ("x-remote-group", "b"), ("x-remote-extra-scopes%2fx", "1")]
    get = dict(pairs).get
    auth = RequestHeader(allowed_names=["proxy"])
    user = auth.authenticate(get, Peer(der, False, True, lambda: pairs))
    assert (user.name, user.groups, user.extra) == ("jane", ("a", "b"), {"scopes/x": ["1"]})
    assert auth.authenticate(get) is None
    assert auth.authenticate(get, Peer(der, True, False, lambda: pairs)) is None
    with pytest.raises(AuthenticationError):
        RequestHeader(allowed_names=["other"]).authenticate(get, Peer(der, False, True, lambda: pairs))

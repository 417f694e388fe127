"""Service account tokens."""

import base64
import json

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kas.auth.authn import AuthenticationError
from kas.auth.authn.serviceaccount import ServiceAccountTokens, TokenCounts
from kas.auth.authn.tokenfile import admin_token
from kas.auth.authn.union import TokenUnion
from kas.auth.tokens import Signer, Verifier, bound_claims, key_id, legacy_claims, load_public_keys
from kas.auth.user import CREDENTIAL_ID, POD_NAME
from kas.observe.metrics import Registry
from tests.pki import generate_key

ISSUER = "https://kubernetes.default.svc"


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


@pytest.mark.parametrize(
    ("what", "text"),
    [
        (3, "service account ns/sa has been deleted"),
        (4, "service account token has been invalidated"),
        (5, "service account token has been invalidated"),
    ],
)
def test_tokens_of_deleted_objects_end_a_minute_later(world, what, text):
    """Upstream's table of deletion times: now is 1000 s, the leeway 60 s."""
    _, signer, tokens, sa, pod, node = world
    bound = {4: {"pod": pod}, 5: {"node": node}}.get(what, {})
    token = signer.sign(bound_claims(ISSUER, sa, [ISSUER], 1000, 3600, **bound))
    for second in ("00:16:41", "00:16:40", "00:16:39", "00:15:40"):  # 1001, 1000, 999, 940
        world[what]["metadata"]["deletionTimestamp"] = f"1970-01-01T{second}Z"
        assert tokens.authenticate_token(token).uid == "u-sa"
    world[what]["metadata"]["deletionTimestamp"] = "1970-01-01T00:15:39Z"
    with pytest.raises(AuthenticationError, match=f"^{text}$"):
        tokens.authenticate_token(token)


@pytest.mark.parametrize("aud", [None, []])
def test_a_token_without_an_audience_is_for_the_server(world, aud):
    """As tokens were before they had audiences, whoever issued them."""
    _, signer, tokens, sa, _, _ = world
    claims = {**bound_claims(ISSUER, sa, [ISSUER], 1000, 600), "aud": aud}
    if aud is None:
        del claims["aud"]
    token = signer.sign(claims)
    assert tokens.authenticate_token(token).name == "system:serviceaccount:ns:sa"
    assert tokens.review(token, ["x", ISSUER])[1] == [ISSUER]
    with pytest.raises(AuthenticationError, match=r'^token audiences \["https://k.*"\] is invalid for the target audiences \["x"\]$'):
        tokens.review(token, ["x"])


@pytest.mark.parametrize("aud", [5, {}, [ISSUER, 5], "", None])
def test_invalid_audiences(world, aud):
    _, signer, tokens, sa, _, _ = world
    with pytest.raises(AuthenticationError):
        tokens.authenticate_token(signer.sign({**bound_claims(ISSUER, sa, [ISSUER], 1000, 600), "aud": aud}))


def test_a_legacy_token_is_for_the_server_only(world):
    objects, signer, tokens, sa, _, _ = world
    secret = objects.put("secrets", {"metadata": {"name": "s", "namespace": "ns", "uid": "u-s"}})

    def kept(claims):
        token = signer.sign(claims)
        secret["data"] = {"token": base64.b64encode(token.encode()).decode()}
        return token

    token = kept(legacy_claims(sa, secret))
    assert tokens.review(token, ["x", ISSUER])[1] == [ISSUER]
    with pytest.raises(AuthenticationError, match="is invalid for the target audiences"):
        tokens.review(token, ["x"])
    with pytest.raises(AuthenticationError, match="is invalid for the target audiences"):
        tokens.authenticate_token(kept({**legacy_claims(sa, secret), "aud": ["other"]}))


def test_token_of_another_key_or_issuer(world):
    _, _, tokens, sa, _, _ = world
    other = Signer(generate_key(), ISSUER)
    with pytest.raises(AuthenticationError, match="signature"):
        tokens.authenticate_token(other.sign(bound_claims(ISSUER, sa, [ISSUER], 1000, 600)))
    assert tokens.authenticate_token(other.sign(bound_claims("https://else", sa, [ISSUER], 1000, 600))) is None
    for junk in ("", "a.b.c", "..", "x" * 20000, "e30.e30.e30"):
        assert tokens.authenticate_token(junk) is None


@pytest.mark.parametrize("change", ["{0}==", "{0}!!!!", "{0}\n", "{1}=.{2}.{3}", "{1}.{2}=.{3}", "{1}.{2}!!!!.{3}"])
def test_a_token_has_only_one_encoding(world, change):
    """Invalid base64 used to be skipped."""
    _, signer, tokens, sa, _, _ = world
    token = signer.sign(bound_claims(ISSUER, sa, [ISSUER], 1000, 600))
    assert tokens.authenticate_token(token) is not None
    try:
        found = tokens.authenticate_token(change.format(token, *token.split(".")))
    except AuthenticationError:
        found = None
    assert found is None


def test_a_key_in_several_files_is_published_once():
    key, other = generate_key(), generate_key()
    public = load_public_keys(key)[0].public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    shown = Verifier([key, public, other + public], [ISSUER]).jwks()["keys"]
    assert [k["kid"] for k in shown] == [key_id(load_public_keys(k)[0]) for k in (key, other)]


def test_unsigned_token_is_refused(world):
    _, _, tokens, sa, _, _ = world

    def part(obj):
        return base64.urlsafe_b64encode(json.dumps(obj).encode()).decode().rstrip("=")

    token = f"{part({'alg': 'none'})}.{part(bound_claims(ISSUER, sa, [ISSUER], 1000, 600))}."
    with pytest.raises(AuthenticationError):
        tokens.authenticate_token(token)


@pytest.mark.parametrize("algorithm", [["ES256"], {"a": 1}, None, 7, ""], ids=repr)
def test_an_algorithm_that_is_not_a_string_is_refused(world, algorithm):
    """A list was a panic, and any client may send one."""
    parts = [{"alg": algorithm}, {"iss": ISSUER}]
    token = ".".join(base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in parts) + ".AA"
    with pytest.raises(AuthenticationError, match="unexpected signature algorithm"):
        world[2].authenticate_token(token)


def test_a_public_key_is_not_accepted_as_an_hmac_secret(world):
    """The classic confusion: a token signed by HMAC with the public key, which everyone can read."""
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


def test_a_legacy_token_is_valid_as_long_as_its_secret_exists(world):
    objects, signer, tokens, sa, _, _ = world
    secret = objects.put("secrets", {"metadata": {"name": "s", "namespace": "ns", "uid": "u-s"}})
    token = signer.sign(legacy_claims(sa, secret))
    secret["data"] = {"token": base64.b64encode(token.encode()).decode()}
    assert tokens.authenticate_token(token).name == "system:serviceaccount:ns:sa"
    secret["data"] = {"token": base64.b64encode(b"else").decode()}
    with pytest.raises(AuthenticationError, match="match"):
        tokens.authenticate_token(token)


CLAIMS = "kubernetes.io/serviceaccount/"


def kept(world, change=None, labels=None, claims=CLAIMS):
    """Returns a legacy token as kube-controller-manager writes it, except for ``change``, in the Secret "s"."""
    objects, signer, _, sa, _, _ = world
    secret = objects.put("secrets", {"metadata": {"name": "s", "namespace": "ns", "uid": "u-s", "labels": labels or {}}})
    written = {
        "iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:ns:sa", f"{claims}namespace": "ns", f"{claims}secret.name": "s",
        f"{claims}service-account.name": "sa", f"{claims}service-account.uid": "u-sa",
    }  # fmt: skip
    assert claims != CLAIMS or legacy_claims(sa, secret) == written
    token = signer.sign({**written, **(change or {})})
    secret["data"] = {"token": base64.b64encode(token.encode()).decode()}
    return token


def test_legacy_tokens_of_other_issuers_and_versions(world):
    for claims in (CLAIMS, "kubernetes/serviceaccount/"):
        assert world[2].authenticate_token(kept(world, claims=claims)).uid == "u-sa"


def test_without_lookup_only_bound_tokens_need_their_objects(world):
    objects, signer, tokens, sa, _, _ = world
    unlooked = ServiceAccountTokens(tokens._verifier, [ISSUER], objects.lookup, clock=lambda: 1000.0, lookup=False)
    legacy, bound = kept(world), signer.sign(bound_claims(ISSUER, sa, [ISSUER], 1000, 600))
    objects.clear()
    assert unlooked.authenticate_token(legacy).uid == "u-sa"
    for authenticator, token in ((tokens, legacy), (unlooked, bound)):
        with pytest.raises(AuthenticationError):
            authenticator.authenticate_token(token)
    with pytest.raises(AuthenticationError, match="sub claim is invalid"):
        unlooked.authenticate_token(kept(world, {"sub": "jane"}))


@pytest.mark.parametrize(("change", "why"), [
    ({"sub": ""}, "sub claim is missing"),
    ({f"{CLAIMS}namespace": ""}, "namespace claim is missing"),
    ({f"{CLAIMS}secret.name": ""}, "secretName claim is missing"),
    ({f"{CLAIMS}service-account.name": ""}, "serviceAccountName claim is missing"),
    ({f"{CLAIMS}service-account.uid": ""}, "serviceAccountUID claim is missing"),
    ({"sub": "jane"}, "sub claim is invalid"),
    ({"sub": "system:serviceaccount:ns:other"}, "sub claim is invalid"),
    ({"sub": "system:serviceaccount:ns:SA", f"{CLAIMS}service-account.name": "SA"}, "sub claim is invalid"),
    ({f"{CLAIMS}secret.name": "other"}, "Token has been invalidated"),
    ({f"{CLAIMS}service-account.uid": "old"}, "ServiceAccount UID (u-sa) does not match claim (old)"),
])  # fmt: skip
def test_invalid_legacy_tokens(world, change, why):
    with pytest.raises(AuthenticationError) as e:
        world[2].authenticate_token(kept(world, change))
    assert str(e.value) == why


def test_invalidated_legacy_tokens(world):
    objects, _, tokens, sa, _, _ = world
    token, secret = kept(world), objects["secrets", "ns", "s"]
    data = secret["data"]

    def why():
        with pytest.raises(AuthenticationError) as e:
            tokens.authenticate_token(token)
        return str(e.value)

    secret["data"] = {"token": "ZWxzZQ=="}
    assert why() == "Token does not match server's copy"
    secret["metadata"]["deletionTimestamp"] = "1970-01-01T00:16:00Z"
    assert why() == "Token has been invalidated"
    del secret["metadata"]["deletionTimestamp"]
    secret["data"] = data
    sa["metadata"]["deletionTimestamp"] = "1970-01-01T00:16:00Z"
    assert why() == "ServiceAccount ns/sa has been deleted"
    del objects["serviceaccounts", "ns", "sa"]
    assert why() == 'serviceaccounts "sa" not found'


def test_uses_of_legacy_tokens_are_counted_and_recorded(world):
    objects, signer, _, sa, _, _ = world
    used, counts = [], TokenCounts(Registry())
    tokens = ServiceAccountTokens(
        Verifier([signer.public_key()], ["kubernetes/serviceaccount"]), [ISSUER], objects.lookup, clock=lambda: 1000.0,
        note_use=lambda namespace, name: used.append((namespace, name)), counts=counts,
    )  # fmt: skip
    # a clock that is ahead wrote tomorrow's date
    for day, noted in (("1969-12-31", 1), ("1970-01-01", 1), ("1970-01-02", 1), ("1970-01-03", 2)):
        tokens.authenticate_token(kept(world, labels={"kubernetes.io/legacy-token-last-used": day}))
        assert used == [("ns", "s")] * noted
    sa["secrets"] = [{"name": "s"}]
    tokens.authenticate_token(kept(world))
    with pytest.raises(AuthenticationError, match="has been marked invalid") as e:
        tokens.authenticate_token(kept(world, labels={"kubernetes.io/legacy-token-invalid-since": "1970-01-01"}))
    assert e.value.annotations == {
        "authentication.k8s.io/legacy-token": "system:serviceaccount:ns:sa", "authentication.k8s.io/legacy-token-invalidated": "s/ns",
    }  # fmt: skip
    assert [c.values for c in (counts.manual, counts.generated, counts.invalidated)] == [{(): 4}, {(): 1}, {(): 1}]


def test_token_union_tries_all_before_it_fails(world):
    _, _, tokens, _sa, _, _ = world
    union = TokenUnion([tokens, admin_token("t")])
    assert union.authenticate_token("t").name == "admin"
    assert union.authenticate_token("u") is None

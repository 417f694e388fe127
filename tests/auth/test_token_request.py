"""TokenRequest: the claims of the token, and that the token is accepted."""

import base64
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from kas.auth.authn.bootstrap import BootstrapTokens
from kas.auth.authn.serviceaccount import ServiceAccountTokens
from kas.auth.credentials import ServiceAccountKeys
from kas.auth.tokens import Signer, Verifier
from kas.auth.user import NODE_NAME, NODE_UID, POD_NAME, UserInfo
from kas.config import features
from kas.kinds.authentication.tokenrequest import Issuer, create
from kas.meta.errors import ApiError
from kas.registry.strategy import Context
from tests.pki import generate_key

CTX = Context(namespace="ns", now="2024-01-02T03:04:05Z")
NOW = 1704164645
ISSUER = "https://kubernetes.default.svc"


@pytest.fixture
def objects():
    def obj(name, uid, **more):
        return {"metadata": {"name": name, "namespace": "ns", "uid": uid}, **more}

    return {
        ("serviceaccounts", "ns", "sa"): obj("sa", "u1"),
        ("pods", "ns", "p"): obj("p", "u2", spec={"serviceAccountName": "sa", "nodeName": "n"}),
        ("pods", "ns", "q"): obj("q", "u3", spec={"serviceAccountName": "other"}),
        ("secrets", "ns", "s"): obj("s", "u4"),
    }


@pytest.fixture
def ask(objects):
    key = generate_key()

    def ask(name="sa", ctx=CTX, **spec):
        issuer = Issuer(Signer(key, ISSUER), ["api"], max_expiration_s=7200)
        obj = {"spec": {"expirationSeconds": 3600, **spec}}
        return create(ctx, name, obj, issuer, lambda *k: objects.get(k))

    verifier = Verifier([key], [ISSUER])
    ask.tokens = ServiceAccountTokens(verifier, ["api"], lambda *k: objects.get(k), clock=lambda: NOW + 1)
    return ask


def claims(token):
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def ref(kind, name, **more):
    return {"kind": kind, "apiVersion": "v1", "name": name, **more}


def test_plain_token(ask):
    answer, warnings = ask()
    assert warnings == [] and answer["spec"] == {"audiences": ["api"], "expirationSeconds": 3600, "boundObjectRef": None}
    assert answer["status"]["expirationTimestamp"] == "2024-01-02T04:04:05Z"
    assert answer["metadata"] == {"name": "sa", "namespace": "ns", "uid": "u1", "creationTimestamp": CTX.now}
    assert ask.tokens.authenticate_token(answer["status"]["token"]).uid == "u1"


def test_a_request_may_name_the_accounts_uid(objects):
    """An account with another uid was deleted and created again (kubernetes#132803)."""
    issuer, noted = Issuer(Signer(generate_key(), ISSUER), ["api"]), []

    def asked(uid):
        obj = {"metadata": {"uid": uid}, "spec": {"expirationSeconds": 3600}}
        return create(CTX, "sa", obj, issuer, lambda *k: objects.get(k), False, lambda *said: noted.append(said))

    assert asked("u1")[0]["metadata"]["uid"] == "u1"
    said = "the UID in the token request (u0) does not match the UID of the service account (u1)"
    with pytest.raises(ApiError) as e:
        asked("u0")
    assert (e.value.code, e.value.message) == (
        409, f'Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "sa": {said}',
    )  # fmt: skip
    with features.DEFAULT.overridden(TokenRequestServiceAccountUIDValidation=False):
        answer, (warning,) = asked("u0")
    assert noted == [("authentication.k8s.io/token-request-uid-mismatch", said)]
    assert answer["metadata"]["uid"] == "u0" and warning.startswith(f"{said} but TokenRequestServiceAccountUIDValidation is not enabled.")


def test_pod_token_names_its_node_and_lives_longer(ask, objects):
    answer, _ = ask(expirationSeconds=3607, boundObjectRef=ref("Pod", "p", uid="u2"))
    said = claims(answer["status"]["token"])
    assert said["exp"] - said["iat"] == 365 * 24 * 3600
    assert said["kubernetes.io"]["warnafter"] == NOW + 3607
    assert answer["status"]["expirationTimestamp"] == "2024-01-02T04:04:12Z"
    user = ask.tokens.authenticate_token(answer["status"]["token"])
    assert user.extra[POD_NAME] == ["p"] and user.extra[NODE_NAME] == ["n"] and NODE_UID not in user.extra
    objects["nodes", "", "n"] = {"metadata": {"name": "n", "uid": "u5"}}
    answer, _ = ask(boundObjectRef=ref("Pod", "p"))
    assert ask.tokens.authenticate_token(answer["status"]["token"]).extra[NODE_UID] == ["u5"]
    assert "warnafter" not in claims(answer["status"]["token"])["kubernetes.io"]


def test_expiration_is_shortened_with_a_warning(ask):
    answer, warnings = ask(expirationSeconds=9000)
    assert warnings == ["requested expiration of 9000 seconds shortened to 7200 seconds"]
    assert answer["spec"]["expirationSeconds"] == 7200


@pytest.mark.parametrize(
    "spec,code,text",
    [
        ({"expirationSeconds": 599}, 422, "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes"),
        ({"expirationSeconds": 2**32 + 1}, 422, "may not specify a duration larger than 2^32 seconds"),
        ({"boundObjectRef": ref("Pod", "none")}, 404, 'pods "none" not found'),
        ({"boundObjectRef": ref("Pod", "q")}, 400, 'cannot bind token for serviceaccount "sa" to pod running with different'),
        ({"boundObjectRef": {}}, 400, "cannot bind token to object of type /, Kind="),
        ({"boundObjectRef": ref("Node", "")}, 400, "Name parameter required."),
        ({"boundObjectRef": ref("Secret", "a/b")}, 400, "Name parameter invalid: \"a/b\": may not contain '/'"),
        ({"boundObjectRef": ref("ConfigMap", "c")}, 400, "cannot bind token to object of type /v1, Kind=ConfigMap"),
        ({"boundObjectRef": ref("Secret", "s", uid="other")}, 409, "the UID in the bound object reference (other) does not match"),
    ],
)
def test_refusals(ask, spec, code, text):
    with pytest.raises(ApiError) as e:
        ask(**spec)
    assert e.value.code == code and text in e.value.message


def test_unknown_account(ask):
    with pytest.raises(ApiError, match='serviceaccounts "x" not found'):
        ask("x")


def secret(**changes):
    data = {"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true", **changes}
    encoded = {k: base64.b64encode(v.encode()).decode() for k, v in data.items()}
    return {"metadata": {"name": "bootstrap-token-abcdef"}, "type": "bootstrap.kubernetes.io/token", "data": encoded}


def test_bootstrap_token():
    stored = [secret(**{"auth-extra-groups": "system:bootstrappers:b,system:bootstrappers:a"})]
    auth = BootstrapTokens(lambda *key: stored[0] if key == ("secrets", "kube-system", "bootstrap-token-abcdef") else None, lambda: NOW)
    groups = ("system:bootstrappers", "system:bootstrappers:a", "system:bootstrappers:b")
    assert auth.authenticate_token("abcdef.0123456789abcdef") == UserInfo("system:bootstrap:abcdef", groups)
    assert auth.authenticate_token("abcdef.0123456789abcdee") is None
    assert auth.authenticate_token("ABCDEF.0123456789abcdef") is None
    bad = [
        {"usage-bootstrap-authentication": "false"}, {"expiration": "2024-01-02T03:04:05Z"}, {"expiration": "soon"},
        {"expiration": "2024-01-02T03:34:05+00:30"}, {"expiration": "2099-01-02t03:04:05z"}, {"expiration": "2099-1-2T03:04:05Z"},
        {"auth-extra-groups": "system:masters"}, {"auth-extra-groups": "system:bootstrappers:a,"}, {"token-id": "other1"},
    ]  # fmt: skip
    for change in bad:
        stored[0] = secret(**change)
        assert auth.authenticate_token("abcdef.0123456789abcdef") is None, change
    for end in ("2024-01-02T03:04:05.5Z", "2024-01-02T03:04:05-00:01", "2024-01-02T03:04:06Z"):
        stored[0] = secret(expiration=end)
        assert auth.authenticate_token("abcdef.0123456789abcdef") is not None, end


def test_the_signing_key_is_generated_by_its_first_user(tmp_path):
    """Also by two at once: a worker that needs a token, and the child that generates keys after the start."""
    path = tmp_path / "pki" / "sa.key"
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda _: ServiceAccountKeys([ISSUER], path, own=True), range(2)))
        tokens = list(pool.map(lambda keys: keys.signer.sign({"iss": ISSUER}), made))
    assert [keys.verifier.claims(token) for keys in made for token in tokens] == [{"iss": ISSUER}] * 4
    assert (path.stat().st_mode & 0o777, [p.name for p in path.parent.iterdir()]) == (0o600, ["sa.key"])
    with pytest.raises(FileNotFoundError):
        _ = ServiceAccountKeys([ISSUER], tmp_path / "other").signer

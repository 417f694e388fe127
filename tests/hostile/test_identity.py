"""Attempts to pass as another user: headers, tokens, origins, upgrades."""

from __future__ import annotations

import base64
import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.hostile.hostile_wire import dial, statuses

WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ADMINS = "system:masters"


def who(caller, **headers: str):
    status, body = caller("POST", WHOAMI, {}, **headers)
    return (body["status"]["userInfo"]["username"], set(body["status"]["userInfo"].get("groups") or ())) if status == 201 else status


@pytest.mark.parametrize(
    "header",
    [
        "X-Remote-User",
        "X_Remote_User",
        "x-remote-user",
        "X-Remote-Group",
        "X_Remote_Group",
        "X-Remote-Extra-Scopes",
        "X-Forwarded-User",
        "X-Original-User",
        "Remote-User",
        "Impersonate_User",
        "impersonate_group",
        "Impersonate-User_",
        "X-Forwarded-Client-Cert",
        "X-Forwarded-For",
        "Forwarded",
        "X-SSL-Client-CN",
        "X-Kubernetes-User",
    ],
)
def test_identity_headers_are_ignored(target, mallory, nobody, wire, header):
    for value in ("system:admin", ADMINS, "127.0.0.1", "for=127.0.0.1"):
        lines = f"GET /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{header}: {value}\r\n"
        assert statuses(wire(f"{lines}Authorization: Bearer m-token\r\n\r\n".encode())) == [403]
        assert statuses(wire(f"{lines}\r\n".encode())) == [403]
    assert who(mallory)[0] == "mallory"


@pytest.mark.parametrize(
    "headers",
    [
        {"Impersonate-User": "system:admin"},
        {"Impersonate-User": "alice"},
        {"Impersonate-User": "mallory", "Impersonate-Group": ADMINS},
        {"Impersonate-User": "mallory", "Impersonate-Uid": "1"},
        {"Impersonate-User": "system:serviceaccount:kube-system:default"},
        {"Impersonate-User": "system:anonymous"},
        {"Impersonate-User": "mallory", "Impersonate-Extra-a": "b"},
        {"Impersonate-User": "system:node:n"},
        {"impersonate-user": "alice"},
        {"Impersonate-User": "mallory", "Impersonate-Group": "system:nodes"},
    ],
    ids=str,
)
def test_impersonation_without_rights(mallory, nobody, headers):
    for caller in (mallory, nobody):
        status, body = caller("GET", "/version", **headers)
        assert status == 403, body
        assert "cannot impersonate" in body["message"] or "impersonat" in body["message"]


def test_impersonation_without_a_user(admin):
    for headers in ({"Impersonate-Group": "a"}, {"Impersonate-Uid": "a"}, {"Impersonate-Extra-x": "a"}):
        assert admin("GET", "/version", **headers)[0] == 400


def test_impersonation_is_limited_to_granted_users_groups_and_extras(as_user, grant, wire, admin):
    """imp may impersonate alice, but no other user and no group, also not by repeating a header."""
    grant("imp", [{"apiGroups": [""], "resources": ["users"], "resourceNames": ["alice"], "verbs": ["impersonate"]}])
    imp = as_user("i-token")
    assert who(imp, **{"Impersonate-User": "alice"})[0] == "alice"
    assert ADMINS not in who(imp, **{"Impersonate-User": "alice"})[1]
    for more in ({"Impersonate-Group": ADMINS}, {"Impersonate-Group": "devs"}, {"Impersonate-Uid": "x"}, {"Impersonate-Extra-y": "z"}):
        assert imp("GET", "/version", **{"Impersonate-User": "alice"}, **more)[0] == 403
    assert imp("GET", "/version", **{"Impersonate-User": "bob"})[0] == 403
    head = "GET /api/v1/secrets HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer i-token\r\n"
    for lines in (
        "Impersonate-User: alice\r\nImpersonate-User: system:admin\r\n",
        "Impersonate-User: alice\r\nImpersonate-Group: system:masters\r\n",
    ):
        assert statuses(wire(f"{head}{lines}\r\n".encode())) == [403]


PUBLIC = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
CLOSED = [
    "/api",
    "/apis",
    "/apis/apps",
    "/apis/apps/v1",
    "/api/v1",
    "/api/v1/namespaces",
    "/api/v1/namespaces/default",
    "/api/v1/secrets",
    "/api/v1/nodes",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/api/v1",
    "/metrics",
    "/metrics/slis",
    "/logs",
    "/logs/",
    "/debug/pprof/",
    "/flagz",
    "/statusz",
    "/swagger-ui",
    "/swagger-ui/",
    "/",
    "/.well-known/openid-configuration",
    "/openid/v1/jwks",
    "/apis/nothing/v1/x",
    "/nothing",
    "/api/v1/namespaces/x/pods/p/exec",
    "/api/v1/nodes/n/proxy/",
    "/api/v1/watch/pods",
    "/healthz/..",
    "/version/../metrics",
    "/livez/../metrics",
    "/healthz/../api",
    "/metrics/",
    "/healthz/log",
]


@pytest.mark.parametrize("path", CLOSED)
def test_anonymous_users_see_only_public_paths(target, wire, path):
    for method in ("GET", "POST", "DELETE", "OPTIONS"):
        answer = wire(f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".encode())
        if path.startswith("/swagger-ui") and method == "GET":
            assert statuses(answer)[0] in (200, 301, 302, 403)
        else:
            assert statuses(answer) == [403], (method, path, answer[:300])


@pytest.mark.parametrize("path", PUBLIC)
def test_public_paths_are_public(nobody, path):
    assert nobody.raw("GET", path).status_code in (200, 404)


@pytest.mark.parametrize(
    "credential",
    [
        "Bearer wrong",
        "Bearer ",
        "Bearer",
        "Basic YWRtaW46YWRtaW4=",
        "bearer m-token x",
        "Bearer m-token,",
        "Bearer  m-tokenn",
        "Digest x",
        "Bearer \u00ff",
        "Token m-token",
        "Bearer " + "a" * 60_000,
        "Bearer a.b.c",
        "Bearer ..",
        "Bearer eyJ.eyJ.",
        "Negotiate x",
    ],
)
def test_wrong_credentials(target, wire, credential):
    """A credential that fails is answered with 401; a request without a valid form of one is anonymous: 403."""
    head = "GET /api/v1/secrets HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: "
    assert statuses(wire(head.encode() + credential.encode("latin-1") + b"\r\n\r\n"))[0] in (400, 401, 403)


# --- service-account tokens


@pytest.fixture
def account(admin, room):
    """Returns (token, its claims, namespace, name) of a new service account."""
    assert admin("POST", f"/api/v1/namespaces/{room}/serviceaccounts", {"metadata": {"name": "robot"}})[0] == 201
    token = request_token(admin, room)
    return token, claims_of(token), room


def request_token(admin, room: str, **spec) -> str:
    status, body = admin("POST", f"/api/v1/namespaces/{room}/serviceaccounts/robot/token", {"spec": spec})
    assert status == 201, body
    return body["status"]["token"]


def claims_of(token: str) -> dict:
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def signed(target, claims: dict, **header) -> str:
    """Returns a token that the server's own key signed; only its claims are wrong."""
    import jwt

    key = (target.data_dir / "pki" / "sa.key").read_bytes()
    algorithm = "RS256" if b"RSA" in key else "ES256"
    for a in (algorithm, "RS256", "ES256"):
        try:
            return jwt.encode(claims, key, a, header or None)
        except (jwt.exceptions.InvalidKeyError, TypeError, ValueError):
            continue
    raise AssertionError("no algorithm fits the key")


def test_a_good_token_works(as_user, account, target):
    token, claims, room = account
    assert who(as_user(token))[0] == f"system:serviceaccount:{room}:robot"
    assert who(as_user(signed(target, claims)))[0] == f"system:serviceaccount:{room}:robot"
    # Upstream's rule: a token without an audience is for the API server.
    assert who(as_user(signed(target, {**claims, "aud": []})))[0] == f"system:serviceaccount:{room}:robot"


def test_tokens_with_other_claims(target, as_user, account, admin):
    _, claims, _ = account
    inner = claims["kubernetes.io"]
    now = int(time.time())
    for change in (
        {"exp": now - 600},
        {"nbf": now + 600},
        {"iss": "https://other"},
        {"iss": ""},
        {"aud": ["other"]},
        {"aud": "other"},
        {"aud": None},
        {"kubernetes.io": {**inner, "serviceaccount": {**inner["serviceaccount"], "uid": "11111111-1111-1111-1111-111111111111"}}},
        {"kubernetes.io": {**inner, "serviceaccount": {**inner["serviceaccount"], "name": "other"}}},
        {"kubernetes.io": {**inner, "namespace": "kube-system"}},
        {"kubernetes.io": {**inner, "pod": {"name": "p", "uid": "22222222-2222-2222-2222-222222222222"}}},
        {"kubernetes.io": {**inner, "secret": {"name": "s", "uid": "22222222-2222-2222-2222-222222222222"}}},
        {"kubernetes.io": {}},
        {"kubernetes.io": None},
        {"kubernetes.io": []},
        {"kubernetes.io": {**inner, "serviceaccount": "x"}},
        {"exp": "x"},
        {"exp": 10**400},
        {"exp": -1},
    ):
        found = who(as_user(signed(target, {**claims, **change})))
        assert found == 401, (change, found)


def test_forged_tokens(target, as_user, account):
    token, claims, _ = account
    head, body, signature = token.split(".")
    public = json.loads(base64.urlsafe_b64decode(head + "=="))
    admin_claims = {**claims, "sub": "system:admin"}
    none = [b64(json.dumps({**public, "alg": alg}).encode()) for alg in ("none", "None", "nOnE", "", "HS256", "HS512", "PS256")]
    tokens = [f"{h}.{body}.{s}" for h in none for s in ("", signature, b64(b"x" * 64))]
    tokens += [
        f"{head}.{b64(json.dumps(admin_claims).encode())}.{signature}",
        f"{head}.{body}.",
        f"{head}.{body}",
        f"{head}.{body}.{signature}.x",
        f"{head}.{body}.{signature[:-10]}AAAAAAAAAA",
    ]
    # The public key as the secret of an HMAC: the classic confusion of algorithms.
    import hashlib
    import hmac

    from cryptography.hazmat.primitives import serialization

    private = serialization.load_pem_private_key((target.data_dir / "pki" / "sa.key").read_bytes(), None)
    pem = private.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    said = f"{b64(json.dumps({**public, 'alg': 'HS256'}).encode())}.{body}"
    tokens.append(f"{said}.{b64(hmac.new(pem, said.encode(), hashlib.sha256).digest())}")
    # A key that the token itself contains.
    import jwt
    from cryptography.hazmat.primitives.asymmetric import rsa

    mine = rsa.generate_private_key(65537, 2048)
    jwk = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(mine.public_key()))
    for header in (
        {"jwk": jwk, "kid": public["kid"]},
        {"jku": "https://127.0.0.1:1/jwks"},
        {"kid": "../../../etc/passwd"},
        {"kid": ""},
        {"x5u": "http://127.0.0.1:1/"},
    ):
        tokens.append(jwt.encode(claims, mine, "RS256", header))
    for t in tokens:
        assert who(as_user(t)) == 401, t[:200]


def test_tokens_of_deleted_objects(target, as_user, account, admin):
    token, _, room = account
    pod = {"metadata": {"name": "p"}, "spec": {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "x"}]}}
    status, made = admin("POST", f"/api/v1/namespaces/{room}/pods", pod)
    assert status == 201, made
    ref = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": made["metadata"]["uid"]}
    bound = request_token(admin, room, boundObjectRef=ref)
    other = request_token(admin, room, audiences=["somebody-else"])
    assert who(as_user(other)) == 401
    assert isinstance(who(as_user(bound)), tuple)
    assert admin("DELETE", f"/api/v1/namespaces/{room}/pods/p?gracePeriodSeconds=0")[0] == 200
    assert who(as_user(bound)) == 401
    assert isinstance(who(as_user(token)), tuple)
    assert admin("DELETE", f"/api/v1/namespaces/{room}/serviceaccounts/robot")[0] == 200
    assert who(as_user(token)) == 401
    assert admin("POST", f"/api/v1/namespaces/{room}/serviceaccounts", {"metadata": {"name": "robot"}})[0] == 201
    assert who(as_user(token)) == 401, "a namesake is somebody else"


# --- browsers


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "https://good.example.evil.com",
        "https://evilgood.example",
        "http://good.example",
        "https://good.example:444",
        "null",
        "*",
        "https://good.example\t",
        "https://goodxexample",
        "https://good.example@evil.com",
        "HTTPS://GOOD.EXAMPLE",
    ],
)
def test_foreign_origins(target, wire, origin):
    head = f"OPTIONS /api/v1/secrets HTTP/1.1\r\nHost: x\r\nConnection: close\r\nOrigin: {origin}\r\nAccess-Control-Request-Method: GET\r\n\r\n"  # noqa: E501
    answer = wire(head.encode()).lower()
    if origin.strip() != "https://good.example":
        assert statuses(answer.replace(b"http/", b"HTTP/")) == [403]
        assert b"access-control-allow" not in answer


def test_an_allowed_origin_is_echoed_and_never_a_star(target, nobody, mallory):
    r = nobody.raw("OPTIONS", "/api/v1/secrets", **{"Origin": "https://good.example", "Access-Control-Request-Method": "GET"})
    assert (r.status_code, r.headers["access-control-allow-origin"]) == (204, "https://good.example")
    r = mallory.raw("GET", "/api/v1/secrets", Origin="https://good.example")
    assert r.status_code == 403, "an origin is no credential"


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/default/pods/p/exec?command=id",
        "/api/v1/namespaces/default/pods/p/portforward",
        "/api/v1/nodes/n/proxy/",
        "/api/v1/secrets?watch=1",
        "/api/v1/namespaces/default/pods/p/attach",
        "/api/v1/namespaces/default/services/s/proxy/",
    ],
)
@pytest.mark.parametrize("upgrade", ["websocket", "SPDY/3.1", "h2c", "TLS/1.0", "websocket, SPDY/3.1"])
def test_upgrades_need_rights(target, wire, path, upgrade):
    lines = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: {upgrade}\r\nSec-WebSocket-Version: 13\r\n"
    lines += "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n"  # noqa: E501
    for credential, wanted in (("", 403), ("Authorization: Bearer m-token\r\n", 403), ("Authorization: Bearer no\r\n", 401)):
        assert statuses(wire(f"{lines}{credential}\r\n".encode(), wait=0.15))[:1] == [wanted]


def test_a_refused_upgrade_opens_no_tunnel(target, admin):
    """What follows a refusal on the connection is an ordinary request with its own user."""
    head = "GET /api/v1/nodes/n/proxy/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"  # noqa: E501
    with dial(target) as s:
        got = b""
        try:
            s.sendall(f"{head}Authorization: Bearer {target.token}\r\n\r\n".encode())
            got = s.recv(65536)
            assert statuses(got) and statuses(got)[0] in (404, 503, 400), got
            s.sendall(b"GET /api/v1/secrets HTTP/1.1\r\nHost: x\r\n\r\n")
            got = s.recv(65536)
        except OSError:
            return
        assert not got or statuses(got) == [403], got


# --- reads at other revisions or places


@pytest.mark.parametrize(
    "version",
    ["-1", "99999999999999999999", "9223372036854775807", "x", "1.5", "0x10", " 1", "1 ", "18446744073709551616", "١", "1e3", "+1", "00"],
)
def test_impossible_revisions(admin, room, version, bounded):
    from urllib.parse import quote

    queries = (
        "watch=1&timeoutSeconds=1&",
        "limit=1&",
        "resourceVersionMatch=Exact&",
        "resourceVersionMatch=NotOlderThan&",
        "watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&",
    )

    def ask(query):
        return admin("GET", f"/api/v1/namespaces/{room}/configmaps?{query}resourceVersion={quote(version)}")

    with bounded(4_000), ThreadPoolExecutor(len(queries)) as pool:  # each waits for a revision that will not come
        for query, (status, body) in zip(queries, pool.map(ask, queries), strict=True):
            # A watch passes on the storage error as it is, which is not an API error.
            complained = status == 500 and query.startswith("watch") and body["message"].startswith("resourceVersion: Invalid value: ")
            assert status < 500 or status == 504 or complained, (query, body)


def token_to(**parts) -> str:
    return b64(json.dumps({"v": "meta.k8s.io/v1", "rv": 1, "start": "x\0", **parts}).encode())


def test_continue_tokens_stay_within_their_list(mallory, admin, room, grant):
    """A client can make a token as easily as the server: it never leads outside the list with which it is used."""
    other = room + "-z"
    admin("POST", "/api/v1/namespaces", {"metadata": {"name": other}})
    admin("POST", f"/api/v1/namespaces/{other}/configmaps", {"metadata": {"name": "x"}, "data": {"k": "hidden"}})
    grant("mallory", [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}], room)
    _, page = admin("GET", "/api/v1/configmaps?limit=1")
    version = int(page["metadata"]["resourceVersion"])
    starts = [
        f"../{other}/x\0",
        f"/../{other}\0",
        f"../../secrets/{other}/x",
        "\0",
        "",
        "..",
        "/",
        f"{other}/x\0",
        "\uffff",
        "a" * 20_000,
        f"../../../../registry/configmaps/{other}/",
    ]
    tokens = [token_to(rv=rv, start=s) for s in starts for rv in (version, -1, 0, 10**30)] + [page["metadata"]["continue"]]
    tokens += [
        token_to(v="x"),
        token_to(rv="1"),
        token_to(rv=None),
        token_to(start=None),
        token_to(start=1),
        b64(b"null"),
        b64(b"[]"),
        b64(b"{"),
        "x",
        "%00",
        "=" * 50,
        b64(b'{"v":"meta.k8s.io/v1","rv":' + b"9" * 5000 + b"}"),
        b64(b"[" * 50_000),
    ]
    for token in tokens:
        for caller in (mallory, admin):
            r = caller.raw("GET", f"/api/v1/namespaces/{room}/configmaps?limit=5&continue={token}")
            assert r.status_code in (200, 400, 410, 414, 504), (token, r.text[:300])
            assert "hidden" not in r.text, token

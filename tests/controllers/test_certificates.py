"""CertificateSigningRequests in a whole server with a TLS front: approved, signed, used; and those that are not signed."""

from __future__ import annotations

import asyncio
import base64
import datetime
import json
import ssl
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kas import controllers
from kas.controllers.certificates import Signing, is_over
from kas.controllers.signing import CLIENT, KUBELET_CLIENT, KUBELET_SERVING, SIGNERS, Authority, request_of
from kas.testing.server import KasServer
from tests import pki
from tests.controllers.stored import stored

LIMIT_S = 60
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
KEY = ec.generate_private_key(ec.SECP256R1())
SIGNING, CLIENT_USE, SERVER_USE = "digital signature", "client auth", "server auth"


def request_pem(name: str, *organizations: str, names: tuple[x509.GeneralName, ...] = ()) -> bytes:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, o) for o in organizations]
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, name)])
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def body(name: str, pem: bytes, signer: str = CLIENT, usages: tuple[str, ...] = (SIGNING, CLIENT_USE), **more) -> dict:
    spec = {"request": base64.b64encode(pem).decode(), "signerName": signer, "usages": list(usages), **more}
    return {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name}, "spec": spec}


@pytest.fixture(scope="module")
def csr_server(tmp_path_factory):
    directory = tmp_path_factory.mktemp("csr")
    ca, _ = pki.issue([("CN", "other-ca")], ca=True).write(directory, "ca")
    (directory / "tokens.csv").write_text("boot-token,boot,u-1,\"system:bootstrappers\"\n")
    flags = [f"--client-ca-file={ca}", f"--token-auth-file={directory}/tokens.csv", "--unsafe-no-fsync"]
    with KasServer(directory, *flags) as server:
        yield server


@pytest.fixture
def client(csr_server, connect):
    return connect(csr_server)


def approve(client, name: str, kind: str = "Approved") -> None:
    obj = client("GET", f"{REQUESTS}/{name}")[1]
    obj["status"] = {"conditions": [{"type": kind, "status": "True", "reason": "KubectlApprove", "message": "by hand"}]}
    assert client("PUT", f"{REQUESTS}/{name}/approval", obj)[0] == 200


def eventually(client, name: str, done: Callable[[dict], bool]) -> dict:
    until = time.monotonic() + LIMIT_S
    while True:
        status = client("GET", f"{REQUESTS}/{name}")[1].get("status") or {}
        if done(status):
            return status
        assert time.monotonic() < until, status
        time.sleep(0.1)


def issued(status: dict) -> x509.Certificate:
    return x509.load_pem_x509_certificate(base64.b64decode(status["certificate"]))


def whoami(server, tmp_path, pem: bytes) -> dict:
    """Returns the user that the server sees for a certificate."""
    (tmp_path / "c.crt").write_bytes(pem)
    (tmp_path / "c.key").write_bytes(
        KEY.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.create_default_context(cafile=server.ca)
    context.load_cert_chain(tmp_path / "c.crt", tmp_path / "c.key")
    asked = urllib.request.Request(
        f"{server.url}/apis/authentication.k8s.io/v1/selfsubjectreviews", b"{}", {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(asked, context=context, timeout=60) as answer:
        return json.load(answer)["status"]["userInfo"]


def test_an_approved_request_gives_a_working_certificate(csr_server, client, tmp_path):
    assert client("POST", REQUESTS, body("jane", request_pem("jane", "dev"), expirationSeconds=3600))[0] == 201
    approve(client, "jane")
    status = eventually(client, "jane", lambda s: "certificate" in s)
    made = issued(status)
    # Backdated by five minutes, and an hour is an hour from now on: a short lifetime is not shortened by that.
    assert made.not_valid_after_utc - made.not_valid_before_utc == datetime.timedelta(hours=1, minutes=5)
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert list(made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    user = whoami(csr_server, tmp_path, base64.b64decode(status["certificate"]))
    assert (user["username"], user["groups"]) == ("jane", ["dev", "system:authenticated"])


def test_requests_that_are_not_signed(client):
    assert client("POST", REQUESTS, body("denied", request_pem("bob")))[0] == 201
    approve(client, "denied", "Denied")
    assert client("POST", REQUESTS, body("others", request_pem("bob"), signer="example.com/mine"))[0] == 201
    approve(client, "others")
    assert client("POST", REQUESTS, body("pending", request_pem("bob")))[0] == 201
    assert client("POST", REQUESTS, body("serving", request_pem("bob"), usages=(SIGNING, SERVER_USE)))[0] == 201
    approve(client, "serving")
    status = eventually(client, "serving", lambda s: any(c["type"] == "Failed" for c in s["conditions"]))
    failed = status["conditions"][-1]
    assert (failed["reason"], failed["message"]) == ("SignerValidationFailure", "invalid usage for client certificate: server auth")
    # By now the others would have been signed, too.
    for name in ("denied", "others", "pending", "serving"):
        assert "certificate" not in (client("GET", f"{REQUESTS}/{name}")[1].get("status") or {}), name


def test_a_kubelet_with_the_right_to_join_is_approved(csr_server, client, tmp_path):
    pem = request_pem("system:node:n1", "system:nodes")
    boot = {"Authorization": "Bearer boot-token"}
    kubelet = body("n1", pem, KUBELET_CLIENT, (SIGNING, CLIENT_USE))
    role = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-bootstrapper"}}
    join = {"roleRef": {**role["roleRef"], "name": "system:certificates.k8s.io:certificatesigningrequests:nodeclient"}}
    subjects = [{"kind": "Group", "name": "system:bootstrappers", "apiGroup": "rbac.authorization.k8s.io"}]
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    assert client("POST", bindings, {"metadata": {"name": "boot"}, "subjects": subjects, **role})[0] == 201
    assert client("POST", REQUESTS, kubelet, **boot)[0] == 201
    assert client("POST", bindings, {"metadata": {"name": "join"}, "subjects": subjects, **join})[0] == 201
    assert client("POST", REQUESTS, {**kubelet, "metadata": {"name": "n1-again"}}, **boot)[0] == 201
    status = eventually(client, "n1-again", lambda s: "certificate" in s)
    assert status["conditions"][0]["message"] == "Auto approving kubelet client certificate after SubjectAccessReview."
    assert whoami(csr_server, tmp_path, base64.b64decode(status["certificate"]))["groups"] == ["system:nodes", "system:authenticated"]
    # The first one came before the right was granted, and is checked again.
    assert eventually(client, "n1", lambda s: "certificate" in s)["conditions"][0]["reason"] == "AutoApproved"


NODE = ("system:node:n1", "system:nodes")
DNS, MAIL = x509.DNSName("n1"), x509.RFC822Name("a@b.c")


@pytest.mark.parametrize(
    ("signer", "pem", "usages", "problem"),
    [
        (CLIENT, request_pem("jane"), (SIGNING, "key encipherment", CLIENT_USE), ""),
        (CLIENT, request_pem("jane"), (SIGNING,), "missing required usage for client certificate: client auth"),
        (KUBELET_CLIENT, request_pem(*NODE), (SIGNING, "key encipherment", CLIENT_USE), ""),
        (KUBELET_CLIENT, request_pem(*NODE, "dev"), (SIGNING, CLIENT_USE), "subject organization is not system:nodes"),
        (KUBELET_CLIENT, request_pem("jane", "system:nodes"), (SIGNING, CLIENT_USE), "subject common name does not begin with"),
        (KUBELET_CLIENT, request_pem(*NODE, names=(DNS,)), (SIGNING, CLIENT_USE), "DNS subjectAltNames are not allowed"),
        (KUBELET_CLIENT, request_pem(*NODE), (SIGNING, CLIENT_USE, SERVER_USE),
         "usages did not match [client auth digital signature key encipherment]"),
        (KUBELET_CLIENT, request_pem("jane", "system:nodes"), (SIGNING,), "subject common name does not begin with system:node:"),
        (KUBELET_SERVING, request_pem("jane", "system:nodes", names=(DNS,)), (SIGNING,),
         "usages did not match [digital signature key encipherment server auth]"),
        (KUBELET_SERVING, request_pem(*NODE, names=(DNS,)), (SIGNING, SERVER_USE), ""),
        (KUBELET_SERVING, request_pem(*NODE), (SIGNING, SERVER_USE), "DNS or IP subjectAltName is required"),
        (KUBELET_SERVING, request_pem(*NODE, names=(DNS, MAIL)), (SIGNING, SERVER_USE), "email subjectAltNames are not allowed"),
    ],
)
def test_which_usages_signers_sign(signer, pem, usages, problem):
    found = SIGNERS[signer](request_of(pem), usages)
    assert found.startswith(problem) and bool(found) == bool(problem)


def test_a_certificate_ends_no_later_than_its_ca(tmp_path):
    ca, key = pki.issue([("CN", "ca")], ca=True, ends_s=7200).write(tmp_path, "ca")
    authority = Authority(Path(ca), Path(key))
    whole = x509.load_pem_x509_certificate(Path(ca).read_bytes())
    pem = request_of(request_pem("jane"))
    for seconds in (None, 10**9):
        assert x509.load_pem_x509_certificate(authority.sign(pem, [SIGNING], seconds)).not_valid_after_utc == whole.not_valid_after_utc
    late = Authority(Path(ca), Path(key), lambda: whole.not_valid_after_utc)
    with pytest.raises(ValueError, match="the signer has expired"):
        late.sign(pem, [SIGNING])
    with pytest.raises(OSError):
        Authority(tmp_path / "none", tmp_path / "none").sign(pem, [SIGNING])


def test_a_ca_without_a_key_identifier_signs(tmp_path):
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")])
    now = datetime.datetime.now(datetime.UTC)
    whole = x509.CertificateBuilder(name, name, KEY.public_key(), 1, now, now + datetime.timedelta(days=1)).sign(KEY, hashes.SHA256())
    (tmp_path / "ca").write_bytes(whole.public_bytes(serialization.Encoding.PEM))
    kind = serialization.PrivateFormat.PKCS8
    (tmp_path / "key").write_bytes(KEY.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption()))
    made = x509.load_pem_x509_certificate(Authority(tmp_path / "ca", tmp_path / "key").sign(request_of(request_pem("jane")), [SIGNING]))
    made.verify_directly_issued_by(whole)
    assert x509.AuthorityKeyIdentifier not in [type(e.value) for e in made.extensions]


def test_an_expired_ca_ends_no_controller(tmp_path, caplog):
    ca, key = pki.issue([("CN", "ca")], ca=True, begins_s=-7200, ends_s=-3600).write(tmp_path, "ca")
    asked = body("late", request_pem("jane"))

    async def sign() -> None:
        async with stored(tmp_path / "store") as registries:
            signing = Signing(registries, Authority(Path(ca), Path(key)))
            made = await signing.client.create("certificates.k8s.io", "certificatesigningrequests", asked)
            assert made is not None
            await signing.write(made, "approval", signing._with(made, "Approved", "x", "y"))
            pauses = [await signing._sync("late") for _ in range(15)]
            assert pauses[:4] == [0.2, 0.4, 0.8, 1.6] and pauses[-1] == 1000  # until the CA is renewed
            assert await signing._sync("gone") is None

    asyncio.run(sign())
    assert "cannot sign csr late: the signer has expired" in caplog.text


@pytest.mark.parametrize(
    ("seconds", "whole"),
    [(1, datetime.timedelta(minutes=15)), (8 * 3600 - 1, datetime.timedelta(hours=8, minutes=5, seconds=-1)),
     (8 * 3600, datetime.timedelta(hours=8)), (None, datetime.timedelta(days=365))],
)  # fmt: skip
def test_backdating_shortens_only_long_lifetimes(tmp_path, seconds, whole):
    ca, key = pki.issue([("CN", "ca")], ca=True, ends_s=10**8).write(tmp_path, "ca")
    made = x509.load_pem_x509_certificate(Authority(Path(ca), Path(key)).sign(request_of(request_pem("jane")), [SIGNING], seconds))
    assert made.not_valid_after_utc - made.not_valid_before_utc == whole


@pytest.mark.parametrize(
    ("kinds", "age_h", "certificate", "over"),
    [
        ([], 23, "", False), ([], 25, "", True), (["Denied"], 0.5, "", False), (["Denied"], 2, "", True), (["Failed"], 2, "", True),
        (["Approved"], 2, "", False), (["Approved"], 0.5, "LS0t", False), (["Approved"], 2, "LS0t", True),
    ],
)  # fmt: skip
def test_which_requests_are_removed(kinds, age_h, certificate, over):
    now = datetime.datetime.now(datetime.UTC)
    then = (now - datetime.timedelta(hours=age_h)).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [{"type": kind, "status": "True", "lastUpdateTime": then} for kind in kinds]
    status = {"conditions": conditions, **({"certificate": certificate} if certificate else {})}
    assert is_over({"metadata": {"creationTimestamp": then}, "status": status}, now) is over


@pytest.mark.parametrize("kind", ["Denied", "Failed", "Approved"])
def test_a_late_decision_is_kept_for_an_hour(kind):
    """The day is for undecided requests: one of 25 hours that was denied a moment ago can still be read."""
    now = datetime.datetime.now(datetime.UTC)
    created, decided = ((now - datetime.timedelta(hours=h)).strftime("%Y-%m-%dT%H:%M:%SZ") for h in (25, 0.8))
    status = {"conditions": [{"type": kind, "status": "True", "lastUpdateTime": decided}]}
    assert not is_over({"metadata": {"creationTimestamp": created}, "status": status}, now)


@pytest.mark.parametrize(("kinds", "chain", "over"), [
    (["Approved"], ("expired",), True), (["Approved"], ("good",), False), (["Approved"], ("good", "expired"), False),
    ([], ("expired",), False),
])  # fmt: skip
def test_a_request_with_an_expired_certificate_is_removed(kinds, chain, over):
    made = {"expired": pki.issue([("CN", "a")], begins_s=-7200, ends_s=-3600), "good": pki.issue([("CN", "b")])}
    now = datetime.datetime.now(datetime.UTC)
    text = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    pem = b"".join(made[name].pem for name in chain)
    conditions = [{"type": kind, "status": "True", "lastUpdateTime": text} for kind in kinds]
    status = {"conditions": conditions, "certificate": base64.b64encode(pem).decode()}
    assert is_over({"metadata": {"creationTimestamp": text}, "status": status}, now) is over


def test_the_names_of_the_controllers():
    name = "certificatesigningrequest-signing-controller"
    assert name in controllers.chosen(["*"]) and controllers.chosen(["csrsigning"]) == [name]
    assert name not in controllers.chosen(["*", "-csrsigning"])

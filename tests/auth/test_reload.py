"""The authorizer of ``--authorization-config`` follows its file; and a whole server that asks webhooks over TLS."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from kas.auth.attributes import ALLOW, NO_OPINION, Attributes
from kas.auth.authz import reload
from kas.auth.authz.configuration import Authorizers
from kas.auth.authz.modes import AlwaysDeny
from kas.auth.authz.reload import Builder, Parts, Reloading
from kas.auth.user import UserInfo
from kas.observe.metrics import Registry
from kas.observe.reloads import Reloads
from kas.types.configfile import ConfigurationError
from tests.admission.policy_backend import PolicyBackend, certificate, kubeconfig
from tests.auth.test_configuration import text, webhook
from tests.auth.test_webhook import answer
from tests.controllers.waiting import until

RBAC, ALLOWING = {"type": "RBAC", "name": "rbac"}, {"type": "AlwaysAllow", "name": "alwaysallow"}
BOB = Attributes(UserInfo("bob"), "get", "default", "", "v1", "pods")


class Following:
    def __init__(self, path: Path) -> None:
        self.registry = Registry()
        builder = Builder(self.registry, rbac=AlwaysDeny(), node=AlwaysDeny())
        self.authorizer = Reloading(str(path), builder, Reloads(self.registry, "authorization", "me"))

    def look(self) -> None:
        async def look() -> None:
            pending = self.authorizer.look()
            if pending is not None:
                await pending

        asyncio.run(look())

    def reloads(self) -> dict[str, float]:
        values = self.registry.metrics["apiserver_authorization_config_controller_automatic_reloads_total"].values
        return {status: n for (_, status), n in values.items()}

    def last(self) -> dict[str, float]:
        """Returns when a reload was last tried, by its outcome."""
        values = self.registry.metrics["apiserver_authorization_config_controller_automatic_reload_last_timestamp_seconds"].values
        return {status: at for (_, status), at in values.items()}

    def decision(self) -> int:
        outcome = self.authorizer.authorize(BOB)
        assert isinstance(outcome, tuple)
        return outcome[0]


def test_a_changed_file_applies(tmp_path):
    path = tmp_path / "z.yaml"
    path.write_bytes(text(RBAC))
    began = time.time()
    following = Following(path)
    assert following.decision() == NO_OPINION and following.reloads() == {"success": 1}
    first = following.last()["success"]
    assert began <= first <= time.time()
    following.look()
    path.write_bytes(text(RBAC, ALLOWING))
    following.look()
    assert following.decision() == ALLOW and following.reloads() == {"success": 2}
    assert following.last().keys() == {"success"} and first < following.last()["success"] <= time.time()
    assert len(following.registry.metrics["apiserver_authorization_config_controller_last_config_info"].values) == 1
    # A file with equal content, or equal meaning, changes nothing.
    path.write_bytes(text(RBAC, ALLOWING))
    following.look()
    path.write_bytes(text(RBAC, ALLOWING) + b"\n")
    following.look()
    assert following.reloads() == {"success": 2}
    assert following.registry.metrics["apiserver_authorization_decisions_total"].values == {("AlwaysAllow", "alwaysallow", "allowed"): 1}


def test_a_changed_file_is_read_and_compiled_off_the_loop(tmp_path, monkeypatch):
    """64 conditions of each of a hundred webhooks held the loop for a second."""
    where = list[bool]()
    real = reload.parts_of

    def parts_of(authorizers: Authorizers) -> list[Parts]:
        where.append(threading.current_thread() is threading.main_thread())
        return real(authorizers)

    monkeypatch.setattr(reload, "parts_of", parts_of)
    path = tmp_path / "z.yaml"
    path.write_bytes(text(RBAC))
    following = Following(path)
    path.write_bytes(text(RBAC, ALLOWING))
    following.look()
    assert following.decision() == ALLOW and where == [True, False]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "at least one authorization mode must be defined"),
        (text(ALLOWING), "missing required authorizer types: RBAC"),
        (text(RBAC, {"type": "Node", "name": "node"}), "authorizer type Node is not allowed if it was not enabled at initial"),
        (text(RBAC, webhook(Path("/none"))), "no such file"),
        (None, "no such file"),
    ],
)
def test_an_unusable_file_changes_nothing(tmp_path, caplog, data, says):
    path = tmp_path / "z.yaml"
    path.write_bytes(text(RBAC))
    following = Following(path)
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    for _ in range(3):
        following.look()
    assert following.decision() == NO_OPINION and following.reloads() == {"success": 1, "failure": 1}
    assert [says in record.message for record in caplog.records] == [True]
    path.write_bytes(text(RBAC, ALLOWING))
    following.look()
    assert following.decision() == ALLOW and following.reloads() == {"failure": 1, "success": 2}


def test_the_first_file_must_be_valid(tmp_path):
    path = tmp_path / "z.yaml"
    with pytest.raises(ConfigurationError, match="no such file"):
        Following(path)
    path.write_bytes(text(ALLOWING, ALLOWING))
    with pytest.raises(ConfigurationError, match="Duplicate value"):
        Following(path)


# --- a whole server


@pytest.fixture
def hook(tmp_path):
    """A webhook over TLS that decides by the namespace; ``hook.config`` is its kubeconfig."""
    cert, over = certificate(tmp_path, "hook"), threading.Event()
    said = {
        "yes": answer(allowed=True), "no": answer(denied=True, reason="the hook says no"), "garbage": (200, {}, b"<html>"),
        "huge": (200, {}, b'{"status":{"allowed":true}}' + b" " * (10 << 20)), "moved": (302, {"Location": "https://127.0.0.1:1/"}, b""),
    }  # fmt: skip

    def decide(asked: dict):
        namespace = asked["body"]["spec"].get("resourceAttributes", {}).get("namespace", "")
        if namespace == "slow":
            over.wait(60)
        return said.get(namespace, answer(allowed=False))

    with PolicyBackend(cert) as backend:
        backend.answers = decide
        backend.config = kubeconfig(tmp_path / "hook.kubeconfig", backend.url + "/authz", {"certificate-authority": cert[0]})
        yield backend
        over.set()


def tokens(tmp_path: Path) -> str:
    path = tmp_path / "tokens.csv"
    path.write_text('jane-token,jane,u-1,"dev"\nroot-token,root,u-2,"system:masters"\n')
    return f"--token-auth-file={path}"


def of(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps/x"


@pytest.mark.timeout(240)
def test_a_server_with_an_authorization_webhook(kas_server, connect, tmp_path, hook):
    path = tmp_path / "z.yaml"
    slow = "has(request.resourceAttributes) && request.resourceAttributes.namespace == 'slow'"
    given = {"failurePolicy": "NoOpinion", "authorizedTTL": "5m", "unauthorizedTTL": "5m", "matchConditionSubjectAccessReviewVersion": "v1"}
    config = webhook(Path(hook.config), timeout="30s", matchConditions=[{"expression": f"!({slow})"}], **given)
    hurried = webhook(Path(hook.config), timeout="1s", matchConditions=[{"expression": slow}], **given)
    path.write_bytes(text({**hurried, "name": "hurried"}, config, RBAC))
    server = kas_server(f"--authorization-config={path}", tokens(tmp_path), "--unsafe-no-fsync", "--controllers=none")
    jane, root = ({"Authorization": f"Bearer {name}-token"} for name in ("jane", "root"))
    client = connect(server)
    assert client("GET", of("yes"), **jane)[0] == 404
    assert client("GET", of("yes"), **jane)[0] == 404
    assert len([s for s in hook.seen if s["body"]["spec"].get("user") == "jane"]) == 1
    status, body = client("GET", of("no"), **jane)
    assert status == 403 and body["message"].endswith('in the namespace "no": the hook says no')
    assert client("GET", of("other"), **jane)[0] == 403
    for namespace in ("garbage", "huge", "moved", "slow"):
        assert client("GET", of(namespace), **jane)[0] == 500, namespace
    # Members of system:masters are not checked, and RBAC behind the webhook still allows what it allows.
    assert client("GET", of("no"), **root)[0] == 404
    review = {"spec": {"resourceAttributes": {"namespace": "no", "verb": "get", "resource": "pods"}}}
    status, body = client("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review, **jane)
    assert status == 201 and body["status"] == {"allowed": False, "denied": True, "reason": "the hook says no"}
    status, body = client("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {"spec": {"namespace": "default"}}, **jane)
    assert body["status"]["incomplete"] is True
    assert body["status"]["evaluationError"] == "webhook authorizer does not support user rule resolution"
    # An invalid file changes nothing; the next valid one applies without a restart.
    reloads = "apiserver_authorization_config_controller_automatic_reloads_total"
    path.write_bytes(b"{")
    until(lambda: 'status="failure"} 1' in client.raw("GET", "/metrics").text.partition(f"{reloads}{{")[2])
    assert client("GET", of("no"), **jane)[0] == 403
    config["webhook"] |= {"failurePolicy": "Deny", "matchConditions": [
        {"expression": "has(request.resourceAttributes) && request.resourceAttributes.namespace != 'no'"},
    ]}  # fmt: skip
    path.write_bytes(text(config, RBAC))
    until(lambda: not client("GET", of("no"), **jane)[1]["message"].endswith("says no"))
    until(lambda: 'status="success"} 2' in client.raw("GET", "/metrics").text.partition(f"{reloads}{{")[2])
    assert 'apiserver_authorization_webhook_evaluations_total{name="hurried",result="timeout"} 1' in client.raw("GET", "/metrics").text


@pytest.mark.timeout(240)
@pytest.mark.parametrize("policy", ["Deny", "NoOpinion"])
def test_an_unreachable_webhook(kas_server, connect, tmp_path, hook, policy):
    with PolicyBackend() as gone:
        pass
    config = kubeconfig(tmp_path / "gone.kubeconfig", gone.url)
    path = tmp_path / "z.yaml"
    path.write_bytes(text(webhook(Path(config), timeout="1s", failurePolicy=policy), ALLOWING))
    server = kas_server(f"--authorization-config={path}", tokens(tmp_path), "--unsafe-no-fsync", "--controllers=none")
    client = connect(server)
    # With Deny everything is refused; with NoOpinion the next authorizer decides.
    status = client("GET", of("default"), Authorization="Bearer jane-token")[0]
    assert status == (500 if policy == "Deny" else 404)
    assert client("GET", of("default"), Authorization="Bearer root-token")[0] == 404


def test_the_flags(kas_server, connect, tmp_path, hook):
    server = kas_server(
        "--authorization-mode=Webhook,RBAC", f"--authorization-webhook-config-file={hook.config}", "--authorization-webhook-version=v1",
        tokens(tmp_path), "--unsafe-no-fsync", "--controllers=none",
    )  # fmt: skip
    client = connect(server)
    assert client("GET", of("yes"), Authorization="Bearer jane-token")[0] == 404
    assert client("GET", of("no"), Authorization="Bearer jane-token")[0] == 403
    assert hook.seen[-1]["body"]["apiVersion"] == "authorization.k8s.io/v1" and hook.seen[-1]["path"] == "/authz?timeout=30s"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--authorization-mode=Webhook", "--authorization-webhook-config-file={hook}", "--authorization-webhook-version=v2"),
         'invalid authorization config: unsupported webhook authorizer version "v2", supported versions are "v1", "v1beta1"'),
        (("--authorization-mode=Webhook", "--authorization-webhook-config-file=/none"), "no such file or directory"),
        (("--authorization-config=/none",), "open /none: no such file or directory"),
    ],
)  # fmt: skip
def test_an_error_prevents_the_start(kas_server, hook, flags, says):
    with pytest.raises(RuntimeError) as e:
        kas_server(*(flag.format(hook=hook.config) for flag in flags))
    assert says in str(e.value)

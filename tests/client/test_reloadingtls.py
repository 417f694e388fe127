"""Certificates, CAs and tokens of a kubeconfig are replaced while a server runs (client-go's transport and cert rotation)."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
from pathlib import Path

import pytest

from kas.client import reloadingtls
from kas.client.hooks import HookClients, Shares
from kas.client.kubeconfig import load, load_users
from kas.client.webhook import Webhook, WebhookError
from tests import pki
from tests.tlsstub import Answer, Asked, TLSStub, authority, serving

CONFIG = """apiVersion: v1
kind: Config
clusters: [{{name: w, cluster: {{server: "{url}", certificate-authority: trusted.crt}}}}]
users: [{{name: "{user}", user: {{{own}}}}}]
contexts: [{{name: c, context: {{cluster: w, user: "{user}"}}}}]
current-context: c
"""
CERTIFICATE = "client-certificate: own.crt, client-key: own.key"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloadingtls, "LOOK_AGAIN_S", 0.0)


def own(tmp_path: Path, clients: pki.Issued, name: str) -> None:
    pki.issue([("CN", name)], clients).write(tmp_path, "own")


def stub_of(tmp_path: Path, clients: pki.Issued | None = None) -> tuple[TLSStub, pki.Issued]:
    """A server that reports whether it knows the token of a request; with the CA that clients trust."""
    by = authority(tmp_path, "trusted")

    def answer(asked: Asked) -> Answer:
        return Answer(401 if asked.headers.get("authorization") == "Bearer old" else 200, b"{}")

    if clients is not None:
        clients.write(tmp_path, "clients")
    return TLSStub(*serving(tmp_path, by), answer, tmp_path / "clients.crt" if clients is not None else None), by


def write(tmp_path: Path, stub: TLSStub, own: str = "", user: str = "u") -> str:
    path = tmp_path / "config"
    path.write_text(CONFIG.format(url=stub.url, own=own, user=user))
    return str(path)


def test_a_client_certificate_is_replaced(tmp_path):
    """The new one is used for new connections, and an incomplete one leaves the old one in use."""
    clients = pki.authority("clients")
    own(tmp_path, clients, "old")
    stub, _ = stub_of(tmp_path, clients)

    async def run() -> None:
        webhook = Webhook(load(write(tmp_path, stub, CERTIFICATE)), 0.0)
        for _ in range(2):
            await webhook.post({})
        key = (tmp_path / "own.key").read_bytes()
        own(tmp_path, clients, "new")
        new_key = (tmp_path / "own.key").read_bytes()
        (tmp_path / "own.key").write_bytes(key)
        await webhook.post({})
        (tmp_path / "own.key").write_bytes(new_key)
        for _ in range(2):
            await webhook.post({})
        (tmp_path / "own.crt").unlink()
        await webhook.post({})
        webhook.close()

    with stub:
        asyncio.run(run())
    assert [asked.client for asked in stub.asked] == ["old", "old", "old", "new", "new", "new"]
    assert len({asked.connection for asked in stub.asked}) == 2


def test_cas_are_replaced(tmp_path):
    """The former CA is not trusted any more, and a file that is empty or invalid changes nothing."""
    stub, _ = stub_of(tmp_path)

    async def run() -> None:
        webhook = Webhook(load(write(tmp_path, stub)), 0.0)
        await webhook.post({})
        for data in (b"", b"-----BEGIN CERTIFICATE-----\n"):
            (tmp_path / "trusted.crt").write_bytes(data)
            await webhook.post({})
        other = authority(tmp_path, "trusted")
        with pytest.raises(WebhookError, match="certificate"):
            await webhook.post({})
        stub.context.load_cert_chain(*serving(tmp_path, other))
        await webhook.post({})
        webhook.close()

    with stub:
        asyncio.run(run())
    assert len(stub.asked) == 4


def test_a_refused_token_is_read_again(tmp_path):
    stub, _ = stub_of(tmp_path)
    (tmp_path / "token").write_text("old")

    async def run() -> None:
        webhook = Webhook(load(write(tmp_path, stub, "tokenFile: token")), 0.0)
        for _ in range(2):
            with pytest.raises(WebhookError):
                await webhook.post({})
        (tmp_path / "token").write_text("new")
        with pytest.raises(WebhookError):  # while a token is thought valid, its file is not checked
            webhook._backend.credentials._read = webhook._backend.credentials.clock(), "old"
            await webhook.post({})
        await webhook.post({})
        webhook.close()

    with stub:
        asyncio.run(run())


def test_a_certificate_for_configured_webhooks(tmp_path):
    """That of the kubeconfig of ``AdmissionConfiguration``."""
    clients = pki.authority("clients")
    own(tmp_path, clients, "old")
    stub, by = stub_of(tmp_path, clients)
    users = load_users(write(tmp_path, stub, CERTIFICATE, user=stub.url.removeprefix("https://")))
    hooks = HookClients(users, lambda *of: ("", 0), Shares(10))

    async def run() -> None:
        config = {"url": stub.url, "caBundle": base64.b64encode(by.pem).decode()}
        await hooks.of(config).post(b"{}", 5.0)
        own(tmp_path, clients, "new")
        for _ in range(2):
            await hooks.of(config).post(b"{}", 5.0)
        hooks.close()

    with stub:
        asyncio.run(run())
    assert [asked.client for asked in stub.asked] == ["old", "new", "new"]


def test_a_pipe_in_the_place_of_a_file_leaves_the_last_in_use(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"one")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    follows = reloadingtls.ReloadingTLS([str(path)], [b"one"], context, lambda _: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    path.unlink()
    os.mkfifo(path)
    assert follows.context() is context

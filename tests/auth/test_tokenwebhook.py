"""A webhook that authenticates tokens: a whole server, and the webhook over TLS with client certificates."""

from __future__ import annotations

import asyncio
import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kas.auth.authn import AuthenticationError, tokenwebhook
from kas.auth.user import UserInfo
from kas.client.webhook import WebhookError
from kas.meta.fairqueue import works_for
from kas.meta.origin import comes_from
from kas.meta.waiting import awaited
from kas.observe.logs import MOST
from kas.testing.server import KasServer
from tests import pki
from tests.auth.test_oidc import as_, who
from tests.controllers.waiting import until
from tests.tlsstub import Answer, Asked, TLSStub, authority, serving

TEXT = (("Content-Type", "text/plain"),)


class Hook:
    """Answers by the token; the token "slow" waits for ``open``."""

    def __init__(self, directory) -> None:
        self.ca = authority(directory)
        pki.issue([("CN", "kas")], self.ca).write(directory, "client")
        self.open, self.stub = threading.Event(), None
        self.directory = directory
        self.start()

    def start(self) -> None:
        self.stub = TLSStub(*serving(self.directory, self.ca), self.answer, clients=self.directory / "stub-ca.crt")

    def kubeconfig(self):
        said = {
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "h", "cluster": {"server": self.stub.url, "certificate-authority": "stub-ca.crt"}}],
            "users": [{"name": "u", "user": {"client-certificate": "client.crt", "client-key": "client.key"}}],
            "contexts": [{"name": "c", "context": {"cluster": "h", "user": "u"}}],
        }  # fmt: skip
        path = self.directory / "hook.kubeconfig"
        path.write_text(json.dumps(said))
        return path

    def answer(self, asked: Asked) -> Answer:
        question = json.loads(asked.body)
        token = question["spec"]["token"].partition(" ")[0].partition("-")[0]
        if token == "slow":
            self.open.wait(60)
        faults = {
            "reset": None, "garbage": Answer(200, b"<html>"), "list": Answer(200, b"[]"), "empty": Answer(200, b""),
            "huge": Answer(200, b'{"status": {"authenticated": true, "user": {"username": "' + b"x" * (10 << 20) + b'"}}}'),
            "redirect": Answer(307, b"", (("Location", "/elsewhere"),)), "refused": Answer(403, b"no", TEXT),
            "wrongkind": Answer(200, b'{"apiVersion": "v1", "kind": "Pod", "status": {"authenticated": true}}'),
            "error": Answer(200, json.dumps({**question, "status": {"error": "go away"}}).encode()),
            "types": Answer(200, b'{"status": {"authenticated": "yes", "user": {"username": "x"}}}'),
        }  # fmt: skip
        if token in faults:
            found = faults[token]
            if found is None:
                raise ConnectionResetError
            return found
        known = token in ("good", "slow")
        user = {"username": "hooked", "uid": "7", "groups": ["g"], "extra": {"k": ["v"]}} if known else {}
        return Answer(200, json.dumps({**question, "status": {"authenticated": known, "user": user}}).encode())

    def asked(self, token: str) -> int:
        return sum(json.loads(a.body)["spec"]["token"] == token for a in self.stub.asked)


@pytest.fixture(scope="module")
def hook(tmp_path_factory):
    made = Hook(tmp_path_factory.mktemp("hook"))
    yield made
    made.open.set()
    made.stub.close()


def flags(hook):
    return (
        f"--authentication-token-webhook-config-file={hook.kubeconfig()}", "--authentication-token-webhook-version=v1",
        "--authentication-token-webhook-cache-ttl=10m", "--controllers=none", "--unsafe-no-fsync",
    )  # fmt: skip


@pytest.fixture(scope="module")
def server(hook, tmp_path_factory):
    with KasServer(tmp_path_factory.mktemp("kas"), *flags(hook)) as running:
        yield running


def test_the_user_is_the_webhooks(server, hook):
    user = who(server, "good")
    assert user == {"username": "hooked", "uid": "7", "groups": ["g", "system:authenticated"], "extra": {"k": ["v"]}}
    assert hook.stub.asked[-1].shown  # our certificate
    assert who(server, "bad") is None and who(server, "bad") is None
    assert hook.asked("bad") == 1  # a refusal is cached, too


def test_tokens_known_here_are_not_sent_to_the_webhook(server, hook):
    assert who(server, server.token)["username"] == "admin"
    assert hook.asked(server.token) == 0


@pytest.mark.parametrize("fault", ["garbage", "list", "empty", "huge", "redirect", "refused", "wrongkind", "types", "error"])
def test_invalid_answers(server, hook, fault):
    assert who(server, fault) is None
    assert who(server, fault) is None
    assert hook.asked(fault) == 2  # failures are not cached
    assert not any(a.path.startswith("/elsewhere") for a in hook.stub.asked)
    assert who(server, "good")["username"] == "hooked"


def test_a_slow_webhook_is_asked_once_and_delays_no_other_request(server, hook):
    found: list = []
    threads = [threading.Thread(target=lambda: found.append(who(server, "slow"))) for _ in range(5)]
    for thread in threads:
        thread.start()
    until(lambda: hook.asked("slow"))
    for _ in range(10):
        assert who(server, server.token)["username"] == "admin"
    assert not found
    hook.open.set()
    for thread in threads:
        thread.join(60)
    assert [user["username"] for user in found] == ["hooked"] * 5 and hook.asked("slow") == 1


def test_reviews_pass_their_audiences_on(server, hook):
    status, body = as_(server, server.token)(
        "POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "good-review", "audiences": ["a", "b"]}}
    )
    assert status == 201 and body["status"] == {"error": "invalid bearer token", "user": {}}  # it answers for the server's audiences
    asked = next(json.loads(a.body) for a in hook.stub.asked if "good-review" in a.body.decode())
    assert asked["spec"]["audiences"] == ["a", "b"] and asked["apiVersion"] == "authentication.k8s.io/v1"


def test_without_the_webhook(tmp_path):
    hook = Hook(tmp_path)
    with KasServer(tmp_path / "kas", *flags(hook)) as server:
        hook.stub.close()
        assert who(server, "unknown") is None
        assert who(server, server.token)["username"] == "admin"
        until(lambda: "Failed to make webhook authenticator request" in server.output)
        assert "unknown" not in [line for line in server.output.splitlines() if "webhook" in line]


def test_unknown_tokens_do_not_fill_the_log_while_the_webhook_is_down(caplog):
    """Each used to write a line of its own: as many as clients sent."""
    now = [5.0]

    async def send(question: bytes, read: Any) -> bytes:
        raise WebhookError("gone", False)

    async def story() -> None:
        hook = tokenwebhook.TokenWebhook(SimpleNamespace(send=send), "v1", (), 60.0, lambda: now[0])  # type: ignore[arg-type]
        for i in range(MOST + 21):
            now[0] += i == MOST + 20
            with pytest.raises(AuthenticationError):
                await awaited(hook.authenticate_token(f"made-up-{i}"))

    asyncio.run(story())
    said = "Failed to make webhook authenticator request: gone"
    assert caplog.messages == [said] * MOST + ["20 more webhook authenticator requests failed", said]


def asked(hook: tokenwebhook.TokenWebhook, address: str, token: str) -> asyncio.Future[UserInfo | None] | None:
    comes_from(address)
    try:
        return asyncio.ensure_future(awaited(hook.authenticate_token(token)))
    except AuthenticationError:
        return None


def test_unknown_tokens_leave_slots_for_others(monkeypatch):
    """256 made-up tokens at once, for which no credential is needed, used to make all other unknown tokens fail. Requests beyond a
    client's share wait: 192 clients behind one address had theirs, and the others were refused."""
    for name, value in (("MAX_ASKED", 8), ("MOST_ASKED", 12), ("MAX_WAITING", 32), ("MOST_WAITING", 50)):
        monkeypatch.setattr(tokenwebhook, name, value)

    async def story() -> None:
        answer, sent = asyncio.Event(), list[str]()

        async def send(question: bytes, read: Any) -> bytes:
            sent.append(json.loads(question)["spec"]["token"])
            await answer.wait()
            return json.dumps({**json.loads(question), "status": {"authenticated": True, "user": {"username": "u"}}}).encode()

        async def under_way() -> int:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return len(sent)

        hook = tokenwebhook.TokenWebhook(SimpleNamespace(send=send), "v1", (), 60.0)  # type: ignore[arg-type]
        mine = [asked(hook, "10.0.0.1", f"made-up-{i}") for i in range(30)]
        assert [one is not None for one in mine] == [True] * 24 + [False] * 6
        assert await under_way() == 6
        assert asked(hook, "10.0.0.1", "made-up-0") is not None  # it is being asked about already
        others = [asked(hook, f"2001:db8:0:{i}::1", f"good-{i}") for i in range(3)]
        others.append(asked(hook, "2001:db8:0:1::2", "other"))  # of the same network as one of them
        works_for("reviewer")
        reviews = [asyncio.ensure_future(awaited(hook.review("t", ())))]
        assert None not in others and await under_way() == 6 + 3 + 1
        many = [asked(hook, f"10.0.1.{i}", f"many-{i}") for i in range(30)]
        assert sum(one is not None for one in many) == 50 - 24 - 4 - 1
        assert await under_way() == 12
        answer.set()
        found = await asyncio.gather(*(one for one in (*mine, *others, *many) if one is not None))
        assert {user.name for user in found if user is not None} == {"u"} and (await reviews[0])[0].name == "u"  # type: ignore[index]
        assert sent.index("other") < sent.index("made-up-7")  # clients take turns
        await asyncio.sleep(0)
        assert not hook._asked
        again = [one for i in range(30) if (one := asked(hook, "10.0.0.1", f"again-{i}")) is not None]
        assert len(again) == 24
        await asyncio.gather(*again)

    asyncio.run(story())


def test_waiting_for_a_slot_takes_no_longer_than_the_timeout(monkeypatch):
    """And takes no slot from later requests."""
    monkeypatch.setattr(tokenwebhook, "MAX_ASKED", 2)
    monkeypatch.setattr(tokenwebhook, "LOOKUP_S", 0.01)

    async def story() -> None:
        hangs = True

        async def send(question: bytes, read: Any) -> bytes:
            if hangs:
                await asyncio.Event().wait()
            return json.dumps({**json.loads(question), "status": {"authenticated": True, "user": {"username": "u"}}}).encode()

        hook = tokenwebhook.TokenWebhook(SimpleNamespace(send=send), "v1", (), 60.0)  # type: ignore[arg-type]
        said = await asyncio.gather(*(one for i in range(5) if (one := asked(hook, "10.0.0.1", f"slow-{i}"))), return_exceptions=True)
        assert [str(error) for error in said] == ["context deadline exceeded"] * 5
        hangs = False
        monkeypatch.setattr(tokenwebhook, "LOOKUP_S", 60.0)
        found = await asyncio.gather(*(one for i in range(5) if (one := asked(hook, "10.0.0.1", f"good-{i}"))))
        assert [user.name for user in found if user is not None] == ["u"] * 5
        assert not hook._asked and not hook._slots._waiting

    asyncio.run(story())

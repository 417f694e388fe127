"""Clients of configured webhooks: how they are made, and what bounds a call."""

from __future__ import annotations

import asyncio
import base64
import threading

import pytest

from kas.client.hooks import MAX_CLIENTS, RETRIES, HookClient, HookClients, HookError, Shares
from kas.client.http import CONTEXT_BYTES, BackendError, Egress
from kas.client.kubeconfig import ANONYMOUS, Credentials, KubeconfigError, Users, load_users
from kas.client.pool import Answer
from kas.observe import caches
from tests import pki


class Script:
    """A pool without open connections that answers from a list: Answers, errors, or events to wait for."""

    generation = 0

    def take(self):
        return None

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    async def post(self, target, head, body, limit):
        self.asked.append((target, head, body))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, asyncio.Event):
            await answer.wait()
            return OK
        if isinstance(answer, Exception):
            raise answer
        return answer


OK = Answer(200, "application/json", "", b"{}")
# A CA of its own for hundreds of clients: reading the system's CAs takes 30 ms, and is not tested here.
TRUSTED = {"caBundle": base64.b64encode(pki.authority("hooks").pem).decode()}


def client(*answers, room=10, credentials=ANONYMOUS):
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    shares = Shares(room)
    made = HookClients(Users({"*": credentials}), None, shares).of({"url": "https://hook.example.com:8443/a%20b"})
    found = HookClient(made._target, credentials, shares, "hook", sleep=sleep)
    found._pool = Script(*answers)
    return found, found._pool, slept


def post(found, *args):
    return asyncio.run(found.post(b"body", *args))


def test_a_call():
    found, pool, _ = client(OK, credentials=Credentials(token="t"))
    assert post(found, 9.2) == b"{}"
    (target, head, body), = pool.asked
    assert target.url == "https://hook.example.com:8443/a%20b?timeout=10s" and body == b"body"
    lines = head.split(b"\r\n")
    assert lines[:2] == [b"POST /a%20b?timeout=10s HTTP/1.1", b"Host: hook.example.com:8443"]
    assert b"authorization: Bearer t" in lines and b"accept: application/json, */*" in lines
    assert post(found, 9.2, 3.4) == b"{}" and pool.asked[1][0].query == "timeout=4s"


@pytest.mark.parametrize(("answer", "says", "code"), [
    (Answer(500, "application/json", "", b"broken"), 'an error on the server ("unknown") has prevented the request from succeeding', 500),
    (Answer(500, "text/plain", "", b"broken\n"), 'an error on the server ("broken") has prevented the request from succeeding', 500),
    (Answer(500, "text/plain", "", b" a  \tb\n"), 'an error on the server ("a  \\tb") has prevented the request from succeeding', 500),
    (Answer(403, "text/plain", "", b"not you"), "not you", 403),
    (Answer(415, "text/plain", "", b"only XML"), "only XML", 415),
    (Answer(406, "text/plain", "", b"only XML"), "only XML", 406),
    (Answer(406, "", "", b""), "the server was unable to respond with a content type that the client supports", 406),
    (Answer(422, "", "", b""), "the server rejected our request due to an error in our request", 422),
    (Answer(404, "", "", b""), "the server could not find the requested resource", 404),
    (Answer(302, "", "", b""), "the server responded with the status code 302 but did not return more information", 302),
    (Answer(409, "application/json", "", b'{"kind":"Status","status":"Failure","message":"said so"}'), "said so", 409),
    (Answer(409, "application/json", "", b'{"kind":"Status","status":"Failure"}'), "", 409),
    (Answer(409, "application/json", "", b'{"kind":"Status","status":"Success","message":"said so"}'),
     "the server reported a conflict", 409),
    (Answer(200, "a/b", "", b""), "0-length response with status code: 200 and content type: a/b", 503),
    (Answer(200, "", "", b"x" * (3 << 20) + b"x"), "the answer is larger than 3145728 bytes", 503),
    (BackendError("EOF"), 'Post "https://hook.example.com:8443/a%20b?timeout=5s": EOF', 503),
])  # fmt: skip
def test_invalid_answers(answer, says, code):
    found, _, _ = client(answer)
    with pytest.raises(HookError) as e:
        post(found, 5.0)
    assert (str(e.value), e.value.code, found._shares.running("hook")) == (says, code, 0)


def test_an_answer_may_ask_to_retry_later():
    busy = Answer(429, "", "3", b"")
    found, pool, slept = client(busy, replace_status(busy, 503), OK)
    assert post(found, 5.0) == b"{}" and slept == [3.0, 3.0]
    found, pool, slept = client(busy)
    with pytest.raises(HookError):
        post(found, 5.0)
    assert len(pool.asked) == RETRIES + 1
    found, pool, slept = client(Answer(503, "", "", b""))
    with pytest.raises(HookError):
        post(found, 5.0)
    assert len(pool.asked) == 1


def replace_status(answer, status):
    return answer._replace(status=status)


def test_the_timeout():
    async def run():
        found, _, _ = client(asyncio.Event())
        with pytest.raises(HookError) as e:
            await found.post(b"", 0.01)
        assert str(e.value).endswith("context deadline exceeded") and found._shares.running("hook") == 0

    asyncio.run(run())


def test_the_number_of_waiting_calls_is_bounded():
    async def run():
        release = asyncio.Event()
        found, pool, _ = client(release, room=4)
        tasks = [asyncio.create_task(found.post(b"", 60.0)) for _ in range(3)]
        for _ in range(3):
            await asyncio.sleep(0)  # each task gets as far as the backend
        assert len(pool.asked) == 3
        with pytest.raises(HookError, match="3 requests are waiting for it already"):
            await found.post(b"", 60.0)
        release.set()
        assert await asyncio.gather(*tasks) == [b"{}"] * 3
        assert await found.post(b"", 60.0) == b"{}"

    asyncio.run(run())


def test_backends_that_hang_leave_slots_for_others():
    shares = Shares(100)
    held = {}
    for name in ("a", "b", "c", "d"):
        held[name] = 0
        while shares.take(name):
            held[name] += 1
    assert held == {"a": 75, "b": 19, "c": 5, "d": 1} and shares.take("e") and not shares.take("e")
    shares.give("e")
    for name, count in held.items():
        for _ in range(count):
            shares.give(name)
    assert not any(map(shares.running, held))
    for name in "ab" * 100:
        shares.take(name)
    assert {name: shares.running(name) for name in "ab"} == {"a": 43, "b": 43}


def test_calls_to_one_backend_count_together():
    clients = HookClients(Users({}), None, Shares(10))
    at = [clients.of({"url": f"https://a:8443/{path}"})._backend for path in ("mutate", "validate")]
    assert at[0] == at[1] != clients.of({"url": "https://a/mutate"})._backend
    assert clients.of({"url": "https://a/"})._backend == clients.of({"url": "https://a:443/"})._backend


def test_clients_are_shared_and_bounded():
    clients = HookClients(Users({}), None, Shares(1))
    first = clients.of({"url": "https://a/"})
    assert clients.of({"url": "https://a/"}) is first
    for i in range(MAX_CLIENTS):
        clients.of({"service": {"name": f"s{i}", "namespace": "n"}, **TRUSTED})
    assert sum(c.bytes_kept() for c in clients._clients.values()) == MAX_CLIENTS * CONTEXT_BYTES
    row = next(row for row in caches.rows() if row.name == "webhook_clients")
    assert MAX_CLIENTS * CONTEXT_BYTES <= row.size <= row.budget
    assert clients.of({"url": "https://a/"}) is not first


def test_the_least_recently_used_client_is_dropped():
    clients = HookClients(Users({}), None, Shares(1))
    first, second = (clients.of({"url": f"https://{host}/"}) for host in "ab")
    assert clients.of({"url": "https://b/"}) is second and clients.of({"url": "https://a/"}) is first
    for i in range(MAX_CLIENTS - 1):
        clients.of({"service": {"name": f"s{i}", "namespace": "n"}, **TRUSTED})
    assert clients.of({"url": "https://a/"}) is first and clients.of({"url": "https://b/"}) is not second


def test_clients_with_many_cas_are_fewer():
    """An object may have 20 MB of them."""
    clients = HookClients(Users({}), None, Shares(1))
    bundle = pki.authority("hooks").pem + b"\n" * (4 * CONTEXT_BYTES)
    for i in range(20):
        clients.of({"url": f"https://a{i}/", "caBundle": base64.b64encode(bundle).decode()})
    assert 1 < len(clients._clients) < 20
    assert sum(c.bytes_kept() for c in clients._clients.values()) <= MAX_CLIENTS * CONTEXT_BYTES


def test_a_new_client_is_created_off_the_loop(monkeypatch):
    """Reading the system's CAs takes long, and there may be hundreds of webhooks."""
    clients, made = HookClients(Users({}), None, Shares(1)), []
    real = clients._made
    monkeypatch.setattr(clients, "_made", lambda config: made.append(threading.get_ident()) or real(config))

    async def run():
        config = {"url": "https://a/"}
        first, second = await asyncio.gather(clients.ready(config), clients.ready(config))
        assert first is second is clients.of(config) is await clients.ready(config)
        with pytest.raises(HookError):
            await clients.ready({})

    asyncio.run(run())
    assert len(made) == 3 and threading.get_ident() not in made


def test_a_service():
    asked = []

    def resolve(namespace, name, port):
        asked.append((namespace, name, port))
        return "10.0.0.1", 8443

    found = HookClients(Users({}), resolve, Shares(1)).of({"service": {"name": "s", "namespace": "n", "path": "/p", "port": 8443}})
    assert found._target.url == "https://s.n.svc:8443/p" and found._target.tls_name == "s.n.svc"
    assert asyncio.run(found._pool._dial()) == ("10.0.0.1", 8443) and asked == [("n", "s", 8443)]
    assert HookClients(Users({}), resolve, Shares(1)).of({"service": {"name": "s", "namespace": "n"}})._target.url == "https://s.n.svc:443/"


@pytest.mark.parametrize(("config", "says"), [
    ({}, "webhook configuration must have either service or URL"), ({"url": "https://[x"}, "Unparsable URL: "),
    ({"url": "https://a", "caBundle": base64.b64encode(b"nonsense").decode()}, "unable to parse bytes as PEM block"),
])  # fmt: skip
def test_unusable_configurations(config, says):
    with pytest.raises(HookError, match=says) as e:
        HookClients(Users({}), None, Shares(1)).of(config)
    assert e.value.client


# --- credentials


def test_users_are_named_after_servers():
    names = ("a.b.c:8443", "*.b.c:8443", "*.c", "s.n.svc", "*")
    users = Users({name: Credentials(name) for name in names}, Credentials("default"))
    for host, port, name in (
        ("a.b.c", 8443, "a.b.c:8443"), ("x.b.c", 8443, "*.b.c:8443"), ("x.b.c", 443, "*.c"), ("x.b.c", 9, "*"), ("s.n.svc", 443, "s.n.svc"),
        ("other", 443, "*"),
    ):  # fmt: skip
        assert users.of(host, port).token == name
    assert Users({}, Credentials("default")).of("x", 1).token == "default"


def test_users_of_a_kubeconfig(tmp_path):
    path = tmp_path / "k"
    users = "[{name: u, user: {token: t}}, {name: h:1, user: {token: x}}]"
    path.write_text(f"{{current-context: c, contexts: [{{name: c, context: {{user: u}}}}], users: {users}}}")
    users = load_users(str(path))
    assert users.of("h", 1).headers() == [(b"authorization", b"Bearer x")]
    assert users.of("i", 1).headers() == [(b"authorization", b"Bearer t")]
    assert load_users("").of("h", 1).headers() == []


@pytest.mark.parametrize(("text", "says"), [
    ("{users: [{name: u, user: {exec: {command: x}}}]}", "exec plug-ins are not supported"),
    ("{users: {a: b}}", r"of type \[\]v1.NamedAuthInfo"),
    ("{users: [{name: u, user: {token: [1]}}]}", "of type string"), ("[]", "cannot unmarshal array into Go value"),
    ("{users: [{name: u, user: {client-certificate-data: aGk=}}]}", "client-certificate and client-key go together"),
])  # fmt: skip
def test_users_that_cannot_be_used(tmp_path, text, says):
    (tmp_path / "k").write_text(text)
    with pytest.raises(KubeconfigError, match=says):
        load_users(str(tmp_path / "k"))




def test_which_proxy_calls_use():
    """Services are in the cluster, URLs beside the control plane; this server itself is called directly."""
    clients = HookClients(Users({}), None, Shares(1), Egress("beside", "within"))
    ways = [clients.of(config)._target.via for config in (
        {"service": {"name": "s", "namespace": "n"}}, {"url": "https://x/y"}, {"service": {"name": "kubernetes", "namespace": "default"}},
        {"service": {"name": "kubernetes", "namespace": "default", "port": 8443}},
    )]  # fmt: skip
    assert ways == ["within", "beside", None, "within"]

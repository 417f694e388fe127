"""A server with users of few rights. After every attack it must have the same processes, no panic, and memory within bounds."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from kas.testing.server import KasServer
from tests.hostile.bystander import Bystander, Echo, processor_seconds
from tests.hostile.hostile_wire import dial

# mallory has only the rights of every user, and what a test grants.
USERS = 'm-token,mallory,u1,"devs"\ni-token,imp,u2\na-token,alice,u3\n'
MAX_GROWTH = 300 << 20  # MiB above what any row may leave
READY_S = 60
FIRST_S = 60  # a timeout for what must happen, on any machine
RELEASED_S = 60  # seconds until memory must have been released
FLAGS = os.environ.get("KAS_HOSTILE_FLAGS", "").split()  # further flags of the server: several workers, a TLS front


class Caller:
    """Sends requests as one user: ``call(method, path, body)`` returns (status, decoded body)."""

    def __init__(self, server: KasServer, token: str | None) -> None:
        self.server, self.session = server, requests.Session()
        self.session.trust_env = False
        self.session.verify = server.ca
        if token is not None:
            self.session.headers["Authorization"] = f"Bearer {token}"

    def __call__(self, method: str, path: str, body=None, ctype: str = "application/json", timeout: float = 30, **headers: str):
        r = self.raw(method, path, body, ctype, timeout, **headers)
        try:
            return r.status_code, r.json()
        except ValueError:
            return r.status_code, r.text

    def raw(self, method: str, path: str, body=None, ctype: str = "application/json", timeout: float = 30, **headers: str):
        sent = {k.replace("_", "-"): v for k, v in headers.items()}
        if body is not None:
            sent.setdefault("Content-Type", ctype)
        kind = "data" if isinstance(body, (bytes, str)) else "json"
        return self.session.request(method, self.server.url + path, headers=sent, timeout=timeout, allow_redirects=False, **{kind: body})


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KasServer]:
    """The server under attack."""
    directory = tmp_path_factory.mktemp("hostile")
    (directory / "tokens.csv").write_text(USERS)
    flags = ("--unsafe-no-fsync", "--token-auth-file", str(directory / "tokens.csv"), "--cors-allowed-origins", r"^https://good\.example$")
    with KasServer(directory, *flags, *FLAGS) as server:
        yield server


@pytest.fixture
def admin(target: KasServer) -> Caller:
    return Caller(target, target.token)


@pytest.fixture
def mallory(target: KasServer) -> Caller:
    return Caller(target, "m-token")


@pytest.fixture
def nobody(target: KasServer) -> Caller:
    return Caller(target, None)


class Bounded:
    """``with bounded(n)``: the block takes the server's workers no more processor time than ``n`` small requests, which are measured
    before and after it. A limit in seconds would depend on the machine."""

    REQUESTS = 50

    def __init__(self, server: KasServer, ask: Callable[..., object]) -> None:
        self._server, self._ask, self._most = server, ask, 0

    def __call__(self, most: int) -> Bounded:
        self._most = most
        return self

    def _used(self) -> float:
        return processor_seconds(self._server.worker_pids())

    def _one(self) -> float:
        """Returns the processor time of one small request."""
        before = self._used()
        for _ in range(self.REQUESTS):
            self._ask("GET", "/api/v1/namespaces/default")
        return (self._used() - before) / self.REQUESTS

    def __enter__(self) -> None:
        self._before, self._began = self._one(), self._used()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        used = self._used() - self._began
        if kind is None:
            one = max(self._before, self._one())
            assert used < self._most * one, f"it took {used:.2f} s, {used / one:.0f} times a small request; {self._most} are allowed"


@pytest.fixture
def bounded(target: KasServer, admin: Caller) -> Bounded:
    """Bounds what a test may cost the server."""
    return Bounded(target, admin)


@pytest.fixture
def as_user(target: KasServer) -> Callable[[str | None], Caller]:
    """``as_user(token)`` sends requests with any bearer token."""
    return lambda token: Caller(target, token)


@pytest.fixture
def room(admin: Caller, request: pytest.FixtureRequest) -> str:
    """A namespace for this test."""
    import hashlib

    name = "h" + hashlib.sha1(request.node.nodeid.encode()).hexdigest()[:10]
    status, body = admin("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    assert status in (201, 409), body
    return name


@pytest.fixture
def grant(admin: Caller) -> Iterator[Callable[..., None]]:
    """``grant(user, rules, namespace)`` creates a role and its binding for the duration of the test; cluster-wide without a namespace."""
    made: list[str] = []

    def give(user: str, rules: list[dict], namespace: str = "") -> None:
        kind = "Role" if namespace else "ClusterRole"
        base = f"/apis/rbac.authorization.k8s.io/v1/{f'namespaces/{namespace}/' if namespace else ''}{kind.lower()}"
        code, role = admin("POST", base + "s", {"metadata": {"generateName": "given-"}, "rules": rules})
        assert code == 201, role
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role["metadata"]["name"]}
        subjects = [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}]
        code, bound = admin("POST", base + "bindings", {"metadata": {"generateName": "given-"}, "roleRef": ref, "subjects": subjects})
        assert code == 201, bound
        made.extend((f"{base}s/{role['metadata']['name']}", f"{base}bindings/{bound['metadata']['name']}"))

    yield give
    for path in made:
        admin("DELETE", path)


@pytest.fixture(scope="session")
def echo() -> Iterator[Echo]:
    one = Echo()
    yield one
    one.close()


@pytest.fixture
def bystander(target: KasServer, echo: Echo) -> Iterator[Bystander]:
    """Another client, which must be served during an attack as before."""
    one = Bystander(target, echo)
    yield one
    one.check()


def resident(server: KasServer) -> dict[int, int]:
    """Returns the resident bytes of every process of the server."""
    found = {}
    for pid in filter(None, [server.pid, server.front_pid(), *server.worker_pids()]):
        match = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        found[pid] = int(match.group(1)) << 10 if match else 0
    return found


def comes_back(server: KasServer, before: int, mb: int) -> None:
    """Asserts that within a minute the server's resident memory is not above ``before`` plus this many MiB per worker, and for the TLS
    front if there is one."""
    until = time.monotonic() + RELEASED_S
    while (grown := sum((found := resident(server)).values()) - before >> 20) > (most := mb * (len(found) - 1)):
        assert time.monotonic() < until, f"{grown} MiB more than before, {most} allowed"
        time.sleep(0.2)


@pytest.fixture(autouse=True)
def unharmed(target: KasServer) -> Iterator[None]:
    before, said = resident(target), len(target.output)
    yield
    assert target.process.poll() is None, target.output[-3000:]
    until = time.monotonic() + RELEASED_S
    while True:
        after = resident(target)
        assert set(after) == set(before), "a process was replaced:\n" + target.output[said:][-3000:]
        if (grown := sum(after.values()) - sum(before.values())) < MAX_GROWTH:
            break
        assert time.monotonic() < until, f"{grown >> 20} MiB more than before"
        time.sleep(0.2)
    assert "panic" not in target.output[said:], target.output[said:][-3000:]
    until = time.monotonic() + READY_S
    while (ready := Caller(target, target.token)("GET", "/readyz", timeout=10))[0] != 200:
        # An etcd on a busy machine may exceed the 2 s of its check; nothing else may fail.
        assert set(re.findall(r"^\[-\](\S+)", ready[1], re.M)) <= {"etcd", "etcd-readiness"} and time.monotonic() < until, ready
        time.sleep(0.2)


@pytest.fixture
def wire(target: KasServer) -> Callable[..., bytes]:
    """``wire(*pieces, wait=5)`` sends raw bytes over TLS and returns what arrives until the server closes or, after the first bytes,
    nothing arrives for ``wait`` seconds. ``first`` limits the wait for the first bytes; it is short where none may come."""

    def talk(*pieces: bytes, wait: float = 2.0, alpn: str = "http/1.1", first: float = FIRST_S) -> bytes:
        with dial(target, alpn) as s:
            s.settimeout(first)
            got = b""
            try:
                for piece in pieces:
                    s.sendall(piece)
                while data := s.recv(65536):
                    got += data
                    s.settimeout(wait)
            except (TimeoutError, OSError):
                return got
            return got

    return talk

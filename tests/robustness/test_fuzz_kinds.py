"""Objects of every built-in kind, changed, in every form and verb that HTTP has for them: no 5xx that upstream does not give, no panic.

Each request is made by a number, ``made(seed, …)``, which a failure names. ``KAS_FUZZ_REQUESTS`` asks for so many, from
``KAS_FUZZ_FROM`` on.
"""

from __future__ import annotations

import collections
import http.client
import os
import ssl
from collections.abc import Iterator

import pytest

from kas.testing.server import KasServer
from tests.robustness.fuzzing import EXPLAINED, NAMESPACE, Asked, Sample, explained, made, samples, text

REQUESTS = int(os.environ.get("KAS_FUZZ_REQUESTS", "1500"))
FROM = int(os.environ.get("KAS_FUZZ_FROM", "0"))
FLAGS = os.environ.get("KAS_FUZZ_FLAGS", "").split()  # more of the server's
TIMEOUT_S = 90.0
http.client._MAXHEADERS = 1000  # up to 4 KiB of short warnings are more headers than Python's client takes


class Wire:
    """A connection that is made again when the server ended it."""

    def __init__(self, server: KasServer) -> None:
        self._server = server
        self._context = ssl.create_default_context(cafile=server.ca)
        self._connection: http.client.HTTPSConnection | None = None

    def ask(self, asked: Asked) -> tuple[int, bytes]:
        """(status, body), as (0, b"") where the connection was ended without an answer to a request that is none."""
        if self._connection is None:
            self._connection = http.client.HTTPSConnection("127.0.0.1", self._server.port, timeout=TIMEOUT_S, context=self._context)
        connection = self._connection
        try:
            connection.putrequest(asked.verb, asked.path, skip_accept_encoding=True)
            for name, value in ({"Authorization": f"Bearer {self._server.token}"} | asked.headers).items():
                connection.putheader(name, value)
            if asked.body or asked.verb in ("POST", "PUT", "PATCH"):
                connection.putheader("Content-Length", str(len(asked.body)))
            connection.endheaders(asked.body)
            answer = connection.getresponse()
            if answer.status == 101:
                self.close()
                return 101, b""
            data = answer.read()
            if answer.will_close:
                self.close()
            return answer.status, data
        except TimeoutError:
            raise
        except (OSError, http.client.HTTPException):
            self.close()
            return 0, b""

    def close(self) -> None:
        """Ends the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None


@pytest.fixture(scope="module")
def known() -> list[Sample]:
    return samples()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, known: list[Sample]) -> Iterator[KasServer]:
    gates = "--feature-gates=AllAlpha=true,AllBeta=true"
    flags = ("--unsafe-no-fsync", "--controllers=none", "--runtime-config=api/all=true", gates, "--service-cluster-ip-range=10.0.0.0/16")
    off = "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,Priority,PodSecurity"
    with KasServer(tmp_path_factory.mktemp("fuzz"), *flags, off, *FLAGS) as server:
        yield server


def fill(server: KasServer, known: list[Sample]) -> None:
    """Makes the objects, as far as they are not there."""
    wire = Wire(server)
    wire.ask(Asked("POST", "/api/v1/namespaces", {"Content-Type": "application/json"}, text({"metadata": {"name": NAMESPACE}})))
    for sample in known:
        status, data = wire.ask(Asked("POST", sample.path, {"Content-Type": "application/json"}, text(sample.obj)))
        assert status in (200, 201, 403, 404, 409), (sample.path, status, data[:500])
    wire.close()


REFILL = 500  # requests after which what was deleted or damaged is there again


def test_every_kind_in_every_way(server: KasServer, known: list[Sample], record_property) -> None:
    workers, wire = server.worker_pids(), Wire(server)
    codes: collections.Counter[int] = collections.Counter()
    wrong: list[str] = []
    for seed in range(FROM, FROM + REQUESTS):
        if (seed - FROM) % REFILL == 0:
            fill(server, known)
        asked = made(seed, known)
        status, data = wire.ask(asked)
        codes[status] += 1
        told = data.decode(errors="replace")
        if asked.verb == "HEAD" and status >= 500:
            status, told = (lambda s, d: (s, d.decode(errors="replace")))(*wire.ask(asked._replace(verb="GET")))
        if not explained(status, told):
            wrong.append(f"{seed}: {asked.verb} {asked.path[:300]} {asked.headers} {asked.body[:600]!r}: {status} {told[:600]}")
    wire.close()
    record_property("codes", dict(codes))
    print(dict(sorted(codes.items())))
    assert not wrong, "\n".join([f"{len(wrong)} answers:", *wrong[:30]])
    assert server.worker_pids() == workers, "a worker died"
    assert codes[0] < REQUESTS // 50, codes
    assert sum(n for code, n in codes.items() if 200 <= code < 300) > REQUESTS // 10, codes
    for word in ("panic'd", "Application callable raised"):
        assert word not in server.output, server.output[-6000:]


def test_what_is_let_pass_says_why() -> None:
    assert all(500 <= e.code < 600 and e.why for e in EXPLAINED)
    assert not explained(500, '{"message":"This request caused apiserver to panic. Look in the logs for details."}')

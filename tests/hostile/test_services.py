"""Services that the server calls, and credentials that it checks before it knows the user: a KMS plug-in, a token issuer and certificate
chains that are slow, huge or wrong, beside a bystander. One server has them all, and an audit policy of 10,000 rules."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from kas.testing.server import KasServer
from tests import pki, tlsstub
from tests.auth.issuer import Issuer
from tests.hostile.bystander import Bystander, Echo
from tests.hostile.conftest import Caller, comes_back, resident
from tests.security.kms import Plugin

SECRETS = "/api/v1/namespaces/default/secrets"
KMS_TIMEOUT = "2s"
RULES = 10_000
MOST_MB = 96
CHAIN = 100
TOKENS = 40
TURNS = itertools.count()


class Services:
    """The server and the services that it calls; ``by`` is the CA of clients."""

    def __init__(self, directory: Path) -> None:
        self.by = pki.authority("clients")
        ca, _ = self.by.write(directory, "clients")
        issuers = tlsstub.authority(directory)
        self.issuer, self.plugin = Issuer(directory, issuers), Plugin(directory / "kms.sock").start()
        kms = {"kms": {"apiVersion": "v2", "name": "k", "endpoint": f"unix://{self.plugin.socket}", "timeout": KMS_TIMEOUT}}
        encryption = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
                      "resources": [{"resources": ["secrets"], "providers": [kms, {"identity": {}}]}]}  # fmt: skip
        issuer = {"url": self.issuer.url, "audiences": ["client"], "certificateAuthority": (directory / "stub-ca.crt").read_text()}
        authentication = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
                          "jwt": [{"issuer": issuer, "claimMappings": {"username": {"claim": "sub", "prefix": ""}}}]}  # fmt: skip
        others = {"level": "Request", "users": ["nobody"], "resources": [{"group": "", "resources": ["pods"]}]}
        audit = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [*[others] * RULES, {"level": "Metadata"}]}
        for name, what in (("encryption", encryption), ("authentication", authentication), ("audit", audit)):
            (directory / f"{name}.json").write_text(json.dumps(what))
        flags = [
            f"--encryption-provider-config={directory}/encryption.json", f"--authentication-config={directory}/authentication.json",
            f"--audit-policy-file={directory}/audit.json", f"--audit-log-path={directory}/audit.log", f"--client-ca-file={ca}",
        ]  # fmt: skip
        try:
            self.server = KasServer(directory, "--unsafe-no-fsync", *flags).start()
        except BaseException:
            self.close()
            raise
        self.admin = Caller(self.server, self.server.token)

    def close(self) -> None:
        """Stops the stubs."""
        self.issuer.close()
        self.plugin.stop()


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    made = Services(tmp_path_factory.mktemp("services"))
    try:
        yield made
    finally:
        made.server.stop()
        made.close()
    made.server.check()


@pytest.fixture
def bystander(services: Services, echo: Echo) -> Iterator[Bystander]:
    """A client of this server, which must be served as before; the server's memory is checked, too."""
    one, before = Bystander(services.server, echo), sum(resident(services.server).values())
    yield one
    one.check()
    comes_back(services.server, before, MOST_MB)


def secrets(services: Services, name: str, many: int = 20) -> set[int]:
    """Writes and reads many secrets at once; returns the statuses."""
    turn = next(TURNS)

    def one(i: int) -> set[int]:
        caller, named = Caller(services.server, services.server.token), f"{name}-{turn}-{i}"
        made = caller("POST", SECRETS, {"metadata": {"name": named}, "stringData": {"a": "b"}})[0]
        return {made, caller("GET", f"{SECRETS}/{named}")[0], caller("GET", SECRETS)[0]}

    with ThreadPoolExecutor(8) as pool:
        return set().union(*pool.map(one, range(many)))


def test_a_kms_plugin_that_does_not_answer(services: Services, bystander: Bystander) -> None:
    def attack() -> None:
        services.plugin.hold()
        try:
            assert secrets(services, "slow") <= {200, 201, 404, 500}
            services.admin("GET", "/readyz")
        finally:
            services.plugin.release()

    bystander.beside(attack)
    assert secrets(services, "again", 2) <= {200, 201}


@pytest.mark.parametrize("called, name, value", [
    ("huge", "annotation", b"x" * 300_000), ("large", "annotation", b"x" * 33_000), ("long", "key_id", "k" * 2000),
    ("sick", "healthz", "x" * 200_000), ("wrong", "encrypts_with", "b"),
])  # fmt: skip
def test_a_kms_plugin_with_invalid_answers(services: Services, bystander: Bystander, called: str, name: str, value: object) -> None:
    before = getattr(services.plugin, name)

    def attack() -> None:
        setattr(services.plugin, name, value)
        try:
            assert secrets(services, called) <= {200, 201, 404, 500}
            services.admin("GET", "/readyz")
        finally:
            setattr(services.plugin, name, before)

    bystander.beside(attack)


def known(services: Services, i: int) -> int:
    """Returns the status of a request whose token was signed by a published key."""
    return Caller(services.server, services.issuer.token("e1", sub=f"u{i}"))("GET", "/api", timeout=60)[0]


def unknown(services: Services, i: int) -> int:
    """The same with a key that was not published, another each time."""
    token = services.issuer.token(f"unknown{i}", key=services.issuer.keys["e1"], sub=f"u{i}")
    return Caller(services.server, token)("GET", "/api", timeout=60)[0]


def tokens(services: Services, many: int = TOKENS) -> set[int]:
    """Returns the statuses of requests with tokens, all different."""
    with ThreadPoolExecutor(8) as pool:
        return {code for ask in (unknown, known) for code in pool.map(partial(ask, services), range(many))}


def while_they_are_held(services: Services) -> set[int]:
    """The same while the issuer delays its keys: only requests with an unknown key wait."""
    with ThreadPoolExecutor(TOKENS) as pool:
        before, waiting = services.issuer.fetches(), []
        try:
            while services.issuer.fetches() == before:  # a token that arrives within a second of the last fetch starts none
                waiting.append(pool.submit(unknown, services, len(waiting)))
                time.sleep(0.05)
            waiting += [pool.submit(unknown, services, len(waiting) + i) for i in range(TOKENS // 2)]
            codes = {known(services, i) for i in range(TOKENS)}
        finally:
            services.issuer.release.set()
        return codes | {one.result() for one in waiting}


@pytest.mark.parametrize("fault", ["slow", "huge", "vast", "garbage", "error", "loop", "down"])
def test_an_issuer_whose_keys_do_not_arrive(services: Services, bystander: Bystander, fault: str) -> None:
    tokens(services, 1)

    def attack() -> None:
        services.issuer.release.clear()
        services.issuer.fault = fault
        try:
            assert (while_they_are_held if fault == "slow" else tokens)(services) <= {200, 401}
        finally:
            services.issuer.fault = ""
            services.issuer.release.set()

    bystander.beside(attack)


def test_chains_of_100_certificates(services: Services, bystander: Bystander, tmp_path: Path) -> None:
    """Each certificate is issued by the next, and is checked before the user is known."""
    chain = [services.by]
    for i in range(CHAIN):
        chain.append(pki.authority(f"a{i}", chain[-1]))
    leaf = pki.issue([("CN", "jane")], chain[-1], chain=chain[:0:-1])
    certificate, key = leaf.write(tmp_path, "leaf")
    context = ssl.create_default_context(cafile=services.server.ca)
    context.load_cert_chain(certificate, key)

    def show(_: int) -> bytes:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            plain = stack.enter_context(socket.create_connection(("127.0.0.1", services.server.port), 60))
            s = stack.enter_context(context.wrap_socket(plain, server_hostname="localhost"))
            s.sendall(b"GET /api HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return s.recv(65536)
        return b""

    with ThreadPoolExecutor(8) as pool:
        answers = bystander.beside(lambda: set(pool.map(show, range(80))))
    assert all(not answer or answer.startswith((b"HTTP/1.1 401", b"HTTP/1.1 403", b"HTTP/1.1 200")) for answer in answers)

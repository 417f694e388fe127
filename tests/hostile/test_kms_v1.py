"""A KMS v1 plug-in that does not answer for a while: requests for what it encrypts wait, and no others do."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kas.testing.server import KasServer
from tests.hostile.bystander import Bystander, Echo
from tests.hostile.conftest import Caller
from tests.security.kms import PluginV1

SECRETS = "/api/v1/namespaces/default/secrets"
WRITERS, REMEMBERED, GETS = 8, 3, 30


class Sealed:
    """A server whose secrets are encrypted by a plug-in, and which caches few keys."""

    def __init__(self, directory: Path) -> None:
        self.plugin = PluginV1(directory / "kms.sock").start()
        kms = {"apiVersion": "v1", "name": "k", "endpoint": self.plugin.target, "timeout": "60s", "cachesize": REMEMBERED}
        rules = [{"resources": ["secrets"], "providers": [{"kms": kms}, {"identity": {}}]}]
        said = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": rules}
        (directory / "encryption.json").write_text(json.dumps(said))
        flags = ("--unsafe-no-fsync", f"--encryption-provider-config={directory}/encryption.json", "--feature-gates=KMSv1=true")
        self.server = KasServer(directory, *flags)

    def ask(self, *args) -> int:
        """Returns the status of an administrator's request."""
        return Caller(self.server, self.server.token)(*args, timeout=120)[0]


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sealed]:
    made = Sealed(tmp_path_factory.mktemp("sealed"))
    try:
        with made.server:
            yield made
    finally:
        made.plugin.stop()


def asked(sealed: Sealed, method: str, requests: list[tuple]) -> list[int]:
    """Returns the statuses of requests that need the plug-in while it does not answer, and checks that others are served."""
    before = sealed.plugin.asked.get(method, 0)
    other = Caller(sealed.server, sealed.server.token)
    sealed.plugin.hold()
    try:
        with ThreadPoolExecutor(len(requests)) as pool:
            pending = [pool.submit(sealed.ask, *request) for request in requests]
            while sealed.plugin.asked.get(method, 0) == before:
                assert not all(p.done() for p in pending), [p.result() for p in pending]
            for _ in range(GETS):
                assert other("GET", "/api/v1/namespaces/default/configmaps")[0] == 200
            waited = [not p.done() for p in pending]
            sealed.plugin.release()
            found = [p.result() for p in pending]
        assert any(waited), (found, sealed.server.output[-1500:])
        return found
    finally:
        sealed.plugin.release()


def test_only_requests_that_need_the_plugin_wait(sealed: Sealed, echo: Echo) -> None:
    turns = itertools.count()

    def new() -> list[tuple]:
        """Writes secrets with new names: an attack may be repeated, and keys of secrets that were read are cached."""
        turn = next(turns)
        return [("POST", SECRETS, {"metadata": {"name": f"s{turn}-{i}"}, "stringData": {"a": "b"}}) for i in range(WRITERS)]

    def write() -> list[int]:
        return asked(sealed, "Encrypt", new())

    def read() -> list[int]:
        made = new()
        assert [sealed.ask(*one) for one in made] == [201] * WRITERS
        return asked(sealed, "Decrypt", [("GET", f"{SECRETS}/{body['metadata']['name']}") for _, _, body in made])

    one = Bystander(sealed.server, echo)
    assert one.beside(write) == [201] * WRITERS
    assert one.beside(read) == [200] * WRITERS

"""A server with two workers and a proxy client certificate, and aggregated API servers."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kas.testing.server import KasServer
from tests.aggregator.backend import Backend
from tests.aggregator.certificates import Authority
from tests.controllers.waiting import until

SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    """Signs the certificates of backends."""
    return Authority(tmp_path_factory.mktemp("backends"), "backends")


@pytest.fixture(scope="module")
def front(tmp_path_factory) -> Authority:
    """Signs the certificate that the server shows to backends."""
    return Authority(tmp_path_factory.mktemp("front"), "front-proxy")


@pytest.fixture(scope="module")
def audit_log(tmp_path_factory) -> Path:
    """Where the server records complete requests for things."""
    return tmp_path_factory.mktemp("audit") / "log"


@pytest.fixture(scope="module")
def server(tmp_path_factory, front, audit_log) -> Iterator[KasServer]:
    certificate, key = front.issue("aggregator")
    policy = audit_log.with_name("policy")
    rules = [{"level": "RequestResponse", "verbs": ["get"], "resources": [{"group": "audited.test"}]}]
    policy.write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}))
    audit = ("--audit-policy-file", str(policy), "--audit-log-path", str(audit_log))
    flags = ("--proxy-client-cert-file", certificate, "--proxy-client-key-file", key, *audit)
    with KasServer(tmp_path_factory.mktemp("kas"), "--unsafe-no-fsync", "--controllers=none", *flags, workers=2) as running:
        yield running


@pytest.fixture
def call(server, connect):
    return connect(server)


class Registered:
    """A backend with its Service and APIService."""

    def __init__(self, call: Any, backend: Backend, name: str) -> None:
        self.call, self.backend, self.name = call, backend, f"v1.{backend.group}"
        self.service = name

    def __call__(self, method: str, path: str = "", *args: Any, **headers: str) -> tuple[int, Any]:
        """Sends a request below the backend's group version."""
        answer: tuple[int, Any] = self.call(method, self.backend.base + path, *args, **headers)
        return answer

    def condition(self) -> dict[str, Any]:
        status = self.call("GET", f"{SERVICES}/{self.name}")[1].get("status") or {}
        return next((c for c in status.get("conditions") or () if c["type"] == "Available"), {})

    def is_available(self, wanted: bool = True) -> dict[str, Any]:
        """Returns the condition once it is true."""
        found: dict[str, Any] = {}

        def look() -> bool:
            found.clear()
            found.update(self.condition())
            return found.get("status") == str(wanted)

        try:
            until(look, PATIENCE_S)
        except AssertionError as e:
            raise AssertionError(f"{e}: {found}\n{self.call.server.output[-3000:]}") from None
        return found

    def create(self, **spec: Any) -> None:
        bundle = base64.b64encode(self.backend.authority.pem).decode()
        wanted = {
            "group": self.backend.group, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15, "caBundle": bundle,
            "service": {"namespace": "default", "name": self.service, "port": self.backend.port}, **spec,
        }  # fmt: skip
        body = {"metadata": {"name": self.name}, "spec": {k: v for k, v in wanted.items() if v is not None}}
        code, answer = self.call("POST", SERVICES, body)
        assert code == 201, answer


@pytest.fixture
def register(call, authority, front) -> Iterator[Callable[..., Registered]]:
    """``register(name)`` starts a backend for the group ``<name>.test`` and registers it; with ``available`` it waits until it is
    available. Everything is deleted at the end of the test."""
    made: list[Registered] = []
    with ExitStack() as stack:

        def register(name: str, *, available: bool = True, hosts: list[str] | None = None, **spec: Any) -> Registered:
            backend = stack.enter_context(Backend(authority, f"{name}.test", front, hosts or [f"{name}.default.svc"]))
            found = Registered(call, backend, name)
            made.append(found)
            service = {"metadata": {"name": name}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
            code, answer = call("POST", "/api/v1/namespaces/default/services", service)
            assert code == 201, answer
            found.create(**spec)
            if available:
                found.is_available()
            return found

        yield register
        for found in made:
            call("DELETE", f"{SERVICES}/{found.name}")
            call("DELETE", f"/api/v1/namespaces/default/services/{found.service}")

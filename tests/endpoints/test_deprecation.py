"""Users of a deprecated version are named in the audit log (``k8s.io/deprecated``), in addition to the warning for the client."""

from __future__ import annotations

import json

import pytest

from kas.request.http import Request
from tests.endpoints.customs import DEFINITIONS, definition, version
from tests.server.whole import World


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    w = World(tmp_path_factory.mktemp("data"), runtime_config={"resource.k8s.io/v1beta1": "true"})
    old = version("v1beta1", storage=False, deprecated=True)
    crd = definition("old.example.com", version(), old)
    ask(w, "POST", DEFINITIONS, crd)
    made = json.loads(asked(w, "GET", f"{DEFINITIONS}/widgets.old.example.com")[1].body)
    made["status"] = {"acceptedNames": made["spec"]["names"], "storedVersions": ["v1"], "conditions": [
        {"type": kind, "status": "True", "reason": "a", "message": ""} for kind in ("NamesAccepted", "Established")
    ]}  # fmt: skip
    ask(w, "PUT", f"{DEFINITIONS}/widgets.old.example.com/status", made)
    w.server.catch_up()
    yield w
    w.close()


def asked(world, method, path, body=None):
    """Returns the request after it was handled, and the answer."""
    headers = [(b"authorization", f"Bearer {world.token}".encode()), (b"content-type", b"application/json")]
    req = Request(method, path, "", headers, b"" if body is None else json.dumps(body).encode())

    async def answer():
        result = world.server.chain(req)
        return result if hasattr(result, "status") else await result

    return req, world.loop.run_until_complete(answer())


def ask(world, method, path, body=None):
    return asked(world, method, path, body)[0].annotations


ENDPOINTS = "/api/v1/namespaces/default/endpoints"
CLAIMS = "/apis/resource.k8s.io/v1beta1/namespaces/default/resourceclaims"


@pytest.mark.parametrize(("method", "path", "removed"), [
    ("GET", ENDPOINTS, ""), ("GET", f"{ENDPOINTS}/kubernetes", ""), ("GET", f"{ENDPOINTS}/kubernetes", ""),
    ("DELETE", f"{ENDPOINTS}/none", ""),
    ("GET", "/api/v1/componentstatuses", ""), ("GET", CLAIMS, "1.38"), ("GET", f"{CLAIMS}/none/status", "1.38"),
    ("GET", "/apis/old.example.com/v1beta1/widgets", ""),
])  # fmt: skip
def test_a_deprecated_version(world, method, path, removed):
    assert ask(world, method, path) == {"k8s.io/deprecated": "true"} | ({"k8s.io/removed-release": removed} if removed else {})


@pytest.mark.parametrize("path", ["/api/v1/namespaces/default/services", "/apis/old.example.com/v1/widgets", "/version"])
def test_others(world, path):
    assert ask(world, "GET", path) is None

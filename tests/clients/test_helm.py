"""helm 3 and 4, with a chart that has a definition and an object of it, a hook, lookups and capabilities."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests import prerequisites
from tests.clients.helm import CHART, PATIENCE_S, Helm, Ready, image, words
from tests.clients.helm import found as helms
from tests.conftest import Client

pytestmark = pytest.mark.client

NONE_FOUND = "no helm on PATH"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.charts.example.com"
WAIT = ("--wait", f"--timeout={PATIENCE_S}s")
OBJECTS = ("v1/serviceaccounts", "v1/configmaps", "v1/services", "policy/v1/poddisruptionbudgets", "apps/v1/deployments",
           "charts.example.com/v1/gadgets")  # fmt: skip


@pytest.fixture(scope="module")
def charted(module_server) -> Client:
    """A server for these tests alone: the definitions of a chart are cluster-scoped."""
    return Client(module_server("--unsafe-no-fsync"))


@pytest.fixture
def namespace(charted: Client) -> str:
    name = f"helm-{uuid.uuid4().hex[:8]}"
    assert charted("POST", "/api/v1/namespaces", {"metadata": {"name": name}})[0] == 201
    return name


HELMS = [pytest.param(v, id=f"helm{v}") for v in helms()] or [pytest.param("", id="none", marks=prerequisites.missing(NONE_FOUND))]


@pytest.fixture(params=HELMS)
def helm(request: pytest.FixtureRequest, charted: Client, namespace: str, tmp_path) -> Helm:
    return Helm(request.param, helms()[request.param], charted, namespace, tmp_path)


@pytest.fixture
def ready(charted: Client, namespace: str) -> Iterator[Ready]:
    with Ready(Client(charted.server), namespace) as running:
        yield running


def data(helm: Helm) -> dict[str, str]:
    found = helm.get("v1/configmaps")
    assert found is not None
    out: dict[str, str] = found["data"]
    return out


def test_a_release_from_install_to_uninstall(helm: Helm, ready: Ready) -> None:
    helm("install", "web", str(CHART), *WAIT)
    assert [(row["name"], row["revision"], row["status"]) for row in helm.json("list")] == [("web", "1", "deployed")]
    assert all(helm.get(what) for what in OBJECTS)
    uid = helm.client("GET", f"/api/v1/namespaces/{helm.namespace}")[1]["metadata"]["uid"]
    version = helm.client("GET", "/version")[1]["gitVersion"]
    assert data(helm) == {"tag": "1", "only-1": "here", "server": version, "gadgets": "true", "namespace-uid": uid}
    assert ready.finished == ["web-prepare"] and helm.get("batch/v1/jobs", "web-prepare") is None

    helm("upgrade", "web", str(CHART), "--set", "tag=2,replicas=3,colour=blue", *WAIT)
    assert {k: v for k, v in data(helm).items() if "2" in (v, k[-1])} == {"tag": "2", "only-2": "here"} and "only-1" not in data(helm)
    upgraded, gadget = helm.get("apps/v1/deployments"), helm.get("charts.example.com/v1/gadgets")
    assert (image(upgraded), upgraded["spec"]["replicas"], upgraded["metadata"]["generation"]) == ("web:2", 3, 2)
    assert gadget["spec"] == {"size": 3, "colour": "blue"}
    assert ready.finished == ["web-prepare"] * 2

    # Another upgrade without changes changes nothing but the release.
    helm("upgrade", "web", str(CHART), "--reuse-values", *WAIT)
    assert helm.get("apps/v1/deployments")["metadata"]["resourceVersion"] == upgraded["metadata"]["resourceVersion"]
    assert helm.get("charts.example.com/v1/gadgets")["metadata"]["resourceVersion"] == gadget["metadata"]["resourceVersion"]

    helm("rollback", "web", "1", *WAIT)
    assert image(helm.get("apps/v1/deployments")) == "web:1" and "only-1" in data(helm) and "only-2" not in data(helm)
    assert helm.get("charts.example.com/v1/gadgets")["spec"]["size"] == 2
    assert helm.history() == [(1, "superseded"), (2, "superseded"), (3, "superseded"), (4, "deployed")]

    helm("uninstall", "web", *WAIT)
    assert not any(helm.get(what) for what in OBJECTS)
    assert helm.client("GET", f"/api/v1/namespaces/{helm.namespace}/secrets?labelSelector=owner%3Dhelm")[1]["items"] == []
    assert helm.client("GET", DEFINITION)[0] == 200  # a chart's definitions stay


def test_an_upgrade_that_does_not_become_ready_fails(helm: Helm) -> None:
    with Ready(Client(helm.client.server), helm.namespace):
        helm("install", "web", str(CHART), *WAIT)
    helm("upgrade", "web", str(CHART), "--set", "tag=2", "--no-hooks", "--wait", "--timeout=2s", code=1)
    assert helm.history() == [(1, "deployed"), (2, "failed")]
    assert image(helm.get("apps/v1/deployments")) == "web:2"
    with Ready(Client(helm.client.server), helm.namespace):
        helm("rollback", "web", *WAIT)
    assert image(helm.get("apps/v1/deployments")) == "web:1"


def test_a_refusal_by_the_server_is_shown(helm: Helm, ready: Ready) -> None:
    refused = helm("install", "web", str(CHART), "--set", "port=0", code=1)
    assert "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive" in words(refused.stderr)
    assert [status for _, status in helm.history()] == ["failed"]
    helm("upgrade", "--install", "web", str(CHART), "--reset-values", *WAIT)
    refused = helm("upgrade", "web", str(CHART), "--set", "replicas=0", code=1)
    assert "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1" in words(refused.stderr)
    assert helm.get("charts.example.com/v1/gadgets")["spec"] == {"size": 2, "colour": "red"}


def test_a_dry_run_on_the_server_stores_nothing(helm: Helm, ready: Ready) -> None:
    helm("install", "web", str(CHART), *WAIT)
    before = helm.get("apps/v1/deployments")
    shown = helm("upgrade", "web", str(CHART), "--set", "tag=9", "--dry-run=server").stdout
    uid = helm.client("GET", f"/api/v1/namespaces/{helm.namespace}")[1]["metadata"]["uid"]
    assert "image: web:9" in shown and f'namespace-uid: "{uid}"' in shown and "status: pending-upgrade" in shown.lower()
    assert helm.get("apps/v1/deployments") == before and helm.history() == [(1, "deployed")]


def test_objects_of_others_are_not_taken_over(helm: Helm, ready: Ready) -> None:
    path = f"/api/v1/namespaces/{helm.namespace}/configmaps"
    assert helm.client("POST", path, {"metadata": {"name": "web"}, "data": {"whose": "mine"}})[0] == 201
    refused = helm("install", "web", str(CHART), code=1)
    assert "invalid ownership metadata" in refused.stderr and data(helm) == {"whose": "mine"}
    helm("upgrade", "--install", "web", str(CHART), "--take-ownership", *WAIT)
    assert data(helm)["tag"] == "1" and helm.get("v1/configmaps")["metadata"]["annotations"]["meta.helm.sh/release-name"] == "web"


def test_helm_4_upgrades_a_release_of_helm_3(charted: Client, namespace: str, ready: Ready, tmp_path) -> None:
    programs = helms()
    if len(programs) < 2:
        prerequisites.give_up("no helm.3 and helm.4 on PATH")
    old, new = (Helm(v, programs[v], charted, namespace, tmp_path) for v in ("3", "4"))
    old("install", "web", str(CHART), *WAIT)
    new("upgrade", "web", str(CHART), "--set", "tag=2", "--server-side=true", "--force-conflicts", *WAIT)
    assert image(new.get("apps/v1/deployments")) == "web:2" and "only-1" not in data(new)
    managers = {(m["manager"], m["operation"]) for m in new.get("v1/services")["metadata"]["managedFields"]}
    assert ("helm", "Apply") in managers

    # A field of another manager is a conflict now, unless it is forced.
    mine = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}, "data": {"tag": "mine"}}
    path = f"/api/v1/namespaces/{namespace}/configmaps/web?fieldManager=other&force=true"
    assert charted("PATCH", path, mine, "application/apply-patch+yaml")[0] == 200
    refused = new("upgrade", "web", str(CHART), "--set", "tag=3", "--server-side=true", code=1)
    assert 'conflict with "other": .data.tag' in words(refused.stderr)
    new("upgrade", "web", str(CHART), "--set", "tag=3", "--server-side=true", "--force-conflicts", *WAIT)
    assert data(new)["tag"] == "3"

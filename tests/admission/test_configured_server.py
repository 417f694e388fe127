"""A running server with a configuration file with relative paths, and an external backend."""

from __future__ import annotations

import json
import time

import pytest

from kas.testing.server import KasServer
from tests.admission.policy_backend import PolicyBackend, certificate, kubeconfig, reviewed

FILE = """\
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: EventRateLimit
  path: parts/events.yaml
- name: ImagePolicyWebhook
  path: parts/images.json
- name: PodNodeSelector
  configuration:
    podNodeSelectorPluginConfig:
      clusterDefaultNodeSelector: env=test
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: baseline}
    exemptions: {namespaces: [kube-system]}
- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - resource: pods
      matchScopes: [{scopeName: PriorityClass, operator: In, values: [system-cluster-critical]}]
- name: ValidatingAdmissionWebhook
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: FOLDER/kubeconfig
"""
EVENTS = """\
apiVersion: eventratelimit.admission.k8s.io/v1alpha1
kind: Configuration
limits: [{type: Namespace, qps: 1, burst: 3}]
"""


@pytest.fixture(scope="module")
def backend(tmp_path_factory):
    folder = tmp_path_factory.mktemp("policy")
    server, client = certificate(folder, "server"), certificate(folder, "client")
    with PolicyBackend(server, client[0]) as running:
        running.folder = folder
        yield running


@pytest.fixture(scope="module")
def running(backend, tmp_path_factory):
    folder = backend.folder
    (folder / "parts").mkdir()
    user = {"client-certificate": "client.crt", "client-key": "client.key"}
    where = kubeconfig(folder / "kubeconfig", backend.url + "/images", {"certificate-authority": "server.crt"}, user)
    (folder / "admission.yaml").write_text(FILE.replace("FOLDER", str(folder)))
    (folder / "parts" / "events.yaml").write_text(EVENTS)
    (folder / "parts" / "images.json").write_text(json.dumps({"imagePolicy": {"kubeConfigFile": where, "denyTTL": -1, "retryBackoff": 1}}))
    flags = ("--unsafe-no-fsync", "--admission-control-config-file", str(folder / "admission.yaml"))
    on = ("--enable-admission-plugins", "EventRateLimit,ImagePolicyWebhook,PodNodeSelector")
    with KasServer(tmp_path_factory.mktemp("kas"), *flags, *on, "--disable-admission-plugins", "ServiceAccount") as server:
        yield server


def pod(name: str, image: str = "good", **spec) -> dict:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": image}], **spec}}


def pods(namespace: str = "default") -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def test_pods_pass_all_plugins(running, connect, backend):
    api = connect(running)
    code, made = api("POST", pods(), pod("a"))
    assert code == 201, made
    assert made["spec"]["nodeSelector"] == {"env": "test"}
    code, e = api("POST", pods(), pod("b", hostPID=True))
    assert (code, e["message"]) == (
        403, 'pods "b" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostPID=true)'
    )  # fmt: skip
    assert api("POST", pods("kube-system"), pod("b", hostPID=True))[0] == 201
    code, e = api("POST", pods("kube-system"), pod("c", priorityClassName="system-cluster-critical"))
    assert code == 500
    assert e["message"] == "insufficient quota to match these scopes: [{PriorityClass In [system-cluster-critical]}]"


def test_images_are_reviewed_by_the_backend(running, connect, backend):
    api = connect(running)
    backend.answers = lambda asked: reviewed("bad" not in str(asked["body"]["spec"]["containers"]), reason="not signed")
    code, e = api("POST", pods(), pod("d", "bad"))
    assert (code, e["message"]) == (
        403, 'pods "d" is forbidden: image policy webhook backend denied one or more images: not signed'
    )  # fmt: skip
    assert api("POST", pods() + "?dryRun=All", pod("d"))[0] == 201
    assert {asked["path"] for asked in backend.seen} == {"/images?timeout=30s"}


def test_a_slow_backend_delays_no_other_request(running, connect, backend):
    """The server has one worker, which answers other requests meanwhile."""
    import threading

    release = threading.Event()

    def slowly(asked):
        release.wait(60)
        return reviewed(True)

    backend.answers = slowly
    done: list[int] = []
    asking = threading.Thread(target=lambda: done.append(connect(running)("POST", pods(), pod("slow", "other"))[0]))
    before = len(backend.seen)
    asking.start()
    deadline = time.monotonic() + 60
    while len(backend.seen) == before:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert connect(running)("GET", "/api/v1/namespaces/default")[0] == 200
    assert not done
    release.set()
    asking.join()
    assert done == [201]


def test_events_are_limited(running, connect):
    api = connect(running)
    assert api("POST", "/api/v1/namespaces", {"metadata": {"name": "loud"}})[0] == 201
    about = {"kind": "Pod", "namespace": "loud", "name": "p"}
    event = {"metadata": {"generateName": "e"}, "involvedObject": about, "reason": "x"}
    answers = list[tuple[int, dict]]()
    while len(answers) < 100 and (not answers or answers[-1][0] == 201):  # one more may be written each second
        answers.append(api("POST", "/api/v1/namespaces/loud/events", event))
    assert [code for code, _ in answers[:3]] == [201] * 3
    code, refused = answers[-1]
    assert code == 429 and refused["message"] == "Too many requests: limit reached on type Namespace for key loud"

"""Simulates the clients of a small cluster: mostly reads, some writes, and watching informers. Started by ``run.py``."""

from __future__ import annotations

import json
import os
import random
import time
import uuid

from locust import HttpUser, between, task

NAMESPACE = os.environ.get("KAS_NAMESPACE", "load")
CONFIGMAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
MERGE = {"Content-Type": "application/merge-patch+json"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}
WATCH_SECONDS = 5


class KasUser(HttpUser):
    abstract = True

    def on_start(self) -> None:
        self.client.trust_env = False
        self.client.verify = os.environ["KAS_CA"]
        self.client.headers["Authorization"] = "Bearer " + os.environ["KAS_TOKEN"]

    def ask(self, method: str, path: str, name: str, ok: tuple[int, ...] = (200,), **kw):
        """Sends one request. A response whose status is not in ``ok`` counts as an error, with the server's message."""
        with self.client.request(method, path, name=name, catch_response=True, timeout=30, **kw) as answer:
            if answer.status_code in ok:
                answer.success()
            else:
                answer.failure(f"{answer.status_code}: {answer.text[:200]}")
            return answer


class Reader(KasUser):
    """kubectl, dashboards and controllers that read."""

    weight = 5
    wait_time = between(0.02, 0.1)

    @task(10)
    def get(self) -> None:
        self.ask("GET", f"{CONFIGMAPS}/shared-{random.randrange(100)}", "get configmap")

    @task(4)
    def list_page(self) -> None:
        self.ask("GET", f"{PODS}?limit=50", "list pods, a page")

    @task(2)
    def list_selected(self) -> None:
        self.ask("GET", f"{PODS}?labelSelector=shard%3D{random.randrange(10)}", "list pods by label")

    @task(2)
    def table(self) -> None:
        accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
        self.ask("GET", DEPLOYMENTS, "list deployments as a table", headers={"Accept": accept})

    @task(1)
    def discover(self) -> None:
        accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
        self.ask("GET", "/apis", "aggregated discovery", headers={"Accept": accept})


class Writer(KasUser):
    """Controllers and pipelines: object lifecycles, and updates to objects that other clients update as well."""

    weight = 3
    wait_time = between(0.05, 0.2)

    @task(3)
    def life(self) -> None:
        name = "own-" + uuid.uuid4().hex[:12]
        self.ask("POST", CONFIGMAPS, "create configmap", ok=(201,), json={"metadata": {"name": name}, "data": {"pad": "x" * 800}})
        self.ask("PATCH", f"{CONFIGMAPS}/{name}", "patch configmap", data=json.dumps({"data": {"n": "1"}}), headers=MERGE)
        self.ask("DELETE", f"{CONFIGMAPS}/{name}", "delete configmap")

    @task(3)
    def update_shared(self) -> None:
        """Reads, changes and replaces an object. A conflict with another client is an expected response, not an error."""
        path = f"{CONFIGMAPS}/shared-{random.randrange(100)}"
        read = self.ask("GET", path, "get configmap")
        if read.status_code == 200:
            obj = read.json()
            obj["data"]["n"] = uuid.uuid4().hex
            self.ask("PUT", path, "replace configmap", ok=(200, 409), json=obj)

    @task(2)
    def apply(self) -> None:
        name = f"web-{random.randrange(20)}"
        container = {"name": "c", "image": f"i:{random.randrange(1000)}"}
        spec = {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}},
        }
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}
        self.ask(
            "PATCH",
            f"{DEPLOYMENTS}/{name}?fieldManager=load&force=true",
            "apply deployment",
            ok=(200, 201),
            data=json.dumps(body),
            headers=APPLY,
        )

    @task(2)
    def pod_status(self) -> None:
        status = {"status": {"phase": "Running", "message": uuid.uuid4().hex}}
        self.ask("PATCH", f"{PODS}/p-{random.randrange(200)}/status", "patch pod status", data=json.dumps(status), headers=MERGE)

    @task(1)
    def refused(self) -> None:
        """Sends an invalid request, which is part of the mix: it must be refused cheaply."""
        self.ask("POST", PODS, "create an invalid pod", ok=(422,), json={"metadata": {"name": "bad"}, "spec": {"containers": []}})


class Watcher(KasUser):
    """An informer: lists once, then watches, resuming each time from the last revision it saw."""

    weight = 2
    wait_time = between(0.1, 0.5)

    def on_start(self) -> None:
        super().on_start()
        self.revision = ""

    @task
    def watch(self) -> None:
        if not self.revision:
            self.revision = self.ask("GET", CONFIGMAPS, "list configmaps").json()["metadata"]["resourceVersion"]
        query = f"watch=true&allowWatchBookmarks=true&resourceVersion={self.revision}&timeoutSeconds={WATCH_SECONDS}"
        began = time.perf_counter()
        with self.client.get(
            f"{CONFIGMAPS}?{query}", name=f"watch of {WATCH_SECONDS} s", stream=True, catch_response=True, timeout=60
        ) as answer:
            if answer.status_code != 200:
                answer.failure(f"{answer.status_code}: {answer.text[:200]}")
                return
            for line in answer.iter_lines(chunk_size=None):
                if not line:
                    continue
                event = json.loads(line)
                if event["type"] == "ERROR":
                    self.revision = ""
                    answer.failure(f"ended with {event['object'].get('message')}")
                    return
                seen = event["object"]["metadata"]["resourceVersion"]
                if int(seen) < int(self.revision) or (event["type"] != "BOOKMARK" and seen == self.revision):
                    answer.failure(f"event {seen} after {self.revision}")
                    return
                self.revision = seen
            took = time.perf_counter() - began
            if took > WATCH_SECONDS + 10:
                answer.failure(f"ended {took - WATCH_SECONDS:.1f} s late")
            else:
                answer.success()

"""The installed helms, one of them with a namespace of its own, and a thread that makes its objects ready."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

from tests.conftest import Client

CHART = Path(__file__).parent / "charts" / "web"
# For helm's own waits; those that should fail get a shorter one.
PATIENCE_S = 60
Obj = dict[str, Any]


def found() -> dict[str, str]:
    """Major version -> program: ``helm.N`` on PATH, else the ``helm`` there."""
    programs = {n: path for n in ("3", "4") if (path := shutil.which(f"helm.{n}"))}
    if not programs and (path := shutil.which("helm")):
        said = subprocess.run([path, "version", "--short"], capture_output=True, text=True, check=True).stdout
        programs = {said.lstrip("v").partition(".")[0]: path}
    return programs


class Helm:
    """One helm in one namespace. Calls assert the exit code, and show the output if it differs."""

    def __init__(self, version: str, program: str, client: Client, namespace: str, home: Path) -> None:
        self.version, self.program, self.client, self.namespace = int(version), program, client, namespace
        own = {f"HELM_{what}_HOME": str(home / what.lower()) for what in ("CACHE", "CONFIG", "DATA")}
        self.env = {**os.environ, "KUBECONFIG": client.server.kubeconfig, "HOME": str(home), **own}

    def __call__(self, *args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [self.program, "--namespace", self.namespace, *args]
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S, env=self.env, check=False)
        assert done.returncode == code, f"helm {' '.join(args)}: exit code {done.returncode}, not {code}\n{done.stdout}\n{done.stderr}"
        return done

    def json(self, *args: str) -> Any:
        return json.loads(self(*args, "-o", "json").stdout)

    def get(self, what: str, name: str = "web") -> Obj | None:
        """An object at a path below the namespace's, None if there is none: ``get("v1/configmaps")``."""
        version, resource = what.rsplit("/", 1)
        root = "/api/v1" if version == "v1" else f"/apis/{version}"
        code, answer = self.client("GET", f"{root}/namespaces/{self.namespace}/{resource}/{name}")
        assert code in (200, 404), answer
        return answer if code == 200 else None

    def history(self) -> list[tuple[int, str]]:
        return [(row["revision"], row["status"]) for row in self.json("history", "web")]


class Ready:
    """A context manager that does the work of a cluster's controllers and kubelets, so that helm's waits end. Its thread completes jobs
    and makes deployments available."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.finished: list[str] = []  # names of jobs
        self.failed: Exception | None = None

    def __enter__(self) -> Ready:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(PATIENCE_S)
        assert self.failed is None, self.failed

    def _run(self) -> None:
        try:
            while not self._over.wait(0.05):
                for job in self._list("batch/v1", "jobs"):
                    if not job.get("status", {}).get("conditions"):
                        self._finish(job)
                for deployment in self._list("apps/v1", "deployments"):
                    if deployment.get("status", {}).get("observedGeneration") != deployment["metadata"]["generation"]:
                        self._provide(deployment)
        except Exception as e:  # it would go unnoticed in this thread
            self.failed = e

    def _list(self, version: str, resource: str) -> list[Obj]:
        code, answer = self._client("GET", f"/apis/{version}/namespaces/{self._namespace}/{resource}")
        assert code == 200, answer
        items: list[Obj] = answer["items"]
        return items

    def _say(self, version: str, resource: str, obj: Obj, status: Obj) -> bool:
        """Whether the write succeeded: not if the object was deleted meanwhile, or changed, which will come as another event."""
        meta = obj["metadata"]
        path = f"/apis/{version}/namespaces/{self._namespace}/{resource}/{meta['name']}/status"
        body = {"metadata": {"resourceVersion": meta["resourceVersion"]}, "status": status}
        code, answer = self._client("PATCH", path, body, "application/merge-patch+json")
        assert code in (200, 404, 409), answer
        return code == 200

    def _finish(self, job: Obj) -> None:
        moment = "2026-01-01T00:00:00Z"
        conditions = [{"type": kind, "status": "True", "lastTransitionTime": moment} for kind in ("SuccessCriteriaMet", "Complete")]
        counted = {"succeeded": 1, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {}}
        if self._say("batch/v1", "jobs", job, {"startTime": moment, "completionTime": moment, "conditions": conditions, **counted}):
            self.finished.append(job["metadata"]["name"])

    def _provide(self, deployment: Obj) -> None:
        """Creates a ReplicaSet from its template: helm 3 waits for its pods."""
        meta, spec = deployment["metadata"], deployment["spec"]
        name = f"{meta['name']}-{meta['generation']}"
        template = copy.deepcopy(spec["template"])
        template["metadata"]["labels"]["pod-template-hash"] = name
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": meta["name"], "uid": meta["uid"], "controller": True}
        selector = {"matchLabels": template["metadata"]["labels"]}
        of_set = {"metadata": {"name": name, "labels": template["metadata"]["labels"], "ownerReferences": [owner]},
                  "spec": {"replicas": spec["replicas"], "selector": selector, "template": template}}  # fmt: skip
        code, made = self._client("POST", f"/apis/apps/v1/namespaces/{self._namespace}/replicasets", of_set)
        assert code in (201, 409), made
        counted = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas"), spec["replicas"])
        if code == 201:
            self._say("apps/v1", "replicasets", made, {"observedGeneration": 1, **counted})
        conditions = [
            {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"},
            {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
        ]
        updated = {"updatedReplicas": spec["replicas"], "observedGeneration": meta["generation"]}
        self._say("apps/v1", "deployments", deployment, {**counted, **updated, "conditions": conditions})


def image(deployment: Obj | None) -> str:
    """The image of its only container."""
    assert deployment is not None
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    text: str = container["image"]
    return text


def words(text: str) -> str:
    """The text with line ends and repeated blanks replaced by one blank."""
    return re.sub(r"\s+", " ", text)

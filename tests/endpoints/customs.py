"""Definitions for tests: created, awaited, changed."""

from __future__ import annotations

import time
from typing import Any

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PATIENCE_S = 60


def until(check, what: str) -> Any:
    """Returns the result of ``check()`` once it is true."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        found = check()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {PATIENCE_S} s: {what}")


def version(name: str = "v1", spec: dict[str, Any] | None = None, storage: bool = True, **more: Any) -> dict[str, Any]:
    status = {"type": "object", "properties": {"replicas": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": spec or {}}, "status": status}}
    return {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": schema}, **more}


def definition(group: str, *versions: dict[str, Any], plural: str = "widgets", kind: str = "Widget", **names: Any) -> dict[str, Any]:
    names |= {"plural": plural, "kind": kind}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": list(versions) or [version()]}
    meta = {"name": f"{plural}.{group}"}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": meta, "spec": spec}


class Customs:
    """One definition and its objects on a server; ``client`` as in conftest."""

    def __init__(self, client, crd: dict[str, Any], namespace: str = "default") -> None:
        self.client, self.crd, self.namespace = client, crd, namespace
        spec = crd["spec"]
        self.group, self.plural, self.kind = spec["group"], spec["names"]["plural"], spec["names"]["kind"]
        self.name = crd["metadata"]["name"]
        self.where = f"{DEFINITIONS}/{self.name}"

    def install(self) -> Customs:
        status, body = self.client("POST", DEFINITIONS, self.crd)
        assert status == 201, body
        self.established()
        return self

    def established(self) -> None:
        until(lambda: self.condition("Established") == "True", f"{self.name} is established")

    def condition(self, kind: str) -> str | None:
        status, body = self.client("GET", self.where)
        conditions = (body["status"].get("conditions") or []) if status == 200 else []
        return next((c["status"] for c in conditions if c["type"] == kind), None)

    def path(self, name: str = "", version: str = "v1") -> str:
        scope = f"/namespaces/{self.namespace}" if self.crd["spec"]["scope"] == "Namespaced" else ""
        return f"/apis/{self.group}/{version}{scope}/{self.plural}" + (f"/{name}" if name else "")

    def obj(self, name: str, spec: dict[str, Any] | None = None, version: str = "v1", **more: Any) -> dict[str, Any]:
        return {"apiVersion": f"{self.group}/{version}", "kind": self.kind, "metadata": {"name": name}, "spec": spec or {}, **more}

    def create(self, name: str, spec: dict[str, Any] | None = None, version: str = "v1", **more: Any) -> dict[str, Any]:
        status, body = self.client("POST", self.path(version=version), self.obj(name, spec, version, **more))
        assert status == 201, body
        return body

    def change(self, change) -> dict[str, Any]:
        """Stores the definition as ``change(crd)`` leaves it."""
        while True:
            _, crd = self.client("GET", self.where)
            change(crd)
            status, body = self.client("PUT", self.where, crd)
            if status != 409:
                assert status == 200, body
                return body

    def gone(self) -> None:
        until(lambda: self.client("GET", self.where)[0] == 404, f"{self.name} is gone")

    def remove(self) -> None:
        """Deletes everything, because tests share servers, and some look at all objects."""
        self.client("DELETE", self.where)
        self.gone()
        services = "/apis/apiregistration.k8s.io/v1/apiservices"
        names = [f"{v['name']}.{self.group}" for v in self.crd["spec"]["versions"]]
        until(lambda: all(self.client("GET", f"{services}/{name}")[0] == 404 for name in names), f"APIServices of {self.group} are gone")

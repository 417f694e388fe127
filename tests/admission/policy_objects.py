"""Admission policies and bindings for tests, and a plug-in with them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tests.admission.admission_fakes import FakeServer, Request
from tests.admission.webhook.hook_server import rule

GROUP = "admissionregistration.k8s.io"


class Governed:
    """A policy plug-in with a fake server; ``kind`` is "validating" or "mutating"."""

    def __init__(self, server: FakeServer, module: ModuleType, kind: str) -> None:
        self.server, self.kind = server, kind
        server.add("", "namespaces", {"metadata": {"name": "ns1", "labels": {"team": "a"}}, "status": {"phase": "Active"}})
        self.plugin = server.plugin(module)

    def policy(self, name: str = "p", rules: Any = None, constraints: Any = None, **spec: Any) -> None:
        match = {"resourceRules": rules or [rule("configmaps")], "matchPolicy": "Equivalent", **(constraints or {})}
        obj = {"metadata": {"name": name}, "spec": {"matchConstraints": match, "failurePolicy": "Fail", **spec}}
        self.server.add(GROUP, f"{self.kind}admissionpolicies", obj)

    def bind(self, name: str = "b", policy: str = "p", **spec: Any) -> None:
        spec = {"policyName": policy, **({"validationActions": ["Deny"]} if self.kind == "validating" else {}), **spec}
        self.server.add(GROUP, f"{self.kind}admissionpolicybindings", {"metadata": {"name": name}, "spec": spec})

    def drop(self, resource: str, name: str) -> None:
        self.server.store.drop(self.server.registries.of(GROUP, f"{self.kind}{resource}").key("", name))

    def request(self, *before: Any, **more: Any) -> Request:
        """Returns a request about a config map."""
        obj = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "ns1"}, "data": {"k": "v"}}
        return Request(*before, self.plugin, resource="configmaps", kind="ConfigMap", **{"obj": obj, **more})

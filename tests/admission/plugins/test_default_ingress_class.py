"""The DefaultIngressClass plug-in alone."""

from __future__ import annotations

from kas.admission.plugins import default_ingress_class
from tests.admission.admission_fakes import FakeServer, Request


def classes(server: FakeServer, group: str, resource: str, annotation: str) -> None:
    for name, born in (("old", "2020-01-01T00:00:00Z"), ("z", "2021-01-01T00:00:00Z"), ("b", "2021-01-01T00:00:00Z")):
        server.add(group, resource, {"metadata": {"name": name, "creationTimestamp": born, "annotations": {annotation: "true"}}})


def test_default_ingress_class(server):
    classes(server, "networking.k8s.io", "ingressclasses", default_ingress_class.DEFAULT)
    plugin = server.plugin(default_ingress_class)
    out = Request(plugin, group="networking.k8s.io", resource="ingresses", obj={"metadata": {"name": "i"}, "spec": {}}).run()
    assert out["spec"]["ingressClassName"] == "b"

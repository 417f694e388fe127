"""The PodTolerationRestriction plug-in alone."""

from __future__ import annotations

from typing import Any

from kas.admission.configuration import Section
from kas.admission.plugins import pod_toleration_restriction
from tests.admission.admission_fakes import FakeServer, Request, pod, refused


def test_pod_toleration_restriction(server):
    annotations = {
        pod_toleration_restriction.WHITELIST: '[{"key":"ok","operator":"Exists"}]',
        pod_toleration_restriction.DEFAULTS: '[{"key":"ok","value":"1"}]',
    }
    server.add("", "namespaces", {"metadata": {"name": "ns1", "annotations": annotations}})
    plugin = server.plugin(pod_toleration_restriction)
    assert Request(plugin, obj=pod()).run()["spec"]["tolerations"] == [{"key": "ok", "value": "1"}]
    assert refused(Request(plugin, obj=pod(tolerations=[{"key": "bad"}]))).code == 500


def section(api_version: str, kind: str, **fields: Any) -> Section:
    return Section("x", embedded={"apiVersion": api_version, "kind": kind, **fields})


def tolerations(server: FakeServer, annotations: dict[str, str] | None = None, **config: Any) -> pod_toleration_restriction.Plugin:
    server.add("", "namespaces", {"metadata": {"name": "ns1", "annotations": annotations or {}}})
    told = section("podtolerationrestriction.admission.k8s.io/v1alpha1", "Configuration", **config) if config else None
    return server.plugin(pod_toleration_restriction, told)


A, B = {"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}


def test_default_tolerations_of_the_cluster(server):
    plugin = tolerations(server, default=[A])
    assert Request(plugin, obj=pod()).run()["spec"]["tolerations"] == [A]
    assert Request(plugin, obj=pod(tolerations=[B])).run()["spec"]["tolerations"] == [B, A]
    assert "tolerations" not in Request(plugin, operation="UPDATE", obj=pod(), old=pod()).run()["spec"]
    plugin = tolerations(server, {pod_toleration_restriction.DEFAULTS: ""}, default=[A])
    assert not Request(plugin, obj=pod()).run()["spec"].get("tolerations")


def test_tolerations_of_one_pod_are_its_own(server):
    plugin = tolerations(server, default=[A])
    Request(plugin, obj=pod()).run()["spec"]["tolerations"][0]["key"] = "changed"
    assert Request(plugin, obj=pod()).run()["spec"]["tolerations"] == [A]


def test_whitelist_of_the_cluster(server):
    plugin = tolerations(server, whitelist=[A])
    Request(plugin, obj=pod(tolerations=[{"key": "a", "operator": "Equal", "value": "x"}])).run()
    e = refused(Request(plugin, obj=pod(tolerations=[B])))
    assert (e.code, e.message) == (500, pod_toleration_restriction.CONFLICT)
    # Defaults have to be on the list, too.
    refused(Request(tolerations(server, whitelist=[A], default=[B]), obj=pod()))
    Request(tolerations(server, {pod_toleration_restriction.WHITELIST: "[]"}, whitelist=[A]), obj=pod(tolerations=[B])).run()

"""The address of the Service of a webhook or an APIService."""

from __future__ import annotations

from typing import Any

import pytest

from kas.client.services import ResolveError, ServiceResolver


class Stored:
    """Objects and Informers of a Service and its EndpointSlices."""

    def __init__(self, service: dict[str, Any] | None, *slices: dict[str, Any]) -> None:
        self.service, self.given = service, slices

    def get(self, group: str, resource: str, namespace: str, name: str) -> dict[str, Any] | None:
        assert (group, resource, namespace, name) == ("", "services", "ns", "svc")
        return self.service

    def list(self, group: str, resource: str, namespace: str = "") -> list[dict[str, Any]]:
        raise AssertionError("nothing is to be listed")

    def labelled(self, group: str, resource: str, namespace: str, label: str, value: str) -> Any:
        raise AssertionError("nothing is to be read")

    def lister(self, group: str, resource: str, transform: Any, indexers: Any = None) -> Any:
        kept = {("ns", f"s{i}"): transform(s) for i, s in enumerate(self.given)}

        class Lister:
            @staticmethod
            def by_index(index: str, value: str) -> dict[Any, Any]:
                return {k: v for k, v in kept.items() if value in indexers[index](v)}

        return Lister()


def service(kind: str = "ClusterIP", **spec: Any) -> dict[str, Any]:
    ports = [{"name": "https", "port": 443, "targetPort": 8443}]
    return {"metadata": {"name": "svc", "namespace": "ns"}, "spec": {"type": kind, "clusterIP": "10.0.0.9", "ports": ports, **spec}}


def slice_(address: str, ready: bool | None = None, name: str = "https", of: str = "svc") -> dict[str, Any]:
    conditions = {} if ready is None else {"ready": ready}
    return {
        "metadata": {"name": "s", "namespace": "ns", "labels": {"kubernetes.io/service-name": of}},
        "endpoints": [{"addresses": [address], "conditions": conditions}], "ports": [{"name": name, "port": 8443}],
    }  # fmt: skip


def resolved(stored: Stored, routing: bool = False) -> tuple[str, int] | str:
    try:
        return ServiceResolver(stored, stored, routing).resolve("ns", "svc", 443)
    except ResolveError as e:
        return str(e)


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        (None, 'service "svc" not found'), (service(), ("10.0.0.9", 443)), (service("NodePort"), ("10.0.0.9", 443)),
        (service(clusterIP="None"), 'cannot route to service with ClusterIP "None"'),
        (service("ExternalName", externalName="backend.example", ports=[]), ("backend.example", 443)),
        (service(ports=[{"port": 80}]), 'no service port 443 found for service "svc"'), (service("Odd"), 'unsupported service type "Odd"'),
    ],
)  # fmt: skip
def test_by_the_address_of_the_service(obj, want):
    assert resolved(Stored(obj)) == want


def test_by_a_ready_endpoint():
    none = 'no endpoints available for service "svc"'
    slices = [slice_("1.1.1.1", False), slice_("2.2.2.2"), slice_("3.3.3.3", name="other"), slice_("4.4.4.4", of="other")]
    assert resolved(Stored(service(), *slices), True) == ("2.2.2.2", 8443)
    assert {resolved(Stored(service(), slice_("1.1.1.1"), slice_("2.2.2.2", True)), True) for _ in range(200)} == {
        ("1.1.1.1", 8443), ("2.2.2.2", 8443)
    }  # fmt: skip
    assert resolved(Stored(service()), True) == none
    assert resolved(Stored(service(), slices[0]), True) == none
    assert resolved(Stored(service("ExternalName")), True) == 'unsupported service type "ExternalName"'
    assert resolved(Stored(service(ports=[])), True) == 'no service port 443 found for service "svc"'


def test_the_servers_own_service_leads_to_itself():
    stored = Stored(service())
    for routing in (False, True):
        found = ServiceResolver(stored, stored, routing, ("127.0.0.1", 6443))
        assert found.resolve("default", "kubernetes", 443) == ("127.0.0.1", 6443)
    assert ServiceResolver(stored, stored, False, ("127.0.0.1", 6443)).resolve("ns", "svc", 443) == ("10.0.0.9", 443)

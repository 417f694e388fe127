"""Where a Service is reached."""

from __future__ import annotations

import pytest

from kas.client.http import BackendError
from kas.client.services import resolver


class Objects(dict):
    def get(self, group, resource, namespace, name):
        return super().get(f"{resource}/{namespace}/{name}")


def service(**spec):
    ports = [{"name": "web", "port": 443, "targetPort": 8443}, {"port": 9000}]
    return {"metadata": {"name": "s", "namespace": "n"}, "spec": {"type": "ClusterIP", "clusterIP": "10.0.0.9", "ports": ports, **spec}}


ENDPOINTS = {"subsets": [
    {"addresses": [{"ip": "10.1.0.1"}], "ports": [{"name": "web", "port": 8443}, {"port": 9001}]}, {"ports": [{"name": "web", "port": 1}]},
]}  # fmt: skip


@pytest.mark.parametrize(("spec", "port", "address"), [
    ({}, 443, ("10.0.0.9", 443)), ({"type": "NodePort"}, 9000, ("10.0.0.9", 9000)), ({"type": "LoadBalancer"}, 443, ("10.0.0.9", 443)),
    ({"type": "ExternalName", "externalName": "localhost"}, 77, ("localhost", 77)),
])  # fmt: skip
def test_by_its_own_address(spec, port, address):
    assert resolver(Objects({"services/n/s": service(**spec)}), False)("n", "s", port) == address


@pytest.mark.parametrize(("objects", "port", "endpoints", "says"), [
    ({}, 443, False, 'service "s" not found'),
    ({"services/n/s": service()}, 80, False, 'no service port 80 found for service "s"'),
    ({"services/n/s": service(clusterIP="None")}, 443, False, 'cannot route to service with ClusterIP "None"'),
    ({"services/n/s": service(type="ExternalName")}, 443, True, 'unsupported service type "ExternalName"'),
    ({"services/n/s": service()}, 443, True, 'endpoints "s" not found'),
    ({"services/n/s": service(), "endpoints/n/s": {}}, 443, True, 'no endpoints available for service "s"'),
])  # fmt: skip
def test_refusals(objects, port, endpoints, says):
    with pytest.raises(BackendError) as e:
        resolver(Objects(objects), endpoints)("n", "s", port)
    assert str(e.value) == says


def test_by_an_endpoint():
    resolve = resolver(Objects({"services/n/s": service(), "endpoints/n/s": ENDPOINTS}), True)
    assert (resolve("n", "s", 443), resolve("n", "s", 9000)) == (("10.1.0.1", 8443), ("10.1.0.1", 9001))

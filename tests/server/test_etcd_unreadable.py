"""Objects that every server needs, unreadable in etcd: requests for them fail, the server does not."""

from __future__ import annotations

from pathlib import Path

from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import PUT
from kas.store.etcd.client import Client as Calls
from kas.testing.server import KasServer
from tests.conftest import Client
from tests.controllers.waiting import until
from tests.etcd import Etcd

DAMAGED = (
    "namespaces/kube-system", "clusterroles/cluster-admin", "flowschemas/exempt", "prioritylevelconfigurations/system",
    "priorityclasses/system-node-critical", "servicecidrs/kubernetes", "services/specs/default/kubernetes", "ipaddresses/10.0.0.1",
    "services/endpoints/default/kubernetes", "configmaps/kube-system/extension-apiserver-authentication",
    "apiregistration.k8s.io/apiservices/v1.apps", "ranges/servicenodeports", "ranges/serviceips",
)  # fmt: skip
GATE = "--feature-gates=AllowUnsafeMalformedObjectDeletion=true"


def test_a_server_starts_with_damaged_objects_and_they_can_be_deleted(tmp_path: Path) -> None:
    with Etcd(tmp_path) as etcd:
        outside = Calls(etcd.config)
        for key in DAMAGED:
            outside.call(PUT, pb.PutRequest(key=f"/registry/{key}".encode(), value=b'{"junk'))
        outside.close()
        flags = ("--storage-backend=etcd3", f"--etcd-servers={etcd.url}", "--advertise-address=127.0.0.1", GATE)
        with KasServer(tmp_path / "kas", *flags) as server:
            client = Client(server)
            for path in ("/livez", "/readyz"):
                answer = client.raw("GET", f"{path}?verbose")
                assert answer.status_code == 200, answer.text
            assert client("GET", "/api/v1/namespaces/kube-system")[0] == 500
            assert client("GET", "/apis/apps/v1/namespaces/default/deployments")[0] == 200
            # The bitmap is rebuilt from the Services.
            until(lambda: etcd.value("/registry/ranges/servicenodeports") != b'{"junk')
            options = {"ignoreStoreReadErrorWithClusterBreakingPotential": True}
            assert client("DELETE", "/api/v1/namespaces/kube-system", options)[0] == 200
            assert client("GET", "/api/v1/namespaces/kube-system")[0] in (404, 200)  # a controller of the server creates it again


def test_values_encrypted_by_another_configuration_are_not_overwritten(tmp_path: Path) -> None:
    """It may be an object. Without the key, kas reports it as kube-apiserver does, and is not ready."""
    sealed = b"k8s:enc:aescbc:v1:key:" + bytes(48)
    told = "Internal error occurred: identity transformer tried to read encrypted data"
    with Etcd(tmp_path) as etcd:
        outside = Calls(etcd.config)
        for key in ("ranges/servicenodeports", "secrets/default/s"):
            outside.call(PUT, pb.PutRequest(key=f"/registry/{key}".encode(), value=sealed))
        outside.close()
        flags = ("--storage-backend=etcd3", f"--etcd-servers={etcd.url}", "--advertise-address=127.0.0.1")
        with KasServer(tmp_path / "kas", *flags) as server:
            client = Client(server)
            code, answer = client("GET", "/api/v1/namespaces/default/secrets/s")
            assert (code, answer["message"]) == (500, told)
            spec = {"type": "NodePort", "ports": [{"port": 80}]}
            code, answer = client("POST", "/api/v1/namespaces/default/services", {"metadata": {"name": "n"}, "spec": spec})
            assert (code, answer["message"]) == (500, told)
            until(lambda: client.raw("GET", "/readyz").status_code == 500)
            assert etcd.value("/registry/ranges/servicenodeports") == sealed

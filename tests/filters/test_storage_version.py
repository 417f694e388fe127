"""Writes wait until this server has reported the version in which it stores them."""

from __future__ import annotations

import pytest

from kas.auth.user import LOOPBACK_USER
from kas.filters.storage_version import storage_version
from kas.meta.errors import ApiError
from tests.filters.requests import request

LEASES, VERSIONS = "/apis/coordination.k8s.io/v1", "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"
CORE = "/api/v1/namespaces"


class Told:
    """Resources with an error here have not been reported."""

    def __init__(self, **errors: str) -> None:
        self.errors = errors

    def awaited(self, group: str, resource: str) -> str | None:
        return self.errors.get(resource)


ALL = Told(pods="<nil>", leases="<nil>", namespaces="<nil>", storageversions="<nil>", ingresses="etcdserver: request timed out")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"{CORE}/a/pods/b"), ("GET", f"{CORE}/a/pods"), ("GET", "/api/v1/watch/pods"), ("POST", "/healthz"),
        ("POST", VERSIONS), ("PUT", f"{VERSIONS}/core.pods/status"), ("POST", f"{LEASES}/namespaces/kube-system/leases"),
        ("POST", f"{CORE}/a/configmaps"), ("DELETE", f"{CORE}/a/secrets"),
    ],
)  # fmt: skip
def test_requests_that_pass(method, path):
    assert storage_version(ALL).before(request(method, path)) is None


@pytest.mark.parametrize(
    ("method", "path", "named"),
    [
        ("POST", f"{CORE}/a/pods", "pods, last seen error: <nil>"), ("PATCH", f"{CORE}/a/pods/b/status", "pods, last seen error: <nil>"),
        ("DELETE", f"{CORE}/a/pods", "pods, last seen error: <nil>"), ("POST", CORE, "namespaces, last seen error: <nil>"),
        ("POST", f"{LEASES}/namespaces/default/leases", "leases.coordination.k8s.io, last seen error: <nil>"),
        ("PUT", "/apis/networking.k8s.io/v1/namespaces/a/ingresses/b",
         "ingresses.networking.k8s.io, last seen error: etcdserver: request timed out"),
    ],
)  # fmt: skip
def test_requests_that_wait(method, path, named):
    with pytest.raises(ApiError) as e:
        storage_version(ALL).before(request(method, path))
    assert (e.value.code, e.value.reason) == (503, "ServiceUnavailable")
    assert e.value.message == f"wait for storage version registration to complete for resource: {named}"


def test_this_server_creates_namespaces_and_does_nothing_else_to_them():
    for method, path, passes in (("POST", CORE, True), ("PUT", f"{CORE}/a", False), ("POST", f"{CORE}/a/pods", False)):
        req = request(method, path)
        req.user = LOOPBACK_USER
        if passes:
            assert storage_version(ALL).before(req) is None
        else:
            with pytest.raises(ApiError):
                storage_version(ALL).before(req)

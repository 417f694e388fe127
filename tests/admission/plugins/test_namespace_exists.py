"""The NamespaceExists plug-in alone."""

from __future__ import annotations

from kas.admission.plugins import (
    namespace_exists,
)
from tests.admission.admission_fakes import Request, pod, refused


def test_namespace_exists(server):
    assert refused(Request(server.plugin(namespace_exists), obj=pod())).code == 404

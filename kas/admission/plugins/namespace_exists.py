"""NamespaceExists: nothing is written in a namespace that is not there. Upstream: ``plugin/pkg/admission/namespace/exists``."""

from __future__ import annotations

from typing import Any

from kas.admission import CREATE, DELETE, UPDATE, Attributes
from kas.api import errors


class Plugin:
    """Uses ``server.store``."""

    name = "NamespaceExists"

    def __init__(self, server: Any) -> None:
        self._server = server

    def handles(self, a: Attributes) -> bool:
        return a.operation in (CREATE, UPDATE, DELETE) and a.resource != "namespaces"

    def validate(self, a: Attributes) -> None:
        if a.namespace and self._server.store.get(f"/registry/namespaces/{a.namespace}") is None:
            raise errors.not_found("", "namespaces", a.namespace)

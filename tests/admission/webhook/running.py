"""A webhook plug-in in isolation, with real webhooks on 127.0.0.1."""

from __future__ import annotations

import asyncio
import itertools
from types import ModuleType
from typing import Any

from tests.admission.admission_fakes import FakeServer, Request

GROUP = "admissionregistration.k8s.io"
_numbers = itertools.count()


class Hooked:
    """``plugin`` on a fake server that only has objects; ``add`` configures webhooks."""

    def __init__(self, server: FakeServer, module: ModuleType, resource: str, **more: Any) -> None:
        self.server, self.resource, self.loop = server, resource, asyncio.new_event_loop()
        server.add("", "namespaces", {"metadata": {"name": "ns1"}})
        self.plugin = server.plugin(module, **more)

    def add(self, *hooks: dict[str, Any], name: str = "") -> str:
        name = name or f"c{next(_numbers)}"
        self.server.add(GROUP, self.resource, {"metadata": {"name": name}, "webhooks": list(hooks)})
        return name

    def remove(self, name: str) -> None:
        self.server.store.drop(self.server.registries.of(GROUP, self.resource).key("", name))

    def request(self, *before: Any, **more: Any) -> Request:
        """Runs a request about a config map through the plug-in, after the plug-ins in ``before``."""
        obj = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "ns1"}, "data": {"k": "v"}}
        return _Request(self.loop, *before, self.plugin, **{"resource": "configmaps", "kind": "ConfigMap", "obj": obj, **more})

    def close(self) -> None:
        self.plugin.webhooks.clients.close()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()


class _Request(Request):
    """Runs on the loop that the plug-in's connections belong to."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *plugins: Any, **more: Any) -> None:
        super().__init__(*plugins, **more)
        self.loop = loop

    def run(self) -> dict[str, Any]:
        self.loop.run_until_complete(self.steps())
        return self.attributes.obj

"""Shared by tests of strategies: writes through the real pipeline, without a server or a store."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from kas.meta.errors import ApiError
from kas.registry import pipeline
from kas.registry.strategy import Context
from kas.types.scheme import BUILTIN

Obj = dict[str, Any]
NOW = "2024-01-02T03:04:05Z"
USER = {"username": "jane", "uid": "u-1", "groups": ["devs", "system:authenticated"]}


class Kind:
    """One served resource, ``group/version/resource``, or ``v1/resource`` for the group "". ``create`` and ``update`` return the object as
    stored, ``refusals`` the (path, reason) of a 422."""

    def __init__(self, resource: str) -> None:
        *group, version, plural = resource.split("/")
        self.resource = BUILTIN.resource("".join(group), version, plural)
        self.warnings: list[str] = []

    def _context(self) -> Context:
        namespace = "ns1" if self.resource.namespaced else ""
        return Context(now=NOW, namespace=namespace, user=USER)

    def _input(self, obj: Obj) -> Obj:
        r = self.resource
        head = {"apiVersion": f"{r.group}/{r.version}" if r.group else r.version, "kind": r.kind, "metadata": {"name": "a"}}
        return pipeline.decode_input(r, copy.deepcopy(head | obj))[0]

    def create(self, obj: Obj) -> Obj:
        stored, self.warnings = pipeline.build_create(self.resource, self._input(obj), self._context())
        return pipeline.from_storage(self.resource, json.loads(pipeline.encode(self.resource, stored)))

    def update(self, obj: Obj, old: Obj, subresource: str = "") -> Obj:
        new, before = self._input(obj), self._input(old)
        new["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"] = "1"
        stored, self.warnings = pipeline.build_update(self.resource, new, before, self._context(), subresource)
        return pipeline.from_storage(self.resource, json.loads(pipeline.encode(self.resource, stored)))

    def refusals(self, obj: Obj, old: Obj | None = None, subresource: str = "") -> list[tuple[str, str]]:
        return [(cause["field"], cause["reason"]) for cause in self._causes(obj, old, subresource)]

    def messages(self, obj: Obj, old: Obj | None = None, subresource: str = "") -> list[tuple[str, str]]:
        """The (path, message) of a 422."""
        return [(cause["field"], cause["message"]) for cause in self._causes(obj, old, subresource)]

    def _causes(self, obj: Obj, old: Obj | None, subresource: str) -> list[dict[str, str]]:
        with pytest.raises(ApiError) as caught:
            self.create(obj) if old is None else self.update(obj, old, subresource)
        status = caught.value.status()
        assert status["code"] == 422, status
        return status["details"]["causes"]


INVALID, REQUIRED, FORBIDDEN = "FieldValueInvalid", "FieldValueRequired", "FieldValueForbidden"
UNSUPPORTED, DUPLICATE = "FieldValueNotSupported", "FieldValueDuplicate"


def without(obj: Obj, path: str) -> Obj:
    """A copy that lacks the dotted ``path``."""
    copied = copy.deepcopy(obj)
    *parents, last = path.split(".")
    inner = copied
    for name in parents:
        inner = inner[int(name)] if isinstance(inner, list) else inner[name]
    del inner[int(last) if isinstance(inner, list) else last]
    return copied


def changed(obj: Obj, path: str, value: Any) -> Obj:
    """A copy in which the dotted ``path`` is ``value``."""
    copied = copy.deepcopy(obj)
    *parents, last = path.split(".")
    inner = copied
    for name in parents:
        inner = inner[int(name)] if isinstance(inner, list) else inner.setdefault(name, {})
    inner[int(last) if isinstance(inner, list) else last] = value
    return copied

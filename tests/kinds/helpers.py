"""Sends objects through the write pipeline, as a client's JSON would be."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kas.meta.errors import ApiError
from kas.registry import pipeline
from kas.registry.strategy import Context
from kas.types.scheme import BUILTIN

NOW = "2024-01-02T03:04:05Z"
UID = "00000000-0000-4000-8000-000000000001"


def resource(path: str):
    """``"apps/v1/deployments"`` or ``"v1/pods"``."""
    parts = path.split("/")
    group, version, plural = parts if len(parts) == 3 else ("", *parts)
    found = BUILTIN.resource(group, version, plural)
    assert found is not None, path
    return found


def context(res, **more: Any) -> Context:
    return Context(now=NOW, namespace="ns1" if res.namespaced else "", uid=UID, **more)


def create(path: str, obj: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    res = resource(path)
    typed, _ = pipeline.decode_input(res, copy.deepcopy(obj))
    return pipeline.build_create(res, typed, context(res))


def update(path: str, old: dict[str, Any], change, subresource: str = "") -> tuple[dict[str, Any], list[str]]:
    """``change`` edits a copy of the stored ``old`` in place."""
    res = resource(path)
    new = copy.deepcopy(old)
    change(new)
    before = copy.deepcopy(old)
    for obj in (new, before):
        obj["metadata"]["resourceVersion"] = "1"
    typed, _ = pipeline.decode_input(res, new)
    kept = copy.deepcopy(before)
    result = pipeline.build_update(res, typed, before, context(res, subresource=subresource), subresource)
    assert before == kept, "the stored object was changed"
    return result


def refused(call, *args, **kwargs) -> list[tuple[str, str]]:
    """Returns the (field, message) pairs of a 422."""
    with pytest.raises(ApiError) as caught:
        call(*args, **kwargs)
    assert caught.value.code == 422, caught.value
    return [(cause["field"], cause["message"]) for cause in caught.value.details["causes"]]


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "nginx:1"}], **spec}}


def workload(**spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "nginx:1"}]}}
    return {"metadata": {"name": "w"}, "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template, **spec}}

"""A stored object may be written unchanged: no rule for updates refuses, changes or defaults what a write has stored."""

from __future__ import annotations

import json

import pytest

from kas.registry import pipeline
from kas.types.scheme import BUILTIN, encode_json
from tests.vectors import files
from tests.vectors.kinds import strategy


def _stored() -> dict[str, list[dict]]:
    """Resource -> the objects that kube-apiserver stored of it, as clients read them."""
    out: dict[str, list[dict]] = {}
    for vector in files.lines("strategy"):
        if "object" in vector["out"]:
            out.setdefault(vector["in"]["resource"], []).append(vector["out"]["object"])
    return out


STORED = _stored()


def test_there_are_objects_of_most_groups():
    assert len(STORED) > 40
    assert sum(map(len, STORED.values())) > 300


@pytest.mark.parametrize("path", sorted(STORED))
def test_a_stored_object_may_be_written_unchanged(path):
    *group, version, plural = path.split("/")
    resource = BUILTIN.resource("".join(group), version, plural)
    for stored in STORED[path]:
        as_read = json.loads(encode_json(resource.type, pipeline.from_storage(resource, strategy.sent(resource, stored))))
        as_read["metadata"].pop("resourceVersion", None)  # ``run`` omits it, too
        answer = strategy.run({"in": {"resource": path, "object": stored, "oldObject": stored}})
        assert answer.get("object", answer) == as_read

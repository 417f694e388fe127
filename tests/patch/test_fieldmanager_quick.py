"""The fast path of usual updates has the result of the general one, and both have the result that managed fields are defined to have."""

from __future__ import annotations

import copy
import random
from typing import Any

import orjson
import pytest

from kas.patch._fieldsets import canonical, compare, paths, recursive_difference, updated
from kas.patch.fieldmanager import builtin, field_set, update, updating
from kas.patch.fieldmanager.entries import order, written
from kas.patch.fieldmanager.updating import STRIPPED

POD = builtin("", "v1", "Pod")
STATUS = field_set(["status"])
MANAGERS = (("kubelet", "status"), ("kubelet", ""), ("controller", ""), ("scheduler", ""), ("controller", "status"))
Paths = set[tuple[str, ...]]


def pod() -> dict[str, Any]:
    return {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "1"}}


def changed(rng: random.Random, obj: dict[str, Any]) -> dict[str, Any]:
    """Changes or removes some of the fields that may be set."""
    new = copy.deepcopy(obj)
    for _ in range(rng.randint(0, 3)):
        what, name, value = rng.randrange(5), rng.choice("abc"), rng.choice("xyz")
        if what == 0:
            new["metadata"].setdefault(rng.choice(("labels", "annotations")), {})[name] = value
        elif what == 1:
            new["metadata"].pop(rng.choice(("labels", "annotations")), None)
        elif what == 2:
            new["spec"] = {"containers": [{"name": n, "image": rng.choice("xyz")} for n in "abc" if rng.random() < 0.7] or [{"name": "a"}]}
        elif what == 3:
            conditions = [{"type": n, "status": rng.choice(("True", "False"))} for n in "abc" if rng.random() < 0.7]
            new["status"] = {"phase": value, "conditions": conditions}
        else:
            new["metadata"]["resourceVersion"], new["metadata"]["generation"] = value, rng.randint(1, 3)
    return new


def members(fields: dict[str, Any]) -> Paths:
    return {tuple(path) for path in paths(fields)}


def defined(live: dict[str, Any], new: dict[str, Any], manager: str, subresource: str, reset: dict[str, Any]) -> dict[Any, Paths]:
    """What each manager owns, by upstream's two steps: all managers lose the fields that changed or are gone, and the writer gets the
    changed ones."""
    added, gone = (recursive_difference(fields, reset) for fields in compare(POD.root, live, new))
    out: dict[Any, Paths] = {}
    for e in live["metadata"]["managedFields"]:
        out[e["manager"], e["operation"], e.get("subresource", "")] = members(e["fieldsV1"]) - members(added) - members(gone)
    own = manager, "Update", subresource
    out[own] = out.get(own, set()) | (members(added) - members(STRIPPED))
    return {who: fields for who, fields in out.items() if fields}


@pytest.mark.parametrize("seed", range(60))
def test_the_fast_path_and_the_general_one_agree(seed, monkeypatch):
    rng = random.Random(seed)
    live = changed(rng, pod())
    live["metadata"]["managedFields"] = update(POD, None, live, "creator", now="2024-01-02T03:04:05Z")
    if rng.random() < 0.5:
        applied = written("applier", "Apply", "v1", "2024-01-02T03:04:06Z", {"f:metadata": {"f:labels": {"f:a": {}}}}, "")
        live["metadata"]["managedFields"] = sorted([*live["metadata"]["managedFields"], applied], key=order)
    quick = 0
    for turn in range(25):
        new, (manager, subresource) = changed(rng, live), rng.choice(MANAGERS)
        reset = STATUS if not subresource and rng.random() < 0.5 else {}
        now = f"2024-01-02T03:05:{turn:02d}Z"
        if rng.random() < 0.3:
            new["metadata"].pop("managedFields", None)
        before = orjson.dumps([live, new])
        found = update(POD, live, new, manager, now=now, subresource=subresource, reset_fields=reset)
        assert orjson.dumps([live, new]) == before, "nothing given is changed"
        if live["metadata"]["managedFields"]:
            said = {(e["manager"], e["operation"], e.get("subresource", "")): members(e["fieldsV1"]) for e in found}
            assert said == defined(live, new, manager, subresource, reset)
            known = updated(POD.root, live, new, "v1", manager, subresource, now, STRIPPED, reset, written, order)
            quick += known is not None
        with monkeypatch.context() as patched:
            patched.setattr(updating, "updated", lambda *_: None)
            long = update(POD, live, new, manager, now=now, subresource=subresource, reset_fields=reset)
        assert orjson.dumps(long) == orjson.dumps(found)
        assert (long is live["metadata"]["managedFields"]) == (found is live["metadata"]["managedFields"])
        for e in found:
            assert orjson.dumps(e["fieldsV1"]) == orjson.dumps(canonical(e["fieldsV1"]))
        live = new
        live["metadata"]["managedFields"] = orjson.loads(orjson.dumps(found))
        if not found:
            break
    assert quick or not live["metadata"]["managedFields"]


USUAL = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}


@pytest.mark.parametrize("entries", [
    [{**USUAL, "apiVersion": "v2"}],
    [{**USUAL, "fieldsType": "FieldsV2"}],
    [{**USUAL, "operation": "Delete"}],
    [{**USUAL, "manager": 1}],
    [{**USUAL, "fieldsV1": {"f:a": 1}}],
    [{**USUAL, "fieldsV1": None}],
    [{**USUAL, "fieldsV1": {"f:spec": {"f:nodeSelector": {"f:a": {}}}}}],
    [USUAL] * 2,
    [{**USUAL, "manager": f"m{n}"} for n in range(10)],
    ["m"], [], {}, None,
])  # fmt: skip
def test_unusual_updates_take_the_general_path(entries):
    live = pod()
    live["metadata"]["managedFields"] = entries
    assert updated(POD.root, live, pod(), "v1", "m", "", "2024-01-02T03:04:05Z", STRIPPED, {}, written, order) is None

"""Walks of large objects release the interpreter's lock, and merge sort in parts gives the right order."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import orjson
import pytest

from kas import _codecs
from kas._codecs import decode, decode_plain, encode_json, encode_protobuf, encode_stored, read_pairs, transcode_json_to_protobuf
from kas.meta.largejson import parse
from kas.observe.process import SWITCH_S
from kas.patch import _fieldsets, jsonpatch, literals
from kas.patch.fieldmanager.builtin import builtin
from kas.types.scheme import builtin_kind

MANY = 30_000
MEMBERS_A_LOOK, BYTES_A_LOOK = 1_000, 128 << 10  # at most: half a millisecond, or one; for parsed data three
ENOUGH_S = 60

ROLE, MAP = (("rbac.authorization.k8s.io", "v1", "ClusterRole"), ("", "v1", "ConfigMap"))
WHOSE = {kind: builtin_kind(*kind).type for kind in (ROLE, MAP)}
SCHEMA = {kind: builtin(*kind).root for kind in (ROLE, MAP)}


def role_of(many: int) -> dict[str, Any]:
    return {
        "kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "a"},
        "rules": [{"apiGroups": [f"g{i}"], "resources": ["x"], "verbs": ["get"]} for i in range(many)],
    }  # fmt: skip


def map_of(keys: list[str]) -> dict[str, Any]:
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "finalizers": [f"a/{k}" for k in keys]},
            "data": dict.fromkeys(keys, "")}  # fmt: skip


class Much(NamedTuple):
    """A large object to walk."""

    role: dict[str, Any]
    text: bytes
    map: dict[str, Any]
    set: dict[str, Any]
    half: dict[str, Any]


@lru_cache(maxsize=1)
def much(many: int) -> Much:
    role, one = role_of(many), map_of([f"k{i}" for i in range(many)])
    paths = _fieldsets.to_set(SCHEMA[MAP], one)
    return Much(role, orjson.dumps(role), one, paths, {"f:data": dict(list(paths["f:data"].items())[::2])})


WALKS: dict[str, Callable[[Much], object]] = {
    "parse": lambda of: parse(of.text),
    "literals": lambda of: literals.read(of.text),
    "copy": lambda of: jsonpatch.apply({"a": of.role["rules"][: MANY * 4 // 5]}, [{"op": "copy", "from": "/a", "path": "/b"}]),
    "decode_plain": lambda of: decode_plain(WHOSE[ROLE], of.text),
    "decode": lambda of: decode(WHOSE[ROLE], of.role),
    "encode_json": lambda of: encode_json(WHOSE[ROLE], of.role),
    "encode_stored": lambda of: encode_stored(WHOSE[ROLE], of.role),
    "encode_protobuf": lambda of: encode_protobuf(WHOSE[ROLE], of.role),
    "transcode": lambda of: transcode_json_to_protobuf(WHOSE[ROLE], of.text),
    "read_pairs": lambda of: read_pairs(of.text),
    "validate": lambda of: _fieldsets.validate(SCHEMA[ROLE], of.role),
    "to_set": lambda of: _fieldsets.to_set(SCHEMA[MAP], of.map),
    "created": lambda of: _fieldsets.created(SCHEMA[MAP], of.map, {}),
    "compare": lambda of: _fieldsets.compare(SCHEMA[MAP], {}, of.map),
    "merge": lambda of: _fieldsets.merge(SCHEMA[MAP], of.map, map_of(list(of.map["data"]))),
    "union": lambda of: _fieldsets.union(of.set, of.half),
}


class Other:
    """A thread that wants the interpreter's lock repeatedly, and counts how often it got it while ``walking``."""

    def __init__(self) -> None:
        self.walking, self.had, self.ends = False, 0, False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self.ends:
            self.had += self.walking
            time.sleep(0)
            time.sleep(SWITCH_S / 10)

    def close(self) -> None:
        self.ends = True
        self._thread.join()


@pytest.fixture
def other() -> Iterator[Other]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)  # as a worker's
    one = Other()
    yield one
    one.close()
    sys.setswitchinterval(before)


def checks() -> int:
    return _codecs.gil_checks() + _fieldsets.gil_checks()


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_checks_whether_other_threads_wait(walk: str) -> None:
    """Each kept the lock until it ended: 20 to 500 ms for 3 MB."""
    what, before = much(MANY), checks()
    WALKS[walk](what)
    least = len(what.text) // BYTES_A_LOOK if walk in ("parse", "literals", "copy") else MANY // MEMBERS_A_LOOK
    assert checks() - before >= least > 10


@pytest.mark.parametrize("walk", ["decode", "merge"])  # one of each module
def test_other_threads_get_the_lock_during_a_walk(other: Other, walk: str) -> None:
    """A thread gets it once at the walk's start and once at its end, whatever happens in between; more often shows that it was released."""
    what, ends = much(MANY * 8), time.monotonic() + ENOUGH_S
    while time.monotonic() < ends:
        other.had, other.walking = 0, True
        WALKS[walk](what)
        other.walking = False
        if other.had > 3:
            return
    pytest.fail("nobody else had the lock")


def test_many_names_are_sorted() -> None:
    names = [f"k{i}" for i in range(10_000)]
    random.Random(3).shuffle(names)
    one, ordered = map_of(names), map_of(sorted(names))
    one["metadata"] = ordered["metadata"] = {"name": "a"}
    type_ = WHOSE[MAP]
    assert encode_json(type_, one) == encode_json(type_, ordered)
    assert encode_protobuf(type_, one) == encode_protobuf(type_, ordered) == transcode_json_to_protobuf(type_, encode_json(type_, one))


def test_many_paths_are_in_order() -> None:
    names = [f"k{i}" for i in range(10_000)]
    random.Random(4).shuffle(names)
    found = _fieldsets.to_set(SCHEMA[MAP], map_of(names))
    assert list(found["f:data"]) == [f"f:{n}" for n in sorted(names)]
    assert list(found["f:metadata"]["f:finalizers"]) == [f'v:"a/{n}"' for n in sorted(names)]
    pod = {"spec": {"containers": [{"name": "c", "env": [{"name": n} for n in names]}]}}
    env = _fieldsets.to_set(builtin("", "v1", "Pod").root, pod)["f:spec"]["f:containers"]['k:{"name":"c"}']["f:env"]
    assert list(env) == [f'k:{{"name":"{n}"}}' for n in sorted(names)]

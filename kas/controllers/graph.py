"""Who owns whom: the part of the object graph the garbage collector needs, kept from store events.

Only objects with owner references, and those that wait for their dependents, have a node; of everything else nothing is kept. What an
event costs then is two searches in its bytes: owners are found by the uid their dependents name, and whether one exists is asked of
the store. JSON is decoded when one of the two searches hits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from kas.meta.records import NamedTuple

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
_OWNERS, _FINALIZERS = b'"ownerReferences":', b'"finalizers":'
_VERSION, _MANAGERS = b'"resourceVersion":"', b'"managedFields":['
_HEAD = re.compile(rb'\{"kind":"[^"]*","apiVersion":"[^"]*","metadata":\{(?:"(?:name|generateName|namespace)":"[^"]*",)*"uid":"([^"]*)"')


@dataclass(slots=True)
class Node:
    """What the collector knows of an object: ``key`` in the store, ``revision``, and whom it belongs to (ownerReferences)."""

    key: str
    uid: str
    revision: int
    owners: tuple[dict[str, Any], ...]
    deleting: bool
    foreground: bool  # waits until its dependents that block are gone
    orphaning: bool  # waits until its dependents forget it


class DependentsOf(NamedTuple):
    """Those that name this owner, as something to look at: there may be any number of them."""

    uid: str


Look = str | DependentsOf  # what has to be looked at: the object of a key, or some


class Graph:
    """Nodes by key, and keys of dependents by the uid of their owner: of all, and of those for which its foreground deletion waits."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.dependents: dict[str, set[str]] = {}
        self._blocking: dict[str, set[str]] = {}
        self._waiting: dict[str, str] = {}  # uid to key of owners that wait for dependents

    def clear(self) -> None:
        """Forget everything."""
        self.nodes.clear()
        self.dependents.clear()
        self._blocking.clear()
        self._waiting.clear()

    def put(self, key: str, json: bytes, revision: int) -> list[Look]:
        """Takes an object in; returns what has to be looked at because of it."""
        ties = _ties(json) or json
        if _OWNERS not in ties and _FINALIZERS not in ties and key not in self.nodes:
            return []
        old = self.nodes.get(key)
        if old is not None and old.revision >= revision:
            return []
        node = _node(key, json, revision)
        look: list[Look] = []
        if old is not None and old.uid != node.uid:
            look += self.remove(key, old.uid)
            old = None
        if not node.owners and not (node.foreground or node.orphaning):
            if old is not None:
                look += self._unlink(old, ())
            return look
        if old is not None:
            look += self._unlink(old, node.owners)
        self.nodes[key] = node
        for owner in node.owners:
            self.dependents.setdefault(owner["uid"], set()).add(key)
            if owner.get("blockOwnerDeletion"):
                self._blocking.setdefault(owner["uid"], set()).add(key)
        if node.foreground or node.orphaning:
            self._waiting[node.uid] = key
            if old is None or not (old.foreground or old.orphaning):
                look += (key, *self._those_of(node.uid))
        if old is None or old.owners != node.owners:
            look.append(key)
        return look

    def _unlink(self, old: Node, owners: tuple[dict[str, Any], ...]) -> list[Look]:
        """Takes back what ``old`` said; owners that it no longer blocks, and nobody else, may be able to go: to look at one with each
        dependent that goes would be quadratic."""
        blocking = {o["uid"] for o in owners if o.get("blockOwnerDeletion")}
        look: list[Look] = []
        for uid in dict.fromkeys(owner["uid"] for owner in old.owners):
            _discard(self.dependents, uid, old.key)
            _discard(self._blocking, uid, old.key)
            if uid not in blocking and uid in self._waiting and uid not in self._blocking:
                look.append(self._waiting[uid])
        self.nodes.pop(old.key, None)
        self._waiting.pop(old.uid, None)
        return look

    def remove(self, key: str, uid: str) -> list[Look]:
        """The object is gone: its dependents and the owners that waited for it have to be looked at."""
        old = self.nodes.get(key)
        return [*(self._unlink(old, ()) if old is not None else ()), *self._those_of(uid)]

    def _those_of(self, uid: str) -> tuple[Look, ...]:
        return (DependentsOf(uid),) if uid in self.dependents else ()

    def dependents_of(self, uid: str) -> Iterator[Node]:
        """The objects that name this owner now, each as it is when it is come to: others may have their turns meanwhile."""
        return self._nodes(self.dependents.get(uid, ()))

    def blocks(self, uid: str) -> bool:
        """Whether this owner's foreground deletion waits for somebody."""
        return uid in self._blocking

    def blocking(self, uid: str) -> Iterator[Node]:
        """Those of the dependents for which it waits, in the same way."""
        return self._nodes(self._blocking.get(uid, ()))

    def _nodes(self, keys: Iterable[str]) -> Iterator[Node]:
        for key in tuple(keys):
            if (node := self.nodes.get(key)) is not None:
                yield node


def _discard(of: dict[str, set[str]], uid: str, key: str) -> None:
    found = of.get(uid)
    if found is not None:
        found.discard(key)
        if not found:
            del of[uid]


def same_ties(a: bytes, b: bytes) -> bool:
    """Whether two states of an object agree in all that the graph knows of it. These members stand between resourceVersion and
    managedFields, where nothing else changes often: most updates of a pod are seen to be of no interest without decoding them."""
    ties = _ties(a)
    return ties != b"" and ties == _ties(b)


def _ties(json: bytes) -> bytes:
    """The members between resourceVersion and managedFields, from the quote that ends the former on; empty when one is not there."""
    # A quote inside a string is escaped, so neither marker can be found in one.
    at = json.find(_VERSION)
    start = json.find(b'"', at + len(_VERSION))
    end = json.find(_MANAGERS, start)
    return json[start : end - 1] if at >= 0 and end >= 0 else b""


def uid_of(json: bytes) -> str:
    """metadata.uid, without decoding where the object begins as the server writes built-in kinds."""
    found = _HEAD.match(json)
    return found.group(1).decode() if found is not None else orjson.loads(json)["metadata"].get("uid", "")


def _node(key: str, json: bytes, revision: int) -> Node:
    ties = _ties(json)
    meta = orjson.loads(b'{"resourceVersion":"%b}' % ties) if ties else orjson.loads(json)["metadata"]
    finalizers = meta.get("finalizers") or ()
    deleting = bool(meta.get("deletionTimestamp"))
    owners = tuple(o for o in meta.get("ownerReferences") or () if o.get("uid"))
    return Node(key, uid_of(json), revision, owners, deleting, deleting and FOREGROUND in finalizers, deleting and ORPHAN in finalizers)

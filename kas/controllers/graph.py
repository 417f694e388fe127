"""The ownership graph of the garbage collector, maintained from store events.

Only objects with owner references, and those waiting for their dependents, have a node; nothing is kept for other objects. So most events
cost two searches in the object's bytes. Owners are found by the uid that their dependents name, and whether an owner exists is looked up
in the store. JSON is decoded only if one of the two searches matches.
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
    """An object in the graph: its store ``key``, ``revision`` and ownerReferences."""

    key: str
    uid: str
    revision: int
    owners: tuple[dict[str, Any], ...]
    deleting: bool
    foreground: bool  # waits until its blocking dependents are gone
    orphaning: bool  # waits until its dependents drop their references


class DependentsOf(NamedTuple):
    """All dependents of this owner, as one item to examine: there may be any number of them."""

    uid: str


Look = str | DependentsOf  # an item to examine: the object of a key, or all dependents of an owner


class Graph:
    """Nodes by key, and the keys of dependents by the uid of their owner: all of them, and those that block its foreground deletion."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.dependents: dict[str, set[str]] = {}
        self._blocking: dict[str, set[str]] = {}
        self._waiting: dict[str, str] = {}  # uid to key of owners that wait for their dependents

    def clear(self) -> None:
        """Remove everything."""
        self.nodes.clear()
        self.dependents.clear()
        self._blocking.clear()
        self._waiting.clear()

    def put(self, key: str, json: bytes, revision: int) -> list[Look]:
        """Add or update an object; return the items to examine because of it."""
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
        """Remove ``old`` from the indexes. Owners that lost their last blocking dependent are to be examined; examining an owner for
        every dependent that goes would be quadratic."""
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
        """Remove an object; return its dependents and the owners that waited for it, to be examined."""
        old = self.nodes.get(key)
        return [*(self._unlink(old, ()) if old is not None else ()), *self._those_of(uid)]

    def _those_of(self, uid: str) -> tuple[Look, ...]:
        return (DependentsOf(uid),) if uid in self.dependents else ()

    def dependents_of(self, uid: str) -> Iterator[Node]:
        """Yield the nodes that name this owner now, each in its current state, since other tasks may run during the iteration."""
        return self._nodes(self.dependents.get(uid, ()))

    def blocks(self, uid: str) -> bool:
        """Return whether dependents block this owner's foreground deletion."""
        return uid in self._blocking

    def blocking(self, uid: str) -> Iterator[Node]:
        """Yield those blocking dependents, in the same way."""
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
    """Return whether two states of an object agree in everything the graph uses.

    These fields are between resourceVersion and managedFields, where little else changes, so most updates of a pod are recognised as
    irrelevant without decoding.
    """
    ties = _ties(a)
    return ties != b"" and ties == _ties(b)


def _ties(json: bytes) -> bytes:
    """Return the bytes between resourceVersion and managedFields, beginning with the quote that ends the former; empty if either is
    missing."""
    # Quotes inside a string are escaped, so neither marker can occur in one.
    at = json.find(_VERSION)
    start = json.find(b'"', at + len(_VERSION))
    end = json.find(_MANAGERS, start)
    return json[start : end - 1] if at >= 0 and end >= 0 else b""


def uid_of(json: bytes) -> str:
    """Return metadata.uid, without decoding if the object begins as the server writes built-in kinds."""
    found = _HEAD.match(json)
    return found.group(1).decode() if found is not None else orjson.loads(json)["metadata"].get("uid", "")


def _node(key: str, json: bytes, revision: int) -> Node:
    ties = _ties(json)
    meta = orjson.loads(b'{"resourceVersion":"%b}' % ties) if ties else orjson.loads(json)["metadata"]
    finalizers = meta.get("finalizers") or ()
    deleting = bool(meta.get("deletionTimestamp"))
    owners = tuple(o for o in meta.get("ownerReferences") or () if o.get("uid"))
    return Node(key, uid_of(json), revision, owners, deleting, deleting and FOREGROUND in finalizers, deleting and ORPHAN in finalizers)

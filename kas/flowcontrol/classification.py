"""To which FlowSchema a request belongs, and which of its level's queues may take it (apiserver's ``util/flowcontrol/rule.go`` and
``shufflesharding``)."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from typing import Any

from kas.auth.user import SERVICE_ACCOUNT_PREFIX, UserInfo
from kas.request.http import Request

Obj = dict[str, Any]


class Schema:
    """A FlowSchema, compiled. Sorted by precedence, then name."""

    def __init__(self, obj: Obj) -> None:
        spec = obj.get("spec") or {}
        self.name: str = obj["metadata"]["name"]
        self.uid: str = obj["metadata"].get("uid") or ""
        self.level: str = (spec.get("priorityLevelConfiguration") or {}).get("name") or ""
        self.order = (spec.get("matchingPrecedence") or 0, self.name)
        self.by: str = (spec.get("distinguisherMethod") or {}).get("type") or ""
        self._rules = [_Rule(rule) for rule in spec.get("rules") or ()]

    def matches(self, req: Request) -> bool:
        """Whether one of its rules speaks of the user and of the request."""
        return any(rule.matches(req) for rule in self._rules)

    def distinguisher(self, req: Request) -> str:
        """What tells flows of this schema apart."""
        if self.by == "ByUser":
            return req.user.name
        return req.info.namespace if self.by == "ByNamespace" else ""


class _Rule:
    def __init__(self, rule: Obj) -> None:
        self._users: set[str] = set()
        self._groups: set[str] = set()
        self._accounts: set[tuple[str, str]] = set()
        for subject in rule.get("subjects") or ():
            kind = subject.get("kind")
            if kind == "User":
                self._users.add((subject.get("user") or {}).get("name") or "")
            elif kind == "Group":
                self._groups.add((subject.get("group") or {}).get("name") or "")
            elif kind == "ServiceAccount":
                account = subject.get("serviceAccount") or {}
                self._accounts.add((account.get("namespace") or "", account.get("name") or ""))
        self._resources = [
            (set(r.get("verbs") or ()), set(r.get("apiGroups") or ()), set(r.get("resources") or ()),
             set(r.get("namespaces") or ()), bool(r.get("clusterScope")))
            for r in rule.get("resourceRules") or ()
        ]  # fmt: skip
        self._urls = [(set(r.get("verbs") or ()), *_paths(r.get("nonResourceURLs") or ())) for r in rule.get("nonResourceRules") or ()]

    def matches(self, req: Request) -> bool:
        return self._speaks_of(req.user) and (self._resource(req) if req.info.is_resource_request else self._url(req))

    def _speaks_of(self, user: UserInfo) -> bool:
        if user.name in self._users or "*" in self._users or "*" in self._groups or not self._groups.isdisjoint(user.groups):
            return True
        if not self._accounts or not user.name.startswith(SERVICE_ACCOUNT_PREFIX):
            return False
        # The name is compared as it is: upstream asks here of neither part whether it is one.
        namespace, sep, name = user.name[len(SERVICE_ACCOUNT_PREFIX) :].partition(":")
        return bool(sep) and ((namespace, name) in self._accounts or (namespace, "*") in self._accounts)

    def _resource(self, req: Request) -> bool:
        info = req.info
        resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
        for verbs, groups, resources, namespaces, cluster in self._resources:
            if (
                _has(verbs, info.verb) and _has(groups, info.api_group) and _has(resources, resource)
                and (_has(namespaces, info.namespace) if info.namespace else cluster)
            ):  # fmt: skip
                return True
        return False

    def _url(self, req: Request) -> bool:
        return any(
            _has(verbs, req.info.verb) and (_has(urls, req.path) or req.path.startswith(prefixes)) for verbs, urls, prefixes in self._urls
        )


def _paths(urls: Sequence[str]) -> tuple[set[str], tuple[str, ...]]:
    """Paths that a rule speaks of, and what other such paths begin with: each path stands for those below it, with or without ``*``."""
    return set(urls), tuple(url.removesuffix("*").removesuffix("/") + "/" for url in urls)


def _has(values: Collection[str], value: str) -> bool:
    return value in values or "*" in values


def flow_hash(schema: str, distinguisher: str) -> int:
    """64 bits that tell the flows of all schemas apart."""
    return int.from_bytes(hashlib.sha256(f"{schema},{distinguisher}".encode("utf-8", "surrogateescape")).digest()[:8], "little")


def deal(value: int, deck: int, size: int) -> tuple[int, ...]:
    """A hand of ``size`` different cards of a deck, by the entropy of ``value``: two flows share all of their queues hardly ever."""
    hand: list[int] = []
    for dealt in range(size):
        value, card = divmod(value, deck - dealt)
        for other in sorted(hand):  # the card-th of those that are left
            card += card >= other
        hand.append(card)
    return tuple(hand)

"""Finds the FlowSchema of a request, and the queues of its level that may take it (apiserver's
``util/flowcontrol/rule.go`` and ``shufflesharding``)."""

from __future__ import annotations

import hashlib
from bisect import bisect_left, insort
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from typing import Any

import orjson

from kas.auth.user import SERVICE_ACCOUNT_PREFIX, UserInfo
from kas.request.http import Request

Obj = dict[str, Any]
# What rules match: a kind of subject, and its name. ANYBODY is a wildcard.
Subject = tuple[str, ...]
ANYBODY: Subject = ("*",)
# A schema with more subjects is not indexed by them but checked for each user, since indexing it would take longer than
# parsing it.
FEW = 64


class Schema:
    """A compiled FlowSchema. Schemas are sorted by precedence, then name. ``says`` is equal for schemas with the same UID and spec."""

    def __init__(self, obj: Obj) -> None:
        spec = obj.get("spec") or {}
        self.name: str = obj["metadata"]["name"]
        self.uid: str = obj["metadata"].get("uid") or ""
        # a digest and not the object, which may be large
        self.says = self.uid, hashlib.sha256(orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)).digest()
        self.level: str = (spec.get("priorityLevelConfiguration") or {}).get("name") or ""
        self.order = (spec.get("matchingPrecedence") or 0, self.name)
        self.by: str = (spec.get("distinguisherMethod") or {}).get("type") or ""
        self._rules = [_Rule(rule) for rule in spec.get("rules") or ()]

    def matches(self, req: Request) -> bool:
        """Whether one of its rules matches the request and its user."""
        return any(rule.matches(req) for rule in self._rules)

    def subjects(self) -> set[Subject]:
        """The subjects of its rules. It can only match a request if ``subjects_of`` the user yields one of them."""
        return {subject for rule in self._rules for subject in rule.subjects()}

    @property
    def few(self) -> bool:
        """Whether it is indexed by its ``subjects``, which are at most ``FEW``."""
        return sum(rule.subject_count for rule in self._rules) <= FEW

    def distinguisher(self, req: Request) -> str:
        """The flow distinguisher of a request in this schema."""
        if self.by == "ByUser":
            return req.user.name
        return req.info.namespace if self.by == "ByNamespace" else ""


def subjects_of(user: UserInfo) -> Iterator[Subject]:
    """The subjects by which a schema may name a user."""
    yield ANYBODY
    yield "user", user.name
    for group in user.groups:
        yield "group", group
    if user.name.startswith(SERVICE_ACCOUNT_PREFIX):
        namespace, sep, name = user.name[len(SERVICE_ACCOUNT_PREFIX) :].partition(":")
        if sep:
            yield from (("account", namespace, name), ("account", namespace, "*"))


class Schemas:
    """Schemas in the order in which they are tried.

    Adding or removing one costs at most ``FEW`` steps in the index. A request only looks at the schemas that name a
    subject of its user and at those with many subjects, however many others there are. Schemas whose level is not in
    ``levels`` are skipped, so that a level that comes or goes costs nothing for the schemas that name it.
    """

    def __init__(self, schemas: Iterable[Schema] = (), levels: Container[str] | None = None) -> None:
        self._all, self._levels = sorted(schemas, key=_order), levels
        self._large: list[Schema] = []
        self._by_subject: dict[Subject, list[Schema]] = {}
        for schema in self._all:
            for place in self._places(schema):
                place.append(schema)

    def __iter__(self) -> Iterator[Schema]:
        levels = self._levels
        return (schema for schema in self._all if levels is None or schema.level in levels)

    def _places(self, schema: Schema) -> Iterator[list[Schema]]:
        """The lists that contain a schema, besides the list of all."""
        if schema.few:
            yield from (self._by_subject.setdefault(subject, []) for subject in schema.subjects())
        else:
            yield self._large

    def add(self, schema: Schema) -> None:
        """Adds a schema that is not there."""
        for place in (self._all, *self._places(schema)):
            insort(place, schema, key=_order)

    def remove(self, schema: Schema) -> None:
        """Removes a schema that is there."""
        for place in (self._all, *self._places(schema)):
            del place[bisect_left(place, schema.order, key=_order)]
        for subject in schema.subjects() if schema.few else ():
            if not self._by_subject[subject]:
                del self._by_subject[subject]

    def first(self, req: Request) -> Schema | None:
        """The first schema that matches, None if none does."""
        best: Schema | None = None
        tried: set[Schema] = set()
        levels = self._levels
        for place in (self._large, *(self._by_subject.get(subject, ()) for subject in subjects_of(req.user))):
            for schema in place:
                if best is not None and schema.order >= best.order:
                    break
                if (levels is not None and schema.level not in levels) or schema in tried:
                    continue
                tried.add(schema)
                if schema.matches(req):
                    best = schema
                    break
        return best


def _order(schema: Schema) -> tuple[int, str]:
    return schema.order


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

    @property
    def subject_count(self) -> int:
        """The number of its subjects."""
        return len(self._users) + len(self._groups) + len(self._accounts)

    def subjects(self) -> Iterator[Subject]:
        """Its subjects, in the form of ``subjects_of``."""
        yield from (ANYBODY if user == "*" else ("user", user) for user in self._users)
        yield from (ANYBODY if group == "*" else ("group", group) for group in self._groups)
        yield from (("account", *account) for account in self._accounts)

    def matches(self, req: Request) -> bool:
        return self._matches_user(req.user) and (self._resource(req) if req.info.is_resource_request else self._url(req))

    def _matches_user(self, user: UserInfo) -> bool:
        if user.name in self._users or "*" in self._users or "*" in self._groups or not self._groups.isdisjoint(user.groups):
            return True
        if not self._accounts or not user.name.startswith(SERVICE_ACCOUNT_PREFIX):
            return False
        # Compared as it is: upstream does not check here that either part is a valid name.
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
    """The exact paths that a rule matches, and the prefixes of others: a path also matches those below it, with or without ``*``."""
    return set(urls), tuple(url.removesuffix("*").removesuffix("/") + "/" for url in urls)


def _has(values: Collection[str], value: str) -> bool:
    return value in values or "*" in values


def flow_hash(schema: str, distinguisher: str) -> int:
    """64 bits that tell the flows of all schemas apart; the same as upstream's, so a flow has the queues that it has there."""
    return int.from_bytes(hashlib.sha256(f"{schema}\0{distinguisher}".encode("utf-8", "surrogateescape")).digest()[:8], "little")


def deal(value: int, deck: int, size: int) -> tuple[int, ...]:
    """A hand of ``size`` different cards of a deck, drawn with the entropy of ``value``: two flows rarely share all of their queues."""
    hand: list[int] = []
    for dealt in range(size):
        value, card = divmod(value, deck - dealt)
        for other in sorted(hand):  # the card-th of those that are left
            card += card >= other
        hand.append(card)
    return tuple(hand)

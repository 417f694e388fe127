"""The audit policy, which decides which requests are recorded and in what detail: audit.k8s.io/v1 Policy.

``pkg/audit/policy/{checker,util,reader}.go`` and ``pkg/apis/audit/validation``: the first matching rule decides; without a match the
level is None.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

from kas.audit._engine import Verdicts
from kas.auth.attributes import Attributes, aggregate
from kas.meta import field
from kas.meta.field import FieldError
from kas.meta.goerrors import unreadable
from kas.meta.names import is_dns1123_subdomain
from kas.meta.records import NamedTuple
from kas.observe.caches import Cache
from kas.types.configfile import BOOL, STRING, ConfigurationError, Named, Struct, decode, kind_of, parse

Obj = dict[str, Any]

LEVELS = ("None", "Metadata", "Request", "RequestResponse")
STAGES = ("RequestReceived", "ResponseStarted", "ResponseComplete", "Panic")
API_VERSION = "audit.k8s.io/v1"
MANY = 64  # from this many rules on, an index is used
Key = tuple[str, ...]


class PolicyError(ValueError):
    """The policy cannot be used."""


class Verdict(NamedTuple):
    """The policy's decision on a request. ``omit_stages`` are not recorded; ``omit_managed_fields`` removes these from recorded
    bodies."""

    level: str
    omit_stages: tuple[str, ...]
    omit_managed_fields: bool


class _Rule:
    __slots__ = ("groups", "namespaces", "paths", "prefixes", "resources", "users", "verbs", "verdict")

    def __init__(self, rule: Obj, policy: Obj) -> None:
        self.users = _set(rule, "users")
        self.groups = _set(rule, "userGroups")
        self.verbs = _set(rule, "verbs")
        self.namespaces = _set(rule, "namespaces")
        self.resources = [_Resources(r) for r in rule.get("resources") or ()]
        urls = rule.get("nonResourceURLs") or ()
        self.paths = _set(rule, "nonResourceURLs")
        self.prefixes = tuple(u.rstrip("*") for u in urls if u.endswith("*"))
        omit = rule.get("omitManagedFields")
        if omit is None:
            omit = policy.get("omitManagedFields")
        stages = {*(policy.get("omitStages") or ()), *(rule.get("omitStages") or ())}
        self.verdict = Verdict(rule["level"], tuple(sorted(stages)), bool(omit))

    @property
    def unconditional(self) -> bool:
        return not (self.users or self.groups or self.verbs or self.namespaces or self.resources or self.paths)

    def matches(self, a: Attributes) -> bool:
        if self.users and a.user.name not in self.users:
            return False
        if self.groups and self.groups.isdisjoint(a.user.groups):
            return False
        if self.verbs and a.verb not in self.verbs:
            return False
        if self.namespaces or self.resources:
            return a.resource_request and self._matches_resource(a)
        if self.paths:
            return not a.resource_request and (a.path in self.paths or (bool(self.prefixes) and a.path.startswith(self.prefixes)))
        return True

    def _matches_resource(self, a: Attributes) -> bool:
        # The namespace of a cluster-scoped request is "".
        if self.namespaces and a.namespace not in self.namespaces:
            return False
        return not self.resources or any(r.matches(a) for r in self.resources)

    def keys(self) -> Iterator[Key]:
        """Yield the index keys of the rule: a request that matches has one of them among its own (``_keys_of``)."""
        if self.users:
            yield from (("user", user) for user in self.users)
        elif self.groups:
            yield from (("userGroup", group) for group in self.groups)
        elif self.resources:
            for r in self.resources:
                yield from r.keys()
        elif self.namespaces:
            yield from (("namespace", namespace) for namespace in self.namespaces)
        elif self.verbs:
            yield from (("verb", verb) for verb in self.verbs)
        elif self.prefixes:
            yield ()
        else:
            yield from (("path", path) for path in self.paths)


class _Resources:
    __slots__ = ("group", "names", "resources")

    def __init__(self, obj: Obj) -> None:
        self.group = obj.get("group") or ""
        self.resources = _set(obj, "resources")
        self.names = _set(obj, "resourceNames")

    def keys(self) -> Iterator[Key]:
        """Yield the index keys; see ``_Rule.keys``."""
        if not self.resources or any(name.startswith("*") for name in self.resources):
            yield "group", self.group
        else:
            yield from (("resource", self.group, name.partition("/")[0]) for name in self.resources)

    def matches(self, a: Attributes) -> bool:
        if self.group not in ("*", a.api_group):
            return False
        if not self.resources:
            return True
        if self.names and a.name not in self.names:
            return False
        if "*" in self.resources or f"{a.resource}/*" in self.resources:
            return True
        if not a.subresource:
            return a.resource in self.resources
        return f"{a.resource}/{a.subresource}" in self.resources or f"*/{a.subresource}" in self.resources


def _set(obj: Obj, key: str) -> frozenset[str]:
    return frozenset(obj.get(key) or ())


def _keys_of(a: Attributes) -> Iterator[Key]:
    yield from ((), ("user", a.user.name), ("verb", a.verb))
    yield from (("userGroup", group) for group in a.user.groups)
    if a.resource_request:
        yield "namespace", a.namespace
        for group in (a.api_group, "*"):
            yield from (("group", group), ("resource", group, a.resource))
    else:
        yield "path", a.path


class AuditPolicy:
    """A validated policy. ``always`` is its verdict on every request, None if that differs. With ``many`` rules or more, only the rules
    in the index that may match a request are examined."""

    def __init__(self, policy: Obj, many: int = MANY) -> None:
        self._rules = [_Rule(r, policy) for r in policy.get("rules") or ()]
        self._default = Verdict("None", tuple(policy.get("omitStages") or ()), bool(policy.get("omitManagedFields")))
        self.always = self._rules[0].verdict if self._rules and self._rules[0].unconditional else None
        self._by_key: dict[Key, list[int]] = {}  # ascending positions of rules; empty if there are few rules
        if len(self._rules) >= many:
            for i, rule in enumerate(self._rules):
                for key in {()} if rule.unconditional else set(rule.keys()):
                    self._by_key.setdefault(key, []).append(i)
        self._users = any(rule.users or rule.groups for rule in self._rules)
        self._remembered: Cache[tuple[object, ...], Verdict] = Cache(
            "audit_policy", "what the audit policy says of requests of a resource", 4 << 20, 4 << 10
        )
        namespaces, names = any(rule.namespaces for rule in self._rules), any(r.names for rule in self._rules for r in rule.resources)
        self.verdicts = Verdicts(self.always, self._remembered.entries, self._users, namespaces, names)

    def verdict(self, a: Attributes) -> Verdict:
        """Return the verdict of the first matching rule, or the policy's default. Verdicts on resources are cached by the attributes that
        any rule looks at."""
        if not a.resource_request:
            return self._decide(a)
        key = self.verdicts.key(a)
        verdict = self._remembered.entries.get(key)
        if verdict is None:
            verdict = self._decide(a)
            length = sum(len(part) for part in key if isinstance(part, str))
            self._remembered.put(key, verdict, length + (a.user.length if self._users else 0))
        return verdict

    def _decide(self, a: Attributes) -> Verdict:
        for rule in self._candidates(a) if self._by_key else self._rules:
            if rule.matches(a):
                return rule.verdict
        return self._default

    def _candidates(self, a: Attributes) -> Iterator[_Rule]:
        found = [self._by_key[key] for key in set(_keys_of(a)) if key in self._by_key]
        return (self._rules[i] for i in heapq.merge(*found))


def load(policy: Obj) -> AuditPolicy:
    """Build the policy from the decoded file of --audit-policy-file. Raises ``PolicyError`` with all errors."""
    if policy.get("apiVersion") != API_VERSION or policy.get("kind") != "Policy":
        given = f"{policy.get('apiVersion') or ''}, Kind={policy.get('kind') or ''}"
        raise PolicyError(f"expected a Policy of {API_VERSION}, found {given}")
    errs = validate(policy)
    if errs:
        raise PolicyError(aggregate([str(e) for e in errs]))
    if not policy.get("rules"):
        raise PolicyError("loaded illegal policy with 0 rules")
    return AuditPolicy(policy)


def load_file(path: str) -> AuditPolicy:
    """Load the policy of --audit-policy-file (``LoadPolicyFromFile``). Raises ``PolicyError``, which names the file. Unknown fields are
    ignored: upstream only logs them."""
    try:
        with open(path, "rb") as f:
            document = parse(f.read()).value
    except OSError as e:
        raise PolicyError(f'failed to read file path "{path}": {unreadable(path, e)}') from None
    except ConfigurationError as e:
        raise PolicyError(f"failed decoding: {e}: from file {path}") from None
    try:
        return load(_typed({} if document is None else document))
    except PolicyError as e:
        raise PolicyError(f"{e}: from file {path}") from None


def _typed(document: Any) -> Obj:
    """Return the document if it is a Policy with correctly typed fields. A missing kind defaults to Policy; a missing apiVersion means
    upstream's internal version, which no file may have. Raises PolicyError."""
    try:
        version, kind = kind_of(document)
    except ConfigurationError as e:
        raise PolicyError(f"failed decoding: {e}") from None
    kind = kind or "Policy"
    if not version and kind == "Policy":
        raise PolicyError("unknown group version field audit.k8s.io/__internal, Kind=Policy in policy")
    if (version, kind) != (API_VERSION, "Policy"):
        known = version == API_VERSION and kind in ("Event", "EventList", "PolicyList")
        raise PolicyError("failed decoding: " + (
            f"converting (v1.{kind}) to (audit.Policy): unknown conversion" if known else
            f'no kind "{kind}" is registered for version "{version}" in scheme "k8s.io/apiserver/pkg/audit/scheme.go:30"'
        ))  # fmt: skip
    try:
        policy = decode(document, _POLICY, strict=False)
    except ConfigurationError as e:
        raise PolicyError(f"failed decoding: {e}") from None
    return {**policy, "apiVersion": version, "kind": kind}


_STAGES = [Named("Stage")]
_RULE = Struct("PolicyRule", {
    "level": Named("Level"), "users": [STRING], "userGroups": [STRING], "verbs": [STRING], "namespaces": [STRING],
    "nonResourceURLs": [STRING], "omitStages": _STAGES, "omitManagedFields": BOOL,
    "resources": [Struct("GroupResources", {"group": STRING, "resources": [STRING], "resourceNames": [STRING]})],
})  # fmt: skip
_POLICY = Struct("Policy", {"rules": [_RULE], "omitStages": _STAGES, "omitManagedFields": BOOL})


def validate(policy: Obj) -> list[FieldError]:
    """Return the errors in the rules: ``ValidatePolicy`` of audit.k8s.io/v1."""
    errs: list[FieldError] = _validate_stages(policy, "omitStages")
    for i, rule in enumerate(policy.get("rules") or ()):
        errs.extend(_validate_rule(rule, f"rules[{i}]"))
    return errs


def _validate_stages(obj: Obj, path: str) -> list[FieldError]:
    why = "allowed stages are " + ",".join(STAGES)
    return [field.invalid(f"{path}[{i}]", stage, why) for i, stage in enumerate(obj.get("omitStages") or ()) if stage not in STAGES]


def _validate_rule(rule: Obj, path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    level = rule.get("level") or ""
    if not level:
        errs.append(field.required(f"{path}.level"))
    elif level not in LEVELS:
        # Listed by weight, not sorted by name.
        detail = "supported values: " + ", ".join(map(field.go_quote, LEVELS))
        errs.append(FieldError(field.NOT_SUPPORTED, f"{path}.level", level, detail))
    urls = rule.get("nonResourceURLs") or []
    for i, url in enumerate(urls):
        if url == "*":
            continue
        at = f"{path}.nonResourceURLs[{i}]"
        if not url.startswith("/"):
            errs.append(field.invalid(at, url, "non-resource URL rules must begin with a '/' character"))
        if "*" in url[:-1]:
            errs.append(field.invalid(at, url, "non-resource URL wildcards '*' must be the final character of the rule"))
    for resources in rule.get("resources") or ():
        group = resources.get("group") or ""
        problems = is_dns1123_subdomain(group) if group not in ("", "*") else []
        if problems:
            errs.append(field.invalid(f"{path}.resources.group", group, ",".join(problems)))
        if resources.get("resourceNames") and not resources.get("resources"):
            why = "using resourceNames requires at least one resource"
            errs.append(field.invalid(f"{path}.resources.resourceNames", resources["resourceNames"], why))
    errs.extend(_validate_stages(rule, f"{path}.omitStages"))
    if urls and (rule.get("resources") or rule.get("namespaces")):
        why = "rules cannot apply to both regular resources and non-resource URLs"
        errs.append(field.invalid(f"{path}.nonResourceURLs", urls, why))
    return errs

"""RBAC: an index over roles and bindings, compiled per identity.

``RbacIndex`` is fed with objects (at start and from the store's events). Bindings are indexed by subject, so what a
decision costs depends on the bindings of its user, never on how many others there are. Per user the matching rules are
gathered once, and per shape of request (verb, group, resource, subresource, namespace) once more into a short row of
(resource names or None, outcome); a decision then is two dictionary hits, made in ``kas._fastpath``. Any change of RBAC drops what was
compiled.

Semantics: ``plugin/pkg/auth/authorizer/rbac`` and ``pkg/registry/rbac/validation/rule.go``. Where upstream's order comes
from an unordered cache, ours is by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kas._fastpath import Decisions, Matcher
from kas.auth.attributes import ALLOW, NO_OPINION, Attributes, Outcome, aggregate
from kas.auth.authz.rules import PolicyRule
from kas.auth.user import UserInfo, service_account_username
from kas.meta.field import go_quote
from kas.observe.caches import Budget

Obj = dict[str, Any]
Row = tuple[tuple[frozenset[str] | None, Outcome], ...]

GROUP = "rbac.authorization.k8s.io"
# Of all that is compiled, and the longest name, path or namespace in it: requests may name anything.
COMPILED_BYTES, LONGEST = 32 << 20, 1024


class _Binding:
    __slots__ = ("name", "role", "subjects")

    def __init__(self, obj: Obj) -> None:
        ref = obj.get("roleRef") or {}
        self.name = obj["metadata"]["name"]
        self.role = (ref.get("kind", ""), ref.get("name", ""))
        self.subjects: list[Obj] = obj.get("subjects") or []


class _Scope:
    """The bindings of one namespace (or of the cluster): by name, and subject key -> {binding name: subject's index}."""

    __slots__ = ("bindings", "by_subject")

    def __init__(self) -> None:
        self.bindings: dict[str, _Binding] = {}
        self.by_subject: dict[str, dict[str, int]] = {}

    def put(self, obj: Obj, namespace: str) -> None:
        binding = _Binding(obj)
        self.drop(binding.name, namespace)
        self.bindings[binding.name] = binding
        for i, subject in enumerate(binding.subjects):
            key = _subject_key(subject, namespace)
            if key:
                self.by_subject.setdefault(key, {}).setdefault(binding.name, i)

    def drop(self, name: str, namespace: str) -> None:
        binding = self.bindings.pop(name, None)
        if binding is None:
            return
        for subject in binding.subjects:
            key = _subject_key(subject, namespace)
            found = self.by_subject.get(key)
            if found is not None:
                found.pop(name, None)
                if not found:
                    del self.by_subject[key]

    def matching(self, keys: Iterable[str]) -> Iterator[tuple[_Binding, Obj]]:
        """The bindings that apply, in order of name, each with its first subject that does."""
        found: dict[str, int] = {}
        for key in keys:
            for name, i in self.by_subject.get(key, {}).items():
                if i < found.get(name, 1 << 30):
                    found[name] = i
        for name in sorted(found):
            binding = self.bindings[name]
            yield binding, binding.subjects[found[name]]


def _subject_key(subject: Obj, namespace: str) -> str:
    kind, name = subject.get("kind"), subject.get("name", "")
    if kind == "User":
        return "u" + name
    if kind == "Group":
        return "g" + name
    if kind == "ServiceAccount":
        # Without a namespace of its own it means the binding's; in a ClusterRoleBinding it then means nobody.
        ns = subject.get("namespace") or namespace
        return "u" + service_account_username(ns, name) if ns else ""
    return ""


def _describe_subject(subject: Obj, namespace: str) -> str:
    name = subject.get("name", "")
    if subject.get("kind") == "ServiceAccount":
        name = f"{name}/{subject.get('namespace') or namespace}"
    return f"{subject.get('kind', '')} {go_quote(name)}"


def role_not_found(kind: str, name: str) -> str:
    """The lister's text for a binding to a role that is not there."""
    return f"{kind.lower()}.{GROUP} {go_quote(name)} not found"


class RbacIndex(Decisions):
    """Roles and bindings of the cluster, and the authorizer over them. Not thread-safe: one per worker's loop.

    ``revision`` grows with every change. ``missing`` words the error for a role that does not exist.
    """

    def __init__(self, missing: Callable[[str, str], str] = role_not_found) -> None:
        super().__init__()
        self.revision = 0
        self._missing = missing
        self._cluster_roles: dict[str, list[PolicyRule]] = {}
        self._roles: dict[tuple[str, str], list[PolicyRule]] = {}
        self._scopes: dict[str, _Scope] = {"": _Scope()}
        self._matchers: dict[tuple, Matcher] = {}
        self._room = Budget("rbac_decisions", "what users may do, compiled", COMPILED_BYTES, LONGEST)

    # --- feeding

    def put(self, resource: str, obj: Obj) -> None:
        """Adds or replaces an object of ``resource`` (clusterroles, roles, clusterrolebindings, rolebindings)."""
        meta = obj["metadata"]
        if resource == "clusterroles":
            self._cluster_roles[meta["name"]] = [PolicyRule(r) for r in obj.get("rules") or ()]
        elif resource == "roles":
            self._roles[meta["namespace"], meta["name"]] = [PolicyRule(r) for r in obj.get("rules") or ()]
        elif resource == "clusterrolebindings":
            self._scopes[""].put(obj, "")
        elif resource == "rolebindings":
            namespace = meta["namespace"]
            self._scopes.setdefault(namespace, _Scope()).put(obj, namespace)
        else:
            raise ValueError(f"not an RBAC resource: {resource}")
        self._changed()

    def delete(self, resource: str, namespace: str, name: str) -> None:
        """Forgets a role or binding; decisions made with it are forgotten, too. One that is not there is fine."""
        if resource == "clusterroles":
            self._cluster_roles.pop(name, None)
        elif resource == "roles":
            self._roles.pop((namespace, name), None)
        elif resource == "clusterrolebindings":
            self._scopes[""].drop(name, "")
        elif resource == "rolebindings":
            scope = self._scopes.get(namespace)
            if scope is not None:
                scope.drop(name, namespace)
                if not scope.bindings:
                    del self._scopes[namespace]
        else:
            raise ValueError(f"not an RBAC resource: {resource}")
        self._changed()

    def keep_only(self, resource: str, there: set[tuple[str, str]]) -> None:
        """Drops what is not among ``there`` (namespace, name): after events were missed."""
        if resource == "clusterroles":
            have = [("", name) for name in self._cluster_roles]
        elif resource == "roles":
            have = list(self._roles)
        else:
            cluster = resource == "clusterrolebindings"
            have = [(ns, name) for ns, scope in self._scopes.items() if cluster == (not ns) for name in scope.bindings]
        for namespace, name in have:
            if (namespace, name) not in there:
                self.delete(resource, namespace, name)

    def _changed(self) -> None:
        self.revision += 1
        if self._matchers:
            self._forget()

    def _forget(self) -> None:
        self._matchers = {}
        self._room.size = 0
        self.epoch = object()

    def _keeps(self, length: int, entries: int = 1) -> bool:
        """Whether something that long is remembered; what was is forgotten when there is no room for it."""
        if length > LONGEST:
            return False
        if not self._room.take(length, entries):
            self._forget()
        return True

    # --- listing

    def rules(self, user: UserInfo, namespace: str) -> tuple[list[Obj], str]:
        """Every PolicyRule that holds for the user in the namespace (and cluster-wide), and the resolution error or ""."""
        m = self.matcher(user)
        out: list[Obj] = []
        errs: list[str] = []
        for ns in dict.fromkeys(("", namespace)):
            rules, failed = self._scope_rules(m, ns)
            out.extend(r.source for r, _ in rules)
            errs.extend(failed)
        return out, aggregate(errs)

    def rules_for(self, user: UserInfo, namespace: str) -> tuple[list[Obj], list[Obj], bool, str]:
        """SelfSubjectRulesReview's lists: (resource rules, non-resource rules, incomplete, evaluation error)."""
        rules, error = self.rules(user, namespace)
        resource, other = [], []
        for rule in rules:
            if rule.get("resources"):
                fields = ("verbs", "apiGroups", "resources", "resourceNames")
                resource.append({f: list(rule[f]) for f in fields if rule.get(f)})
            if rule.get("nonResourceURLs"):
                other.append({f: list(rule[f]) for f in ("verbs", "nonResourceURLs") if rule.get(f)})
        return resource, other, False, error

    def role_rules(self, kind: str, name: str, namespace: str) -> list[Obj] | None:
        """The rules a roleRef points to, None when the role does not exist."""
        compiled = self._cluster_roles.get(name) if kind == "ClusterRole" else self._roles.get((namespace, name))
        return None if compiled is None else [r.source for r in compiled]

    # --- compiling

    def matcher(self, user: UserInfo) -> Matcher:
        """The user's compiled rules, made at the first question."""
        m = self._matchers.get(user.key)
        if m is None:
            # A user of many groups is one of many entries, not one that is too long.
            if not self._room.take(2 * user.length, 2 + len(user.groups)):
                self._forget()
            m = Matcher(("u" + user.name, *("g" + g for g in user.groups)), self.epoch)
            self._matchers[user.key] = m
        user.compiled = m
        return m

    def _scope_rules(self, m: Matcher, namespace: str) -> tuple[list[tuple[PolicyRule, str]], list[str]]:
        """The user's rules in one scope, each with the reason it will give, and the errors met on the way."""
        known = m.scopes.get(namespace)
        if known is not None:
            return known
        rules: list[tuple[PolicyRule, str]] = []
        errs: list[str] = []
        scope = self._scopes.get(namespace)
        if scope is not None:
            for binding, subject in scope.matching(m.keys):
                kind, name = binding.role
                role = self._cluster_roles.get(name) if kind == "ClusterRole" else self._roles.get((namespace, name))
                if role is None:
                    errs.append(self._missing(kind, name))
                    continue
                if namespace:
                    what = f"RoleBinding {go_quote(f'{binding.name}/{namespace}')}"
                else:
                    what = f"ClusterRoleBinding {go_quote(binding.name)}"
                who = _describe_subject(subject, namespace)
                reason = f"RBAC: allowed by {what} of {kind} {go_quote(name)} to {who}"
                rules.extend((r, reason) for r in role)
            # A namespace nobody has bindings in is not remembered: requests may name any.
            if self._keeps(len(namespace) + sum(map(len, errs)), 1 + len(rules)):
                m.scopes[namespace] = rules, errs
        return rules, errs

    def _all_rules(self, m: Matcher, namespace: str) -> tuple[list[tuple[PolicyRule, str]], list[str]]:
        rules, errs = self._scope_rules(m, "")
        if namespace:
            more, more_errs = self._scope_rules(m, namespace)
            rules, errs = rules + more, errs + more_errs
        return rules, errs

    def compile_shape(self, m: Matcher, a: Attributes) -> Row:
        """What the user's rules say of every resource request like this one but for its name; asked once for each shape."""
        rules, errs = self._all_rules(m, a.namespace)
        row: list[tuple[frozenset[str] | None, Outcome]] = []
        for rule, reason in rules:
            if rule.matches_resource(a.verb, a.api_group, a.resource, a.subresource):
                row.append((rule.names, (ALLOW, reason, "")))
                if rule.names is None:
                    break
        else:
            row.append((None, _no_opinion(errs)))
        done = tuple(row)
        length = len(a.verb) + len(a.api_group) + len(a.resource) + len(a.subresource) + len(a.namespace)
        if self._keeps(length, 1 + len(row)):
            m.shapes[a.verb, a.api_group, a.resource, a.subresource, a.namespace] = done
        return done

    def compile_path(self, m: Matcher, a: Attributes) -> Outcome:
        """What the user's rules say of a non-resource path; asked once for each path."""
        rules, errs = self._all_rules(m, a.namespace)
        for rule, reason in rules:
            if rule.matches_path(a.verb, a.path):
                outcome: Outcome = (ALLOW, reason, "")
                break
        else:
            outcome = _no_opinion(errs)
        if self._keeps(len(a.verb) + len(a.path) + len(a.namespace)):
            m.paths[a.verb, a.path, a.namespace] = outcome
        return outcome


def _no_opinion(errs: list[str]) -> Outcome:
    return NO_OPINION, f"RBAC: {aggregate(errs)}" if errs else "", ""

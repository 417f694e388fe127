"""RBAC: an index over roles and bindings, compiled per identity.

``RbacIndex`` is filled with objects (at start and from the store's events). Bindings are indexed by subject, so the cost of a decision
depends on the user's own bindings, not on how many others exist. The matching rules are collected once per user, and once more per shape
of request (verb, group, resource, subresource, namespace) into a short row of (resource names or None, outcome). A decision is then two
dictionary lookups, made in ``kas._fastpath``.

Invalidation: a change in a namespace drops what was compiled for users with requests about that namespace; a change of a cluster role,
what was compiled for users bound to it; a change of a cluster role binding, what was compiled for its subjects.

Semantics: ``plugin/pkg/auth/authorizer/rbac`` and ``pkg/registry/rbac/validation/rule.go``. Where upstream's order comes from an
unordered cache, the order here is by name.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from kas._fastpath import Decisions, Matcher
from kas.auth.attributes import ALLOW, NO_OPINION, Attributes, Outcome, Rules, aggregate
from kas.auth.authz.manybound import ManyBound
from kas.auth.authz.roles import Role, listed
from kas.auth.user import UserInfo, service_account_username
from kas.meta.field import go_quote
from kas.meta.offload import LARGE, POOL, abandoned
from kas.meta.records import NamedTuple
from kas.meta.waiting import TimeSlice, awaited, eager
from kas.observe.caches import Budget

Obj = dict[str, Any]
Row = tuple[tuple[frozenset[str] | None, Outcome], ...]

GROUP = "rbac.authorization.k8s.io"
# Budget of all compiled data, and the longest name, path or namespace in it: requests may contain any text.
COMPILED_BYTES, LONGEST = 32 << 20, 1024
MANY_GROUPS = 10_000  # users with more groups are cached on the identity only: looking up such a key would take milliseconds
MOST_CHANGES = 256  # changes kept; a matcher older than that is compiled anew, which takes as long as checking them all
CHANGES_BYTES = 1 << 20  # of all changes kept; a larger single change invalidates every matcher
# A user with MANY_BINDINGS bindings in one scope, and at most FEW_GROUPS subjects, has its roles there kept up to date (``ManyBound``):
# up to MOST_BINDINGS bindings in total, dropped after MOST_UNASKED changes without a request.
MANY_BINDINGS, MOST_BINDINGS, MOST_UNASKED, FEW_GROUPS = 500, 200_000, 10_000, 64
MOST_AT_ONCE = 1_000  # bindings sorted in one step
MOST_RULES = 10_000  # listed by a rules review; a role counts once for each of its bindings


# A namespace in which something changed, the reference of a cluster role, or the subject keys of a cluster role binding.
Change = str | tuple[str, str] | frozenset[str]


def _size(change: Change) -> int:
    """Return approximately how many bytes the change takes."""
    return 128 + (len(change) if isinstance(change, str) else sum(map(len, change)) + 128 * len(change))


class _Binding:
    __slots__ = ("name", "role", "subjects")

    def __init__(self, obj: Obj) -> None:
        ref = obj.get("roleRef") or {}
        self.name = obj["metadata"]["name"]
        self.role = (ref.get("kind", ""), ref.get("name", ""))
        self.subjects: list[Obj] = obj.get("subjects") or []


class LargeBinding:
    """A binding of thousands of subjects, provided by ``load`` and read when its scope is first needed."""

    __slots__ = ("_found", "_load", "_namespace")

    def __init__(self, namespace: str, load: Callable[[], Obj]) -> None:
        self._load: Callable[[], Obj] | None = load
        self._found: tuple[_Binding, dict[str, int]] | None = None
        self._namespace = namespace

    def prepare(self) -> tuple[_Binding, dict[str, int]]:
        """Return the binding, and subject key -> first index. Thread-safe: concurrent calls compute equal results."""
        load, found = self._load, self._found  # in this order: another thread sets _found before it clears _load
        if found is not None:
            return found
        assert load is not None
        binding, places = _Binding(load()), dict[str, int]()
        for i, subject in enumerate(binding.subjects):
            places.setdefault(_subject_key(subject, self._namespace), i)
        places.pop("", None)
        self._found = binding, places
        self._load = None
        return self._found


_NOBODY: dict[str, int] = {}


class _Scope:
    """The bindings of one namespace (or of the cluster): by name, and subject key -> {binding name: subject's index}.

    Large bindings have their own indexes, which are built off the event loop and dropped as a whole.
    """

    __slots__ = ("bindings", "by_subject", "large")

    def __init__(self) -> None:
        self.bindings: dict[str, _Binding | LargeBinding] = {}
        self.by_subject: dict[str, dict[str, int]] = {}
        self.large: dict[str, LargeBinding] = {}

    def put_large(self, name: str, namespace: str, binding: LargeBinding) -> None:
        self.drop(name, namespace)
        self.bindings[name] = self.large[name] = binding

    def put(self, obj: Obj, namespace: str) -> None:
        binding = _Binding(obj)
        keys = [_subject_key(subject, namespace) for subject in binding.subjects]  # first, so that an invalid subject changes nothing
        self.drop(binding.name, namespace)
        self.bindings[binding.name] = binding
        for i, key in enumerate(keys):
            if key:
                self.by_subject.setdefault(key, {}).setdefault(binding.name, i)

    def drop(self, name: str, namespace: str) -> None:
        binding = self.bindings.pop(name, None)
        if binding is None:
            return
        if isinstance(binding, LargeBinding):
            del self.large[name]
            return
        for subject in binding.subjects:
            key = _subject_key(subject, namespace)
            found = self.by_subject.get(key)
            if found is not None:
                found.pop(name, None)
                if not found:
                    del self.by_subject[key]

    def one(self, name: str, keys: dict[str, None]) -> tuple[_Binding, Obj] | None:
        """Return a binding with its first matching subject, or None. For few keys."""
        binding = self.bindings.get(name)
        if isinstance(binding, LargeBinding):
            binding, places = binding.prepare()
            at = [places[key] for key in keys if key in places]
        else:
            at = [here[name] for key in keys if name in (here := self.by_subject.get(key, _NOBODY))]
        return (binding, binding.subjects[min(at)]) if binding is not None and at else None

    def matching(self, keys: dict[str, None]) -> Iterator[tuple[_Binding, Obj]]:
        """Yield the matching bindings in order of name, each with its first matching subject."""
        found = self.places(keys)
        for name in sorted(found):
            one = self.bindings[name]
            binding = one.prepare()[0] if isinstance(one, LargeBinding) else one
            yield binding, binding.subjects[found[name]]

    def places(self, keys: dict[str, None]) -> dict[str, int]:
        """Return the index of the first matching subject by binding name; do not modify it.

        The cost is that of the smaller set, the user's subjects or the bound ones: intersecting two key views iterates over the shorter.
        """
        found: dict[str, int] = {}
        here = self.by_subject.keys() & keys.keys()
        if len(here) == 1 and not self.large:
            found = self.by_subject[here.pop()]
        for key in here:
            for name, i in self.by_subject[key].items():
                if i < found.get(name, 1 << 30):
                    found[name] = i
        for name, large in self.large.items():
            places = large.prepare()[1]
            at = [places[key] for key in places.keys() & keys.keys()]
            if at:
                found[name] = min(at)
        return found


def _subject_key(subject: Obj, namespace: str) -> str:
    kind, name = subject.get("kind"), subject.get("name", "")
    if kind == "User":
        return "u" + name
    if kind == "Group":
        return "g" + name
    if kind == "ServiceAccount":
        # Without a namespace it means the binding's; in a ClusterRoleBinding it then matches no account.
        ns = subject.get("namespace") or namespace
        return "u" + service_account_username(ns, name) if ns else ""
    return ""


def _describe_subject(subject: Obj, namespace: str) -> str:
    name = subject.get("name", "")
    if subject.get("kind") == "ServiceAccount":
        name = f"{name}/{subject.get('namespace') or namespace}"
    return f"{subject.get('kind', '')} {go_quote(name)}"


# A role a user has, and why: the namespace ("" for the cluster), the binding and its matching subject.
_Held = tuple[Role, str, _Binding, Obj]


def _reason(held: _Held) -> str:
    """Return the reason for what the role allows. Built only for the roles a request matches."""
    _, namespace, binding, subject = held
    (kind, name), who = binding.role, _describe_subject(subject, namespace)
    what = f"RoleBinding {go_quote(f'{binding.name}/{namespace}')}" if namespace else f"ClusterRoleBinding {go_quote(binding.name)}"
    return f"RBAC: allowed by {what} of {kind} {go_quote(name)} to {who}"


def role_not_found(kind: str, name: str) -> str:
    """Return the lister's error for a binding to a role that does not exist."""
    return f"{kind.lower()}.{GROUP} {go_quote(name)} not found"


class _Epoch(NamedTuple):
    """When something was compiled: ``of`` identifies the index, since a user may be checked in several; ``at`` is its number of
    changes."""

    of: object
    at: int


class RbacIndex(Decisions):
    """Roles and bindings of the cluster, and the authorizer over them. Not thread-safe: one per worker's event loop.

    ``revision`` increases with every change. ``missing`` returns the error text for a role that does not exist.
    """

    def __init__(self, missing: Callable[[str, str], str] = role_not_found) -> None:
        super().__init__()
        self.revision = 0
        self._missing = missing
        self._cluster_roles: dict[str, Role] = {}
        self._roles: dict[tuple[str, str], Role] = {}
        self._scopes: dict[str, _Scope] = {"": _Scope()}
        self._matchers: dict[tuple, Matcher] = {}
        # For users with many bindings, by namespace and subjects, in LRU order.
        self._many: OrderedDict[tuple[str, frozenset[str]], ManyBound[tuple[_Binding, Obj], _Held]] = OrderedDict()
        # The last changes, and the number of changes before them.
        self._changes: list[Change] = []
        self._changes_bytes = 0
        self._before, self._own = 0, object()
        self._ordered = False  # set while ``_after`` authorizes: the bindings have been sorted
        self.epoch = _Epoch(self._own, 0)
        self._room = Budget("rbac_decisions", "what users may do, compiled", COMPILED_BYTES, LONGEST)

    # --- feeding

    def put(self, resource: str, obj: Obj) -> None:
        """Add or replace an object of ``resource`` (clusterroles, roles, clusterrolebindings, rolebindings)."""
        meta = obj["metadata"]
        if resource in ("clusterroles", "roles"):
            self.put_role(meta["namespace"] if resource == "roles" else "", meta["name"], Role(lambda: obj.get("rules") or ()))
            return
        if resource not in ("clusterrolebindings", "rolebindings"):
            raise ValueError(f"not an RBAC resource: {resource}")
        namespace = meta["namespace"] if resource == "rolebindings" else ""
        scope = self._scopes.setdefault(namespace, _Scope())
        before = scope.bindings.get(meta["name"])
        scope.put(obj, namespace)
        self._binding_changed(namespace, meta["name"])
        self._bound_otherwise(namespace, before, scope.bindings[meta["name"]])

    def put_role(self, namespace: str, name: str, role: Role) -> Role | None:
        """Add or replace a role, or a cluster role if ``namespace`` is ""; return the replaced one."""
        before = self._roles.get((namespace, name)) if namespace else self._cluster_roles.get(name)
        if namespace:
            self._roles[namespace, name] = role
        else:
            self._cluster_roles[name] = role
        self._role_changed(namespace, name)
        self._changed(namespace or ("ClusterRole", name))
        return before

    def put_large_binding(self, namespace: str, name: str, binding: LargeBinding) -> None:
        """Add or replace a binding that is read later, or a cluster role binding if ``namespace`` is ""."""
        self._scopes.setdefault(namespace, _Scope()).put_large(name, namespace, binding)
        self._binding_changed(namespace, name)
        self._bound_otherwise(namespace, binding)

    def delete(self, resource: str, namespace: str, name: str) -> None:
        """Remove a role or binding and invalidate the decisions made with it. A missing object is not an error."""
        change: Change = namespace
        if resource == "clusterroles":
            self._cluster_roles.pop(name, None)
            self._role_changed("", name)
            change = "ClusterRole", name
        elif resource == "roles":
            self._roles.pop((namespace, name), None)
            self._role_changed(namespace, name)
        elif resource == "clusterrolebindings":
            before = self._scopes[""].bindings.get(name)
            self._scopes[""].drop(name, "")
            self._binding_changed("", name)
            self._bound_otherwise("", before)
            return
        elif resource == "rolebindings":
            scope = self._scopes.get(namespace)
            if scope is not None:
                scope.drop(name, namespace)
                self._binding_changed(namespace, name)
                if not scope.bindings:
                    del self._scopes[namespace]
        else:
            raise ValueError(f"not an RBAC resource: {resource}")
        self._changed(change)

    def keep_only(self, resource: str, there: set[tuple[str, str]]) -> None:
        """Remove the objects of ``resource`` that are not in ``there`` (namespace, name), after missed events."""
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

    def _binding_changed(self, namespace: str, name: str) -> None:
        for key, many in list(self._many.items()):
            if key[0] == namespace:
                many.changed(name)
                if many.unasked > MOST_UNASKED:
                    del self._many[key]

    def _role_changed(self, namespace: str, name: str) -> None:
        ref = "Role" if namespace else "ClusterRole", name
        for key, many in self._many.items():
            if not namespace or key[0] == namespace:
                many.otherwise(ref)

    def _bound_otherwise(self, namespace: str, *bindings: _Binding | LargeBinding | None) -> None:
        """Record a change of bindings: in a namespace it affects the namespace, in the cluster only the subjects."""
        if namespace:
            self._changed(namespace)
            return
        keys: set[str] = set()
        for binding in bindings:
            if isinstance(binding, LargeBinding):  # do not read its subjects here
                self.revision += 1
                self._forget()  # also without matchers here: identities hold matchers, too
                return
            if binding is not None:
                keys.update(_subject_key(subject, "") for subject in binding.subjects)
        self._changed(frozenset(keys))

    def _changed(self, change: Change) -> None:
        self.revision += 1
        self._changes.append(change)
        self._changes_bytes += _size(change)
        self.epoch = _Epoch(self._own, self._before + len(self._changes))
        while len(self._changes) > MOST_CHANGES or self._changes_bytes > CHANGES_BYTES:
            half = (len(self._changes) + 1) // 2
            self._changes_bytes -= sum(map(_size, self._changes[:half]))
            del self._changes[:half]
            self._before += half

    def _forget(self) -> None:
        self._matchers = {}
        self._room.size = 0
        self._before += len(self._changes) + 1
        self._changes, self._changes_bytes = [], 0
        self.epoch = _Epoch(self._own, self._before)

    def _holds(self, m: Matcher) -> bool:
        """Return whether a matcher is still valid, that is, whether no change since affects the user: in the namespaces of its requests,
        in its cluster roles, or in the cluster role bindings of its subjects. Advances its epoch if so."""
        since = m.epoch.at - self._before
        if m.epoch.of is not self._own or since < 0:
            return False
        for change in self._changes[since:]:
            if not m.keys.keys().isdisjoint(change) if isinstance(change, frozenset) else change in m.scopes:
                return False
        m.epoch = self.epoch
        return True

    def _keeps(self, length: int, entries: int = 1) -> bool:
        """Return whether an entry of this length may be cached. If the budget is exhausted, the cache is emptied first."""
        if length > LONGEST:
            return False
        if not self._room.take(length, entries):
            self._forget()
        return True

    # --- listing

    def held(self, user: UserInfo, namespace: str) -> tuple[list[Sequence[Obj]], str]:
        """Return the rules of every role the user has in the namespace and cluster-wide, each role once, and the resolution error or
        ""."""
        m = self.matcher(user)
        roles: dict[Role, None] = {}
        errs: list[str] = []
        for ns in dict.fromkeys(("", namespace)):
            found, failed = self._scope_roles(m, ns)
            roles.update((one[0], None) for one in found)
            errs.extend(failed)
        return [role.rules for role in roles], aggregate(errs)

    @eager
    async def rules_for(self, user: UserInfo, namespace: str) -> Rules:
        """Return the rules of a SelfSubjectRulesReview; do not modify them.

        A role is listed once for each of its bindings. Beyond ``MOST_RULES`` the lists are incomplete. Yields to other tasks in between.
        """
        keys, time_slice = self.matcher(user).keys, TimeSlice()
        resource: list[Obj] = []
        other: list[Obj] = []
        errs: list[str] = []
        left = MOST_RULES
        for ns in dict.fromkeys(("", namespace)):
            for one in self._first_bound(keys, ns, left + 1):
                if time_slice.over:
                    await time_slice.pause()
                ref = (one.prepare()[0] if isinstance(one, LargeBinding) else one).role
                role, count = self._role(*ref, ns), 0
                if role is None:
                    errs.append(self._missing(*ref))
                else:
                    count = len(role.rules)
                    of_resources, of_paths = role.listed() if count <= left else listed(role.rules[:left])
                    resource += of_resources
                    other += of_paths
                left -= max(1, count)  # roles without rules and missing roles count, too, since there may be as many
                if left < 0:
                    return resource, other, True, aggregate([*errs, f"there are more than {MOST_RULES} rules"])
        return resource, other, False, aggregate(errs)

    def role_rules(self, kind: str, name: str, namespace: str) -> list[Obj] | None:
        """Return the rules of the role that a roleRef names, None if it does not exist."""
        role = self._role(kind, name, namespace)
        return None if role is None else role.rules

    def _role(self, kind: str, name: str, namespace: str) -> Role | None:
        return self._cluster_roles.get(name) if kind == "ClusterRole" else self._roles.get((namespace, name))

    # --- compiling

    def matcher(self, user: UserInfo) -> Matcher:
        """Return the user's matcher, compiled on first use."""
        m: Matcher | None
        if len(user.groups) > MANY_GROUPS:
            m = user.compiled
            if m is None or not self._holds(m):
                user.compiled = m = Matcher(user.subjects, self.epoch)
            return m
        m = self._matchers.get(user.key)
        if m is None or not self._holds(m):
            # A user of many groups counts as many entries, not as one that is too long.
            if not self._room.take(2 * user.length, 2 + len(user.groups)):
                self._forget()
            m = Matcher(user.subjects, self.epoch)
            self._matchers[user.key] = m
        user.compiled = m
        return m

    def _bound(self, keys: dict[str, None], namespace: str) -> Iterator[tuple[_Binding, Obj, Role | None]]:
        """Yield the matching bindings of one scope in order of name, each with its matching subject and its role, or None if that is
        missing."""
        scope = self._scopes.get(namespace)
        if scope is not None:
            for binding, subject in scope.matching(keys):
                yield binding, subject, self._role(*binding.role, namespace)

    def _first_bound(self, keys: dict[str, None], namespace: str, most: int) -> list[_Binding | LargeBinding]:
        """Return the first ``most`` of these bindings, as they are now."""
        scope = self._scopes.get(namespace)
        return [] if scope is None else [scope.bindings[name] for name in sorted(scope.places(keys))[:most]]

    def _scope_roles(self, m: Matcher, namespace: str) -> tuple[list[_Held], list[str]]:
        """Return the user's roles in one scope, and the errors on the way. A role that is bound twice appears once, with the first
        binding."""
        known: tuple[list[_Held], list[str]] | None = m.scopes.get(namespace)
        if known is not None:
            return known
        many = self._many_of(m.keys, namespace)
        if many is not None:
            try:
                found = many.have()
            except BaseException:  # an object could not be read, and the changes are only partly applied
                self._many.clear()
                raise
            for ref in many.cluster_roles:
                self._asks_of(m, ref)
        else:
            found = self._walked(m, namespace)
        # A namespace without bindings is not cached: requests may name any.
        if namespace in self._scopes and self._keeps(len(namespace) + sum(map(len, found[1])), 1 + len(found[0])):
            m.scopes[namespace] = found
        return found

    def _walked(self, m: Matcher, namespace: str) -> tuple[list[_Held], list[str]]:
        roles: dict[Role, _Held] = {}
        errs: list[str] = []
        for binding, subject, role in self._bound(m.keys, namespace):
            kind, name = binding.role
            if kind == "ClusterRole":
                self._asks_of(m, binding.role)
            if role is None:
                errs.append(self._missing(kind, name))
            elif role not in roles:
                roles[role] = role, namespace, binding, subject
        return list(roles.values()), errs

    def _asks_of(self, m: Matcher, ref: tuple[str, str]) -> None:
        """Record that the user depends on a cluster role, whether it exists or not."""
        if ref not in m.scopes:
            self._keeps(len(ref[1]))
            m.scopes[ref] = None

    def _many_of(self, keys: dict[str, None], namespace: str) -> ManyBound[tuple[_Binding, Obj], _Held] | None:
        """Return the maintained roles of a user with many bindings in the scope and few groups; None for other users."""
        scope = self._scopes.get(namespace)
        if scope is None or len(scope.bindings) < MANY_BINDINGS or len(keys) > FEW_GROUPS:
            return None
        key = namespace, frozenset(keys)
        many = self._many.get(key)
        if many is not None:
            self._many.move_to_end(key)
            return many
        names = scope.places(keys)
        if len(names) < MANY_BINDINGS:
            return None

        def bound(name: str) -> tuple[_Binding, Obj] | None:
            now = self._scopes.get(namespace)
            return now.one(name, keys) if now is not None else None

        def held(found: tuple[_Binding, Obj]) -> _Held | str:
            binding, subject = found
            role = self._role(*binding.role, namespace)
            return self._missing(*binding.role) if role is None else (role, namespace, binding, subject)

        many = self._many[key] = ManyBound(bound, lambda found: found[0].role, held, sorted(names))
        left = sum(map(len, self._many.values()))
        while left > MOST_BINDINGS and len(self._many) > 1:
            left -= len(self._many.popitem(last=False)[1])
        return many

    def _all_roles(self, m: Matcher, namespace: str) -> tuple[list[_Held], list[str]]:
        roles, errs = self._scope_roles(m, "")
        if namespace:
            more, more_errs = self._scope_roles(m, namespace)
            roles, errs = roles + more, errs + more_errs
        return roles, errs

    def ready(self, user: UserInfo, namespace: str) -> Awaitable[None] | None:
        """Prepare the user's roles in the namespace and cluster-wide. Returns an awaitable if that takes long, else None."""
        pending = self._first(self.matcher(user), namespace)
        return None if pending is None else self._all_ready(pending, user, namespace)

    async def _all_ready(self, pending: Awaitable[None], user: UserInfo, namespace: str) -> None:
        await pending
        again = self._first(self.matcher(user), namespace, ordered=True)
        if again is not None:
            await again

    def _first(self, m: Matcher, namespace: str, ordered: bool = False) -> Awaitable[None] | None:
        """Return what to await before the user's roles are used, or None.

        That is the sorting of the user's bindings if there are many (skipped if it was done, ``ordered``), then the reading of large
        rules that were not read yet.
        """
        for ns in () if ordered else dict.fromkeys(("", namespace)):
            many = self._many_of(m.keys, ns) if m.scopes.get(ns) is None else None
            if many is not None and many.unasked > MOST_AT_ONCE:
                return self._in_turns(many)
        unread = [one[0] for one in self._all_roles(m, namespace)[0] if one[0].unread]
        return POOL.run(_read, unread) if sum(role.unread for role in unread) >= LARGE else None

    async def _in_turns(self, many: ManyBound[tuple[_Binding, Obj], _Held]) -> None:
        time_slice = TimeSlice()
        while many.unasked:
            try:
                many.take(MOST_AT_ONCE // 10)
            except BaseException:
                self._many.clear()
                raise
            if time_slice.over:
                await time_slice.pause()

    async def _after(self, a: Attributes, pending: Awaitable[None]) -> Outcome:
        """Wait for ``pending``, then authorize. If the sorted bindings were dropped in the meantime, they are sorted in one step:
        otherwise concurrent changes could repeat the wait for ever."""
        await pending
        self._ordered = True
        try:
            found = self.authorize(a)
        finally:
            self._ordered = False
        outcome: Outcome = await awaited(found)
        return outcome

    def compile_shape(self, m: Matcher, a: Attributes) -> Row | Awaitable[Outcome]:
        """Compile the outcomes for all resource requests that differ from this one only in name, and return the row.

        Called once per shape. If many rules must be read first, returns an awaitable of this request's outcome instead.
        """
        if (pending := self._first(m, a.namespace, self._ordered)) is not None:
            return self._after(a, pending)
        roles, errs = self._all_roles(m, a.namespace)
        row: list[tuple[frozenset[str] | None, Outcome]] = []
        held = 0
        for one in roles:
            names = one[0].names(a.verb, a.api_group, a.resource, a.subresource)
            if names is None or names:
                row.append((names, (ALLOW, _reason(one), "")))
                if names is None:
                    break
                held += len(names)
        else:
            row.append((None, _no_opinion(errs)))
        done = tuple(row)
        length = len(a.verb) + len(a.api_group) + len(a.resource) + len(a.subresource) + len(a.namespace)
        if self._keeps(length, 2 + len(row) + held):
            m.shapes[a.verb, a.api_group, a.resource, a.subresource, a.namespace] = done
            m.scopes.setdefault(a.namespace, None)  # mark the namespace as used, even if its roles are not cached
        return done

    def compile_path(self, m: Matcher, a: Attributes) -> Outcome | Awaitable[Outcome]:
        """Compile the outcome for a non-resource path. Called once per path; returns an awaitable as ``compile_shape`` does."""
        if (pending := self._first(m, a.namespace, self._ordered)) is not None:
            return self._after(a, pending)
        roles, errs = self._all_roles(m, a.namespace)
        for one in roles:
            if one[0].allows_path(a.verb, a.path):
                outcome: Outcome = (ALLOW, _reason(one), "")
                break
        else:
            outcome = _no_opinion(errs)
        if self._keeps(len(a.verb) + len(a.path) + len(a.namespace), 2):
            m.paths[a.verb, a.path, a.namespace] = outcome
            m.scopes.setdefault(a.namespace, None)
        return outcome


def _read(roles: Sequence[Role]) -> None:
    for role in roles:
        if abandoned():
            return
        role.prepare()


def _no_opinion(errs: list[str]) -> Outcome:
    return NO_OPINION, f"RBAC: {aggregate(errs)}" if errs else "", ""

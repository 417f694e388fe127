"""RBAC: an index over roles and bindings, compiled per identity.

``RbacIndex`` is fed with objects (at start and from the store's events). Bindings are indexed by subject, so what a
decision costs depends on the bindings of its user, never on how many others there are. Per user the matching rules are
gathered once, and per shape of request (verb, group, resource, subresource, namespace) once more into a short row of
(resource names or None, outcome); a decision then is two dictionary hits, made in ``kas._fastpath``. A change in a namespace drops what
was compiled for those who have asked about it, a cluster role what was for those who are bound to it, and a cluster role binding what was
for its subjects.

Semantics: ``plugin/pkg/auth/authorizer/rbac`` and ``pkg/registry/rbac/validation/rule.go``. Where upstream's order comes
from an unordered cache, ours is by name.
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
# Of all that is compiled, and the longest name, path or namespace in it: requests may name anything.
COMPILED_BYTES, LONGEST = 32 << 20, 1024
MANY_GROUPS = 10_000  # more of them are remembered with the identity alone: to look them up would take milliseconds
MOST_CHANGES = 256  # that are remembered; who comes after more is compiled anew, which takes as long as to look through them
CHANGES_BYTES = 1 << 20  # of all of them; one that alone is more is everybody's
# Whoever is bound so often in one scope has his roles there kept, so many bindings of all of them, and so many changes that he did not ask
# about; of groups he has few then.
MANY_BINDINGS, MOST_BINDINGS, MOST_UNASKED, FEW_GROUPS = 500, 200_000, 10_000, 64
MOST_AT_ONCE = 1_000  # bindings that are put in order in one step
MOST_RULES = 10_000  # that a review lists; a role that is bound a thousand times counts a thousand times


# A namespace in which something has changed, the reference to a cluster role, or keys of the subjects of a cluster role binding.
Change = str | tuple[str, str] | frozenset[str]


def _size(change: Change) -> int:
    """About how many bytes it takes."""
    return 128 + (len(change) if isinstance(change, str) else sum(map(len, change)) + 128 * len(change))


class _Binding:
    __slots__ = ("name", "role", "subjects")

    def __init__(self, obj: Obj) -> None:
        ref = obj.get("roleRef") or {}
        self.name = obj["metadata"]["name"]
        self.role = (ref.get("kind", ""), ref.get("name", ""))
        self.subjects: list[Obj] = obj.get("subjects") or []


class LargeBinding:
    """A binding of thousands of subjects, which ``load`` gives with it: read when somebody first asks who is in its namespace."""

    __slots__ = ("_found", "_load", "_namespace")

    def __init__(self, namespace: str, load: Callable[[], Obj]) -> None:
        self._load: Callable[[], Obj] | None = load
        self._found: tuple[_Binding, dict[str, int]] | None = None
        self._namespace = namespace

    def prepare(self) -> tuple[_Binding, dict[str, int]]:
        """The binding, and subject key -> first index; any thread may read it, and what a second one makes is the same."""
        load, found = self._load, self._found  # in this order: what another thread has made is there before its way is gone
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
    """The bindings of one namespace (or of the cluster): by name, and subject key -> {binding name: subject's index}; large ones have
    indexes of their own, which are made beside the loop and dropped in one piece."""

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
        keys = [_subject_key(subject, namespace) for subject in binding.subjects]  # first: where one is no subject nothing has changed
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
        """A binding with its first subject that applies, if one does. For few keys."""
        binding = self.bindings.get(name)
        if isinstance(binding, LargeBinding):
            binding, places = binding.prepare()
            at = [places[key] for key in keys if key in places]
        else:
            at = [here[name] for key in keys if name in (here := self.by_subject.get(key, _NOBODY))]
        return (binding, binding.subjects[min(at)]) if binding is not None and at else None

    def matching(self, keys: dict[str, None]) -> Iterator[tuple[_Binding, Obj]]:
        """The bindings that apply, in order of name, each with its first subject that does."""
        found = self.places(keys)
        for name in sorted(found):
            one = self.bindings[name]
            binding = one.prepare()[0] if isinstance(one, LargeBinding) else one
            yield binding, binding.subjects[found[name]]

    def places(self, keys: dict[str, None]) -> dict[str, int]:
        """By name of those that apply, which of its subjects does; not to be changed. Costs what is less, the subjects that the user
        is or those that are bound: two views of keys walk the shorter one."""
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
        # Without a namespace of its own it means the binding's; in a ClusterRoleBinding it then means nobody.
        ns = subject.get("namespace") or namespace
        return "u" + service_account_username(ns, name) if ns else ""
    return ""


def _describe_subject(subject: Obj, namespace: str) -> str:
    name = subject.get("name", "")
    if subject.get("kind") == "ServiceAccount":
        name = f"{name}/{subject.get('namespace') or namespace}"
    return f"{subject.get('kind', '')} {go_quote(name)}"


# A role that somebody has, and by what: the namespace ("" for the cluster), the binding and the subject in it.
_Held = tuple[Role, str, _Binding, Obj]


def _reason(held: _Held) -> str:
    """Why what the role allows is allowed: made for the few of thousands that a request is about."""
    _, namespace, binding, subject = held
    (kind, name), who = binding.role, _describe_subject(subject, namespace)
    what = f"RoleBinding {go_quote(f'{binding.name}/{namespace}')}" if namespace else f"ClusterRoleBinding {go_quote(binding.name)}"
    return f"RBAC: allowed by {what} of {kind} {go_quote(name)} to {who}"


def role_not_found(kind: str, name: str) -> str:
    """The lister's text for a binding to a role that is not there."""
    return f"{kind.lower()}.{GROUP} {go_quote(name)} not found"


class _Epoch(NamedTuple):
    """When something was compiled: ``of`` is an index's own, since users may be asked about in several; ``at`` how many changes it had."""

    of: object
    at: int


class RbacIndex(Decisions):
    """Roles and bindings of the cluster, and the authorizer over them. Not thread-safe: one per worker's loop.

    ``revision`` grows with every change. ``missing`` words the error for a role that does not exist.
    """

    def __init__(self, missing: Callable[[str, str], str] = role_not_found) -> None:
        super().__init__()
        self.revision = 0
        self._missing = missing
        self._cluster_roles: dict[str, Role] = {}
        self._roles: dict[tuple[str, str], Role] = {}
        self._scopes: dict[str, _Scope] = {"": _Scope()}
        self._matchers: dict[tuple, Matcher] = {}
        # Of who is bound often, by namespace and subjects, who asked last at the end.
        self._many: OrderedDict[tuple[str, frozenset[str]], ManyBound[tuple[_Binding, Obj], _Held]] = OrderedDict()
        # The last changes, and how many there were before these.
        self._changes: list[Change] = []
        self._changes_bytes = 0
        self._before, self._own = 0, object()
        self._ordered = False  # who asks now has waited for his bindings
        self.epoch = _Epoch(self._own, 0)
        self._room = Budget("rbac_decisions", "what users may do, compiled", COMPILED_BYTES, LONGEST)

    # --- feeding

    def put(self, resource: str, obj: Obj) -> None:
        """Adds or replaces an object of ``resource`` (clusterroles, roles, clusterrolebindings, rolebindings)."""
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
        """Adds or replaces a role, or with ``namespace`` "" a cluster role; returns what it replaces."""
        before = self._roles.get((namespace, name)) if namespace else self._cluster_roles.get(name)
        if namespace:
            self._roles[namespace, name] = role
        else:
            self._cluster_roles[name] = role
        self._role_changed(namespace, name)
        self._changed(namespace or ("ClusterRole", name))
        return before

    def put_large_binding(self, namespace: str, name: str, binding: LargeBinding) -> None:
        """Adds or replaces a binding that is read later, or with ``namespace`` "" a cluster role binding."""
        self._scopes.setdefault(namespace, _Scope()).put_large(name, namespace, binding)
        self._binding_changed(namespace, name)
        self._bound_otherwise(namespace, binding)

    def delete(self, resource: str, namespace: str, name: str) -> None:
        """Forgets a role or binding; decisions made with it are forgotten, too. One that is not there is fine."""
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
        """Bindings have come, gone or changed: those of the cluster concern their subjects."""
        if namespace:
            self._changed(namespace)
            return
        keys: set[str] = set()
        for binding in bindings:
            if isinstance(binding, LargeBinding):  # its subjects are not read here
                self.revision += 1
                self._forget()  # also when nobody is remembered here: identities remember, too
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
        """Whether nothing has changed since that concerns the user: in namespaces asked about, in roles there and of the cluster, in who
        has these. What was compiled counts then."""
        since = m.epoch.at - self._before
        if m.epoch.of is not self._own or since < 0:
            return False
        for change in self._changes[since:]:
            if not m.keys.keys().isdisjoint(change) if isinstance(change, frozenset) else change in m.scopes:
                return False
        m.epoch = self.epoch
        return True

    def _keeps(self, length: int, entries: int = 1) -> bool:
        """Whether something that long is remembered; what was is forgotten when there is no room for it."""
        if length > LONGEST:
            return False
        if not self._room.take(length, entries):
            self._forget()
        return True

    # --- listing

    def held(self, user: UserInfo, namespace: str) -> tuple[list[Sequence[Obj]], str]:
        """The rules of every role the user has in the namespace and cluster-wide, each role once, and the resolution error or ""."""
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
        """SelfSubjectRulesReview's lists. A role counts with each of its bindings; the rules are not to be changed; beyond ``MOST_RULES``
        the lists are incomplete. Others have their turns meanwhile."""
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
                left -= max(1, count)  # of those without any, and of roles that are not there, there may be as many
                if left < 0:
                    return resource, other, True, aggregate([*errs, f"there are more than {MOST_RULES} rules"])
        return resource, other, False, aggregate(errs)

    def role_rules(self, kind: str, name: str, namespace: str) -> list[Obj] | None:
        """The rules a roleRef points to, None when the role does not exist."""
        role = self._role(kind, name, namespace)
        return None if role is None else role.rules

    def _role(self, kind: str, name: str, namespace: str) -> Role | None:
        return self._cluster_roles.get(name) if kind == "ClusterRole" else self._roles.get((namespace, name))

    # --- compiling

    def matcher(self, user: UserInfo) -> Matcher:
        """The user's compiled rules, made at the first question."""
        m: Matcher | None
        if len(user.groups) > MANY_GROUPS:
            m = user.compiled
            if m is None or not self._holds(m):
                user.compiled = m = Matcher(user.subjects, self.epoch)
            return m
        m = self._matchers.get(user.key)
        if m is None or not self._holds(m):
            # A user of many groups is one of many entries, not one that is too long.
            if not self._room.take(2 * user.length, 2 + len(user.groups)):
                self._forget()
            m = Matcher(user.subjects, self.epoch)
            self._matchers[user.key] = m
        user.compiled = m
        return m

    def _bound(self, keys: dict[str, None], namespace: str) -> Iterator[tuple[_Binding, Obj, Role | None]]:
        """The bindings of one scope that apply, in order of name, with the subject that does and the role, if it is there."""
        scope = self._scopes.get(namespace)
        if scope is not None:
            for binding, subject in scope.matching(keys):
                yield binding, subject, self._role(*binding.role, namespace)

    def _first_bound(self, keys: dict[str, None], namespace: str, most: int) -> list[_Binding | LargeBinding]:
        """The first of those bindings, as they are now."""
        scope = self._scopes.get(namespace)
        return [] if scope is None else [scope.bindings[name] for name in sorted(scope.places(keys))[:most]]

    def _scope_roles(self, m: Matcher, namespace: str) -> tuple[list[_Held], list[str]]:
        """The user's roles in one scope, and the errors met on the way. A role that is bound twice gives the reason of the first binding,
        so the second one is not looked at."""
        known: tuple[list[_Held], list[str]] | None = m.scopes.get(namespace)
        if known is not None:
            return known
        many = self._many_of(m.keys, namespace)
        if many is not None:
            try:
                found = many.have()
            except BaseException:  # one could not be read, and some of what changed is not taken in
                self._many.clear()
                raise
            for ref in many.cluster_roles:
                self._asks_of(m, ref)
        else:
            found = self._walked(m, namespace)
        # A namespace nobody has bindings in is not remembered: requests may name any.
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
        """A cluster role concerns the user, whether it is there or not, and whatever else is remembered."""
        if ref not in m.scopes:
            self._keeps(len(ref[1]))
            m.scopes[ref] = None

    def _many_of(self, keys: dict[str, None], namespace: str) -> ManyBound[tuple[_Binding, Obj], _Held] | None:
        """The roles of somebody with many bindings in the scope, who has few groups."""
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
        """Makes ready what the user has in the namespace and cluster-wide, where that takes long, for who is about to ask for it."""
        pending = self._first(self.matcher(user), namespace)
        return None if pending is None else self._all_ready(pending, user, namespace)

    async def _all_ready(self, pending: Awaitable[None], user: UserInfo, namespace: str) -> None:
        await pending
        again = self._first(self.matcher(user), namespace, ordered=True)
        if again is not None:
            await again

    def _first(self, m: Matcher, namespace: str, ordered: bool = False) -> Awaitable[None] | None:
        """What is to be awaited before the user's roles are asked: until his bindings stand in order, if they are many (unless it was tried
        to have them ``ordered``), then until the rules that nobody has asked for yet are read."""
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
        """As ``authorize``, after that. What was put in order and is forgotten by now is put in order at once: who forgets it, and who
        asks, might do so for ever."""
        await pending
        self._ordered = True
        try:
            found = self.authorize(a)
        finally:
            self._ordered = False
        outcome: Outcome = await awaited(found)
        return outcome

    def compile_shape(self, m: Matcher, a: Attributes) -> Row | Awaitable[Outcome]:
        """What the user's rules say of every resource request like this one but for its name; asked once for each shape. What the rules
        say of this one, to be awaited, where they are many that nobody has asked for yet."""
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
            m.scopes.setdefault(a.namespace, None)  # has asked about it, whether its roles are remembered or not
        return done

    def compile_path(self, m: Matcher, a: Attributes) -> Outcome | Awaitable[Outcome]:
        """What the user's rules say of a non-resource path; asked once for each path, and to be awaited as in ``compile_shape``."""
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

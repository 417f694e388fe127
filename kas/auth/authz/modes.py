"""The stateless authorizers, and the union of ``--authorization-mode``.

apiserver's ``pkg/authorization/{authorizerfactory,path,union}``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from kas.auth.attributes import ALLOW, NO_OPINION, Attributes, Authorizer, Outcome, Rules, aggregate
from kas.auth.user import MASTERS, UserInfo
from kas.meta.waiting import awaited, eager
from kas.observe.metrics import Counter, Labels

# A member's ``authorize``, and the labels under which its denials and its permissions are counted.
Ask = tuple[Callable[[Attributes], Outcome | Awaitable[Outcome]], tuple[Labels, Labels]]

# The paths upstream's delegating servers allow by default. kube-apiserver itself allows none this way: its health paths are public
# because of the role system:public-info-viewer, and a SubjectAccessReview must agree.
ALWAYS_ALLOW_PATHS = ("/healthz", "/readyz", "/livez")

_ALLOWED: Outcome = (ALLOW, "", "")
_NO_OPINION: Outcome = (NO_OPINION, "", "")
_EVERYTHING = (
    [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
    [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
)


class AlwaysAllow:
    """The mode AlwaysAllow: every request is allowed."""

    def authorize(self, a: Attributes) -> Outcome:
        """Allow the request."""
        return _ALLOWED

    def rules_for(self, user: UserInfo, namespace: str) -> tuple[list[dict], list[dict], bool, str]:
        """Return rules for all resources and paths; the caller owns the lists."""
        return [dict(r) for r in _EVERYTHING[0]], [dict(r) for r in _EVERYTHING[1]], False, ""


class AlwaysDeny:
    """The mode AlwaysDeny: it allows nothing; another mode still may."""

    def authorize(self, a: Attributes) -> Outcome:
        """Return no opinion, with a reason."""
        return NO_OPINION, "Everything is forbidden.", ""

    def rules_for(self, user: UserInfo, namespace: str) -> tuple[list[dict], list[dict], bool, str]:
        """Return no rules; the answer is complete."""
        return [], [], False, ""


class AlwaysAllowPaths:
    """Non-resource paths open to every user; a trailing ``*`` allows by prefix. Raises ValueError for any other pattern."""

    def __init__(self, paths: Sequence[str] = ALWAYS_ALLOW_PATHS) -> None:
        exact: set[str] = set()
        prefixes: list[str] = []
        for path in paths:
            p = path.removeprefix("/")
            if not p:
                exact.add(p)
            elif "*" in p[:-1]:
                raise ValueError(f'only trailing * allowed in "{path}"')
            elif p.endswith("*"):
                prefixes.append(p[:-1])
            else:
                exact.add(p)
        self._exact, self._prefixes = frozenset(exact), tuple(prefixes)

    def authorize(self, a: Attributes) -> Outcome:
        """Allow the listed paths; no opinion on other paths and on resources."""
        if a.resource_request:
            return _NO_OPINION
        path = a.path.removeprefix("/")
        if path in self._exact or (self._prefixes and path.startswith(self._prefixes)):
            return _ALLOWED
        return _NO_OPINION


def _undecided(silent: list[Outcome]) -> Outcome:
    if not silent:
        return _NO_OPINION
    return NO_OPINION, "\n".join(o[1] for o in silent if o[1]), aggregate([o[2] for o in silent if o[2]])


class Union:
    """Authorizes by the first member with an opinion; reasons and errors of the members without one are joined, one per line.

    If a member must wait, the result is an awaitable, and the following members are called only after it. ``privileged`` groups and open
    ``paths`` are checked before all members; they are part of the union, because every request passes them. Members' decisions are
    counted in ``decisions`` by (type, name), given in ``names`` in the order of the members.
    """

    def __init__(
        self,
        members: Sequence[Authorizer],
        privileged: Sequence[str] = (),
        paths: AlwaysAllowPaths | None = None,
        names: Sequence[tuple[str, str]] = (),
        decisions: Counter | None = None,
    ) -> None:
        self._members = tuple(members)
        self._privileged = frozenset(privileged)
        self._paths = paths
        self._count = (decisions or Counter("", "")).inc
        shown = names or [("", "")] * len(self._members)
        self._asks: tuple[Ask, ...] = tuple(
            (m.authorize, ((*n, "denied"), (*n, "allowed"))) for m, n in zip(self._members, shown, strict=True)
        )

    def authorize(self, a: Attributes) -> Outcome | Awaitable[Outcome]:
        """Allow the privileged groups and the open paths; else return the first opinion in the order of the modes, or an awaitable of
        it."""
        if not self._privileged.isdisjoint(a.user.groups):
            return _ALLOWED
        if not a.resource_request and self._paths is not None:
            open_to_all = self._paths.authorize(a)
            if open_to_all[0] == ALLOW:
                return open_to_all
        silent: list[Outcome] = []
        asks = iter(self._asks)
        for ask, labels in asks:
            outcome = ask(a)
            if not isinstance(outcome, tuple):
                return self._wait(a, outcome, labels, asks, silent)
            if outcome[0] != NO_OPINION:
                self._count(labels[outcome[0]])
                return outcome
            if outcome[1] or outcome[2]:
                silent.append(outcome)
        return _undecided(silent)

    async def _wait(
        self, a: Attributes, waiting: Awaitable[Outcome], labels: tuple[Labels, Labels], asks: Iterator[Ask], silent: list[Outcome]
    ) -> Outcome:
        """Continue ``authorize`` from the first member that must wait."""
        outcome = await waiting
        while outcome[0] == NO_OPINION:
            if outcome[1] or outcome[2]:
                silent.append(outcome)
            following = next(asks, None)
            if following is None:
                return _undecided(silent)
            ask, labels = following
            outcome = await awaited(ask(a))
        self._count(labels[outcome[0]])
        return outcome

    def ready(self, user: UserInfo, namespace: str) -> Awaitable[None] | None:
        """Return what to await before ``rules_for`` if a member has much to prepare, else None."""
        waits = (member.ready(user, namespace) for member in self._members if hasattr(member, "ready"))
        return next((pending for pending in waits if pending is not None), None)

    @eager
    async def rules_for(self, user: UserInfo, namespace: str) -> Rules:
        """Join the rules of every member that can list them; a member that cannot makes the answer incomplete."""
        resource: list[dict] = []
        other: list[dict] = []
        incomplete = False
        errs: list[str] = []
        for member in self._members:
            resolve: Any = getattr(member, "rules_for", None)
            if resolve is None:
                continue
            more_resource, more_other, partial, error = await awaited(resolve(user, namespace))
            resource.extend(more_resource)
            other.extend(more_other)
            incomplete = incomplete or partial
            if error:
                errs.append(error)
        return resource, other, incomplete, aggregate(errs)

    def close(self) -> None:
        """Close the connections of the members."""
        for member in self._members:
            close = getattr(member, "close", None)
            if close is not None:
                close()


def build(
    modes: Sequence[str],
    rbac: Authorizer | None = None,
    node: Authorizer | None = None,
    abac: Authorizer | None = None,
    webhooks: Sequence[tuple[str, Authorizer]] = (),
    always_allow_paths: Sequence[str] = (),
    decisions: Counter | None = None,
) -> Union:
    """Return the server's authorizer: privileged groups, always-allowed paths (none by default), then the modes in the given order.

    Each Webhook mode takes the next of ``webhooks``, (name, authorizer). Raises ``ValueError`` for an unknown, repeated or unconfigured
    mode, and for no modes at all, so that nothing is open by accident.
    """
    known: dict[str, Authorizer | None] = {
        "AlwaysAllow": AlwaysAllow(), "AlwaysDeny": AlwaysDeny(), "RBAC": rbac, "Node": node, "ABAC": abac,
    }  # fmt: skip
    if not modes:
        raise ValueError("at least one authorization-mode must be passed")
    members: list[Authorizer] = []
    names: list[tuple[str, str]] = []
    hooks = iter(webhooks)
    for i, mode in enumerate(modes):
        name, member = next(hooks, ("", None)) if mode == "Webhook" else (mode.lower(), known.get(mode))
        if mode not in known and mode != "Webhook":
            raise ValueError(f'authorization-mode "{mode}" is not a valid mode')
        if mode in modes[:i] and mode != "Webhook":
            raise ValueError(f'authorization-mode "{mode}" has mode specified more than once')
        if member is None:
            raise ValueError(f'authorization-mode "{mode}" is not configured')
        members.append(member)
        names.append((mode, name))
    # system:masters may do everything, whatever else is configured, to recover from a broken policy.
    paths = AlwaysAllowPaths(always_allow_paths) if always_allow_paths else None
    return Union(members, (MASTERS,), paths, names, decisions)

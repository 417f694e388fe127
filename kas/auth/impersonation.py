"""Impersonation: the user that the ``Impersonate-*`` headers request, and whether the requester may act as that user.

Follows apiserver's ``pkg/endpoints/filters/impersonation`` with ConstrainedImpersonation on (KEP-5284). Four constrained modes are tried.
Each requires ``impersonate-on:<mode>:<verb>`` for the request itself and ``impersonate:<mode>`` for every attribute of the wanted user.
Then the legacy ``impersonate`` verb is tried, which covers every request. The client sees the first refusal, unless a later mode allows
the request.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote

from kas.auth.attributes import ALLOW, Attributes, Authorizer, aggregate, asked_by, forbidden
from kas.auth.user import (
    ANONYMOUS,
    AUTHENTICATED,
    MASTERS,
    NODE_NAME,
    NODE_PREFIX,
    NODES,
    UNAUTHENTICATED,
    UserInfo,
    is_subdomain,
    service_account_groups,
    split_service_account,
)
from kas.config import features
from kas.meta import errors
from kas.meta.field import go_quote
from kas.meta.names import domain_prefixed_path
from kas.meta.waiting import awaited, eager

USER_HEADER = "impersonate-user"
UID_HEADER = "impersonate-uid"
GROUP_HEADER = "impersonate-group"
EXTRA_PREFIX = "impersonate-extra-"
HEADER_PREFIX = "impersonate-"

# The key under which a request's constraint is stored for the audit log. It is not a qualified name, so no webhook's annotation can be
# mistaken for it.
CONSTRAINT = "impersonation constraint"

AUTHENTICATION_GROUP = "authentication.k8s.io"
# From this many groups or extra values on, one check for "*" is tried before one check for each.
MANY = 4
# More header values than this are refused before any check: each costs an authorization.
MAX_VALUES = 1024


def is_impersonation(header: bytes) -> bool:
    """Return whether a lower-case header is an impersonation header; other headers with the ``impersonate-`` prefix are not."""
    return header in (b"impersonate-user", b"impersonate-uid", b"impersonate-group") or header.startswith(b"impersonate-extra-")


def mode_of(verb: str) -> str:
    """Return the mode in an impersonation verb or constraint, "legacy" if it has none; the label of metrics."""
    return verb.partition(":")[2].partition(":")[0] or "legacy"


def wanted_user(headers: Iterable[tuple[str, str]]) -> UserInfo | None:
    """Return the user the headers request, exactly as given; None if there is none.

    ``headers`` are (lower-case name, value) pairs. Raises ApiError 400 for groups, a uid or extras without a user name, and for more than
    ``MAX_VALUES`` headers.
    """
    first: dict[str, str] = {}
    groups: list[str] = []
    extra: dict[str, list[str]] = {}
    asked = count = 0
    for key, value in headers:
        if not key.startswith(HEADER_PREFIX):
            continue
        count += 1
        if key in (USER_HEADER, UID_HEADER):
            first.setdefault(key, value)
        elif key == GROUP_HEADER:
            groups.append(value)
            asked += 1
        elif key.startswith(EXTRA_PREFIX):
            extra.setdefault(_unescape(key[len(EXTRA_PREFIX) :]), []).append(value)
            asked += 1
    if count > MAX_VALUES:
        raise errors.bad_request(f"more than {MAX_VALUES} impersonation headers")
    wanted = UserInfo(first.get(USER_HEADER, ""), groups, first.get(UID_HEADER, ""), extra)
    if not wanted.name:
        if asked or wanted.uid:
            if not features.DEFAULT.enabled("ConstrainedImpersonation"):
                raise errors.bad_request(f"requested [{_go_references(wanted)}] without impersonating a user")
            raise errors.bad_request(f"requested {_go_user(wanted)} without impersonating a user name")
        return None
    return wanted


def _unescape(key: str) -> str:
    # A malformed escape leaves the key unchanged.
    i = key.find("%")
    while i >= 0:
        digits = key[i + 1 : i + 3]
        if len(digits) < 2 or not all(c in "0123456789abcdef" for c in digits):
            return key
        i = key.find("%", i + 3)
    return unquote(key)


def _go_user(u: UserInfo) -> str:
    """Go's ``%#v`` of a *user.DefaultInfo."""
    groups = "[]string{" + ", ".join(map(go_quote, u.groups)) + "}" if u.groups else "[]string(nil)"
    extra = "map[string][]string(nil)"
    if u.extra:
        pairs = (f"{go_quote(k)}:[]string{{{', '.join(map(go_quote, u.extra[k]))}}}" for k in sorted(u.extra))
        extra = "map[string][]string{" + ", ".join(pairs) + "}"
    return f"&user.DefaultInfo{{Name:{go_quote(u.name)}, UID:{go_quote(u.uid)}, Groups:{groups}, Extra:{extra}}}"


def _go_references(u: UserInfo) -> str:
    """Go's ``%v`` of the ObjectReferences that WithImpersonation, the filter without modes, checks."""
    asked = [f"{{Group  {name}    }}" for name in u.groups]
    asked += [f"{{UserExtra  {value}  {AUTHENTICATION_GROUP}/v1  {key}}}" for key, values in u.extra.items() for value in values]
    if u.uid:
        asked.append(f"{{UID  {u.uid}  {AUTHENTICATION_GROUP}/v1  }}")
    return " ".join(asked)


class ModeCache:
    """Remembers the mode that last succeeded for each requester, to try it first: a client tends to impersonate in the same way again
    (``modeIndexCache``).

    Keeps at most ``MAX_REQUESTERS`` names of at most ``MAX_NAME`` characters; longer names are not remembered.
    """

    MAX_REQUESTERS, MAX_NAME = 10_000, 256

    def __init__(self) -> None:
        self._modes: dict[str, str] = {}

    def order(self, requester: str, modes: list[str]) -> list[str]:
        """Return the applicable modes, with the one that last succeeded first."""
        last = self._modes.get(requester)
        return [last, *(m for m in modes if m != last)] if last in modes else modes

    def succeeded(self, requester: str, mode: str) -> None:
        """Remember the mode; when full, the requester added first is evicted."""
        if len(requester) > self.MAX_NAME or self._modes.get(requester) == mode:
            return
        if len(self._modes) >= self.MAX_REQUESTERS:
            del self._modes[next(iter(self._modes))]
        self._modes[requester] = mode


@eager
async def impersonate(authorizer: Authorizer, request: Attributes, wanted: UserInfo, last: ModeCache) -> tuple[UserInfo, str]:
    """Return (the user to continue as, the constraint for the audit log or ""). Raises ApiError 403 if the requester may not.

    ``request`` holds the attributes of the request itself; its user is the requester.
    """
    if not features.DEFAULT.enabled("ConstrainedImpersonation"):
        return await _before_modes(authorizer, request.user, wanted), ""
    first: errors.ApiError | None = None
    requester = request.user.name
    try:
        for mode in last.order(requester, _modes(request.user, wanted)):
            try:
                found = await _try_mode(authorizer, request, wanted, mode)
            except errors.ApiError as e:
                first = first or e
                continue
            last.succeeded(requester, mode)
            return found
        if first is None:
            raise errors.internal("all impersonation modes failed")
        raise first
    finally:
        first = None  # break the cycle error -> traceback -> this frame, which would keep the request's headers in memory


def _modes(requester: UserInfo, wanted: UserInfo) -> list[str]:
    """Return the applicable constrained modes, followed by "" for the legacy verb."""
    only_name = not (wanted.uid or wanted.groups or wanted.extra)
    node = _node_of(wanted.name)
    account = split_service_account(wanted.name)
    modes = []
    if only_name and node:
        if split_service_account(requester.name) and requester.extra.get(NODE_NAME) == [node]:
            modes.append("associated-node")
        modes.append("arbitrary-node")
    if only_name and account:
        modes.append("serviceaccount")
    if not node and not account:
        modes.append("user-info")
    return [*modes, ""]


async def _try_mode(authorizer: Authorizer, request: Attributes, wanted: UserInfo, mode: str) -> tuple[UserInfo, str]:
    requester = request.user
    if mode == "associated-node":
        # The decision must hold for this service account on every node, so the attributes leave out what differs between nodes.
        keys = sorted(requester.extra)
        requester = UserInfo(requester.name, requester.groups, requester.uid, {"authentication.kubernetes.io/associated-node-keys": keys})
    if mode:
        await _check(authorizer, asked_by(request, requester, f"impersonate-on:{mode}:{request.verb}"))
    verb = f"impersonate:{mode}" if mode else "impersonate"
    groups = await _check_name(authorizer, requester, verb, wanted, mode)
    if wanted.uid:
        await _check(authorizer, _question(requester, verb, AUTHENTICATION_GROUP, "uids", wanted.uid))
    await _check_groups(authorizer, requester, verb, wanted.groups, mode)
    await _check_extra(authorizer, requester, verb, wanted.extra, mode)
    return _become(wanted, groups), verb if mode else ""


async def _before_modes(authorizer: Authorizer, requester: UserInfo, wanted: UserInfo) -> UserInfo:
    """Check the legacy verb alone, in the order of WithImpersonation, the filter without modes. Its refusals omit the authorizer's
    error."""
    account = split_service_account(wanted.name)
    namespace, name = account or ("", wanted.name)
    questions = [Attributes(requester, "impersonate", namespace, "", "", "serviceaccounts" if account else "users", "", name)]
    questions += [Attributes(requester, "impersonate", "", "", "", "groups", "", group) for group in wanted.groups]
    for key, values in wanted.extra.items():
        questions += [Attributes(requester, "impersonate", "", AUTHENTICATION_GROUP, "v1", "userextras", key, value) for value in values]
    if wanted.uid:
        questions.append(_question(requester, "impersonate", AUTHENTICATION_GROUP, "uids", wanted.uid))
    for question in questions:
        decision, reason, _ = await awaited(authorizer.authorize(question))
        if decision != ALLOW:
            raise forbidden(question, reason)
    return _become(wanted, wanted.groups or (service_account_groups(account[0]) if account else ()))


def _become(wanted: UserInfo, groups: tuple[str, ...]) -> UserInfo:
    """Return the user to continue as, in system:authenticated or system:unauthenticated."""
    if wanted.name == ANONYMOUS:
        if UNAUTHENTICATED not in groups:
            groups = (*groups, UNAUTHENTICATED)
    elif UNAUTHENTICATED not in groups and AUTHENTICATED not in groups:
        groups = (*groups, AUTHENTICATED)
    return UserInfo(wanted.name, groups, wanted.uid, wanted.extra)


async def _check_name(authorizer: Authorizer, requester: UserInfo, verb: str, wanted: UserInfo, mode: str) -> tuple[str, ...]:
    """Check the name; return the groups that the impersonated user starts with."""
    group = AUTHENTICATION_GROUP if mode else ""
    question = _question(requester, verb, group, "users", wanted.name)
    groups = wanted.groups
    node, account = _node_of(wanted.name) if mode else "", split_service_account(wanted.name)
    if node:
        question.resource, question.name = "nodes", "*" if mode == "associated-node" else node
        groups = (NODES,)
    if account:
        question.resource = "serviceaccounts"
        question.namespace, question.name = account
        groups = groups or service_account_groups(account[0])
    await _check(authorizer, question)
    return groups


async def _check_groups(authorizer: Authorizer, requester: UserInfo, verb: str, groups: tuple[str, ...], mode: str) -> None:
    if not groups:
        return
    question = _question(requester, verb, AUTHENTICATION_GROUP if mode else "", "groups", "")
    if mode:
        if "" in groups:
            raise forbidden(question, "impersonating the empty string group is not allowed")
        if MASTERS in groups:
            question.name = MASTERS
            raise forbidden(question, "impersonating the system:masters group is not allowed")
        if len(groups) >= MANY:
            question.name = "*"
            if (await awaited(authorizer.authorize(question)))[0] == ALLOW:
                return
    for question.name in groups:
        await _check(authorizer, question)


async def _check_extra(authorizer: Authorizer, requester: UserInfo, verb: str, extra: dict[str, list[str]], mode: str) -> None:
    if not extra:
        return
    question = _question(requester, verb, AUTHENTICATION_GROUP, "userextras", "")
    if mode:
        problem = _extra_problem(extra)
        if problem:
            raise forbidden(question, problem)
        if len(extra) >= MANY or sum(map(len, extra.values())) >= MANY:
            question.subresource = question.name = "*"
            if (await awaited(authorizer.authorize(question)))[0] == ALLOW:
                return
    for question.subresource, values in extra.items():
        for question.name in values:
            await _check(authorizer, question)


def _extra_problem(extra: dict[str, list[str]]) -> str:
    for key, values in extra.items():
        if not key:
            return "impersonating the empty string key in extra is not allowed"
        problems = [str(e) for e in domain_prefixed_path("extra.key", key)]
        if problems:
            return f"impersonating an invalid key in extra is not allowed: {aggregate(problems)}"
        if key != key.lower():
            return f"impersonating a non-lowercase key in extra is not allowed: {go_quote(key)}"
        if "" in values:
            return "impersonating the empty string value in extra is not allowed"
    return ""


def _question(requester: UserInfo, verb: str, group: str, resource: str, name: str) -> Attributes:
    return Attributes(requester, verb, "", group, "v1", resource, "", name)


async def _check(authorizer: Authorizer, question: Attributes) -> None:
    decision, reason, error = await awaited(authorizer.authorize(question))
    if decision != ALLOW:
        raise forbidden(question, f"{error}: {reason}" if error and reason else error or reason)


def _node_of(name: str) -> str:
    node = name[len(NODE_PREFIX) :] if name.startswith(NODE_PREFIX) else ""
    return node if node and is_subdomain(node) else ""

"""Prevention of privilege escalation: a user may only grant permissions it holds. The checks of writes to RBAC resources.

``pkg/registry/rbac/validation/policy_comparator`` through ``ConfirmNoEscalation``, and the rules of
``pkg/registry/rbac/{role,clusterrole,rolebinding,clusterrolebinding}/policybased``. The checks raise the error the client receives, or
return.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from itertools import chain
from math import prod
from typing import Any

from kas.auth.attributes import ALLOW, Attributes, Authorizer
from kas.auth.authz.rbac import GROUP, RbacIndex
from kas.auth.authz.rules import TooManyError, compact, covers, describe, go_list
from kas.auth.user import MASTERS, UserInfo
from kas.meta import errors
from kas.meta.field import go_quote
from kas.meta.offload import POOL
from kas.meta.waiting import awaited, eager

Obj = dict[str, Any]

MANY_RULES = 500  # from this many on, they are compared in the thread pool
MOST_TEXT = 1 << 20  # characters of a refusal

FULL_AUTHORITY: list[Obj] = [
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
]


@eager
async def missing_permissions(index: RbacIndex, user: UserInfo, namespace: str, rules: list[Obj]) -> str:
    """Return why ``user`` may not grant ``rules`` in ``namespace``; "" if it holds all of them."""
    await awaited(index.ready(user, namespace))
    held, error = index.held(user, namespace)
    large = sum(map(len, held)) + len(rules) > MANY_RULES or any(_product(rule) > MANY_RULES for rule in rules)
    found: str | Awaitable[str] = POOL.run(_lines, held, rules) if large else _lines(held, rules)
    missing = await awaited(found)
    if not missing:
        return ""
    text = (
        f"user {go_quote(user.name)} (groups={go_list(user.groups)}) is attempting to grant RBAC permissions not currently held:\n"
        + missing
    )
    return f"{text}; resolution errors: [{error}]" if error else text


def _lines(held: Sequence[Sequence[Obj]], rules: list[Obj]) -> str:
    """Return the missing rules, one per line, or "". At most ``MOST_TEXT`` characters, some thousand lines, then "and more"."""
    try:
        missing = covers(chain.from_iterable(held), rules)
    except TooManyError:
        return "so many that they are not compared"
    lines, left = set[str](), MOST_TEXT
    for rule in compact(missing):
        if sum(map(len, chain.from_iterable(rule.values()))) > left:
            lines.add("and more")
            break
        line = describe(rule)
        left -= len(line)
        lines.add(line)
    return "\n".join(sorted(lines, key=lambda line: (line[0] != "{", line)))


def _product(rule: Obj) -> int:
    """Return the number of atoms in a rule."""
    return prod(max(1, len(rule.get(f) or ())) for f in ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs"))


def check_write(
    index: RbacIndex,
    authorizer: Authorizer | None,
    user: UserInfo,
    resource: str,
    namespace: str,
    name: str,
    obj: Obj,
    old: Obj | None = None,
) -> Awaitable[None] | None:
    """Check a write to any RBAC resource before it is stored; ``old`` is the stored object of an update."""
    if resource in ("roles", "clusterroles"):
        return check_role(index, authorizer, user, resource, namespace, name, obj, old)
    return check_binding(index, authorizer, user, resource, namespace, obj, old)


@eager
async def check_role(
    index: RbacIndex,
    authorizer: Authorizer | None,
    user: UserInfo,
    resource: str,
    namespace: str,
    name: str,
    obj: Obj,
    old: Obj | None = None,
) -> None:
    """Check a Role or ClusterRole before it is created or updated (``old`` given). ``name`` is the request's name, "" on create."""
    if MASTERS in user.groups or await _may_escalate(authorizer, user, resource, namespace, name):
        return
    if old is not None and only_gc_fields_changed(obj, old):
        return
    text = await awaited(missing_permissions(index, user, namespace, obj.get("rules") or []))
    if text:
        raise errors.forbidden(GROUP, resource, obj["metadata"].get("name", ""), text)
    if resource == "clusterroles" and (_aggregates(obj) or (old is not None and _aggregates(old))):
        # Aggregation may collect any rule later, so setting or changing it requires full authority.
        if await awaited(missing_permissions(index, user, namespace, FULL_AUTHORITY)):
            why = "must have cluster-admin privileges to use the aggregationRule"
            raise errors.forbidden(GROUP, resource, obj["metadata"].get("name", ""), why)


@eager
async def check_binding(
    index: RbacIndex,
    authorizer: Authorizer | None,
    user: UserInfo,
    resource: str,
    namespace: str,
    obj: Obj,
    old: Obj | None = None,
) -> None:
    """Check a RoleBinding or ClusterRoleBinding before it is created or updated. Raises 404 if the role it refers to does not exist."""
    if MASTERS in user.groups:
        return
    if old is not None and only_gc_fields_changed(obj, old):
        return
    ref = obj.get("roleRef") or {}
    kind, name = ref.get("kind", ""), ref.get("name", "")
    if await _may_bind(authorizer, user, ref, namespace):
        return
    if kind not in ("Role", "ClusterRole"):
        raise errors.ApiError(500, "", f"unsupported role reference kind: {go_quote(kind)}")
    rules = index.role_rules(kind, name, namespace)
    if rules is None:
        raise errors.not_found(GROUP, kind.lower(), name)
    text = await awaited(missing_permissions(index, user, namespace, rules))
    if text:
        raise errors.forbidden(GROUP, resource, obj["metadata"].get("name", ""), text)


def only_gc_fields_changed(obj: Obj, old: Obj) -> bool:
    """Return whether only fields that the garbage collector changes differ: it may finish its work on objects it could not grant."""
    new_meta, old_meta = obj.get("metadata") or {}, old.get("metadata") or {}
    ignored = ("ownerReferences", "finalizers", "selfLink", "managedFields")
    if {k: v for k, v in new_meta.items() if k not in ignored} != {k: v for k, v in old_meta.items() if k not in ignored}:
        return False
    return {k: v for k, v in obj.items() if k != "metadata"} == {k: v for k, v in old.items() if k != "metadata"}


def _aggregates(role: Obj) -> bool:
    rule = role.get("aggregationRule")
    return bool(rule and rule.get("clusterRoleSelectors"))


async def _may_escalate(authorizer: Authorizer | None, user: UserInfo, resource: str, namespace: str, name: str) -> bool:
    if authorizer is None:
        return False
    a = Attributes(user, "escalate", namespace, GROUP, "*", resource, "", name)
    return (await awaited(authorizer.authorize(a)))[0] == ALLOW


async def _may_bind(authorizer: Authorizer | None, user: UserInfo, ref: Obj, namespace: str) -> bool:
    resource = {"ClusterRole": "clusterroles", "Role": "roles"}.get(ref.get("kind", ""))
    if authorizer is None or resource is None:
        return False
    a = Attributes(user, "bind", namespace, ref.get("apiGroup", ""), "*", resource, "", ref.get("name", ""))
    return (await awaited(authorizer.authorize(a)))[0] == ALLOW

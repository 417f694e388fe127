"""PolicyParamsAuthorization: users cannot make a policy reveal objects that they may not read themselves.

The expressions and messages of a policy see the objects of its ``paramKind``. Upstream this is part of the storage of policies and
bindings (``pkg/registry/admissionregistration/*/authz.go``), so it cannot be disabled; it runs after the kinds' own validation.
"""

from __future__ import annotations

from typing import Any

from kas.admission import CREATE, UPDATE, Attributes
from kas.admission.initializer import RESTMapper
from kas.auth.attributes import ALLOW, Authorizer
from kas.auth.attributes import Attributes as Question
from kas.auth.user import MASTERS, UserInfo
from kas.informers import Objects
from kas.meta import errors, field
from kas.meta.waiting import awaited, eager

GROUP = "admissionregistration.k8s.io"
POLICIES = frozenset(("validatingadmissionpolicies", "mutatingadmissionpolicies"))
# bindings, and the policies they refer to
BINDINGS = {
    "validatingadmissionpolicybindings": "validatingadmissionpolicies", "mutatingadmissionpolicybindings": "mutatingadmissionpolicies",
}  # fmt: skip
ALL = "*"
Obj = dict[str, Any]


class Plugin:
    """Applies to new and updated admission policies and bindings."""

    name = "PolicyParamsAuthorization"

    def __init__(self, authorizer: Authorizer, objects: Objects, mapper: RESTMapper) -> None:
        self._authorizer, self._objects, self._mapper = authorizer, objects, mapper

    def handles(self, a: Attributes) -> bool:
        """Handle creates and updates of both kinds of policies and of their bindings."""
        known = a.group == GROUP and (a.resource in POLICIES or a.resource in BINDINGS)
        return known and not a.subresource and a.operation in (CREATE, UPDATE)

    @eager
    async def validate(self, a: Attributes) -> None:
        """Refuse a user that names parameters it may not read."""
        if MASTERS in a.user.groups:
            return
        spec, before = a.obj.get("spec") or {}, (a.old or {}).get("spec") or {}
        named = "paramKind" if a.resource in POLICIES else "paramRef"
        # Upstream compares references by pointer, so a binding is checked at every update.
        if spec.get(named) is None or (named == "paramKind" and spec[named] == before.get(named)):
            return
        why = await (self._of_policy(a.user, spec[named]) if named == "paramKind" else self._of_binding(a, spec))
        if why:
            name = a.name or a.obj["metadata"].get("name") or ""
            raise errors.invalid(GROUP, a.kind, name, [field.forbidden(f"spec.{named}", why)])

    async def _of_policy(self, user: UserInfo, kind: Obj) -> str:
        """Return why ``user`` may not have a policy with parameters of ``kind``, or "". It must be able to read all of them, since a
        binding may choose any."""
        group, version, resource = self._resolved(kind)
        allowed, why = await self._allows(Question(user, "get", ALL, group, version, resource, "", ALL))
        if allowed or why:
            return why
        said = f"(kind={kind.get('kind') or ''}, apiVersion={kind.get('apiVersion') or ''})"
        return f'user {_shown(user)} must have "get" permission on all objects of the referenced paramKind {said}'

    async def _of_binding(self, a: Attributes, spec: Obj) -> str:
        """Return why the user may not bind a policy to these parameters, or "". The policy defines their kind; any kind is possible if it
        does not exist or defines none."""
        ref, policy_name = spec["paramRef"], spec.get("policyName") or ""
        policy = self._objects.get(GROUP, BINDINGS[a.resource], "", policy_name)
        kind = None if policy is None else (policy.get("spec") or {}).get("paramKind")
        group, version, resource = (ALL, ALL, ALL) if kind is None else self._resolved(kind)
        name = ref.get("name") or ""
        verb = "get" if name else "list"
        # An empty namespace means all namespaces.
        allowed, why = await self._allows(Question(a.user, verb, ref.get("namespace") or "", group, version, resource, "", name))
        if allowed or why:
            return why
        lacks = f'user {_shown(a.user)} does not have "{verb}" permission'
        if policy is None:
            unknown = f"get policy {policy_name}"
        elif kind is not None and resource == ALL:
            unknown = f"resolve paramKind &{{{kind.get('apiVersion') or ''} {kind.get('kind') or ''}}}"
        else:
            return f"{lacks} on the object referenced by paramRef"
        return f"unable to {unknown} to determine minimum required permissions and {lacks} for all groups, versions and resources"

    def _resolved(self, kind: Obj) -> tuple[str, str, str]:
        """Return group, version and resource of a kind; "*" as the resource if it is not served."""
        group, _, version = (kind.get("apiVersion") or "").rpartition("/")
        record = next(iter(self._mapper(group, version, kind.get("kind") or "")), None)
        return group, version, record.resource if record is not None else ALL

    async def _allows(self, question: Question) -> tuple[bool, str]:
        """Return whether the check is allowed, and the authorizer's error if not."""
        decision, _, error = await awaited(self._authorizer.authorize(question))
        return decision == ALLOW, "" if decision == ALLOW else error


def _shown(user: UserInfo) -> str:
    """Go's ``%v`` of a *user.DefaultInfo."""
    extra = " ".join(f"{key}:[{' '.join(user.extra[key])}]" for key in sorted(user.extra))
    return f"&{{{user.name} {user.uid} [{' '.join(user.groups)}] map[{extra}]}}"

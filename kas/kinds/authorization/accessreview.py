"""The access reviews, which are answered and never stored (``pkg/registry/authorization``).

Each function takes the decoded object and returns the response object; errors are raised as ``ApiError``. A ``large`` review is processed
in a thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from kas.auth.attributes import ALLOW, DENY, Attributes, Authorizer, RuleResolver, aggregate
from kas.auth.user import UserInfo
from kas.kinds.authorization import validation
from kas.meta import errors
from kas.meta.field import FieldError
from kas.meta.offload import POOL
from kas.meta.selectors import FieldTerm, Requirement, SelectorError, parse_field_selector, parse_label_selector
from kas.meta.waiting import awaited, eager
from kas.registry.strategy import Context, Obj

GROUP = "authorization.k8s.io"


def subject_access_review(ctx: Context, obj: Obj, authorizer: Authorizer, large: bool = False) -> Obj | Awaitable[Obj]:
    """Answer whether the user, with exactly the given groups, may do something."""

    def asked() -> Attributes:
        _refuse(validation.review(obj))
        return attributes_of(obj["spec"], _subject(obj["spec"]))

    return _answer(obj, asked, authorizer, large)


def local_subject_access_review(ctx: Context, obj: Obj, authorizer: Authorizer, large: bool = False) -> Obj | Awaitable[Obj]:
    """Answer a SubjectAccessReview within the namespace of the request."""
    if not (obj.get("metadata") or {}).get("namespace") and ctx.namespace:
        obj = {**obj, "metadata": {**(obj.get("metadata") or {}), "namespace": ctx.namespace}}

    def asked() -> Attributes:
        _refuse(validation.local_review(obj))
        if not ctx.namespace:
            raise errors.bad_request("namespace is required on this type: ")
        if ctx.namespace != obj["metadata"].get("namespace"):
            raise errors.bad_request(f"spec.resourceAttributes.namespace must match namespace: {ctx.namespace}")
        return attributes_of(obj["spec"], _subject(obj["spec"]))

    return _answer(obj, asked, authorizer, large)


def self_subject_access_review(ctx: Context, obj: Obj, authorizer: Authorizer, large: bool = False) -> Obj | Awaitable[Obj]:
    """Answer whether the user of the request may do something."""

    def asked() -> Attributes:
        _refuse(validation.review(obj, subject=False))
        return attributes_of(obj["spec"], _requester(ctx))

    return _answer(obj, asked, authorizer, large)


@eager
async def self_subject_rules_review(ctx: Context, obj: Obj, resolver: RuleResolver) -> Obj:
    """Return what the user of the request may do in a namespace; only the status is returned."""
    user = _requester(ctx)
    namespace = (obj.get("spec") or {}).get("namespace") or ""
    if not namespace:
        raise errors.bad_request("no namespace on request")
    await awaited(resolver.ready(user, namespace))
    resource, other, incomplete, error = await awaited(resolver.rules_for(user, namespace))
    status: dict[str, Any] = {"resourceRules": resource, "nonResourceRules": other, "incomplete": incomplete}
    if error:
        status["evaluationError"] = error
    return {
        "kind": obj.get("kind", "SelfSubjectRulesReview"),
        "apiVersion": obj.get("apiVersion", f"{GROUP}/v1"),
        "metadata": {},
        "spec": {},
        "status": status,
    }


def _refuse(errs: list[FieldError]) -> None:
    if errs:
        raise errors.invalid(GROUP, "", "", errs)


def _requester(ctx: Context) -> UserInfo:
    if not ctx.user:
        raise errors.bad_request("no user present on request")
    return UserInfo.from_dict(ctx.user)


def _subject(spec: dict[str, Any]) -> UserInfo:
    user = UserInfo(spec.get("user") or "", spec.get("groups") or (), spec.get("uid") or "", spec.get("extra"))
    user.subjects  # noqa: B018 (computed here, which is a thread if there are many, and not later in authorizers)
    return user


@eager
async def _answer(obj: Obj, asked: Callable[[], Attributes], authorizer: Authorizer, large: bool) -> Obj:
    a = await awaited(POOL.run(asked) if large else asked())
    decision, reason, error = await awaited(authorizer.authorize(a))
    status: dict[str, Any] = {"allowed": decision == ALLOW}
    if decision == DENY:
        status["denied"] = True
    if reason:
        status["reason"] = reason
    errs = [error] if error else []
    for what, failed, kept in (
        ("fieldSelector", a.field_error, a.field_requirements),
        ("labelSelector", a.label_error, a.label_requirements),
    ):
        if failed:
            errs.append(f"spec.resourceAttributes.{what} {'partially ' if kept else ''}ignored due to parse error")
    if errs:
        status["evaluationError"] = aggregate(errs)
    return {**obj, "status": status}


def attributes_of(spec: dict[str, Any], user: UserInfo) -> Attributes:
    """Return the attributes in a review's spec.

    Invalid parts of selectors are left out. This never allows more than intended: authorizers only grant more because of selectors that
    they see.
    """
    resource = spec.get("resourceAttributes")
    if resource is None:
        other = spec.get("nonResourceAttributes") or {}
        return Attributes(user, other.get("verb") or "", resource_request=False, path=other.get("path") or "")
    a = Attributes(
        user,
        resource.get("verb") or "",
        resource.get("namespace") or "",
        resource.get("group") or "",
        resource.get("version") or "*",
        resource.get("resource") or "",
        resource.get("subresource") or "",
        resource.get("name") or "",
    )
    if resource.get("fieldSelector"):
        a.field_requirements, a.field_error = _field_terms(resource["fieldSelector"])
    if resource.get("labelSelector"):
        a.label_requirements, a.label_error = _label_terms(resource["labelSelector"])
    return a


def _field_terms(selector: dict[str, Any]) -> tuple[tuple[FieldTerm, ...] | None, str]:
    raw = selector.get("rawSelector")
    if raw:
        try:
            return parse_field_selector(raw).requirements, ""
        except SelectorError as e:
            return None, str(e)
    terms: list[FieldTerm] = []
    errs: list[str] = []
    for r in selector.get("requirements") or ():
        operator, values = r.get("operator") or "", r.get("values") or []
        if len(values) > 1:
            # A field selector cannot express "one of".
            errs.append("only one value is supported for fieldSelector")
        elif operator in ("In", "NotIn") and values:
            terms.append(FieldTerm(r.get("key") or "", "=" if operator == "In" else "!=", values[0]))
        else:
            errs.append(f'"{operator}" is not a valid field selector operator')
    return tuple(terms) or None, aggregate(errs)


_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


def _label_terms(selector: dict[str, Any]) -> tuple[tuple[Requirement, ...] | None, str]:
    raw = selector.get("rawSelector")
    if raw:
        try:
            return parse_label_selector(raw).requirements, ""
        except SelectorError as e:
            return None, str(e)
    terms: list[Requirement] = []
    errs: list[str] = []
    for r in selector.get("requirements") or ():
        operator = _OPERATORS.get(r.get("operator") or "")
        if operator is None:
            errs.append(f'"{r.get("operator") or ""}" is not a valid label selector operator')
            continue
        terms.append(Requirement(r.get("key") or "", operator, tuple(r.get("values") or ())))
    return tuple(terms) or None, aggregate(errs)

"""What an authorizer is asked, what it may answer, and the text of a refusal.

Mirrors apiserver's ``pkg/authorization/authorizer`` and ``pkg/endpoints/handlers/responsewriters/errors.go``.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from kas._fastpath import Attributes, Request, RequestInfo, forbidden_message
from kas._fastpath import attributes_of as plain_attributes_of
from kas.auth.user import UserInfo
from kas.meta import errors

__all__ = [
    "ALLOW", "DENY", "NO_OPINION", "Attributes", "Authorizer", "Outcome", "RuleResolver", "aggregate", "attributes_of",
    "forbidden", "forbidden_message",
]  # fmt: skip

DENY = 0
ALLOW = 1
NO_OPINION = 2

# (decision, reason, error): ``error`` is an evaluation error's text or "". An error never allows.
Outcome = tuple[int, str, str]

SELECTOR_VERBS = frozenset(("list", "watch", "deletecollection"))


def attributes_of(req: Request) -> Attributes:
    """The question this request is."""
    a = plain_attributes_of(req)
    info = req.info
    if info.verb in SELECTOR_VERBS and (info.field_selector or info.label_selector):
        _selectors(a, info)
    return a


def _selectors(a: Attributes, info: RequestInfo) -> None:
    """Selectors as authorizers may see them (KEP-4601); one that cannot be parsed only means that none is shown."""
    from kas.meta.selectors import SelectorError, parse_field_selector, parse_label_selector

    if info.field_selector:
        try:
            a.field_requirements = list(parse_field_selector(info.field_selector).requirements)
        except SelectorError as e:
            a.field_error = str(e)
    if info.label_selector:
        try:
            a.label_requirements = list(parse_label_selector(info.label_selector).requirements)
        except SelectorError as e:
            a.label_error = str(e)


class Authorizer(Protocol):
    """``authorize`` never raises for a bad question: what cannot be decided is NO_OPINION with an error text. One that has to ask
    somebody else returns an awaitable; it ends itself when that takes too long, and may be cancelled with the request."""

    def authorize(self, a: Attributes) -> Outcome | Awaitable[Outcome]:
        """Decision, reason and error text; an awaitable where one has to wait for them."""


class RuleResolver(Protocol):
    """(resource rules, non-resource rules, incomplete, error) of a user in a namespace: SelfSubjectRulesReview's answer."""

    def rules_for(self, user: UserInfo, namespace: str) -> tuple[list[dict], list[dict], bool, str]:
        """Rules of resources, rules of paths, whether they are incomplete, and why."""


_SANITIZE = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def forbidden(a: Attributes, reason: str = "") -> errors.ApiError:
    """The 403 of the authorization filter: user text is made harmless for browsers, the authorizer's reason is appended."""
    message = forbidden_message(a)
    if "&" in message or "<" in message or ">" in message:
        message = message.translate(_SANITIZE)
    return errors.forbidden(a.api_group, a.resource, a.name, f"{message}: {reason}" if reason else message)


def aggregate(texts: list[str]) -> str:
    """``utilerrors.NewAggregate(errs).Error()``: repeats are dropped, more than one message stands in brackets."""
    unique = list(dict.fromkeys(texts))
    if len(texts) == 1 or len(unique) == 1:
        return unique[0]
    return "[" + ", ".join(unique) + "]" if unique else ""

"""The attributes an authorizer decides on, its possible decisions, and the text of a refusal.

Mirrors apiserver's ``pkg/authorization/authorizer`` and ``pkg/endpoints/handlers/responsewriters/errors.go``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from kas._fastpath import Attributes, Request, forbidden_message
from kas._fastpath import attributes_of as plain_attributes_of
from kas.auth.user import UserInfo
from kas.meta import errors

if TYPE_CHECKING:
    from kas.meta.selectors import FieldTerm, Requirement

__all__ = [
    "ALLOW", "DENY", "NO_OPINION", "Attributes", "Authorizer", "Outcome", "RuleResolver", "Rules", "aggregate", "asked_by", "attributes_of",
    "forbidden", "forbidden_message", "long_selectors",
]  # fmt: skip

DENY = 0
ALLOW = 1
NO_OPINION = 2

# (decision, reason, error): ``error`` is the text of an evaluation error, or "". An error never allows a request.
Outcome = tuple[int, str, str]
Rules = tuple[list[dict], list[dict], bool, str]  # (resource rules, non-resource rules, incomplete, evaluation error)

LONG_SELECTOR = 2048  # characters; about 500 terms, which take 3 ms to parse
SELECTOR_VERBS = frozenset(("list", "watch", "deletecollection"))


def attributes_of(req: Request) -> Attributes:
    """Return the authorizer attributes of a request."""
    info = req.info
    if info.verb in SELECTOR_VERBS and (info.field_selector or info.label_selector):
        return _Selecting(plain_attributes_of(req), info.field_selector, info.label_selector)
    return plain_attributes_of(req)


def asked_by(a: Attributes, user: UserInfo, verb: str) -> Attributes:
    """Return a copy of ``a`` for another user and verb."""
    out = Attributes(
        user, verb, a.namespace, a.api_group, a.api_version, a.resource, a.subresource, a.name, a.resource_request, a.path,
    )  # fmt: skip
    if isinstance(a, _Selecting):
        return _Selecting(out, a.fields, a.labels)
    out.field_requirements, out.label_requirements = a.field_requirements, a.label_requirements
    out.field_error, out.label_error = a.field_error, a.label_error
    return out


def long_selectors(a: Attributes) -> bool:
    """Return whether the selectors in ``a`` take milliseconds to parse, so that they must not be parsed on the event loop."""
    return isinstance(a, _Selecting) and len(a.fields) + len(a.labels) > LONG_SELECTOR


class _Selecting(Attributes):
    """Attributes with selectors that an authorizer may read (KEP-4601). A selector that cannot be parsed is left out; its error is kept
    beside it.

    Selectors are parsed on first access, which RBAC never makes: a client may send 240 kB of them, and parsing those takes half a second.
    """

    def __init__(self, a: Attributes, fields: str, labels: str) -> None:
        super().__init__(
            a.user, a.verb, a.namespace, a.api_group, a.api_version, a.resource, a.subresource, a.name, a.resource_request, a.path,
        )  # fmt: skip
        self.fields, self.labels = fields, labels

    @cached_property
    def _fields(self) -> tuple[Sequence[FieldTerm] | None, str]:
        from kas.meta.selectors import SelectorError, parse_field_selector

        try:
            return (list(parse_field_selector(self.fields).requirements) if self.fields else None), ""
        except SelectorError as e:
            return None, str(e)

    @cached_property
    def _labels(self) -> tuple[Sequence[Requirement] | None, str]:
        from kas.meta.selectors import SelectorError, parse_label_selector

        try:
            return (list(parse_label_selector(self.labels).requirements) if self.labels else None), ""
        except SelectorError as e:
            return None, str(e)

    field_requirements = property(lambda self: self._fields[0])
    field_error = property(lambda self: self._fields[1])
    label_requirements = property(lambda self: self._labels[0])
    label_error = property(lambda self: self._labels[1])


class Authorizer(Protocol):
    """Decides whether a request is allowed.

    ``authorize`` never raises for bad attributes: if it cannot decide, it returns NO_OPINION with an error text. An authorizer that must
    call another service returns an awaitable; it enforces its own timeout and may be cancelled with the request.
    """

    def authorize(self, a: Attributes) -> Outcome | Awaitable[Outcome]:
        """Return (decision, reason, error text), or an awaitable of it if the decision takes waiting."""


class RuleResolver(Protocol):
    """Lists the rules that apply to a user in a namespace, for SelfSubjectRulesReview."""

    def ready(self, user: UserInfo, namespace: str) -> Awaitable[None] | None:
        """Return an awaitable to wait for before ``rules_for`` if much must be read: ``rules_for`` reads on the event loop."""

    def rules_for(self, user: UserInfo, namespace: str) -> Rules | Awaitable[Rules]:
        """Return (resource rules, non-resource rules, incomplete, evaluation error); an awaitable if there are many rules."""


_SANITIZE = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def forbidden(a: Attributes, reason: str = "") -> errors.ApiError:
    """Return the 403 of the authorization filter. Text from the user is escaped for browsers; the authorizer's reason is appended."""
    message = forbidden_message(a)
    if "&" in message or "<" in message or ">" in message:
        message = message.translate(_SANITIZE)
    return errors.forbidden(a.api_group, a.resource, a.name, f"{message}: {reason}" if reason else message)


def aggregate(texts: list[str]) -> str:
    """Join texts as ``utilerrors.NewAggregate(errs).Error()`` does: drop duplicates, put more than one message in brackets."""
    unique = list(dict.fromkeys(texts))
    if len(texts) == 1 or len(unique) == 1:
        return unique[0]
    return "[" + ", ".join(unique) + "]" if unique else ""

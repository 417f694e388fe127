"""What an authorizer is asked, what it may answer, and the text of a refusal.

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

# (decision, reason, error): ``error`` is an evaluation error's text or "". An error never allows.
Outcome = tuple[int, str, str]
Rules = tuple[list[dict], list[dict], bool, str]  # of resources, of paths, whether they are incomplete, and why

LONG_SELECTOR = 2048  # characters; half a thousand terms, 3 ms
SELECTOR_VERBS = frozenset(("list", "watch", "deletecollection"))


def attributes_of(req: Request) -> Attributes:
    """The question this request is."""
    info = req.info
    if info.verb in SELECTOR_VERBS and (info.field_selector or info.label_selector):
        return _Selecting(plain_attributes_of(req), info.field_selector, info.label_selector)
    return plain_attributes_of(req)


def asked_by(a: Attributes, user: UserInfo, verb: str) -> Attributes:
    """The same question of another user and verb."""
    out = Attributes(
        user, verb, a.namespace, a.api_group, a.api_version, a.resource, a.subresource, a.name, a.resource_request, a.path,
    )  # fmt: skip
    if isinstance(a, _Selecting):
        return _Selecting(out, a.fields, a.labels)
    out.field_requirements, out.label_requirements = a.field_requirements, a.label_requirements
    out.field_error, out.label_error = a.field_error, a.label_error
    return out


def long_selectors(a: Attributes) -> bool:
    """Whether what ``a`` asks has selectors that take long to parse: milliseconds, that are not the loop's."""
    return isinstance(a, _Selecting) and len(a.fields) + len(a.labels) > LONG_SELECTOR


class _Selecting(Attributes):
    """A question with selectors, as authorizers may see them (KEP-4601); one that cannot be parsed only means that none is shown. They are
    parsed when one looks, which RBAC does not: 240 kB of them take half a second, and whoever asks may send them."""

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
    """``authorize`` never raises for a bad question: what cannot be decided is NO_OPINION with an error text. One that has to ask
    somebody else returns an awaitable; it ends itself when that takes too long, and may be cancelled with the request."""

    def authorize(self, a: Attributes) -> Outcome | Awaitable[Outcome]:
        """Decision, reason and error text; an awaitable where one has to wait for them."""


class RuleResolver(Protocol):
    """``Rules`` of a user in a namespace: SelfSubjectRulesReview's answer."""

    def ready(self, user: UserInfo, namespace: str) -> Awaitable[None] | None:
        """To be awaited before ``rules_for`` where there is much to read: it does that on the loop."""

    def rules_for(self, user: UserInfo, namespace: str) -> Rules | Awaitable[Rules]:
        """Rules of resources, rules of paths, whether they are incomplete, and why; an awaitable where they are many."""


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

"""What an authorizer is asked, what it may answer, and the text of a refusal.

Mirrors apiserver's ``pkg/authorization/authorizer`` and ``pkg/endpoints/handlers/responsewriters/errors.go``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from kas.api import errors
from kas.api.field import go_quote
from kas.auth.user import UserInfo

if TYPE_CHECKING:
    from kas.api.selectors import FieldTerm, Requirement

DENY = 0
ALLOW = 1
NO_OPINION = 2

# (decision, reason, error): ``error`` is an evaluation error's text or "". An error never allows.
Outcome = tuple[int, str, str]


class Attributes:
    """One question. ``field_requirements`` and ``label_requirements`` are the parsed selectors' conditions (``FieldTerm`` and
    ``Requirement`` of kas.api.selectors), None without a selector or when nothing of it could be parsed; the ``*_error``
    twin says why not.
    """

    __slots__ = (
        "api_group", "api_version", "field_error", "field_requirements", "label_error", "label_requirements", "name",
        "namespace", "path", "resource", "resource_request", "subresource", "user", "verb",
    )  # fmt: skip

    def __init__(
        self,
        user: UserInfo,
        verb: str,
        namespace: str = "",
        api_group: str = "",
        api_version: str = "",
        resource: str = "",
        subresource: str = "",
        name: str = "",
        resource_request: bool = True,
        path: str = "",
        field_requirements: Sequence[FieldTerm] | None = None,
        label_requirements: Sequence[Requirement] | None = None,
        field_error: str = "",
        label_error: str = "",
    ) -> None:
        self.user = user
        self.verb = verb
        self.namespace = namespace
        self.api_group = api_group
        self.api_version = api_version
        self.resource = resource
        self.subresource = subresource
        self.name = name
        self.resource_request = resource_request
        self.path = path
        self.field_requirements = field_requirements
        self.label_requirements = label_requirements
        self.field_error = field_error
        self.label_error = label_error

    def is_read_only(self) -> bool:
        return self.verb in ("get", "list", "watch")

    def __repr__(self) -> str:
        return "Attributes(" + ", ".join(f"{n}={getattr(self, n)!r}" for n in self.__slots__ if getattr(self, n)) + ")"


class Authorizer(Protocol):
    """``authorize`` never raises for a bad question: what cannot be decided is NO_OPINION with an error text."""

    def authorize(self, a: Attributes) -> Outcome: ...


class RuleResolver(Protocol):
    """(resource rules, non-resource rules, incomplete, error) of a user in a namespace: SelfSubjectRulesReview's answer."""

    def rules_for(self, user: UserInfo, namespace: str) -> tuple[list[dict], list[dict], bool, str]: ...


_SANITIZE = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def forbidden_message(a: Attributes) -> str:
    """Why a request is refused, without the leading "pods is forbidden"."""
    who = go_quote(a.user.name)
    if not a.resource_request:
        return f"User {who} cannot {a.verb} path {go_quote(a.path)}"
    resource = f"{a.resource}/{a.subresource}" if a.subresource else a.resource
    where = f"in the namespace {go_quote(a.namespace)}" if a.namespace else "at the cluster scope"
    return f"User {who} cannot {a.verb} resource {go_quote(resource)} in API group {go_quote(a.api_group)} {where}"


def forbidden(a: Attributes, reason: str = "") -> errors.ApiError:
    """The 403 of the authorization filter: user text is made harmless for browsers, the authorizer's reason is appended."""
    message = forbidden_message(a).translate(_SANITIZE)
    return errors.forbidden(a.api_group, a.resource, a.name, f"{message}: {reason}" if reason else message)


def aggregate(texts: list[str]) -> str:
    """``utilerrors.NewAggregate(errs).Error()``: repeats are dropped, more than one message stands in brackets."""
    unique = list(dict.fromkeys(texts))
    if len(texts) == 1 or len(unique) == 1:
        return unique[0]
    return "[" + ", ".join(unique) + "]" if unique else ""

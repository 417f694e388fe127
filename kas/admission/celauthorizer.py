"""The ``authorizer`` variable of expressions (apiserver ``pkg/cel/library/authz.go``): checks by the server's authorizer.

An authorizer may have to wait, but an expression cannot. If a check has no answer yet, the evaluation ends with ``Pending``; the caller
waits for the answer and evaluates again, now with the answer cached. A check costs a large part of the evaluation's cost budget, so there
are few. In a worker thread every check is ``Pending``, too: authorizers belong to the event loop.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from kas.admission import Attributes
from kas.admission.matching import namespace_of
from kas.auth import attributes as authz
from kas.auth.user import SERVICE_ACCOUNT_GROUP_PREFIX, SERVICE_ACCOUNT_PREFIX, SERVICE_ACCOUNTS, UserInfo
from kas.cel.library.objects import AUTHORIZER, DECISION, GROUP_CHECK, PATH_CHECK, RESOURCE_CHECK
from kas.cel.problems import EvaluationError
from kas.cel.values import Opaque
from kas.meta import names
from kas.meta.selectors import SelectorError, parse_field_selector, parse_label_selector
from kas.meta.waiting import awaited

T = TypeVar("T")


class Pending(Exception):
    """The evaluation must be repeated after ``wait``."""

    def __init__(self, question: Question, ask: Callable[[], authz.Outcome | Awaitable[authz.Outcome]]) -> None:
        super().__init__("an authorizer has to wait")
        self._question, self._ask = question, ask

    async def wait(self) -> None:
        """Wait for the answer and cache it. Call it on the event loop."""
        self._question.known[self._question.key] = await awaited(self._ask())


class _OffLoop(threading.local):
    """Whether this thread evaluates off the event loop."""

    now = False


_OFF_LOOP = _OffLoop()


def off_loop(work: Callable[[], T]) -> T:
    """Return ``work()``, called in a worker thread. Raises Pending if an authorizer must be called."""
    _OFF_LOOP.now = True
    try:
        return work()
    finally:
        _OFF_LOOP.now = False


class Question:
    """One authorization check, and the answers known so far."""

    def __init__(self, authorizer: authz.Authorizer, known: dict[Any, authz.Outcome], user: UserInfo, key: tuple[Any, ...]) -> None:
        self.authorizer, self.known, self.user, self.key = authorizer, known, user, key

    def ask(self, attributes: authz.Attributes) -> Decision:
        """Return the decision. Raises Pending if it is not known yet."""
        found = self.known.get(self.key)
        if found is None:
            if _OFF_LOOP.now:
                raise Pending(self, lambda: self.authorizer.authorize(attributes))
            answer = self.authorizer.authorize(attributes)
            if isinstance(answer, Awaitable):
                raise Pending(self, lambda: answer)
            found = self.known[self.key] = answer
        return Decision(found)


class _Check(Opaque):
    __slots__ = ()

    def key(self) -> Any:
        """Return the key for equality: identity."""
        return id(self)


class AuthorizerValue(_Check):
    """The ``authorizer`` variable, for one user."""

    __slots__ = ("_authorizer", "_known", "_user")
    cel_type = AUTHORIZER

    def __init__(self, authorizer: authz.Authorizer, user: UserInfo, known: dict[Any, authz.Outcome] | None = None) -> None:
        self._authorizer, self._user = authorizer, user
        self._known: dict[Any, authz.Outcome] = {} if known is None else known

    def cel_path(self, path: str) -> PathCheck:
        """``authorizer.path(p)``."""
        if not path:
            raise EvaluationError("path must not be empty")
        return PathCheck(self, path)

    def cel_group(self, group: str) -> GroupCheck:
        """``authorizer.group(g)``."""
        return GroupCheck(self, group)

    def cel_serviceAccount(self, namespace: str, name: str) -> AuthorizerValue:
        """``authorizer.serviceAccount(namespace, name)``: the authorizer for a service account."""
        if names.is_dns1123_subdomain(name):
            raise EvaluationError("Invalid service account name")
        if names.is_dns1123_label(namespace):
            raise EvaluationError("Invalid service account namespace")
        groups = (SERVICE_ACCOUNTS, SERVICE_ACCOUNT_GROUP_PREFIX + namespace, "system:authenticated")
        return AuthorizerValue(self._authorizer, UserInfo(f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}", groups), self._known)

    def request_resource(self, a: Attributes) -> ResourceCheck:
        """``authorizer.requestResource``: a check of the resource of the request."""
        return ResourceCheck(self, (a.group, a.resource, a.subresource, namespace_of(a), a.name))

    def question(self, *key: Any) -> Question:
        """Return a check for this user."""
        return Question(self._authorizer, self._known, self._user, (self._user.key, *key))


class PathCheck(_Check):
    """``authorizer.path(p)``: a check of a non-resource path."""

    __slots__ = ("_authorizer", "_path")
    cel_type = PATH_CHECK

    def __init__(self, authorizer: AuthorizerValue, path: str) -> None:
        self._authorizer, self._path = authorizer, path

    def cel_check(self, verb: str) -> Decision:
        """``.check(verb)``."""
        question = self._authorizer.question(self._path, verb)
        return question.ask(authz.Attributes(question.user, verb, resource_request=False, path=self._path))


class GroupCheck(_Check):
    """``authorizer.group(g)``: selects an API group."""

    __slots__ = ("_authorizer", "_group")
    cel_type = GROUP_CHECK

    def __init__(self, authorizer: AuthorizerValue, group: str) -> None:
        self._authorizer, self._group = authorizer, group

    def cel_resource(self, resource: str) -> ResourceCheck:
        """``.resource(r)``."""
        if not resource:
            raise EvaluationError("resource must not be empty")
        return ResourceCheck(self._authorizer, (self._group, resource, "", "", ""))


class ResourceCheck(_Check):
    """A check of a resource. ``what``: group, resource, subresource, namespace and name."""

    __slots__ = ("_authorizer", "_fields", "_labels", "_what")
    cel_type = RESOURCE_CHECK

    def __init__(self, authorizer: AuthorizerValue, what: tuple[str, str, str, str, str], fields: str = "", labels: str = "") -> None:
        self._authorizer, self._what, self._fields, self._labels = authorizer, what, fields, labels

    def _with(self, i: int, value: str) -> ResourceCheck:
        what = list(self._what)
        what[i] = value
        return ResourceCheck(self._authorizer, (what[0], what[1], what[2], what[3], what[4]), self._fields, self._labels)

    def cel_subresource(self, value: str) -> ResourceCheck:
        """``.subresource(s)``."""
        return self._with(2, value)

    def cel_namespace(self, value: str) -> ResourceCheck:
        """``.namespace(n)``."""
        return self._with(3, value)

    def cel_name(self, value: str) -> ResourceCheck:
        """``.name(n)``."""
        return self._with(4, value)

    def cel_fieldSelector(self, text: str) -> ResourceCheck:
        """``.fieldSelector(s)``."""
        return ResourceCheck(self._authorizer, self._what, text, self._labels)

    def cel_labelSelector(self, text: str) -> ResourceCheck:
        """``.labelSelector(s)``."""
        return ResourceCheck(self._authorizer, self._what, self._fields, text)

    def cel_check(self, verb: str) -> Decision:
        """``.check(verb)``."""
        question = self._authorizer.question(self._what, verb, self._fields, self._labels)
        group, resource, subresource, namespace, name = self._what
        a = authz.Attributes(question.user, verb, namespace, group, "*", resource, subresource, name, True)
        try:
            if self._fields:
                a.field_requirements = list(parse_field_selector(self._fields).requirements)
        except SelectorError as e:
            a.field_error = str(e)
        try:
            if self._labels:
                a.label_requirements = list(parse_label_selector(self._labels).requirements)
        except SelectorError as e:
            a.label_error = str(e)
        return question.ask(a)


class Decision(_Check):
    """The result of a check; an error is a decision too, which does not allow."""

    __slots__ = ("_outcome",)
    cel_type = DECISION

    def __init__(self, outcome: authz.Outcome) -> None:
        self._outcome = outcome

    def cel_allowed(self) -> bool:
        """``.allowed()``."""
        return self._outcome[0] == authz.ALLOW

    def cel_reason(self) -> str:
        """``.reason()``."""
        return self._outcome[1]

    def cel_errored(self) -> bool:
        """``.errored()``."""
        return bool(self._outcome[2])

    def cel_error(self) -> str:
        """``.error()``."""
        return self._outcome[2]

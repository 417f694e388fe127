"""What a program that embeds a server adds to it (``docs/library.md``), in the form that the composition root takes."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from kas import KUBERNETES_VERSION
from kas.admission import Plugin
from kas.auth.attributes import ALLOW, DENY, NO_OPINION, Attributes, Authorizer, Outcome
from kas.auth.authn import RequestAuthenticator, TokenAuthenticator
from kas.auth.user import MASTERS, UserInfo
from kas.meta.records import NamedTuple
from kas.request.http import Request, Response

if TYPE_CHECKING:
    from kas.endpoints.custom.virtual import VirtualResources
    from kas.endpoints.rest import Rest
    from kas.registry.registries import Registries
    from kas.registry.rest import VirtualResource
    from kas.types.scheme import Scheme

JSON_TYPE = "application/json"
OWN_AGENT = (b"user-agent", f"kube-apiserver/v{KUBERNETES_VERSION}".encode())
_DECISIONS = (ALLOW, DENY, NO_OPINION)


class Loopback:
    """Sends requests of the program itself, bypassing the network but not the filters, as ``system:apiserver`` in ``system:masters``.

    ``await loopback("POST", "/api/v1/namespaces", {...})`` returns the status and the decoded response. It cannot be
    used for watches and other streams.
    """

    def __init__(self, handle: Callable[[Request], Response | Awaitable[Response]], token: str) -> None:
        self._handle, self._token = handle, token

    async def __call__(self, method: str, path: str, body: Any = None, content_type: str = JSON_TYPE) -> tuple[int, Any]:
        """Returns the status and the response: decoded JSON, None if it is empty, text if it is not JSON
        (``/readyz``, for example). Raises nothing for a request that the server refuses."""
        path, _, query = path.partition("?")
        headers = [(b"authorization", f"Bearer {self._token}".encode()), (b"content-type", content_type.encode()), OWN_AGENT]
        found = self._handle(Request(method, path, query, headers, b"" if body is None else orjson.dumps(body)))
        response = found if isinstance(found, Response) else await found
        pieces: list[bytes] = []

        async def write(piece: bytes) -> None:
            pieces.append(piece)
            response.sent += len(piece)

        try:
            if response.stream is not None:
                await response.stream(write)
        finally:
            if response.finish is not None:
                response.finish()
        data = response.body if response.stream is None else b"".join(pieces)
        if not data.strip():
            return response.status, None
        json = dict(response.headers).get(b"content-type", b"").startswith(JSON_TYPE.encode())
        return response.status, orjson.loads(data) if json else data.decode()


class LoopbackToken:
    """Authenticates the token of ``Loopback``, which only this process knows."""

    def __init__(self, token: str) -> None:
        self._token, self._user = token.encode(), UserInfo("system:apiserver", (MASTERS,))

    def authenticate_token(self, token: str) -> UserInfo | None:
        """The server's own user; None for another token."""
        return self._user if secrets.compare_digest(token.encode(), self._token) else None


class CheckedAuthorizer:
    """Checks the results of a program's authorizer: a decision and a reason, optionally with an error text. Anything
    else raises a TypeError that says what is expected, and counts as no decision."""

    def __init__(self, given: Authorizer) -> None:
        self._given = given
        if hasattr(given, "rules_for"):
            self.rules_for = given.rules_for

    def authorize(self, a: Attributes) -> Outcome | Awaitable[Outcome]:
        """The checked decision of the program's authorizer."""
        found = self._given.authorize(a)
        return self._waited(found) if isinstance(found, Awaitable) else self._checked(found)

    async def _waited(self, waiting: Awaitable[Outcome]) -> Outcome:
        return self._checked(await waiting)

    def _checked(self, outcome: Any) -> Outcome:
        # ``True`` equals ALLOW but is not accepted: an authorizer that returns it means something else.
        if isinstance(outcome, tuple) and len(outcome) in (2, 3) and type(outcome[0]) is int and outcome[0] in _DECISIONS:
            return outcome[0], outcome[1], outcome[2] if len(outcome) == 3 else ""
        name = type(self._given).__qualname__
        raise TypeError(f"{name}.authorize gave {outcome!r}, not ALLOW, DENY or NO_OPINION with a reason and, if there is one, an error")


class HookContext:
    """What a hook receives. ``request`` sends requests to the server; ``index`` is the number of this worker, of ``workers``.

    Work that is to be done once belongs in the worker with the index 0, and must be safe to repeat: a worker that
    died is restarted.
    """

    def __init__(self, request: Loopback, index: int, workers: int) -> None:
        self.request, self.index, self.workers = request, index, workers


Hook = Callable[[HookContext], Awaitable[None]]


class Extensions(NamedTuple):
    """The extensions of an embedding program.

    - ``kinds``: "all", "none" or a list (``kas.config.runtime.chosen``).
    - ``admission``: plug-ins, or their classes, which get the parameters that their constructors name of
      ``kas.admission.initializer.Initializer``. They come after the built-in ones and before policies, webhooks and
      quota.
    - ``authenticators``: called after those of the flags.
    - ``authorizers``: called before the modes of the flags.
    - ``resources``: virtual resources.
    - ``post_start``: hooks by name, run in each worker once it listens.
    - ``pre_shutdown``: hooks by name, run when the worker was told to stop and still serves.
    """

    kinds: str | Sequence[str] = "all"
    admission: Sequence[Plugin | type[Plugin]] = ()
    authenticators: Sequence[RequestAuthenticator | TokenAuthenticator] = ()
    authorizers: Sequence[Authorizer] = ()
    resources: Sequence[VirtualResource] = ()
    post_start: Mapping[str, Hook] = {}
    pre_shutdown: Mapping[str, Hook] = {}


NONE = Extensions()

# The methods that a part must have; of each tuple at least one.
_SHAPES = {
    "admission": (("handles",), ("admit", "validate")),
    "authenticators": (("authenticate", "authenticate_token"),),
    "authorizers": (("authorize",),),
}


def check_shapes(given: Extensions) -> None:
    """Raises TypeError for a part without the methods that every request would need, and for a value of another type."""
    from kas.registry.rest import VirtualResource

    if not isinstance(given.kinds, str) and not (isinstance(given.kinds, Collection) and all(isinstance(k, str) for k in given.kinds)):
        raise TypeError(f'kinds are "all", "none" or a list of names, not {given.kinds!r}')
    for resource in given.resources:
        if not isinstance(resource, VirtualResource):
            raise TypeError(f"resources: {resource!r} is no kas.VirtualResource")
    for argument, shape in _SHAPES.items():
        for part in getattr(given, argument):
            for methods in shape:
                if not any(callable(getattr(part, name, None)) for name in methods):
                    raise TypeError(f"{argument}: {part!r} has no method {' or '.join(methods)}")
    for argument in ("post_start", "pre_shutdown"):
        for name, hook in getattr(given, argument).items():
            if not callable(hook):
                raise TypeError(f"{argument}: {name!r} is no function: {hook!r}")


def hook_name(name: str) -> str:
    """The health check of a hook."""
    return f"poststarthook/{name}"


def virtual_resources(
    resources: Sequence[VirtualResource], scheme: Scheme, rest: Rest, registries: Registries
) -> VirtualResources | None:
    """The handler that serves them; None if there are none. Raises ValueError for an invalid resource."""
    if not resources:
        return None
    from kas.endpoints.custom.virtual import VirtualResources  # most servers have none

    return VirtualResources(resources, scheme, rest, registries)

"""Type stubs of the compiled unit; read ``_fastpath.pxd`` for its design."""

import asyncio
from array import array
from collections import deque
from collections.abc import Awaitable, Callable, Container, Coroutine, Generator, Iterable, Mapping, Sequence, Set
from typing import Any, Protocol

from kas.auth.user import UserInfo
from kas.meta.selectors import FieldTerm, Requirement
from kas.request.http import AuditEvent, Connection, Handler, Headers, Incoming, Result, Stream
from kas.request.parking import Parked
from kas.request.requestinfo import Query

Outcome = tuple[int, str, str]

class RequestInfo:
    is_resource_request: bool
    by_prefix: bool
    path: str
    verb: str
    api_prefix: str
    api_group: str
    api_version: str
    namespace: str
    resource: str
    subresource: str
    name: str
    field_selector: str
    label_selector: str
    @property
    def parts(self) -> list[str] | None: ...

class RequestInfoError(ValueError):
    info: RequestInfo
    def __init__(self, message: str, info: RequestInfo) -> None: ...

def install(
    reader: Callable[[RequestInfo, Query | bytes | str], None], describe: Callable[[str, Query | bytes | str], str]
) -> None: ...
def parse(method: str, path: str, query: Query | bytes | str = b"") -> RequestInfo: ...

class Request:
    method: str
    path: str
    query: str
    raw_path: str
    client: str
    peer: Connection | None
    scheme: str
    http_version: str
    audit_id: str
    body: bytes
    incoming: Incoming | None
    # Set by the filters request_info and authentication, before anything reads them.
    info: RequestInfo
    params: Query
    user: UserInfo
    warnings: dict[str, None] | None
    annotations: dict[str, str] | None
    audit: AuditEvent | None
    started: float
    deadline: float
    waited_s: float
    authenticating: float
    long_running: bool
    known: bool
    read_only_port: bool
    in_flight: int
    ticket: Any
    initialized: Callable[[], None] | None
    headers: list[tuple[bytes, bytes]]
    def __init__(self, method: str, path: str, query: str, headers: list[tuple[bytes, bytes]], body: bytes = b"") -> None: ...
    @property
    def impersonates(self) -> bool: ...
    @property
    def vouches(self) -> bool: ...
    def header(self, name: bytes) -> str: ...
    def raw_header(self, name: bytes) -> bytes: ...
    def get(self, name: str) -> str | None: ...
    def has_header(self, name: bytes) -> bool: ...
    def drop_header(self, name: bytes) -> None: ...
    def drop_prefix(self, prefix: bytes) -> None: ...
    def warn(self, text: str) -> None: ...
    def annotate(self, key: str, value: str) -> bool: ...

def request_of(scope: dict[str, Any], read_only: bool = False) -> Request: ...

class Response:
    status: int
    headers: Headers
    body: bytes
    stream: Stream | None
    finish: Callable[[], None] | None
    sent: int
    def __init__(self, status: int, headers: Headers, body: bytes = b"", stream: Stream | None = None) -> None: ...

def reseed() -> None: ...
def audit_id() -> str: ...
def new_uid() -> str: ...
def random_bytes() -> bytes: ...
def keyed_digest(data: bytes, key: bytes | None = None) -> bytes: ...
def take_audit_id(req: Request) -> None: ...
def show_audit_id(req: Request, resp: Response) -> None: ...

class Attributes:
    user: UserInfo
    verb: str
    namespace: str
    api_group: str
    api_version: str
    resource: str
    subresource: str
    name: str
    resource_request: bool
    path: str
    field_requirements: Sequence[FieldTerm] | None
    label_requirements: Sequence[Requirement] | None
    field_error: str
    label_error: str
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
    ) -> None: ...
    def is_read_only(self) -> bool: ...

def attributes_of(req: Request) -> Attributes: ...
def go_quote(s: str) -> str: ...
def forbidden_message(a: Attributes) -> str: ...
def plain_failure(
    req: Request, forms: dict[Any, Any], code: int, reason: str, message: str, details: dict[str, Any] | None
) -> Response | None: ...

class Rule:
    source: dict[str, Any]
    verbs: frozenset[str] | None
    groups: frozenset[str] | None
    resources: frozenset[str] | None
    subresources: frozenset[str]
    names: frozenset[str] | None
    urls: frozenset[str] | None
    url_prefixes: tuple[str, ...]
    def __init__(self, rule: dict[str, Any]) -> None: ...
    def matches_resource(self, verb: str, group: str, resource: str, subresource: str) -> bool: ...
    def matches_path(self, verb: str, path: str) -> bool: ...
    def allows(self, a: Attributes) -> bool: ...

Row = tuple[tuple[frozenset[str] | None, Outcome], ...]

class Matcher:
    keys: dict[str, None]
    epoch: Any
    scopes: dict[str | tuple[str, str], tuple[list[Any], list[str]] | None]
    shapes: dict[tuple[str, str, str, str, str], Row]
    paths: dict[tuple[str, str, str], Outcome]
    def __init__(self, keys: dict[str, None], epoch: object) -> None: ...

class Decisions:
    epoch: Any
    def authorize(self, a: Attributes) -> Outcome | Awaitable[Outcome]: ...
    def matcher(self, user: UserInfo) -> Matcher: ...
    def compile_shape(self, m: Matcher, a: Attributes) -> Row | Awaitable[Outcome]: ...
    def compile_path(self, m: Matcher, a: Attributes) -> Outcome | Awaitable[Outcome]: ...

class PathTable:
    def exact(self, path: str, handler: Any) -> None: ...
    def prefix(self, path: str, handler: Any) -> None: ...
    def find(self, path: str) -> Any: ...
    def paths(self) -> list[str]: ...

class RequestMetricsRow:
    labels: tuple[int, str, str, str, str, str, str, str]
    count: int
    seconds: float
    own_seconds: float
    bytes_sent: float
    sized: int
    def duration_buckets(self, n: int) -> list[int]: ...
    def own_buckets(self, n: int) -> list[int]: ...
    def size_buckets(self, n: int) -> list[int]: ...

class RequestMetrics:
    def __init__(self, duration_bounds: Iterable[float], size_bounds: Iterable[float]) -> None: ...
    def add(self, req: Request, resp: Response) -> None: ...
    def ended(self, req: Request) -> None: ...
    def rows(self) -> list[RequestMetricsRow]: ...
    def forget(self, gone: Set[tuple[str, str]]) -> None: ...

class FilterChain:
    _before: tuple[Callable[[Request], Response | Awaitable[Response | None] | None], ...]
    _after: tuple[Callable[[Request, Response], None], ...]
    _release: tuple[Callable[[Request], None], ...]
    _endpoint: Handler
    def __init__(
        self,
        before: tuple[Callable[[Request], Response | Awaitable[Response | None] | None], ...],
        after: tuple[Callable[[Request, Response], None], ...],
        release: tuple[Callable[[Request], None], ...],
        endpoint: Handler,
        soon_s: float,
    ) -> None: ...
    def __call__(self, req: Request) -> Result: ...
    def _go_on(self, req: Request, at: int) -> Result: ...
    def _answered(self, req: Request, resp: Response) -> Response: ...
    def _released(self, req: Request) -> None: ...
    def _later(self, req: Request, waiting: Awaitable[Response | None], at: int) -> Coroutine[Any, Any, Response]: ...

class Durations(Protocol):
    @property
    def buckets(self) -> tuple[float, ...]: ...
    values: dict[tuple[str, ...], array[float]]
    def observe(self, values: tuple[str, ...], amount: float) -> None: ...

class Timer:
    quick_s: float
    row: array[float] | None
    def __init__(self, histogram: Durations, labels: tuple[str, ...]) -> None: ...
    def add(self, seconds: float) -> None: ...

class PluginChain:
    def _all(self, plan: Any, what: str, a: Any) -> Awaitable[None] | None: ...
    def _run(self, steps: Any, what: str, a: Any) -> Any: ...
    async def _rest(self, left: Any, whole: Any, what: str, a: Any, since: float) -> None: ...

class CredentialLookup:
    longest: int

    def __init__(
        self,
        entries: dict[bytes, tuple[Any, ...]],
        counts: dict[tuple[str, ...], float],
        succeeded: Timer,
        hit: Timer,
    ) -> None: ...
    def known(self, req: Request) -> bool: ...

class PlainGet:
    def __init__(self, root: str, namespaced: bool, forms: dict[Any, Any], most: int) -> None: ...
    def answer(self, req: Request, registry: Any, namespace: str, name: str) -> Response | None: ...

class HandlerCache:
    def __init__(self, acceptable: set[tuple[bytes, int]], types: int, read_first: Callable[..., Result]) -> None: ...
    def keep(
        self, verb: str, served: Any, handler: Callable[..., Result], namespaced: bool, named: bool, subresource: str = ""
    ) -> None: ...
    def clear(self) -> None: ...
    def answer(self, req: Request) -> Result | None: ...

class ResourceRouter:
    _rest: Callable[[Request], Result]
    _versions: Container[tuple[str, str]]
    _claims: Mapping[tuple[str, str], Handler]
    peers: Callable[[Request], Result | None] | None
    def __init__(
        self, rest: Callable[[Request], Result], versions: Container[tuple[str, str]], claims: Mapping[tuple[str, str], Handler]
    ) -> None: ...
    def __call__(self, req: Request) -> Result: ...
    def _elsewhere(self, req: Request) -> Result: ...

class RequestInfoFilter:
    def __init__(
        self, usual: dict[str, Query], query: Callable[[str], Query], long_verbs: frozenset[str], long_subresources: frozenset[str],
        refused: Callable[[Request, RequestInfoError], Response],
    ) -> None: ...  # fmt: skip
    def __call__(self, req: Request) -> Response | None: ...

def known_form(req: Request, forms: dict[Any, Any], watch: bool, table: bool) -> Any: ...

def forbid_caches(req: Request, resp: Response) -> None: ...
def whole(
    req: Request, resp: Response, send: Callable[[dict[str, Any]], Awaitable[None]]
) -> tuple[Awaitable[None], Awaitable[None]]: ...

def send_at_once(most: int, taken: str) -> None: ...
def sent(
    req: Request, resp: object, send: Callable[[dict[str, Any]], Awaitable[None]]
) -> tuple[()] | tuple[Awaitable[None], Awaitable[None]] | None: ...

class PartOf:
    def __init__(self, main: Any, others: dict[tuple[str, str], Any]) -> None: ...
    def __call__(self, info: RequestInfo) -> Any: ...

Passing = Callable[[FreshRead, Awaitable[None]], Coroutine[Any, Any, Response | None]]

class FreshRead:
    req: Request
    part: Any
    fallback: Any
    chain: FilterChain | None
    at: int
    def __init__(self, req: Request, part: Any, fallback: Any, passing: Passing) -> None: ...
    def park(self, parked: Parked) -> None: ...
    def go_on(self) -> Result: ...
    def after(self, passed: Awaitable[None]) -> Awaitable[Any]: ...
    def __await__(self) -> Generator[Any, Any, Any]: ...

class ConsistentRead:
    def __init__(
        self,
        part_of: Callable[[RequestInfo], Any],
        fallback: Any,
        passing: Passing,
        rest: Callable[[Request], Awaitable[Response | None] | None],
    ) -> None: ...
    def __call__(self, req: Request) -> Awaitable[Response | None] | None: ...

class ParkedRequest:
    app: Any
    req: Request
    waiting: FreshRead
    receive: Any
    send: Any
    watcher: Any
    spawn: Any
    def __init__(self, app: Any, req: Request, waiting: FreshRead, receive: Any, send: Any, watcher: Any, spawn: Any) -> None: ...
    def go_on(self) -> None: ...
    def wait(self, passed: Awaitable[None]) -> None: ...

class RoundBase:
    _rounds: Any
    parked: list[Parked]
    readers: list[asyncio.Future[None]]
    until: list[float]
    timer: asyncio.TimerHandle | None
    answered: bool
    had: int
    asked: float
    since: float
    def __init__(self, rounds: FreshnessBase) -> None: ...
    def done(self) -> bool: ...
    def take(self) -> list[Parked]: ...
    def reached(self) -> None: ...
    def __call__(self, over: Any) -> None: ...

class FreshnessBase:
    _loop: asyncio.AbstractEventLoop
    _question: Any
    _next: Any
    _asking: Any
    _due: bool
    _closed: bool
    _open: deque[Any]
    _timer: asyncio.TimerHandle | None
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        question: Any,
        replica: Any,
        hub: Any,
        wait: Callable[[int, Any], bool],
        round_: type[Any],
        stint_s: float,
    ) -> None: ...
    def park(self, parked: Parked) -> None: ...
    def _will_ask(self) -> None: ...
    def _ask(self) -> None: ...
    def _on_answer(self, asking: Any, revision: int) -> None: ...
    def _over(self) -> None: ...

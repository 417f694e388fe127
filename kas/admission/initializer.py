"""What plug-ins may ask for, and how they get it (upstream's ``admission/initializer``: ``WantsAuthorizer`` and its kin)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kas.admission.matching import Equivalents
from kas.auth.attributes import Authorizer
from kas.auth.authz.rbac import RbacIndex
from kas.client.http import Egress
from kas.client.services import Resolve
from kas.informers import Informers, Objects
from kas.meta import inject
from kas.meta.records import NamedTuple
from kas.observe.metrics import Registry as Metrics
from kas.registry.registries import Registries

if TYPE_CHECKING:
    from kas.client.hooks import Shares

# (group, version, kind) -> the records of the served resources of that kind; empty for a kind that is not served.
RESTMapper = Callable[[str, str, str], list[Any]]


class Settings(Protocol):
    """The flags that concern plug-ins."""

    default_not_ready_toleration_seconds: int
    default_unreachable_toleration_seconds: int
    max_mutating_requests_inflight: int
    workers: int


class Initializer(NamedTuple):
    """A plug-in's constructor names what it wants by these names, and is given that and nothing else.

    ``objects`` and ``informers`` read (see ``kas.informers`` for how fresh and what is raised); ``registries`` is for the few that write;
    ``rules`` tells what a user holds by RBAC; ``equivalents`` which served resources are the same in other versions; ``metrics`` counts;
    ``resolve`` finds Services, and ``shares`` says how many calls of webhooks may wait, ``egress`` which way they go; ``run_dir`` is the
    directory that the workers of one server share while it runs; ``settings`` are flags; ``identity`` is the server's name in the worker
    that counts what all do alike, "" in others.
    """

    objects: Objects
    informers: Informers
    registries: Registries
    authorizer: Authorizer
    rules: RbacIndex
    mapper: RESTMapper
    equivalents: Equivalents
    metrics: Metrics
    resolve: Resolve
    shares: Callable[[], Shares]
    egress: Egress
    run_dir: Path
    settings: Settings
    identity: str = ""

    def make(self, plugin: type, **more: Any) -> Any:
        """``plugin`` with what it wants; ``more`` are further arguments it may name."""
        return inject.make(plugin, self._asdict() | more)

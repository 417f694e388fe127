"""The dependencies that plug-ins may request, and their injection (upstream's ``admission/initializer``: ``WantsAuthorizer`` etc.)."""

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
    """The flags that plug-ins read."""

    default_not_ready_toleration_seconds: int
    default_unreachable_toleration_seconds: int
    max_mutating_requests_inflight: int
    workers: int


class Initializer(NamedTuple):
    """The dependencies of plug-ins. A plug-in's constructor names those it wants and receives only them.

    - ``objects`` and ``informers`` read objects (see ``kas.informers`` for freshness and errors); ``registries`` is for the few that
      write.
    - ``rules`` returns the RBAC rules a user holds.
    - ``equivalents`` returns the served resources that are the same in other versions.
    - ``resolve`` finds the address of a Service, ``shares`` limits how many webhook calls may wait, ``egress`` selects their route.
    - ``run_dir`` is a directory shared by the workers of one server while it runs.
    - ``settings`` are flags.
    - ``identity`` is the server's name in the worker that reports metrics common to all workers, and "" in the others.
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
        """Create ``plugin`` with the dependencies it names; ``more`` are additional ones."""
        return inject.make(plugin, self._asdict() | more)

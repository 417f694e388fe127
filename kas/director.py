"""Routes a path to its handler: the REST resources, the documents and probes, or 404.

kube-apiserver chains three servers (aggregator, kube, extensions) with a mux each; here their paths are one table.
The order is: an aggregated or custom group claims its group version first, then the built-in resources, then exact
and prefix paths, then the fallbacks, then 404.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from kas._fastpath import PathTable, ResourceRouter
from kas.endpoints.respond import not_found
from kas.request.http import Handler, Request, Result


class Director(ResourceRouter):
    """``rest`` handles resource requests for the group versions in ``versions``; ``exact`` and ``prefix`` add other
    paths. ``claims`` has the group versions that other servers answer, with everything below their paths; it may
    change at any time."""

    def __init__(
        self, rest: Callable[[Request], Result], versions: Container[tuple[str, str]],
        claims: Mapping[tuple[str, str], Handler] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(rest, versions, claims if claims is not None else {})
        self._table = PathTable()
        self._fallbacks: list[Callable[[Request], Result | None]] = []

    def exact(self, path: str, handler: Handler) -> None:
        """Registers ``handler`` for ``path`` itself."""
        self._table.exact(path, handler)

    def prefix(self, path: str, handler: Handler) -> None:
        """Registers ``handler`` for the paths below ``path``, which ends with "/"; the longest match wins."""
        self._table.prefix(path, handler)

    def fallback(self, handler: Callable[[Request], Result | None]) -> None:
        """Adds a handler for what nothing else claims. Fallbacks are called in order; None passes on."""
        self._fallbacks.append(handler)

    def paths(self) -> list[str]:
        """The paths and prefixes that are answered, sorted."""
        return self._table.paths()

    def _elsewhere(self, req: Request) -> Result:
        """Answers a request that does not go straight to a resource."""
        info = req.info
        path = req.path
        if path.startswith("//"):
            return not_found()  # RequestInfo ignores leading slashes, but routing does not
        if self._claims:
            claim = self._claims.get((info.api_group, info.api_version) if info.is_resource_request else _group_version(path))
            if claim is not None:
                return claim(req)
        if self.peers is not None and info.is_resource_request:
            elsewhere = self.peers(req)
            if elsewhere is not None:
                return elsewhere
        if info.is_resource_request and (info.api_group, info.api_version) in self._versions:
            return self._rest(req)
        handler: Handler | None = self._table.find(path)
        if handler is not None:
            return handler(req)
        for f in self._fallbacks:
            found = f(req)
            if found is not None:
                return found
        return not_found()


def _group_version(path: str) -> tuple[str, str]:
    """The group version of a path that names no resource. The core group has one version, whose server answers all of ``/api``."""
    parts = path.split("/", 4)
    if parts[1] == "apis" and len(parts) > 3:
        return parts[2], parts[3]
    return ("", "v1") if parts[1] == "api" else ("", "")

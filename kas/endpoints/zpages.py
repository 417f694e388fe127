"""``/flagz`` and ``/statusz``: what the server was started with and how it is (KEP-4828, KEP-4827)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from kas import KUBERNETES_VERSION, __version__
from kas.config.features import FeatureGate
from kas.endpoints.respond import text
from kas.endpoints.rest import method_not_allowed
from kas.request.http import Request, Response
from kas.request.mux import Mux


class ZPages:
    """``flags`` are shown by /flagz; ``others`` are paths that /statusz names beside these pages, which are in ``paths``."""

    def __init__(self, flags: Mapping[str, str], others: Sequence[str]) -> None:
        self._flags, self._others, self._began = flags, others, time.time()
        self.paths: list[str] = []

    def install(self, mux: Mux, gates: FeatureGate) -> None:
        """Serve each page whose gate is on."""
        for gate, path, page in (("ComponentFlagz", "/flagz", self.flagz), ("ComponentStatusz", "/statusz", self.statusz)):
            if gates.enabled(gate):
                mux.exact(path, page)
                self.paths.append(path)

    def flagz(self, req: Request) -> Response:
        """Serve /flagz in plain text: the flags and their values, by name."""
        if req.method != "GET":
            raise method_not_allowed()
        lines = ["", "kube-apiserver flags", "Warning: This endpoint is not meant to be machine parseable and is for debugging only.", ""]
        lines += [f"{name}={value}" for name, value in sorted(self._flags.items())]
        return text(200, "\n".join(lines) + "\n")

    def statusz(self, req: Request) -> Response:
        """Serve /statusz in plain text: start, time running, versions and paths."""
        if req.method != "GET":
            raise method_not_allowed()
        up = int(time.time() - self._began)
        started = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(self._began))
        paths = " ".join(sorted([*self.paths, *self._others]))
        body = (
            "\nkube-apiserver statusz\nWarning: This endpoint is not meant to be machine parseable and is for debugging only.\n\n"
            f"Started: {started}\nUp: {up // 3600} hr {up // 60 % 60:02d} min {up % 60:02d} sec\nkas version: {__version__}\n"
            f"Binary version: {KUBERNETES_VERSION}\nEmulation version: {KUBERNETES_VERSION}\n\nPaths: {paths}\n"
        )
        return text(200, body)

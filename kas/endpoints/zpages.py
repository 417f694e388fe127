"""``/flagz`` and ``/statusz``: what the server was started with and how it is (KEP-4828, KEP-4827)."""

from __future__ import annotations

import time
from typing import Any

from kas import KUBERNETES_VERSION, __version__
from kas.director import Director
from kas.edge.http import Request, Response
from kas.endpoints.respond import text
from kas.endpoints.rest import method_not_allowed

# Values that could open a door are named, not shown.
SECRET = ("token", "key", "password")


class ZPages:
    def __init__(self, flags: dict[str, Any], paths: Any) -> None:
        self._flags, self._paths, self._began = flags, paths, time.time()

    def install(self, director: Director) -> None:
        director.exact("/flagz", self.flagz)
        director.exact("/statusz", self.statusz)

    def flagz(self, req: Request) -> Response:
        if req.method != "GET":
            raise method_not_allowed()
        lines = ["", "kube-apiserver flags", "Warning: This endpoint is not meant to be machine parseable and is for debugging only.", ""]
        for name, value in sorted(self._flags.items()):
            flag = name.replace("_", "-")
            shown = ",".join(map(str, value)) if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else str(value)
            if shown and any(s in name for s in SECRET) and name.endswith("file"):
                shown = "CLASSIFIED"
            lines.append(f"{flag}={shown}")
        return text(200, "\n".join(lines) + "\n")

    def statusz(self, req: Request) -> Response:
        if req.method != "GET":
            raise method_not_allowed()
        up = int(time.time() - self._began)
        started = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(self._began))
        body = (
            "\nkube-apiserver statusz\nWarning: This endpoint is not meant to be machine parseable and is for debugging only.\n\n"
            f"Started: {started}\nUp: {up // 3600} hr {up // 60 % 60:02d} min {up % 60:02d} sec\nkas version: {__version__}\n"
            f"Binary version: {KUBERNETES_VERSION}\nEmulation version: {KUBERNETES_VERSION}\n\nPaths: {' '.join(self._paths())}\n"
        )
        return text(200, body)

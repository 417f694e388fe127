"""``/flagz`` and ``/statusz``: the flags and the state of the server (KEP-4828, KEP-4827).

The pages are plain text unless Accept names a media type. Objects of ``config.k8s.io`` are returned if it names their version and kind
(``application/json;v=v1beta1;g=config.k8s.io;as=Statusz``, or YAML). Anything else is a 406.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from kas import KUBERNETES_VERSION, __version__
from kas.config.features import FeatureGate
from kas.endpoints.documents import version_info
from kas.endpoints.respond import finish, plain, to_yaml
from kas.request.http import Request, Response
from kas.request.mux import Mux
from kas.request.negotiation import YAML, Restrictions, is_pretty, negotiate

COMPONENT = "kube-apiserver"
_DEPRECATED = "v1alpha1"
_WARNING = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees "
    "and is for debugging purposes only."
)


class ZPages:
    """Serves the pages. ``flags`` are shown by /flagz; ``others`` are the paths that /statusz lists besides these pages (``paths``)."""

    def __init__(self, flags: Mapping[str, str], others: Sequence[str]) -> None:
        self._flags, self._others, self._began = dict(sorted(flags.items())), others, int(time.time())
        self._up_since = time.monotonic()  # unaffected by changes of the clock
        self.paths: list[str] = []

    def install(self, mux: Mux, gates: FeatureGate) -> None:
        """Register each page whose feature gate is enabled."""
        for gate, path, page in (("ComponentFlagz", "/flagz", self.flagz), ("ComponentStatusz", "/statusz", self.statusz)):
            if gates.enabled(gate):
                mux.exact(path, page)
                self.paths.append(path)

    def flagz(self, req: Request) -> Response:
        """Serve /flagz: the flags and their values, by name."""
        lines = [f"\n{COMPONENT} flags", _WARNING, "", *(f"{name}={value}" for name, value in self._flags.items())]
        return _page(req, "Flagz", {"flags": self._flags}, "\n".join(lines) + "\n")

    def statusz(self, req: Request) -> Response:
        """Serve /statusz: start time, uptime, versions and paths."""
        up = int(time.monotonic() - self._up_since)
        emulated = KUBERNETES_VERSION.rpartition(".")[0]
        paths = sorted([*self.paths, *self._others])
        info = version_info()
        language, binary = info["goVersion"], info["gitVersion"].removeprefix("v")
        value = {
            "startTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._began)), "uptimeSeconds": up, "goVersion": language,
            "binaryVersion": binary, "emulationVersion": emulated, "paths": paths,
        }  # fmt: skip
        started = time.strftime("%a %b %e %H:%M:%S UTC %Y", time.gmtime(self._began))
        lines = [
            f"\n{COMPONENT} statusz", _WARNING, "", f"Started: {started}",
            f"Up: {up // 3600} hr {up // 60 % 60:02d} min {up % 60:02d} sec", f"Go version: {language}",
            f"Binary version: {binary}", f"Emulation version: {emulated}",
            f"Paths: {' '.join(paths)}", f"kas version: {__version__}",
        ]  # fmt: skip
        return _page(req, "Statusz", value, "\n".join(lines) + "\n")


def _page(req: Request, kind: str, value: dict[str, Any], lines: str) -> Response:
    """Return the page, for any method."""
    accept = req.header(b"accept")
    m = negotiate(accept, Restrictions(page=kind)) if accept.strip() else None
    if m is None or m.convert is None:
        return plain(200, lines)
    group, version, _ = m.convert
    head = {"kind": kind, "apiVersion": f"{group}/{version}", "metadata": {"name": COMPONENT}}
    if m.media_type == YAML:
        body = to_yaml({**head, **value})
    else:
        pretty = m.pretty or is_pretty(req.params.get("pretty"), req.header(b"user-agent"))
        body = orjson.dumps({**head, **value}, option=orjson.OPT_INDENT_2 if pretty else None) + b"\n"
    response = finish(req, 200, m.media_type, body)
    response.headers[0] = (b"content-type", f"{m.media_type};g={group};v={version};as={kind}".encode())
    if version == _DEPRECATED:
        said = f"This version of the {kind.lower()} endpoint is deprecated. Please use a newer version."
        response.headers.append((b"warning", f'299 - "{said}"'.encode()))
    return response

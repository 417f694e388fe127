"""``/logs/``: the files of one directory, as kube-apiserver shows /var/log. Off unless ``--enable-logs-handler``."""

from __future__ import annotations

import html
from pathlib import Path

from kas.endpoints.respond import not_found
from kas.request.http import Handler, Request, Response, Write

CHUNK = 256 * 1024


def logs_handler(root: Path) -> Handler:
    """Serve files and directories below ``root`` under /logs/; what links lead out of it does not exist."""
    base = root.resolve()

    def handle(req: Request) -> Response:
        # resolve() follows links; whatever does not end up below the directory does not exist.
        target = (base / req.path.removeprefix("/logs/")).resolve()
        if not target.is_relative_to(base):
            return not_found()
        # Without anything logged yet there may be no directory.
        if target == base or target.is_dir():
            found = target.iterdir() if target.is_dir() else ()
            names = sorted(p.name + ("/" if p.is_dir() else "") for p in found)
            rows = "".join(f'<a href="{html.escape(n)}">{html.escape(n)}</a>\n' for n in names)
            return Response(200, [(b"content-type", b"text/html; charset=utf-8")], f"<pre>\n{rows}</pre>\n".encode())
        if not target.is_file():
            return not_found()

        async def stream(write: Write) -> None:
            with target.open("rb") as f:
                while chunk := f.read(CHUNK):
                    await write(chunk)

        return Response(200, [(b"content-type", b"text/plain; charset=utf-8")], stream=stream)

    return handle

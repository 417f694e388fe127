"""``/logs/``: the files of a directory, as kube-apiserver serves /var/log (``http.ServeFile``). Off unless ``--enable-logs-handler``."""

from __future__ import annotations

import functools
import html
import os
import stat
from email.utils import formatdate
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from kas.endpoints import ranges
from kas.endpoints.respond import moved, not_found, text
from kas.endpoints.rest import method_not_allowed
from kas.request.http import Handler, Request, Response, Write

CHUNK = 256 * 1024


def logs_handler(root: Path) -> Handler:
    """Return a handler for files and directories below ``root``. A path that links lead out of it is answered with 404."""
    base = root.resolve()

    def handle(req: Request) -> Response:
        if req.method != "GET":
            raise method_not_allowed()
        try:
            # resolve() follows links, so a target outside the directory is recognized.
            target = (base / req.path.removeprefix("/logs/")).resolve()
            return _served(req, base, target) if target.is_relative_to(base) else not_found()
        except PermissionError:
            return text(403, "403 Forbidden\n")
        except (OSError, RuntimeError, ValueError):  # no such file, a name that is too long, a loop of links, a null byte
            return not_found()

    return handle


def _served(req: Request, base: Path, target: Path) -> Response:
    # The directory may not exist before anything is logged.
    kind = target.stat().st_mode if target != base or target.exists() else stat.S_IFDIR
    if stat.S_ISDIR(kind):
        return _directory(target) if req.path.endswith("/") else moved(req, f"{_link(target.name)}/")
    if not stat.S_ISREG(kind):
        return not_found()
    if req.path.endswith("/"):
        return moved(req, f"../{_link(target.name)}")
    file = target.open("rb")
    size = os.fstat(file.fileno()).st_size
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"accept-ranges", b"bytes")]
    changed = formatdate(os.fstat(file.fileno()).st_mtime, usegmt=True)
    headers.append((b"last-modified", changed.encode()))
    try:
        part = ranges.requested_part(req.header(b"range"), req.header(b"if-range"), changed, size)
    except ranges.RangeError as e:
        file.close()
        return text(416, f"{e}\n", [] if e.overlaps else [(b"content-range", f"bytes */{size}".encode())])
    if part is None:
        return Response(200, headers, stream=functools.partial(_stream, file, 0, size))
    headers.append((b"content-range", part.content_range.encode()))
    return Response(206, headers, stream=functools.partial(_stream, file, part.first, part.length))


async def _stream(file: BinaryIO, first: int, length: int, write: Write) -> None:
    """Write the part as of the request, even if the file grows meanwhile."""
    with file:
        file.seek(first)
        while length and (chunk := file.read(min(CHUNK, length))):
            length -= len(chunk)
            await write(chunk)


def _directory(target: Path) -> Response:
    found = os.scandir(target) if target.exists() else ()
    names = sorted(each.name + ("/" if each.is_dir(follow_symlinks=False) else "") for each in found)
    rows = "".join(f'<a href="{_link(n)}">{html.escape(os.fsencode(n).decode(errors="replace"))}</a>\n' for n in names)
    return Response(200, [(b"content-type", b"text/html; charset=utf-8")], f"<pre>\n{rows}</pre>\n".encode())


def _link(name: str) -> str:
    """Return the name as a relative URL; with a colon it would be read as an absolute one."""
    quoted = quote(os.fsencode(name), safe="/:+=@,")
    return f"./{quoted}" if ":" in quoted else quoted

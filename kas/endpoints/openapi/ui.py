"""The files of swagger-ui, a page that shows the OpenAPI document (``/swagger-ui/`` if enabled).

They are stored compressed in ``kas/endpoints/static/swagger-ui`` and come from the npm package swagger-ui-dist 5.35.0 (Apache-2.0).
"""

from __future__ import annotations

import gzip
from importlib import resources

# File -> content type. Nothing else in the folder is served.
FILES = {
    "index.html": "text/html; charset=utf-8",
    "init.js": "text/javascript; charset=utf-8",
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui-bundle.js.LICENSE.txt": "text/plain; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
}


def file(name: str, *, accepts_gzip: bool = False) -> tuple[bytes, str, str | None] | None:
    """Return body, content type and content encoding (``gzip`` or None) of a file, or None for an unknown name. "" is the page itself."""
    name = name or "index.html"
    if name not in FILES:
        return None
    folder = resources.files("kas.endpoints").joinpath("static", "swagger-ui")
    packed = folder.joinpath(name + ".gz")
    if not packed.is_file():
        return folder.joinpath(name).read_bytes(), FILES[name], None
    body = packed.read_bytes()
    return (body, FILES[name], "gzip") if accepts_gzip else (gzip.decompress(body), FILES[name], None)

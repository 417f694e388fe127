"""Where the self-signed CA and the serving certificate are, and whether they are unchanged since they were last checked.

Parsing certificates (``certs``) takes a tenth of a restart, and nothing else that is prepared before workers serve
needs the library for it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kas.meta.files import write_whole
from kas.meta.records import NamedTuple

NOTED = "checked.json"


class CertPaths(NamedTuple):
    """PEM files: the CA's certificate and key, the server's certificate and key."""

    ca_cert: Path
    ca_key: Path
    cert: Path
    key: Path


def paths_in(directory: Path, serving: tuple[Path, Path] | None = None) -> CertPaths:
    """The files in ``directory``. ``serving`` are other places for the server's certificate and key."""
    return CertPaths(directory / "ca.crt", directory / "ca.key", *(serving or (directory / "apiserver.crt", directory / "apiserver.key")))


def service_names() -> list[str]:
    """The names under which pods reach the API server, which its certificate carries."""
    base = "kubernetes.default.svc"
    return ["localhost", "kubernetes", "kubernetes.default", base, f"{base}.cluster.local"]


def note(paths: CertPaths, names: list[str], ips: list[str], since: float, until: float) -> None:
    """Records that the files, as they are now, serve ``names`` and ``ips`` between two times (Unix, in seconds)."""
    noted = {**_as_now(paths, names, ips), "since": since, "until": until}
    write_whole(paths.ca_cert.with_name(NOTED), json.dumps(noted).encode(), 0o644)


def as_noted(paths: CertPaths, names: list[str], ips: list[str], now: float) -> bool:
    """Whether ``note`` recorded exactly these files and names, and ``now`` is within its times. A file that has
    since been replaced, copied, touched or restored counts as another one."""
    try:
        noted = json.loads(paths.ca_cert.with_name(NOTED).read_bytes())
        return noted["since"] <= now < noted["until"] and noted.items() >= _as_now(paths, names, ips).items()
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False


def _as_now(paths: CertPaths, names: list[str], ips: list[str]) -> dict[str, Any]:
    stats = [path.stat() for path in paths]
    files = [[str(path), s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns] for path, s in zip(paths, stats, strict=True)]
    return {"files": files, "names": sorted(names), "ips": sorted(ips)}

"""The log backend: one line per entry, in a file rotated by size (``plugin/pkg/audit/log``; rotation as in lumberjack).

All workers write to one file. A write holds the log's lock shared, a rotation exclusively, so that no line reaches a file that was
rotated and compressed.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import fcntl
import gzip
import os
import re
import shutil
import stat
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from time import monotonic

from kas.audit._engine import lines as joined
from kas.audit.backend import AuditError, log
from kas.audit.event import Entry
from kas.meta.field import go_quote
from kas.meta.files import private
from kas.meta.stdio import outlet
from kas.meta.threads import Threads

MEGABYTE = 1 << 20
DEFAULT_MAX_SIZE = 100  # megabytes; what 0 means, as in lumberjack
DAY_S = 24 * 3600
STANDARD_OUTPUT = "-"
LOOK_S = 0.5  # how soon a single writer notices a removed file; several writers check at each write, as any of them may rotate


def legacy_line(entry: Entry) -> bytes:
    """Return the line of ``--audit-log-format=legacy`` (``audit.EventString``)."""
    f = entry.fields
    user, other = f.get("user") or {}, f.get("impersonatedUser")
    groups = ",".join(go_quote(g) for g in user.get("groups") or () if user.get("username")) or "<none>"
    acting, acting_groups = "<self>", "<lookup>"
    if other is not None:
        acting = other.get("username") or ""
        if other.get("groups"):
            acting_groups = ",".join(go_quote(g) for g in other["groups"])
    status = f.get("responseStatus")
    shown = {
        "id": f["auditID"], "stage": f["stage"], "ip": (f.get("sourceIPs") or ["<unknown>"])[0], "method": f["verb"],
        "user": user.get("username") or "<none>", "groups": groups, "as": acting, "asgroups": acting_groups,
        "user-agent": f.get("userAgent") or "", "namespace": (f.get("objectRef") or {}).get("namespace") or "<none>",
        "uri": f["requestURI"], "response": str(status["code"]) if status is not None else "<deferred>",
    }  # fmt: skip
    text = " ".join(f"{key}={go_quote(value)}" for key, value in shown.items())
    at = f["requestReceivedTimestamp"].removesuffix("Z").rstrip("0").removesuffix(".")  # RFC3339Nano
    return f"{at}Z AUDIT: {text}\n".encode()


def json_line(entry: Entry) -> bytes:
    """Return the line of ``--audit-log-format=json``."""
    return entry.line


class LogFile:
    """Writes lines to ``path`` ("-" is standard output).

    ``max_size`` in bytes (0: never rotate); ``max_age_s`` and ``max_backups`` limit the rotated files (0: no limit). ``lock`` is a file
    shared by the workers, None for a single worker. With ``may_block``, it runs off the event loop and may block on the reader of standard
    output.
    """

    name, may_block = "log", False

    def __init__(
        self, path: str, lock: Path | None, line: Callable[[Entry], bytes], max_size: int = 0, max_age_s: float = 0, max_backups: int = 0,
        compress: bool = False,
    ) -> None:  # fmt: skip
        self._path, self._lock_path, self._line = path, lock, line
        self._max_size, self._max_age_s, self._max_backups, self._compress = max_size, max_age_s, max_backups, compress
        self._fd = self._lock = -1
        self._file = (0, 0)  # device and inode of the open file
        self._size, self._looked = 0, -LOOK_S  # size of the open file, and when ``path`` was last checked to name it
        self._cleaner: threading.Thread | None = None
        self._cleaning, self._unclean = threading.Lock(), False  # whether files were rotated since the cleaner's last run
        self._opened_once = self._regular = False

    def process(self, entries: Sequence[Entry]) -> None:
        """Write a line for each entry. Raises AuditError with the system's reason."""
        lines = joined(entries) if self._line is json_line else b"".join(map(self._line, entries))
        try:
            if self._path == STANDARD_OUTPUT:
                self._put(sys.stdout.fileno(), lines)
            else:
                self._write(lines)
        except OSError as e:
            raise AuditError(f"{self._path}: {(e.strerror or str(e)).lower()}") from None

    def _put(self, fd: int, lines: bytes) -> None:
        if self.may_block or self._regular:
            _write_all(fd, lines)
        else:  # the reader of a pipe must not be able to block the event loop
            outlet(fd).write(lines)

    def _write(self, lines: bytes) -> None:
        if self._lock_path is None:
            self._append(lines, alone=True)
            return
        if self._lock < 0:
            self._lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        try:
            self._append(lines, alone=False)
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _append(self, lines: bytes, alone: bool) -> None:
        if alone and self._fd >= 0 and monotonic() < self._looked + LOOK_S:
            size = self._size  # the only writer, which also does the rotation
        else:
            size, self._looked = self._open(), monotonic()
        if self._max_size and size and size + len(lines) > self._max_size:
            if not alone:
                fcntl.flock(self._lock, fcntl.LOCK_EX)  # the upgrade is not atomic: another worker may have rotated
            size = self._open()
            if size + len(lines) > self._max_size:
                size = self._rotate()
        self._put(self._fd, lines)
        self._size = size + len(lines)

    def _open(self) -> int:
        """Open the file that ``path`` names, unless it is open already, and return its size."""
        if self._fd >= 0:
            try:
                now = os.stat(self._path)
            except FileNotFoundError:
                now = None
            if now is not None and (now.st_dev, now.st_ino) == self._file:
                return now.st_size
            os.close(self._fd)
            self._fd = -1
        self._fd = _opened(self._path)
        opened = os.fstat(self._fd)
        self._file, self._regular = (opened.st_dev, opened.st_ino), stat.S_ISREG(opened.st_mode)
        if not self._opened_once:  # files that expired, or were left uncompressed, before this process began
            self._opened_once = True
            self._put_in_order()
        return opened.st_size

    def _rotate(self) -> int:
        """Begin a new file and return its size."""
        stem, extension = os.path.splitext(self._path)
        at = time.time()
        while os.path.exists(backup := f"{stem}-{_stamp(at)}{extension}") or os.path.exists(backup + ".gz"):
            at += 0.001  # a small size may be reached twice in a millisecond
        os.rename(self._path, backup)
        size = self._open()
        self._put_in_order()
        return size

    def _put_in_order(self) -> None:
        """Start ``_clean`` in a thread, if rotated files are limited or compressed."""
        kept = self._max_backups or self._max_age_s or self._compress
        if not kept:
            return
        with self._cleaning:
            self._unclean = True
            if self._cleaner is None or not self._cleaner.is_alive():
                self._cleaner = threading.Thread(target=self._clean_all, name="audit-log", daemon=True)
                with contextlib.suppress(RuntimeError):  # no more threads available: retried after the next rotation
                    self._cleaner.start()

    def _clean_all(self) -> None:
        """Run ``_clean``, repeated if files were rotated meanwhile: the next rotation may be far away."""
        while True:
            with self._cleaning:
                if not self._unclean:
                    self._cleaner = None
                    return
                self._unclean = False
            self._clean()

    def _clean(self) -> None:
        """Remove backups beyond their number or age, known from their names, and compress the others. Runs in a thread."""
        try:
            backups = self._backups()
            keep = backups[: self._max_backups] if self._max_backups else backups
            if self._max_age_s:
                oldest = _stamp(time.time() - self._max_age_s)
                keep = [p for p in keep if self._stamp_of(p) >= oldest]
            for path in backups:
                if path not in keep:
                    path.unlink(missing_ok=True)
                elif self._compress and path.suffix != ".gz":
                    _gzip(path)
        except OSError as e:
            log.error("audit: rotated files could not be compressed or removed: %s", e)

    def _backups(self) -> list[Path]:
        """Return the rotated files, newest first."""
        return sorted(filter(self._stamp_of, Path(self._path).parent.iterdir()), key=self._stamp_of, reverse=True)

    def _stamp_of(self, file: Path) -> str:
        """Return the timestamp in a rotated file's name; "" for another file."""
        stem, suffix = os.path.splitext(os.path.basename(self._path))
        name = file.name.removesuffix(".gz")
        if not (name.startswith(f"{stem}-") and name.endswith(suffix)):
            return ""
        stamp = name[len(stem) + 1 : len(name) - len(suffix)]
        return stamp if _is_stamp(stamp) else ""

    async def close(self) -> None:
        """Close the file; ``process`` leaves nothing to be written."""
        self.end()

    def end(self) -> None:
        """Close the file descriptors."""
        for fd in (self._fd, self._lock):
            if fd >= 0:
                os.close(fd)
        self._fd = self._lock = -1
        self._looked = -LOOK_S


class ThreadedLogFile:
    """Writes a log file in a single thread, and so in order: for batches, which no request waits for."""

    def __init__(self, log: LogFile) -> None:
        self.name, self._log, log.may_block = log.name, log, True
        self._thread = Threads(1, "audit-log")

    def process(self, entries: Sequence[Entry]) -> Awaitable[None]:
        """Write a line for each entry. The awaitable raises AuditError with the system's reason."""
        return asyncio.get_running_loop().run_in_executor(self._thread, self._log.process, entries)

    async def close(self) -> None:
        """Close the file after pending writes. If cancelled, it does not wait for a hanging disk."""
        closed = asyncio.get_running_loop().run_in_executor(self._thread, self._log.end)
        self._thread.shutdown(wait=False)
        await closed


def _write_all(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


def _stamp(seconds: float) -> str:
    at = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return at.strftime("%Y-%m-%dT%H-%M-%S.") + f"{at.microsecond // 1000:03d}"


def _is_stamp(text: str) -> bool:
    """Return whether the text is a valid time in the form of ``_stamp``."""
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}", text, re.ASCII):
        return False
    try:
        datetime.datetime.strptime(text, "%Y-%m-%dT%H-%M-%S.%f")
    except ValueError:
        return False
    return True


def _gzip(path: Path) -> None:
    """Compress a file, unless another worker has done so. Permissions are never wider than those of the original."""
    target = path.with_name(path.name + ".gz")
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(path, "rb") as source, open(partial, "wb", opener=private) as raw, gzip.open(raw, "wb") as out:
            shutil.copyfileobj(source, out)
        shutil.copystat(path, partial)  # includes the mode
        os.replace(partial, target)
        path.unlink()
    except FileNotFoundError:
        if path.exists():
            raise
    finally:
        partial.unlink(missing_ok=True)


def unusable(path: str) -> str:
    """Return why a log cannot be written to this path, in Go's words; "" if it exists or was created. Standard output is no file."""
    if path == STANDARD_OUTPUT:
        return ""
    try:
        os.close(_opened(path))
    except FileExistsError as e:
        return f"mkdir {e.filename}: not a directory"
    except OSError as e:
        return f"{'open' if e.filename == path else 'mkdir'} {e.filename}: {(e.strerror or str(e)).lower()}"
    return ""


def _opened(path: str) -> int:
    os.makedirs(os.path.dirname(path) or ".", mode=0o755, exist_ok=True)
    # O_NONBLOCK: opening a pipe without a reader fails instead of blocking.
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    os.set_blocking(fd, True)
    return fd

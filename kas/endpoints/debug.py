"""``/debug/``: profiles of the worker that responds, and the log verbosity of all workers.

Served only with ``--profiling``, or on the socket of ``--debug-socket-path``. ``/debug/pprof/profile?seconds=N`` samples the event loop's
thread and returns collapsed stacks (as read by flamegraph.pl and speedscope). ``/debug/pprof/threads`` shows every thread, and
``/debug/pprof/heap`` the statistics of the store and the interpreter.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import json
import os
import re
import resource
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, Protocol

from kas.endpoints.respond import moved, text
from kas.endpoints.watch import Watches
from kas.meta.field import go_quote
from kas.meta.scalars import decimal
from kas.observe.logs import set_verbosity
from kas.request.http import Request, Response, Result, Write, with_body
from kas.request.masking import shortened
from kas.request.mux import Mux

MAX_SECONDS, DEFAULT_SECONDS = 60, 5
INTERVAL_S = 0.005


class Statistics(Protocol):
    """The part of the store that is shown."""

    def statistics(self) -> dict[str, Any]:
        """Return the store's statistics (see ``kas.store``)."""
        ...


class Debug:
    """Serves ``/debug/``. ``worker`` is this worker's number; ``verbosity`` is the file by which workers share the log verbosity."""

    def __init__(self, worker: int, watches: Watches, store: Statistics, verbosity: Path) -> None:
        self._worker, self._watches, self._store = worker, watches, store
        self.flags = DebugFlags(verbosity)

    def install(self, mux: Mux) -> None:
        """Register everything below /debug/."""
        self.flags.install(mux)
        mux.exact("/debug/pprof", lambda req: moved(req, "/debug/pprof/"))
        mux.exact("/debug/pprof/", lambda req: text(200, "profile\nthreads\nheap\n"))
        mux.exact("/debug/pprof/profile", self.profile)
        mux.exact("/debug/pprof/threads", lambda req: text(200, _threads()))
        mux.exact("/debug/pprof/heap", self.heap)

    def profile(self, req: Request) -> Response:
        """Sample this worker's event loop for ``seconds`` (default 5). Returns stacks with the number of samples of each."""
        asked = req.params.get("seconds")
        seconds = min(MAX_SECONDS, (decimal(asked) if asked.isascii() and asked.isdigit() else 0) or DEFAULT_SECONDS)

        async def stream(write: Write) -> None:
            import asyncio

            thread = threading.get_ident()
            counts: collections.Counter[str] = collections.Counter()
            done = asyncio.get_running_loop().run_in_executor(None, _sample, thread, seconds, counts)
            await done
            await write("".join(f"{k} {n}\n" for k, n in counts.most_common()).encode() or b"\n")

        return Response(200, [(b"content-type", b"text/plain; charset=utf-8")], stream=stream)

    def heap(self, req: Request) -> Response:
        """Return this worker's memory, garbage collector, watches and store statistics, as JSON."""
        value = {
            "worker": self._worker, "maxrss_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, "gc": gc.get_stats(),
            "objects": len(gc.get_objects()), "watches": len(self._watches.open), "store": self._store.statistics(),
        }  # fmt: skip
        return Response(200, [(b"content-type", b"application/json")], json.dumps(value, default=str, indent=1).encode())


class DebugFlags:
    """``/debug/flags/v``: a PUT sets the log verbosity of every worker (apiserver's ``routes/flags.go``).

    The workers share it in the file ``path``, which each reads periodically (``follow``) and when it starts.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._seen = path, b""

    def install(self, mux: Mux) -> None:
        """Register everything below /debug/flags/."""
        for path in ("/debug/flags", "/debug/flags/"):
            mux.exact(path, lambda req: text(200, "v\n"))
        mux.exact("/debug/flags/v", self._v)

    def follow(self) -> None:
        """Apply the verbosity that was set through this or another worker."""
        with contextlib.suppress(FileNotFoundError):  # never set
            if (told := self._path.read_bytes()) != self._seen:
                set_verbosity(int(told))
                self._seen = told

    def _v(self, req: Request) -> Result:
        return with_body(req, self._put) if req.method == "PUT" else _plain(406, "unsupported http method")

    def _put(self, req: Request) -> Response:
        value = shortened(req.body.decode(errors="replace"))
        if not re.fullmatch(r"[0-9]{1,100}", value, re.ASCII):
            return _plain(400, f"strconv.ParseUint: parsing {go_quote(value)}: invalid syntax")
        if int(value) >= 1 << 32:
            return _plain(400, f"strconv.ParseUint: parsing {go_quote(value)}: value out of range")
        if int(value) >= 1 << 31:  # upstream parses the value a second time, as a signed integer
            why = f"strconv.ParseInt: parsing {go_quote(value)}: value out of range"
            return _plain(400, f"failed set klog.logging.verbosity {value}: {why}")
        new = self._path.with_suffix(".new")
        new.write_text(value)
        os.replace(new, self._path)
        self.follow()
        return _plain(200, f"successfully set klog.logging.verbosity to {value}")


def _plain(status: int, said: str) -> Response:
    return Response(status, [(b"content-type", b"text/plain"), (b"x-content-type-options", b"nosniff")], f"{said}\n".encode())


def _sample(thread: int, seconds: int, counts: collections.Counter[str]) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        frame = sys._current_frames().get(thread)
        stack = []
        while frame is not None:
            code = frame.f_code
            stack.append(f"{code.co_filename.rsplit('/', 1)[-1]}:{code.co_name}")
            frame = frame.f_back
        counts[";".join(reversed(stack))] += 1
        time.sleep(INTERVAL_S)


def _threads() -> str:
    names = {t.ident: t.name for t in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        parts.append(f"thread {names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}\n")
    return "".join(parts)

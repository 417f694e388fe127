"""Structured logs on standard error: klog's key="value" text, or one JSON object per line. On request, records that are not errors go to
standard output.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import logging
import sys
import threading
import time
import warnings
from typing import Any, Protocol

from kas.meta.stdio import CONTROLS, flush_standard_streams, put

MOST = 100  # lines per second and log statement: writing the lines of thousands of simultaneous endings would block the loop for seconds
EVERY = {"every": True}  # ``extra`` of a per-request line that an operator enabled: it is never rate-limited
LONGEST = 16384  # characters of a message, and of its traceback: an error may quote text chosen by a client or a backend


class TextFormatter(logging.Formatter):
    """klog's text format. Control characters are escaped, so that no text of a client or a backend, in a message or an exception, can pass
    for a record.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line in klog's format, in UTC with microseconds. A traceback follows on indented lines of its own."""
        stamp = time.strftime("%m%d %H:%M:%S", time.gmtime(record.created))
        said = _shortened(record.getMessage()).translate(CONTROLS)
        lines = [f"{record.levelname[0]}{stamp}.{int(record.created % 1 * 1e6):06d} {record.process} {record.name}] {said}"]
        if record.exc_info:
            lines += (f"  {line.translate(CONTROLS)}" for line in _shortened(self.formatException(record.exc_info)).split("\n"))
        return "\n".join(lines)


class JSONFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line of JSON; "ts" is in milliseconds since the epoch."""
        out = {"ts": round(record.created * 1000, 3), "level": record.levelname.lower(), "logger": record.name, "pid": record.process,
               "msg": _shortened(record.getMessage())}  # fmt: skip
        if record.exc_info:
            out["exception"] = _shortened(self.formatException(record.exc_info))
        return json.dumps(out)


class Handler(logging.StreamHandler):
    """Writes records to standard error.

    - ``broken`` is why the last line could not be written, "" if it was; ``unwritten`` counts the lines that could not be written since.
    - ``verbosity`` applies to files that ``vmodule`` does not name.
    - Records below the level ``split_below`` go to standard output, buffered until there are more than ``room`` bytes or ``every_s``
      seconds have passed.
    - Each log statement may write at most twice ``MOST`` lines per second, as many as a statement with its own ``RateLimitedLog``
      can write at the end of one second and the beginning of the next. How many were dropped is reported within a second.
    """

    broken, unwritten = "", 0
    verbosity, vmodule = 0, ""
    split_below, room, every_s = 0, 0, 0.0

    def __init__(self, stream: Any = None) -> None:
        super().__init__(stream)
        self._waiting, self._bytes = list[str](), 0
        self._sorts: dict[tuple[str, int], RateLimitedLog] = {}  # by log statement

    def verbosity_of(self, file: str) -> int:
        """The verbosity of a source file; see the function of that name."""
        return verbosity_of(file, self.verbosity, self.vmodule)

    def wants(self, record: logging.LogRecord) -> bool:
        """Whether the verbosity of the record's source file admits it."""
        return record.levelno >= _level(self.verbosity_of(record.pathname.removesuffix(".py").rpartition("/kas/")[2]))

    def emit(self, record: logging.LogRecord) -> None:
        """Writes the record. Raises nothing: ``broken`` holds the error until a write succeeds."""
        if not hasattr(record, "every") and not self._spared(record).one(record.created):
            return
        line = self.format(record) + self.terminator
        if self.split_below and record.levelno < self.split_below:
            self._held(line)
        else:
            self._put(self.stream, line, 1)

    def _spared(self, record: logging.LogRecord) -> RateLimitedLog:
        sort = record.pathname, record.lineno
        if (found := self._sorts.get(sort)) is None:
            log = logging.getLogger(record.name)
            found = self._sorts[sort] = RateLimitedLog(log, f"%d more lines of line {record.lineno} of {record.filename}", 2)
        return found

    def _held(self, line: str) -> None:
        if self._bytes + len(line) > self.room:  # lines are written whole, since other processes write to the same stream
            self.flush()
        self._waiting.append(line)
        self._bytes += len(line)
        if self._bytes > self.room or not self.every_s:
            self.flush()
        elif len(self._waiting) == 1:
            timer = threading.Timer(self.every_s, self.flush)
            timer.daemon = True
            timer.start()

    def flush(self) -> None:
        """Writes the buffered lines."""
        with self.lock:  # type: ignore[union-attr]  # the lock is None only in handlers that create none
            if self._waiting:
                lines, self._waiting, self._bytes = self._waiting, [], 0
                self._put(sys.stdout, "".join(lines), len(lines))

    def _put(self, stream: Any, text: str, lines: int) -> None:
        try:
            put(stream, text)
        except (OSError, ValueError) as e:  # a full disk; a pipe that is closed or is not read
            self.broken, self.unwritten = str(e) or type(e).__name__, self.unwritten + lines
        else:
            self.broken, self.unwritten = "", 0

    def look(self) -> str:
        """Why logs cannot be written, "" when they can. After a failed write it tries again, so that recovery is noticed even when nothing
        else is logged.
        """
        if self.broken:
            before = self.unwritten
            said = f"{before} lines could not be written when they were due: {self.broken}"
            self.handle(logging.LogRecord("kas.logs", logging.WARNING, __file__, 0, said, (), None))
            self.unwritten = min(self.unwritten, before)  # this line does not count
        return self.broken


class RateLimitedLog:
    """Rate-limits a kind of log line to ``times`` times ``MOST`` per second. ``more`` is the format of the warning in ``log`` that reports
    how many were dropped: before the next line that may be written, or a second later if there is none.
    """

    def __init__(self, log: logging.Logger, more: str, times: int = 1) -> None:
        self._log, self._more, self._times = log, more, times
        self._since, self._lines, self._unsaid = 0.0, 0, 0

    def one(self, now: float) -> bool:
        """Whether one more line may be written at ``now``. First reports how many lines were dropped in earlier seconds."""
        if not 0.0 <= now - self._since < 1.0:  # the time of day may have been set back
            self._since, self._lines = now, 0
            self._report()
        self._lines += 1
        if self._lines > self._times * MOST:
            self._unsaid += 1
            if self._unsaid == 1:
                timer = threading.Timer(1.0, self._report)
                timer.daemon = True
                with contextlib.suppress(RuntimeError):  # no more threads from the system: the next line reports them
                    timer.start()
            return False
        return True

    def _report(self) -> None:
        unsaid, self._unsaid = self._unsaid, 0
        if unsaid:
            self._log.warning(self._more, unsaid)


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text)} characters)"


def log_check() -> str:
    """The health check of logging: why nothing can be logged, "" when it can."""
    return next((why for h in _handlers() if (why := h.look())), "")


def flush_logs() -> None:
    """Writes buffered lines and flushes the standard streams; call it before ``os._exit``."""
    for handler in _handlers():
        handler.flush()
    flush_standard_streams()


def _handlers() -> list[Handler]:
    return [h for h in logging.getLogger().handlers if isinstance(h, Handler)]


def verbosity_of(file: str, verbosity: int, vmodule: str) -> int:
    """The verbosity of a source file, named as in a path without ".py".

    The first matching pattern of ``vmodule`` ("pattern=N,…") applies, else ``verbosity``. As in klog, a pattern without a slash matches the
    last path element alone, and "*" and "?" are wildcards.
    """
    for part in vmodule.split(","):
        pattern, _, number = part.strip().rpartition("=")
        if pattern and fnmatch.fnmatchcase(file if "/" in pattern else file.rpartition("/")[2], pattern):
            return int(number)
    return verbosity


def _level(verbosity: int) -> int:
    return logging.DEBUG if verbosity >= 6 else logging.INFO if verbosity >= 1 else logging.WARNING


class Settings(Protocol):
    """The flags that configure logging."""

    v: int
    vmodule: str
    logging_format: str
    log_flush_frequency: float
    log_json_info_buffer_size: int
    log_json_split_stream: bool
    log_text_info_buffer_size: int
    log_text_split_stream: bool


def setup_logging_of(o: Settings) -> None:
    """Sets up logging as the flags say. With the stream split, standard error keeps only errors in JSON (klog's JSON format has no
    warnings), and warnings and errors in text.
    """
    json_form = o.logging_format == "json"
    handler = setup_logging(o.v, o.logging_format, o.vmodule)
    if o.log_json_split_stream if json_form else o.log_text_split_stream:
        handler.split_below = logging.ERROR if json_form else logging.WARNING
        handler.room = o.log_json_info_buffer_size if json_form else o.log_text_info_buffer_size
        handler.every_s = min(max(0.0, o.log_flush_frequency), threading.TIMEOUT_MAX)  # 292 years, the same as Go's longest duration


def setup_logging(verbosity: int, form: str, vmodule: str = "") -> Handler:
    """Sends all logs to standard error, as "json" or text: warnings at verbosity 0, infos from 1 on, everything from 6 on. Files that
    ``vmodule`` names use its number.
    """
    handler = Handler()
    handler.setFormatter(JSONFormatter() if form == "json" else TextFormatter())
    handler.vmodule = vmodule
    logging.getLogger().handlers[:] = [handler]
    if vmodule:
        handler.addFilter(handler.wants)
    set_verbosity(verbosity)
    warnings.showwarning = _warned
    logging.getLogger("_granian").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    return handler


def _warned(message: Warning | str, category: type[Warning], filename: str, lineno: int, file: object = None, line: object = None) -> None:
    """Logs a library's warning, such as one about a client's certificate, in place of Python's two unformatted lines."""
    logging.getLogger("kas.warnings").warning("%s:%d: %s: %s", filename, lineno, category.__name__, message)


def set_verbosity(verbosity: int) -> None:
    """Sets the verbosity of all files that ``--vmodule`` does not name."""
    for handler in _handlers():
        handler.verbosity = verbosity
        numbers = [int(part.rpartition("=")[2]) for part in handler.vmodule.split(",") if part.strip()]
        logging.getLogger().setLevel(min(map(_level, [verbosity, *numbers])))


def current_verbosity(file: str) -> int:
    """The current verbosity of a source file, named as in ``verbosity_of``; 0 when logging has not been set up."""
    return max((handler.verbosity_of(file) for handler in _handlers()), default=0)

"""Structured logs on standard error: klog's key="value" text, or one JSON object a line; what is no error on standard output, where that
is asked for."""

from __future__ import annotations

import fnmatch
import json
import logging
import sys
import threading
import time
import warnings
from typing import Any, Protocol

from kas.meta.stdio import CONTROLS, flush_standard_streams, put

MOST = 100  # lines of a sort a second: thousands that end together would keep the loop for seconds with writing them
EVERY = {"every": True}  # ``extra`` of a line that an operator asked for, of each request: all are written
LONGEST = 16384  # characters of what a line says, and of its traceback: a client, or a backend, may have chosen what an error quotes


class TextFormatter(logging.Formatter):
    """klog's text. Whatever a client, or a backend, got into a message, or into that of an exception: no line of it looks like a record."""

    def format(self, record: logging.LogRecord) -> str:
        """One line as klog writes it, in UTC with microseconds, and the traceback on lines of its own, which are indented."""
        stamp = time.strftime("%m%d %H:%M:%S", time.gmtime(record.created))
        said = _shortened(record.getMessage()).translate(CONTROLS)
        lines = [f"{record.levelname[0]}{stamp}.{int(record.created % 1 * 1e6):06d} {record.process} {record.name}] {said}"]
        if record.exc_info:
            lines += (f"  {line.translate(CONTROLS)}" for line in _shortened(self.formatException(record.exc_info)).split("\n"))
        return "\n".join(lines)


class JSONFormatter(logging.Formatter):
    """A JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """One JSON object on a line; "ts" is in milliseconds since the epoch."""
        out = {"ts": round(record.created * 1000, 3), "level": record.levelname.lower(), "logger": record.name, "pid": record.process,
               "msg": _shortened(record.getMessage())}  # fmt: skip
        if record.exc_info:
            out["exception"] = _shortened(self.formatException(record.exc_info))
        return json.dumps(out)


class Handler(logging.StreamHandler):
    """Standard error; ``broken`` is why the last line could not be written, "" when it was; ``unwritten`` how many could not since.
    ``verbosity`` is that of what ``vmodule`` does not name. What is below the level ``split_below`` goes to standard output, and waits
    until there is more than ``room`` bytes of it, or ``every_s`` seconds. Of the lines that one statement logs no more are written in a
    second than twice ``MOST``, as many as one with a ``Sparing`` of its own has at the end of one second and the beginning of the next;
    the next one that is written says how many were not."""

    broken, unwritten = "", 0
    verbosity, vmodule = 0, ""
    split_below, room, every_s = 0, 0, 0.0

    def __init__(self, stream: Any = None) -> None:
        super().__init__(stream)
        self._waiting, self._bytes = list[str](), 0
        self._sorts: dict[tuple[str, int], Sparing] = {}  # by the statement

    def verbosity_of(self, file: str) -> int:
        """What counts for a source file now; see the function of that name."""
        return verbosity_of(file, self.verbosity, self.vmodule)

    def wants(self, record: logging.LogRecord) -> bool:
        """Whether its file's verbosity lets it through."""
        return record.levelno >= _level(self.verbosity_of(record.pathname.removesuffix(".py").rpartition("/kas/")[2]))

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record; raises nothing: what keeps it from being written is told in ``broken`` until a write succeeds."""
        if not hasattr(record, "every") and not self._spared(record).one(record.created):
            return
        line = self.format(record) + self.terminator
        if self.split_below and record.levelno < self.split_below:
            self._held(line)
        else:
            self._put(self.stream, line, 1)

    def _spared(self, record: logging.LogRecord) -> Sparing:
        sort = record.pathname, record.lineno
        if (found := self._sorts.get(sort)) is None:
            log = logging.getLogger(record.name)
            found = self._sorts[sort] = Sparing(log, f"%d more lines of line {record.lineno} of {record.filename}", 2)
        return found

    def _held(self, line: str) -> None:
        if self._bytes + len(line) > self.room:  # lines are written whole: other processes write to the same stream
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
        """Writes what waits."""
        with self.lock:  # type: ignore[union-attr]  # None only for who has none made
            if self._waiting:
                lines, self._waiting, self._bytes = self._waiting, [], 0
                self._put(sys.stdout, "".join(lines), len(lines))

    def _put(self, stream: Any, text: str, lines: int) -> None:
        try:
            put(stream, text)
        except (OSError, ValueError) as e:  # a full disk; a pipe that was closed, or that nobody reads
            self.broken, self.unwritten = str(e) or type(e).__name__, self.unwritten + lines
        else:
            self.broken, self.unwritten = "", 0

    def look(self) -> str:
        """Why nothing can be written, "" when it can: where it could not, that is said now, so that what has recovered counts as well
        though nobody else has anything to say."""
        if self.broken:
            before = self.unwritten
            said = f"{before} lines could not be written when they were due: {self.broken}"
            self.handle(logging.LogRecord("kas.logs", logging.WARNING, __file__, 0, said, (), None))
            self.unwritten = min(self.unwritten, before)  # this line was none of them
        return self.broken


class Sparing:
    """Says whether one more line of a sort may be written, of which no more than ``times`` ``MOST`` are in a second. ``more`` is how
    ``log`` is told how many were not."""

    def __init__(self, log: logging.Logger, more: str, times: int = 1) -> None:
        self._log, self._more, self._times = log, more, times
        self._since, self._lines, self._unsaid = 0.0, 0, 0

    def one(self, now: float) -> bool:
        """Whether this one may be; says first how many were not in the seconds before."""
        if not 0.0 <= now - self._since < 1.0:  # the time of day may have been set back
            unsaid, self._since, self._lines, self._unsaid = self._unsaid, now, 0, 0
            if unsaid:
                self._log.warning(self._more, unsaid)
        self._lines += 1
        if self._lines > self._times * MOST:
            self._unsaid += 1
            return False
        return True


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text)} characters)"


def log_check() -> str:
    """Why nothing can be logged; "" when it can."""
    return next((why for h in _handlers() if (why := h.look())), "")


def flush_logs() -> None:
    """Writes what waits, in the standard streams as well; before the process ends by ``os._exit``."""
    for handler in _handlers():
        handler.flush()
    flush_standard_streams()


def _handlers() -> list[Handler]:
    return [h for h in logging.getLogger().handlers if isinstance(h, Handler)]


def verbosity_of(file: str, verbosity: int, vmodule: str) -> int:
    """That of a source file, named without ".py" as in a path: the first pattern of ``vmodule`` ("pattern=N,…") that matches it counts,
    else ``verbosity``. As klog has it a pattern without a slash is of the last name alone, and "*" and "?" stand for what one expects."""
    for part in vmodule.split(","):
        pattern, _, number = part.strip().rpartition("=")
        if pattern and fnmatch.fnmatchcase(file if "/" in pattern else file.rpartition("/")[2], pattern):
            return int(number)
    return verbosity


def _level(verbosity: int) -> int:
    return logging.DEBUG if verbosity >= 6 else logging.INFO if verbosity >= 1 else logging.WARNING


class Settings(Protocol):
    """The flags that concern logs."""

    v: int
    vmodule: str
    logging_format: str
    log_flush_frequency: float
    log_json_info_buffer_size: int
    log_json_split_stream: bool
    log_text_info_buffer_size: int
    log_text_split_stream: bool


def setup_logging_of(o: Settings) -> None:
    """As the flags say. JSON has no warnings for klog, whose split leaves errors alone on standard error."""
    json_form = o.logging_format == "json"
    handler = setup_logging(o.v, o.logging_format, o.vmodule)
    if o.log_json_split_stream if json_form else o.log_text_split_stream:
        handler.split_below = logging.ERROR if json_form else logging.WARNING
        handler.room = o.log_json_info_buffer_size if json_form else o.log_text_info_buffer_size
        handler.every_s = min(max(0.0, o.log_flush_frequency), threading.TIMEOUT_MAX)  # which is 292 years, as Go's longest


def setup_logging(verbosity: int, form: str, vmodule: str = "") -> Handler:
    """Send all logs to stderr, ``form`` "json" or text: warnings at verbosity 0, infos from 1 and everything from 6; where ``vmodule``
    names the file, by its number."""
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
    """Logs what a library warns of, as of a client's certificate, in the place of Python's two lines, which are of no log's form."""
    logging.getLogger("kas.warnings").warning("%s:%d: %s: %s", filename, lineno, category.__name__, message)


def set_verbosity(verbosity: int) -> None:
    """From now on, of all that ``--vmodule`` does not name."""
    for handler in _handlers():
        handler.verbosity = verbosity
        numbers = [int(part.rpartition("=")[2]) for part in handler.vmodule.split(",") if part.strip()]
        logging.getLogger().setLevel(min(map(_level, [verbosity, *numbers])))


def current_verbosity(file: str) -> int:
    """What counts for a source file now, named as ``verbosity_of`` has it; 0 where no log was set up."""
    return max((handler.verbosity_of(file) for handler in _handlers()), default=0)

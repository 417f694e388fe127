"""Structured logs on standard error: klog's key="value" text, or one JSON object a line."""

from __future__ import annotations

import fnmatch
import json
import logging
import time

# What would end a line, or tell a terminal to do something.
_CONTROLS = {c: chr(c).encode("unicode_escape").decode() for c in (*range(32), *range(127, 160), 0x2028, 0x2029) if c != ord("\t")}


class TextFormatter(logging.Formatter):
    """klog's text. Whatever a client, or a backend, got into a message, or into that of an exception: no line of it looks like a record."""

    def format(self, record: logging.LogRecord) -> str:
        """One line as klog writes it, in UTC with microseconds, and the traceback on lines of its own, which are indented."""
        stamp = time.strftime("%m%d %H:%M:%S", time.gmtime(record.created))
        said = record.getMessage().translate(_CONTROLS)
        lines = [f"{record.levelname[0]}{stamp}.{int(record.created % 1 * 1e6):06d} {record.process} {record.name}] {said}"]
        if record.exc_info:
            lines += (f"  {line.translate(_CONTROLS)}" for line in self.formatException(record.exc_info).split("\n"))
        return "\n".join(lines)


class JSONFormatter(logging.Formatter):
    """A JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """One JSON object on a line; "ts" is in milliseconds since the epoch."""
        out = {"ts": round(record.created * 1000, 3), "level": record.levelname.lower(), "logger": record.name, "pid": record.process,
               "msg": record.getMessage()}  # fmt: skip
        if record.exc_info:
            out["exception"] = self.formatException(record.exc_info)
        return json.dumps(out)


class Handler(logging.StreamHandler):
    """Standard error; ``broken`` is why the last line could not be written, "" when it was."""

    broken = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record; raises nothing: what keeps it from being written is told in ``broken`` until a write succeeds."""
        try:
            self.stream.write(self.format(record) + self.terminator)
            self.flush()
        except (OSError, ValueError) as e:  # a full disk; a pipe or a stream that was closed
            self.broken = str(e) or type(e).__name__
        else:
            self.broken = ""


def log_check() -> str:
    """Why nothing can be logged; "" when it can."""
    return next((h.broken for h in logging.getLogger().handlers if isinstance(h, Handler) and h.broken), "")


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


def setup_logging(verbosity: int, form: str, vmodule: str = "") -> None:
    """Send all logs to stderr, ``form`` "json" or text: warnings at verbosity 0, infos from 1 and everything from 6; where ``vmodule``
    names the file, by its number."""
    handler = Handler()
    handler.setFormatter(JSONFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    numbers = [int(part.rpartition("=")[2]) for part in vmodule.split(",") if part.strip()]
    root.setLevel(min(map(_level, [verbosity, *numbers])))
    if numbers:
        handler.addFilter(lambda record: record.levelno >= _level(
            verbosity_of(record.pathname.removesuffix(".py").rpartition("/kas/")[2], verbosity, vmodule)
        ))  # fmt: skip
    logging.getLogger("_granian").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)

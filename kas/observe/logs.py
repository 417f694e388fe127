"""Structured logs on standard error: klog's key="value" text, or one JSON object a line."""

from __future__ import annotations

import json
import logging
import time


class TextFormatter(logging.Formatter):
    """klog's text."""

    def format(self, record: logging.LogRecord) -> str:
        """One line as klog writes it, in UTC with microseconds, and the traceback on lines of its own."""
        stamp = time.strftime("%m%d %H:%M:%S", time.gmtime(record.created))
        line = f"{record.levelname[0]}{stamp}.{int(record.msecs * 1000):06d} {record.process} {record.name}] {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


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


def setup_logging(verbosity: int, form: str) -> None:
    """Send all logs to stderr, ``form`` "json" or text: warnings at verbosity 0, infos from 1 and everything from 6."""
    handler = Handler()
    handler.setFormatter(JSONFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if verbosity >= 6 else logging.INFO if verbosity >= 1 else logging.WARNING)
    logging.getLogger("_granian").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)

"""Structured logs on standard error: klog's key="value" text, or one JSON object a line."""

from __future__ import annotations

import json
import logging
import time


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%m%d %H:%M:%S", time.gmtime(record.created))
        line = f"{record.levelname[0]}{stamp}.{int(record.msecs * 1000):06d} {record.process} {record.name}] {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JSONFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        out = {"ts": round(record.created * 1000, 3), "level": record.levelname.lower(), "logger": record.name, "pid": record.process,
               "msg": record.getMessage()}  # fmt: skip
        if record.exc_info:
            out["exception"] = self.formatException(record.exc_info)
        return json.dumps(out)


def setup_logging(verbosity: int, form: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(JSONFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if verbosity >= 6 else logging.INFO if verbosity >= 1 else logging.WARNING)
    logging.getLogger("_granian").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)

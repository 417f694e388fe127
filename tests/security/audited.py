"""What a recorded server wrote about the requests of a case: audit events in a file or sent to a webhook, in the order of the steps."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.security.normal import Normal

LIMIT_S = 60.0
QUIET_S = 0.2  # no new events for this long: all have arrived, unless more are there at the end (`AuditIDs.late`)
MISSING_S = 15.0  # if there are fewer than recorded: a busy machine may be slow
LOOK_EVERY_S = 0.1
STAGES = ("RequestReceived", "ResponseStarted", "ResponseComplete", "Panic")
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}")


class AuditIDs:
    """The Audit-IDs of a case: one for each step that is sent with one."""

    def __init__(self, case: str, directory: Path) -> None:
        self._case, self._directory = case, directory
        self.steps: dict[str, int] = {}
        self._found = 0  # lines in the file at the last read, for all sent ids

    def of(self, step: int) -> str:
        """The id of step number ``step``."""
        x = hashlib.sha1(f"{self._case} {step} {self._directory}".encode()).hexdigest()
        made = f"{x[:8]}-{x[8:12]}-4{x[13:16]}-8{x[17:20]}-{x[20:32]}"
        self.steps[made] = step
        self._found = 0
        return made

    def file(self, path: Path, step: dict[str, Any], recorded: dict[str, Any], normal: Normal) -> dict[str, Any]:
        """Returns the lines about the case in the file; ``recorded`` is what was recorded."""

        lines = _complete(lambda: self._lines(path), step, recorded)
        self._found = len(lines)
        if step.get("raw"):
            # The end of a watch is recorded when the server notices the disconnect, which may be after the next request.
            lines.sort(key=lambda line: next(n for own, n in self.steps.items() if own in line))
            return {"lines": [normal.text(line) for line in lines]}
        return {"events": self._ordered([json.loads(line) for line in lines], normal)}

    def _lines(self, path: Path) -> list[str]:
        """Returns the lines about the case."""
        lines = path.read_text("utf-8", "replace").splitlines() if path.exists() else []
        return [line for line in lines if any(own in line for own in self.steps)]

    def late(self, path: Path) -> int:
        """Returns how many lines were added since the last read."""
        return max(0, len(self._lines(path)) - self._found) if self._found else 0

    def sent(
        self, take: Callable[[], list[dict[str, Any]]], step: dict[str, Any], recorded: dict[str, Any], normal: Normal
    ) -> dict[str, Any]:
        """Returns what a webhook got about the case; ``recorded`` is what was recorded."""
        events: list[dict[str, Any]] = []

        def read() -> list[dict[str, Any]]:
            events.extend(e for asked in take() for e in asked["body"].get("items") or () if e.get("auditID") in self.steps)
            return events

        _complete(read, {"settle": 2, **step}, recorded)
        return {"events": self._ordered(events, normal)}

    def _ordered(self, events: list[dict[str, Any]], normal: Normal) -> list[dict[str, Any]]:
        out = []
        for event in sorted(events, key=lambda e: (self.steps[e["auditID"]], STAGES.index(e["stage"]))):
            annotations = {k: v for k, v in (event.get("annotations") or {}).items() if not k.startswith("apiserver.latency.k8s.io")}
            shown = {**event, "auditID": f"<step {self.steps[event['auditID']]}>", "annotations": annotations}
            out.append(normal.value(shown if annotations else {k: v for k, v in shown.items() if k != "annotations"}))
        return out


def _complete(read: Callable[[], list[Any]], step: dict[str, Any], recorded: dict[str, Any]) -> list[Any]:
    """Returns the result of ``read`` once it has not grown for a while."""
    until, found, quiet = time.monotonic() + LIMIT_S, -1, time.monotonic()
    wait, wanted = max(QUIET_S, step.get("settle", 0)), len(recorded.get("events") or recorded.get("lines") or ())
    while True:
        got = read()
        if len(got) != found:
            found, quiet = len(got), time.monotonic()
        silent = time.monotonic() - quiet
        if silent > (wait if found >= wanted else max(wait, MISSING_S)) or time.monotonic() > until:
            return got
        time.sleep(LOOK_EVERY_S)


def asked_at_least(take: Callable[[], list[dict[str, Any]]], wanted: int) -> list[dict[str, Any]]:
    """Returns the requests to a webhook, once there are this many."""
    until, got = time.monotonic() + LIMIT_S, take()
    while len(got) < wanted and time.monotonic() < until:
        time.sleep(LOOK_EVERY_S)
        got += take()
    return got


def files(directory: Path, pattern: str) -> dict[str, Any]:
    """Returns the names in a directory that match, without their times, and their number."""
    names = [_STAMP.sub("<stamp>", path.name) for path in directory.iterdir() if re.search(pattern, path.name)]
    return {"files": sorted(set(names)), "count": len(names)}

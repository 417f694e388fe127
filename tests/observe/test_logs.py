"""Log levels, global and of single files."""

from __future__ import annotations

import io
import json
import logging
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import kas
from kas.config.options import Options
from kas.endpoints.debug import DebugFlags
from kas.filters.http_logging import http_logging
from kas.observe import logs
from kas.observe.logs import (
    EVERY,
    LONGEST,
    MOST,
    Handler,
    current_verbosity,
    flush_logs,
    log_check,
    setup_logging,
    setup_logging_of,
    verbosity_of,
)  # fmt: skip
from kas.request.http import Request, Response
from tests.filters.requests import request

ROOT = Path(kas.__file__).parent


@pytest.mark.parametrize(("vmodule", "verbosity"), [
    ("", 2), ("http_logging=3", 3), ("http_*=4,http_logging=3", 4), ("other=9", 2), ("filters/*=5", 5), ("kas/*=5", 2),
    ("filters=5", 2), ("?ttp_logging=0", 0), ("x=1,, http_logging=7", 7),
])  # fmt: skip
def test_a_pattern_matches_the_name_or_with_a_slash_the_path(vmodule, verbosity):
    assert verbosity_of("filters/http_logging", 2, vmodule) == verbosity


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """Returns what is logged, as ``setup_logging`` would write it to standard error."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, Callable[[], None]]]:
    """The timers of logs, which do not run."""
    made: list[tuple[float, Callable[[], None]]] = []

    class Timer:
        daemon = False

        def __init__(self, seconds: float, call: Callable[[], None]) -> None:
            made.append((seconds, call))

        def start(self) -> None:
            assert self.daemon

    monkeypatch.setattr(logs, "threading", SimpleNamespace(Timer=Timer))
    return made


def say(path: str, level: int) -> None:
    logger = logging.getLogger("kas.test_logs")
    if logger.isEnabledFor(level):
        logger.handle(logger.makeRecord(logger.name, level, str(ROOT / path), 1, f"{path} {level}", (), None))


@pytest.mark.parametrize("form", ["text", "json"])
def test_warnings_of_libraries_are_log_lines(written: io.StringIO, form: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        setup_logging(0, form)
        (handler,) = [h for h in logging.getLogger().handlers if isinstance(h, Handler)]
        handler.stream = written
        warnings.warn("a serial number of zero", UserWarning, stacklevel=1)
    (line,) = written.getvalue().splitlines()
    said = json.loads(line)["msg"] if form == "json" else line.partition(" kas.warnings] ")[2]
    assert said.startswith(f"{__file__}:") and said.endswith(": UserWarning: a serial number of zero")


@pytest.mark.parametrize(("verbosity", "vmodule", "heard"), [
    (0, "", {("a/b.py", 30), ("a/c.py", 30)}),
    (0, "b=1", {("a/b.py", 20), ("a/b.py", 30), ("a/c.py", 30)}),
    (1, "b=0", {("a/b.py", 30), ("a/c.py", 20), ("a/c.py", 30)}),
    (0, "a/*=6", {(f"a/{f}.py", n) for f in "bc" for n in (10, 20, 30)}),
])  # fmt: skip
def test_files_have_their_own_verbosity(written, verbosity, vmodule, heard):
    setup_logging(verbosity, "text", vmodule)
    (handler,) = [h for h in logging.getLogger().handlers if isinstance(h, Handler)]
    handler.stream = written
    for path in ("a/b.py", "a/c.py"):
        for level in (10, 20, 30):
            say(path, level)
    lines = written.getvalue().splitlines()
    assert {tuple(line.rpartition("] ")[2].split()) for line in lines} == {(path, str(n)) for path, n in heard}


def test_verbosity_can_be_changed_except_for_vmodule(written, tmp_path):
    """By PUT /debug/flags/v, in the worker that is asked and, at their next check, in others."""
    setup_logging(0, "text", "b=1")
    asked, other = DebugFlags(tmp_path / "verbosity"), DebugFlags(tmp_path / "verbosity")
    other.follow()
    assert current_verbosity("filters/http_logging") == 0

    def put(text: str) -> tuple[int, str]:
        answer = asked._put(Request("PUT", "/debug/flags/v", "", [], text.encode()))
        return answer.status, answer.body.decode()

    assert put("4") == (200, "successfully set klog.logging.verbosity to 4\n")
    assert current_verbosity("filters/http_logging") == 4 and current_verbosity("a/b") == 1
    setup_logging(0, "text", "b=1")  # another process
    other.follow()
    assert current_verbosity("a/c") == 4
    for text, why in (("x", "invalid syntax"), ("", "invalid syntax"), ("+4", "invalid syntax"), ("4294967296", "value out of range")):
        assert put(text) == (400, f'strconv.ParseUint: parsing "{text}": {why}\n')
    said = 'failed set klog.logging.verbosity 2147483648: strconv.ParseInt: parsing "2147483648": value out of range\n'
    assert put("4\n")[0] == 400 and put("2147483648") == (400, said)
    assert current_verbosity("a/c") == 4


def test_requests_are_logged_from_the_change_of_verbosity_on(caplog):
    caplog.set_level(logging.INFO, "kas.http")
    verbosity = [2]
    logged = http_logging(0, lambda: verbosity[0])
    for n in (2, 3, 2):
        verbosity[0] = n
        logged.after(request("GET", f"/{n}"), Response(200, []))
    (line,) = caplog.messages
    assert 'URI="/3"' in line


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_record_can_be_forged(written: io.StringIO, form: str) -> None:
    setup_logging(0, form)
    handler = logging.getLogger().handlers[0]
    assert isinstance(handler, Handler)
    handler.setStream(written)
    forged = "x\nE1123 00:00:00.000000 1 kas] all is lost\r\x1b[2J\u2028\x85"
    logging.getLogger("kas.t").warning("path=%s", forged)
    try:
        raise ValueError(forged)
    except ValueError:
        logging.getLogger("kas.t").exception("it failed")
    lines = written.getvalue().split("\n")
    records = [line for line in lines if line and not line.startswith("  ")]
    assert len(records) == 2 and not set("\r\x1b\u2028\x85") & set(written.getvalue())
    said = records[0].replace("\\u00", "\\x")  # JSON's escape for it
    assert "path=x\\nE1123 00:00:00.000000 1 kas] all is lost\\r\\x1b[2J\\u2028\\x85" in said


@pytest.mark.parametrize("form", ["text", "json"])
def test_log_lines_that_a_client_causes_are_bounded(
    written: io.StringIO, timers: list[tuple[float, Callable[[], None]]], form: str
) -> None:
    """A hundred or two hundred lines a second for each statement, and some KiB for each line, whatever an error quotes. What was
    configured to be logged is not limited."""
    handler = setup_logging(3, form)
    handler.setStream(written)
    log, long = logging.getLogger("kas.t"), "x" * 1_000_000
    now = [1000.0]

    def say(text: str, times: int, **more: object) -> None:
        for _ in range(times):
            record = log.makeRecord(log.name, logging.WARNING, "/kas/t.py", 7, "it failed: %s", (text,), None, extra=more or None)
            record.created = now[0]
            log.handle(record)

    say("x", 1000)
    assert written.getvalue().count("it failed") == 2 * MOST
    logging.getLogger("kas.t").warning("another")
    now[0] += 1.0
    say("x", 1)
    *_, other, more, last = written.getvalue().splitlines()
    assert "another" in other and f"{1000 - 2 * MOST} more lines of line 7 of t.py" in more and "it failed: x" in last
    now[0] = 5.0  # the machine's clock was set back
    say("x", 1)
    assert written.getvalue().count("it failed") == 2 * MOST + 2
    say("x", 1000, **EVERY)
    assert written.getvalue().count("it failed") == 2 * MOST + 1002
    say(long, 1)
    try:
        raise ValueError(long)
    except ValueError:
        log.exception("no")
    assert max(map(len, written.getvalue().splitlines())) < 2 * LONGEST + 1000


def test_a_log_that_can_be_written_again_is_healthy_before_the_next_line(written: io.StringIO) -> None:
    """A disk that was full once must not fail /livez until there is something to log."""
    room = False

    class Disk(io.StringIO):
        def write(self, text: str) -> int:
            if not room:
                raise OSError(28, "No space left on device")
            return super().write(text)

    setup_logging(0, "text")
    (handler,) = [h for h in logging.getLogger().handlers if isinstance(h, Handler)]
    handler.stream = disk = Disk()
    for path in ("a/b.py", "a/c.py"):
        say(path, 30)
    full = "[Errno 28] No space left on device"
    assert [log_check(), log_check()] == [full, full] and disk.getvalue() == ""
    room = True
    assert [log_check(), log_check()] == ["", ""]
    assert disk.getvalue().partition("] ")[2] == f"2 lines could not be written when they were due: {full}\n"


@pytest.mark.parametrize(("form", "kept"), [("text", {30, 40}), ("json", {40})])
@pytest.mark.parametrize("split", [True, False])
def test_non_errors_go_to_standard_output_if_configured(
    written: io.StringIO, capfd: pytest.CaptureFixture[str], form: str, kept: set[int], split: bool
) -> None:
    setup_logging_of(Options(v=1, logging_format=form, **{f"log_{form}_split_stream": split}))
    handler = logging.getLogger().handlers[0]
    assert isinstance(handler, Handler)
    handler.setStream(written)
    for level in (20, 30, 40):
        say("a/b.py", level)
    out, errors = capfd.readouterr().out, written.getvalue()
    levels = kept if split else {20, 30, 40}
    assert {level for level in (20, 30, 40) if f"a/b.py {level}" in errors} == levels
    assert {level for level in (20, 30, 40) if f"a/b.py {level}" in out} == {20, 30, 40} - levels


def test_buffered_lines_are_written_when_full_due_or_at_the_end(
    written: io.StringIO, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def lines() -> int:
        return capfd.readouterr().out.count("\n")

    def begin(frequency: float | str) -> None:
        setup_logging_of(Options(v=1, log_text_split_stream=True, log_text_info_buffer_size=200, log_flush_frequency=frequency))

    begin(3600)
    say("a/b.py", 20)
    assert lines() == 0
    for _ in range(5):
        say("a/b.py", 20)
    told = lines()
    assert 0 < told < 6
    flush_logs()
    assert told + lines() == 6
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    before = set(threading.enumerate())
    begin("9223372036854775807ns")  # the longest there is, which no thread can wait
    say("a/b.py", 20)
    for timer in set(threading.enumerate()) - before:
        timer.join(0.2)
    assert lines() == 0 and not raised
    begin(0.01)
    say("a/b.py", 20)
    end = time.monotonic() + 30
    while not lines():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_number_of_dropped_lines_is_logged_without_a_further_line(
    written: io.StringIO, timers: list[tuple[float, Callable[[], None]]]
) -> None:
    """A burst and then silence: the number was never logged."""
    setup_logging(0, "text")
    (handler,) = [h for h in logging.getLogger().handlers if isinstance(h, Handler)]
    handler.stream = written
    for _ in range(2 * MOST + 7):
        logging.getLogger("kas.t").handle(logging.LogRecord("kas.t", logging.WARNING, __file__, 1, "again", (), None))
    assert written.getvalue().count("again") == 2 * MOST and len(timers) == 1
    seconds, call = timers[0]
    call()
    call()
    assert seconds == 1.0 and written.getvalue().count("] 7 more lines of line 1 of test_logs.py") == 1

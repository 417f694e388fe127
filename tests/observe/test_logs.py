"""Verbosity, of everything and of single files."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import kas
from kas.observe.logs import Handler, log_check, setup_logging, verbosity_of

ROOT = Path(kas.__file__).parent


@pytest.mark.parametrize(("vmodule", "verbosity"), [
    ("", 2), ("http_logging=3", 3), ("http_*=4,http_logging=3", 4), ("other=9", 2), ("filters/*=5", 5), ("kas/*=5", 2),
    ("filters=5", 2), ("?ttp_logging=0", 0), ("x=1,, http_logging=7", 7),
])  # fmt: skip
def test_a_pattern_is_of_the_name_or_with_a_slash_of_the_path(vmodule, verbosity):
    assert verbosity_of("filters/http_logging", 2, vmodule) == verbosity


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What is logged, as ``setup_logging`` would have it on standard error."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)


def say(path: str, level: int) -> None:
    logger = logging.getLogger("kas.test_logs")
    if logger.isEnabledFor(level):
        logger.handle(logger.makeRecord(logger.name, level, str(ROOT / path), 1, f"{path} {level}", (), None))


@pytest.mark.parametrize(("verbosity", "vmodule", "heard"), [
    (0, "", {("a/b.py", 30), ("a/c.py", 30)}),
    (0, "b=1", {("a/b.py", 20), ("a/b.py", 30), ("a/c.py", 30)}),
    (1, "b=0", {("a/b.py", 30), ("a/c.py", 20), ("a/c.py", 30)}),
    (0, "a/*=6", {(f"a/{f}.py", n) for f in "bc" for n in (10, 20, 30)}),
])  # fmt: skip
def test_files_have_their_own(written, verbosity, vmodule, heard):
    setup_logging(verbosity, "text", vmodule)
    (handler,) = [h for h in logging.getLogger().handlers if isinstance(h, Handler)]
    handler.stream = written
    for path in ("a/b.py", "a/c.py"):
        for level in (10, 20, 30):
            say(path, level)
    lines = written.getvalue().splitlines()
    assert {tuple(line.rpartition("] ")[2].split()) for line in lines} == {(path, str(n)) for path, n in heard}


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
    said = records[0].replace("\\u00", "\\x")  # JSON's way of saying it
    assert "path=x\\nE1123 00:00:00.000000 1 kas] all is lost\\r\\x1b[2J\\u2028\\x85" in said


def test_a_log_that_can_be_written_again_is_well_before_anybody_says_more(written: io.StringIO) -> None:
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

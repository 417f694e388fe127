"""``kas serve --help`` fits the reader's terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest

from kas.config import help
from kas.config.flags import FLAGS

PROGRAM = [sys.executable, "-m", "kas.cli", "serve", "--help"]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_lines_fit_the_width_and_words_stay_whole(width):
    text = help.usage(width)
    for line in text.splitlines():
        assert len(line) <= width or len(line.split()) <= 2, line  # a flag and its type, or one long word
    words = set(text.split())
    for flag in FLAGS:
        assert f"--{flag.name}" in words
    assert " ".join(text.split()) == " ".join(help.usage(10_000).split())


def test_the_width_follows_columns_within_limits():
    def widest(columns: str) -> int:
        env = {**os.environ, "COLUMNS": columns}
        done = subprocess.run(PROGRAM, capture_output=True, text=True, check=True, env=env, timeout=60, stdin=subprocess.DEVNULL)
        return max(len(line) for line in done.stdout.splitlines() if len(line.split()) > 2)

    assert 52 < widest("60") <= 60
    assert 100 < widest("100000") <= help.WIDEST
    assert widest("1") <= help.NARROWEST
    assert 72 < widest("none") <= help.USUAL


def test_in_a_pipe_the_width_is_that_of_the_terminal():
    terminal, end = pty.openpty()
    try:
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 70, 0, 0))
        env = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        done = subprocess.run(PROGRAM, stdout=subprocess.PIPE, stderr=end, text=True, check=True, env=env, timeout=60)
    finally:
        os.close(end)
        os.close(terminal)
    assert 62 < max(len(line) for line in done.stdout.splitlines() if len(line.split()) > 2) <= 70

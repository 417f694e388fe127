"""Waiting for descriptors with any number."""

from __future__ import annotations

import contextlib
import os

from kas.meta.fdwait import readable


def test_readable_and_closed_descriptors():
    with contextlib.ExitStack() as stack:
        pipes = [os.pipe() for _ in range(3)]
        for r, w in pipes[:2]:
            stack.callback(os.close, r)
            stack.callback(os.close, w)
        quiet, told, ended = (r for r, _ in pipes)
        stack.callback(os.close, ended)
        assert readable((quiet, told), 0) == set()
        os.write(pipes[1][1], b"x")
        os.close(pipes[2][1])
        assert readable((quiet, told, ended)) == {told, ended}


def test_a_number_above_the_limit_of_select():
    r, w = os.pipe()
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, r)
        stack.callback(os.close, w)
        taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
        for fd in taken:
            stack.callback(os.close, fd)
        high = os.dup(r)
        stack.callback(os.close, high)
        assert high > 1024
        os.write(w, b"x")
        assert readable((high,)) == {high}


def test_a_wait_longer_than_the_system_can_express():
    r, w = os.pipe()
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, r)
        stack.callback(os.close, w)
        os.write(w, b"x")
        assert readable((r,), 2562047 * 3600.0) == {r}

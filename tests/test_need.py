"""A missing prerequisite skips a test with the reason, and fails it in CI."""

from __future__ import annotations

import pytest

from tests import need

skipped, failed = pytest.skip.Exception, pytest.fail.Exception


@pytest.mark.parametrize(("in_ci", "ends"), [(False, skipped), (True, failed)])
@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda: need.program("no-such-program", "package p"), "no no-such-program on PATH \\(package p\\)"),
        (lambda: need.module("no_such_module"), "no_such_module cannot be imported"),
        (lambda: need.give_up("no answers"), "no answers"),
    ],
)
def test_missing(monkeypatch, in_ci, ends, ask, what):
    monkeypatch.setattr(need, "IN_CI", in_ci)
    with pytest.raises(ends, match=what):
        ask()


def test_present_prerequisites_are_returned():
    assert need.module("json").loads("1") == 1
    assert need.program("sh", "any system").endswith("/sh")

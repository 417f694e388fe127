"""A missing prerequisite skips a test with the reason, and fails it in CI."""

from __future__ import annotations

import pytest

from tests import prerequisites

skipped, failed = pytest.skip.Exception, pytest.fail.Exception


@pytest.mark.parametrize(("in_ci", "ends"), [(False, skipped), (True, failed)])
@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda: prerequisites.program("no-such-program", "package p"), "no no-such-program on PATH \\(package p\\)"),
        (lambda: prerequisites.module("no_such_module"), "no_such_module cannot be imported"),
        (lambda: prerequisites.give_up("no answers"), "no answers"),
    ],
)
def test_missing(monkeypatch, in_ci, ends, ask, what):
    monkeypatch.setattr(prerequisites, "IN_CI", in_ci)
    with pytest.raises(ends, match=what):
        ask()


def test_present_prerequisites_are_returned():
    assert prerequisites.module("json").loads("1") == 1
    assert prerequisites.program("sh", "any system").endswith("/sh")

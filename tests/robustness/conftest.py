"""Prints a summary of fuzzing: how often each status was answered, and what explains each 5xx."""

from __future__ import annotations

import collections

import pytest

_counted: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Adds up the counts of tests, from this process or another."""
    if report.when == "teardown":
        for name, counts in report.user_properties:
            if name in ("answered", "explained"):
                _counted[name].update(counts)  # type: ignore[arg-type]  # a test gives text only


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the sums."""
    for name, counts in sorted(_counted.items()):
        terminalreporter.section(f"{name}: {sum(counts.values())}")
        for what, n in sorted(counts.items()):
            terminalreporter.write_line(f"{n:9} {what}")

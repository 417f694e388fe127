"""What the tests with real clients print at the end, and the servers they share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kas.testing.server import KasServer

# Lines a module wants to see in the summary: (section, line).
_LINES: list[tuple[str, str]] = []


@pytest.fixture(scope="module")
def module_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., KasServer]]:
    """``module_server(*flags, workers=1)`` starts a server that lives as long as the module's tests."""
    running: list[KasServer] = []

    def start(*flags: str, workers: int = 1) -> KasServer:
        server = KasServer(tmp_path_factory.mktemp("kas"), *flags, workers=workers)
        server.start()
        running.append(server)
        return server

    yield start
    for server in running:
        server.stop()


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[str, str], None]:
    """``tell(section, line)``: a line of the summary at the end of the run, also when tests run in several processes."""

    def say(section: str, line: str) -> None:
        record_property("clients:" + section, line)

    return say


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call":
        _LINES.extend((key[8:], value) for key, value in report.user_properties if key.startswith("clients:"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _LINES:
        return
    terminalreporter.section("clients")
    counts: dict[str, dict[str, int]] = {}
    for section, line in _LINES:
        if section == "http":
            # name=value pairs, one line per conversation, are added up
            for pair in line.split():
                name, _, value = pair.partition("=")
                bucket = counts.setdefault(section, {})
                bucket[name] = bucket.get(name, 0) + int(value)
        else:
            terminalreporter.write_line(f"{section}: {line}")
    if "http" in counts:
        c = counts["http"]
        terminalreporter.write_line(
            f"http conversations: {c['conversations']} replayed, {c['alike']} alike throughout; {c['requests']} requests: "
            f"{c['status']} same status code, {c['loose']} identical with managedFields ignored, {c['exact']} identical"
        )

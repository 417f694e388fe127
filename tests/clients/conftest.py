"""Servers that the tests with real clients share, and the lines that they print at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kas.testing.plugin import servers
from kas.testing.server import KasServer
from tests import prerequisites
from tests.clients import kubectl
from tests.clients.conversation import Connection

# Lines of modules for the summary: (section, line).
_LINES: list[tuple[str, str]] = []


@pytest.fixture(scope="module")
def module_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., KasServer]]:
    """``module_server(*flags, workers=1)`` starts a server that lives as long as the module's tests."""
    yield from servers(tmp_path_factory)


@pytest.fixture(scope="module")
def connection(module_server: Callable[..., KasServer]) -> Iterator[Connection]:
    """The options of a connection that replays recorded conversations."""
    connection = Connection(module_server("--controllers=none", "--unsafe-no-fsync", "--advertise-address=127.0.0.1"))
    yield connection
    connection.close()


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[str, str], None]:
    """``tell(section, line)`` adds a line to the summary at the end of the run, also when tests run in several processes."""

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
            # name=value pairs, one line for each conversation, are added up
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


# --- kubectl


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "every_version: runs with every kubectl found, not only with the main ones")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "k" not in metafunc.fixturenames:
        return
    programs = kubectl.found()
    every = metafunc.definition.get_closest_marker("every_version") is not None
    versions = list(programs) if every else kubectl.main_versions(programs)
    params = [pytest.param(v, id=v) for v in versions] or [pytest.param(None, id="none", marks=prerequisites.missing(kubectl.NONE_FOUND))]
    metafunc.parametrize("k", params, indirect=True, scope="module")


@pytest.fixture(scope="module")
def kubectl_server(module_server) -> KasServer:
    return module_server("--unsafe-no-fsync", "-v", "0")


@pytest.fixture(scope="module")
def k(request: pytest.FixtureRequest, kubectl_server: KasServer, tmp_path_factory: pytest.TempPathFactory) -> kubectl.Kubectl:
    """A kubectl with a namespace of its own; the test runs once for each version."""
    home = tmp_path_factory.mktemp("home")
    return kubectl.Kubectl(kubectl.found()[request.param], request.param, kubectl_server, home).prepare()


@pytest.fixture(scope="module")
def applied(k: kubectl.Kubectl) -> kubectl.Kubectl:
    """The kubectl after ``apply`` of every manifest."""
    k.apply("network-config.yaml", "workloads.yaml", "policy.yaml", "pods.yaml")
    return k

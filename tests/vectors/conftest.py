"""Checks every recorded answer (see files.py) against the real functions, one test id for each vector id.

A kind is a module ``tests/vectors/kinds/<kind>.py`` with ``check(vector, group) -> None``. It raises AssertionError (by a plain
``assert``) when kas answers differently from the real implementation. ``group`` is every vector of the file (for files whose lines refer
to one another). A file whose kind has no module is named in the summary and skipped. Vectors that do not pass yet are in
``known_failures.txt`` with the reason.
"""

from __future__ import annotations

import collections
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests import prerequisites
from tests.vectors.files import DIRECTORY, files, read

HERE = Path(__file__).parent
KNOWN = HERE / "known_failures.txt"
# Other tests run these kinds.
ELSEWHERE = {
    "http": "tests/clients/test_http_conversations.py",
    "http-extend": "tests/clients/test_extend_conversations.py and test_admission_conversations.py",
    **dict.fromkeys(
        [f"security/{kind}" for kind in ("apf", "audit-e2e", "authn", "authz", "encryption", "sa-csr")], "tests/security/test_replay.py"
    ),
    "etcd-samples": "tests/clients/test_samples.py and tests/registry/test_stored_forms.py",
    "etcd-custom": "tests/server/test_etcd_stored.py",
    "encoded": "tests/registry/test_etcd_layout.py",
    "security/setups": "security/startup, for its files",
}

_results: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)


def script(kind: str) -> Path:
    """The path of the module that checks a kind; it does not exist for an unknown kind."""
    return HERE / "kinds" / (kind.replace("-", "_") + ".py")


def module_of(kind: str) -> ModuleType:
    """The module that checks a kind."""
    path = script(kind)
    spec = importlib.util.spec_from_file_location("vector_kind_" + kind.replace("-", "_").replace("/", "_"), path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def known_failures() -> dict[str, str]:
    """Vector id -> reason. A line is ``id<TAB>reason``; ``#`` starts a comment."""
    out = {}
    for line in KNOWN.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            vid, _, reason = line.partition("\t")
            if not reason.strip():
                raise ValueError(f"{KNOWN.name}: {vid} has no reason")
            out[vid.strip()] = reason.strip()
    return out


class Vector(pytest.Item):
    """A recorded answer and its check: an item without fixtures, as there are more of these than of all other tests."""

    def __init__(self, *, kind: str, check: Callable[[dict, list[dict]], None], vector: dict, group: list[dict], **given: Any) -> None:
        super().__init__(**given)
        self._check, self._vector, self._group = check, vector, group
        self.user_properties.append(("kind", kind))

    def runtest(self) -> None:
        self._check(self._vector, self._group)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.name


def pytest_pycollect_makeitem(collector: pytest.Module, name: str) -> list[pytest.Item] | None:
    """Collects the function that stands for the vectors as one item for each vector."""
    if name != "test_vector":
        return None
    known, found = known_failures(), []
    only = os.environ.get("KAS_VECTOR_KIND")
    for kind, paths in files().items():
        if only not in (None, "", kind) or not script(kind).exists():
            continue
        check = module_of(kind).check
        for path in paths:
            group = read(path)
            for v in group:
                one = Vector.from_parent(collector, name=f"{name}[{v['id']}]", kind=kind, check=check, vector=v, group=group)
                if v["id"] in known:
                    one.add_marker(pytest.mark.xfail(reason=known[v["id"]], strict=True))
                found.append(one)
    if not found:
        found = [Vector.from_parent(collector, name=f"{name}[none]", kind="", check=lambda vector, group: None, vector={}, group=[])]
        found[0].add_marker(prerequisites.missing(f"no answers of a known kind in {DIRECTORY}"))
    return found


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when != "call":
        return
    for key, kind in report.user_properties:
        if key == "kind" and kind:
            _results[kind]["passed" if report.passed and not hasattr(report, "wasxfail") else "failing"] += 1


def pytest_terminal_summary(terminalreporter) -> None:
    if not _results:
        return
    terminalreporter.section("vectors")
    for kind in sorted(_results):
        c = _results[kind]
        terminalreporter.write_line(f"{kind:22} {c['passed']:5} of {c['passed'] + c['failing']} pass")
    for kind in files():
        if kind in ELSEWHERE:
            terminalreporter.write_line(f"{kind:22} run by {ELSEWHERE[kind]}")
        elif not script(kind).exists():
            terminalreporter.write_line(f"{kind:22} unknown kind, passed over")

"""Runs every recorded answer (see files.py) through the real functions, one test id per vector id.

A kind is a module ``tests/vectors/kinds/<kind>.py`` with ``check(vector, group) -> None``: it raises AssertionError (use
plain ``assert``) when kas answers otherwise than the real implementation. ``group`` is every vector of the file (for files
whose lines refer to one another). A file whose kind has no module is named in the summary and passed over. What does not
pass yet stands in ``known_failures.txt`` with its reason.
"""

from __future__ import annotations

import collections
import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest

from tests import need
from tests.vectors.files import DIRECTORY, files, read

HERE = Path(__file__).parent
KNOWN = HERE / "known_failures.txt"
# These kinds are run by tests of their own.
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
    """Where the module is that checks a kind; it is not there when nobody knows the kind."""
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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "vector" not in metafunc.fixturenames:
        return
    known, params = known_failures(), []
    only = os.environ.get("KAS_VECTOR_KIND")
    for kind, paths in files().items():
        if only not in (None, "", kind) or not script(kind).exists():
            continue
        module = module_of(kind)
        for path in paths:
            group = read(path)
            for v in group:
                marks = [pytest.mark.xfail(reason=known[v["id"]], strict=True)] if v["id"] in known else []
                params.append(pytest.param(kind, module.check, v, group, id=v["id"], marks=marks))
    if not params:
        params = [pytest.param(None, None, None, None, id="none", marks=need.missing(f"no answers of a known kind in {DIRECTORY}"))]
    metafunc.parametrize("kind,check,vector,group", params)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    report = (yield).get_result()
    if report.when == "call" and "kind" in getattr(getattr(item, "callspec", None), "params", {}):
        report.user_properties.append(("kind", item.callspec.params["kind"]))


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

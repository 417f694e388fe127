"""Runs every vector file of ``KAS_VECTORS`` through the real functions, one test id per vector id.

A kind is a module ``tests/vectors/kinds/<kind>.py`` with ``check(vector, group) -> None``: it raises AssertionError (use
plain ``assert``) when kas answers otherwise than the real implementation. ``group`` is every vector of the file (for files
whose lines refer to one another). The kind is the file name up to the first dot; a file whose kind has no module is
named in the summary and passed over. What does not pass yet stands in ``known_failures.txt`` with its reason.
"""

from __future__ import annotations

import collections
import gzip
import importlib.util
import json
import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent
DEFAULT = HERE.parents[2] / "shared" / "vectors"
VECTORS = Path(os.environ.get("KAS_VECTORS") or DEFAULT)
KNOWN = HERE / "known_failures.txt"
# These files are replayed against a running server by tests of their own.
ELSEWHERE = {"http": "tests/clients/test_http_conversations.py", "etcd-samples": "tests/clients/test_samples.py"}

_results: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)


def read(path: Path) -> list[dict]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def files() -> dict[str, Path]:
    if not VECTORS.is_dir():
        return {}
    return {p.name.split(".")[0]: p for p in sorted(VECTORS.iterdir()) if p.name.endswith((".jsonl", ".jsonl.gz"))}


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
    for kind, path in files().items():
        module = HERE / "kinds" / (kind.replace("-", "_") + ".py")
        if not module.exists() or (only and kind != only):
            continue
        spec = importlib.util.spec_from_file_location(f"vector_kind_{module.stem}", module)
        mod = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(mod)
        group = read(path)
        for v in group:
            marks = [pytest.mark.xfail(reason=known[v["id"]], strict=True)] if v["id"] in known else []
            params.append(pytest.param(kind, mod.check, v, group, id=v["id"], marks=marks))
    if not params:
        params = [pytest.param(None, None, None, None, id="none", marks=pytest.mark.skip(reason=f"no vector files in {VECTORS}"))]
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
        if kind not in _results:
            where = ELSEWHERE.get(kind)
            if where:
                terminalreporter.write_line(f"{kind:22} replayed by {where}")
            elif not os.environ.get("KAS_VECTOR_KIND"):
                terminalreporter.write_line(f"{kind:22} unknown kind, passed over")

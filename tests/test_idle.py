"""What a server that nobody uses holds and does: what only some servers need is not loaded, pages of lists are not mapped one by one, and
numbers are told to other workers when there are new ones."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kas.endpoints.health import Health
from kas.endpoints.listpages import PAGE_BYTES
from kas.endpoints.metrics import MetricsEndpoint
from kas.observe.metrics import Registry
from kas.observe.process import MMAP_BYTES, TRIM_BYTES

LOADS = """
import importlib, sys
import kas.worker
from kas import controllers
for path in {**controllers.ALWAYS, **controllers.BY_CHOICE}.values():
    importlib.import_module("kas.controllers." + path.partition(".")[0])
missing = ("cryptography", "kas.cel", "zoneinfo", "difflib", "kas.auth.authn.oidc", "granian.server", "multiprocessing", "pickle")
print(*(m for m in missing if m in sys.modules))
"""

# A program that embeds kas may serve something by granian itself, and have it loaded before or afterwards.
GRANIAN = {
    "after": "import kas.edge.listener as l; import granian; from granian.server import Server",
    "before": "import granian; from granian.server import Server; import kas.edge.listener as l",
}


def test_a_worker_and_its_controllers_load_nothing_that_only_some_servers_need():
    done = subprocess.run([sys.executable, "-c", LOADS], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []


def test_the_supervisor_loads_no_loop_no_tls_and_no_compression():
    unused = ("asyncio", "ssl", "_hashlib", "random", "shutil", "zlib", "orjson", "kas.preparation")
    code = f"import sys, kas.supervisor; print(*(m for m in {unused} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("order", sorted(GRANIAN))
def test_a_listener_beside_granians_own_server(order):
    code = GRANIAN[order] + "\nimport granian._granian as g\nassert granian.Granian is Server and g.ASGIWorker is l.ASGIWorker"
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)


def test_pages_of_lists_stay_in_the_heap():
    assert PAGE_BYTES * 3 // 2 < MMAP_BYTES < TRIM_BYTES


def test_nobody_is_asked_for_health_and_nothing_is_written_while_numbers_stay_as_they_are(tmp_path: Path):
    asked: list[str] = []
    metrics, slis = Registry(), Registry()
    Health({"readyz": {"ping": lambda: asked.append("ping") or ""}}, slis)
    endpoint = MetricsEndpoint(metrics, slis, tmp_path, 0, lambda: None)
    counter = metrics.counter("moves_total", "What moves.")
    counter.inc(())
    files = [tmp_path / "metrics-0.json", tmp_path / "slis-0.json"]

    def written() -> list[int]:
        asyncio.run(endpoint.dump())
        return [os.stat(path).st_ino for path in files]

    first = written()
    assert written() == first
    counter.inc(())
    moved, still = written()
    assert (moved != first[0], still) == (True, first[1])
    assert asked == []
    assert b'kubernetes_healthcheck{name="ping",type="readyz"} 1' in slis.expose()
    assert asked == ["ping"]

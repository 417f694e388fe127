"""What a server that nobody uses holds: what only some servers need is not loaded, and pages of lists are not mapped one by one."""

import subprocess
import sys

from kas.endpoints.listpages import PAGE_BYTES
from kas.observe.process import MMAP_BYTES, TRIM_BYTES

LOADS = """
import importlib, sys
import kas.worker
from kas import controllers
for path in {**controllers.ALWAYS, **controllers.BY_CHOICE}.values():
    importlib.import_module("kas.controllers." + path.partition(".")[0])
print(*(m for m in ("cryptography", "kas.cel", "zoneinfo", "kas.auth.authn.oidc") if m in sys.modules))
"""


def test_a_worker_and_its_controllers_load_nothing_that_only_some_servers_need():
    done = subprocess.run([sys.executable, "-c", LOADS], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []


def test_pages_of_lists_stay_in_the_heap():
    assert PAGE_BYTES * 3 // 2 < MMAP_BYTES < TRIM_BYTES

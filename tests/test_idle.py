"""What an idle server holds and does: modules that only some servers need are not loaded, pages of lists are not mapped one by one, and
metrics are shared with other workers only when they changed."""

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
from kas.admission import order
for name in order.DEFAULT_ON:
    importlib.import_module(order.module(name))
for path in {**controllers.ALWAYS, **controllers.BY_CHOICE}.values():
    importlib.import_module("kas.controllers." + path.partition(".")[0])
missing = (
    "cryptography", "kas.cel", "zoneinfo", "difflib", "kas.auth.authn.oidc", "granian.server", "multiprocessing", "pickle", "html", "yaml",
    "kas.apiextensions.schema", "kas.kinds.apiextensions.validation", "kas.endpoints.proxy_html", "kas.edge.spdylistener",
    "kas.edge.front.introduction", "kas.aggregator.openapi", "kas.aggregator.peers", "kas.endpoints.custom.webhookconverter",
    "kas.admission.plugins._podsecurity.checks", "kas.auth.authn.basicfile", "kas.auth.authn.bootstrap",
)
print(*(m for m in missing if m in sys.modules))
"""

# A ready worker, except for its listeners.
STARTS = """
import asyncio, dataclasses, importlib, sys
from pathlib import Path
import kas.edge.listener, kas.worker
from kas.config.options import complete, read
from kas.server import Server
from kas.store import open_store
from kas.store.shared import Shared

async def main():
    options, errors = read(["--data-dir", sys.argv[1], "--secure-port", "6443", "--controllers", "none"])
    assert not errors, errors
    options = complete(options)._replace(run_dir=Path(sys.argv[1]))
    shared = Shared.create(1)
    store = open_store(str(options.data_dir / "store"), max_size=options.store_max_size, sync=False, shared=shared, transformers=None)
    server = Server(options, store, Shared.attach(shared.spec, 0), 0)
    store.start(asyncio.get_running_loop())
    server.bootstrap()
    server.load_derived()
    (options.data_dir / "admin.token").write_text("secret")
    server.load_credentials()
    store.close()

asyncio.run(main())
missing = (
    "ctypes", "gzip", "pkgutil", "kas.admission.webhook.calling", "kas.aggregator.proxy", "kas.auth.authn.serviceaccount",
    "kas.auth.tokens", "kas.client._exchange", "kas.client.hooks", "kas.client.kubeconfig", "kas.client.proxies", "kas.endpoints.proxy",
    "kas.kinds.networking", "kas.meta.gourl", "kas.meta.regex", "kas.registry.rest",
)
# What a first request of most clients needs is there.
there = (
    "kas.endpoints.listing", "kas.endpoints.patching", "kas.endpoints.read", "kas.endpoints.watch", "kas.endpoints.write",
    "kas.patch.fieldmanager", "kas.registry.printing", "kas.registry.write",
)
print(*(m for m in missing if m in sys.modules), *(m for m in there if m not in sys.modules))
# A dataclass takes half a millisecond to make, and one of typing's tuples a third of that: for records there is kas.meta.records.
made = [
    value for name, module in list(sys.modules.items()) if name.startswith("kas.") for value in vars(module).values()
    if isinstance(value, type) and value.__module__ == name
    and (dataclasses.is_dataclass(value) or (tuple in value.__bases__ and hasattr(value, "_fields")))
]
print(*(f"{value.__module__}.{value.__name__}" for value in made))
"""

# A single worker soon copies the supervisor's memory: each object that a worker uses counts twice.
SUPERVISES = """
import sys
import kas.cli, kas.supervisor
from kas.config import features
from kas.config.options import complete, read
from kas.preflight import preflight
options, errors = read(["--data-dir", sys.argv[1], "--secure-port", "auto", "--controllers", "none"])
assert not errors + preflight(options) + options.warnings(), errors
complete(options)
unused = (
    "asyncio", "ssl", "_hashlib", "random", "shutil", "zlib", "orjson", "kas.preparation", "logging", "traceback", "threading", "datetime",
    "base64", "inspect", "dataclasses", "ctypes", "kas._codecs", "kas._fastpath",
)
print(*(m for m in unused if m in sys.modules), *["gated fields"] * features.gated_fields.cache_info().currsize)
"""

# Generates certificates and keys for a first start, as a child process does that then ends.
PREPARES = """
import gc, re, sys
from kas.config.options import complete, read
options, errors = read(["--data-dir", sys.argv[1], "--secure-port", "6443", "--controllers", "none"])
assert not errors, errors
compiled, compile_now = [], re.compile
re.compile = lambda pattern, flags=0: compiled.append(pattern) or compile_now(pattern, flags)
from kas.preparation import prepare, prepare_later
prepare(complete(options))
prepare_later(complete(options), print)
assert "cryptography.x509" in sys.modules and compiled
unused = ("kas.auth.tokens", "kas.auth.authn", "kas._fastpath", "uuid", "platform", "tempfile", "logging")
print(*(m for m in unused if m in sys.modules))
# One of cryptography's patterns is over all of Unicode, and took half as long as everything else.
print(*(p.encode() for p in compiled if isinstance(p, str) and chr(sys.maxunicode) in p), *["cycles"] * gc.isenabled())
"""

# Loaded objects stay: the garbage collector does not run meanwhile.
COMMAND = """
import gc, sys
import kas.cli
looked = []
gc.callbacks.append(lambda phase, info: looked.append("kas.supervisor" in sys.modules))
gc.collect()
assert kas.cli.serve(["--no-such-flag"]) == 1 and "kas.supervisor" in sys.modules and gc.isenabled()
print(*looked[2:].count(False) * ["looked"])
"""

# What is loaded while a server waits for its first client, and for a group that this client uses.
WARMS = """
import asyncio, sys
import kas.warmup
from kas import kinds
from kas.registry.generic import Registry
from kas.types.checktables import TABLES
from kas.types.scheme import Scheme
kinds.install()
kas.warmup.PAUSE_S = 0
given_back = []

def loaded_groups():
    return {m.split(".")[2] for m in sys.modules if m.startswith("kas.kinds.") and m.count(".") > 2}

async def main():
    registries = [Registry(r, None, str) for r in Scheme().resources if r.storage_gvk is not None]
    warm_up = kas.warmup.WarmUp(registries, lambda: given_back.append(loaded_groups()))
    kas.warmup.load_largest()
    assert "kas.kinds.core.pod.strategy" in sys.modules and "kas.kinds.core.secret" not in sys.modules and loaded_groups() == {"core"}
    running = asyncio.get_running_loop().create_task(warm_up.run())
    while not given_back:
        await asyncio.sleep(0)
    assert {"core", "apps"} <= given_back[0] and not {"batch", "storage", "autoscaling"} & given_back[0], given_back
    assert "yaml" not in sys.modules
    warm_up.ask("batch")
    warm_up.ask("batch")
    while not any(r.resource.group == "batch" and "strategy" in vars(r) for r in registries):
        await asyncio.sleep(0)
    assert "batch" not in warm_up.cold
    assert "batch" in loaded_groups() and not {"storage", "autoscaling"} & loaded_groups()
    assert not running.done()
    for group in set(warm_up.cold):
        warm_up.ask(group)
    await running
    assert all(table.built for table in TABLES)
asyncio.run(main())
"""

# A program that embeds kas may use granian itself, and load it before or afterwards.
GRANIAN = {
    "after": "import kas.edge.listener as l; import granian; from granian.server import Server",
    "before": "import granian; from granian.server import Server; import kas.edge.listener as l",
}


def test_a_worker_loads_no_modules_that_only_some_servers_need():
    done = subprocess.run([sys.executable, "-c", LOADS], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []


def test_a_ready_worker_has_not_loaded_modules_of_rare_requests(tmp_path: Path):
    done = subprocess.run([sys.executable, "-c", STARTS, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stderr, done.stdout.split()) == ("", [])


def test_kinds_are_loaded_on_demand():
    subprocess.run([sys.executable, "-c", WARMS], timeout=60, check=True)


def test_the_supervisor_loads_no_loop_tls_compression_logging_or_codecs(tmp_path: Path):
    done = subprocess.run([sys.executable, "-c", SUPERVISES, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []


def test_generating_certificates_and_keys_loads_no_other_modules(tmp_path: Path):
    tmp_path.joinpath("data").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PREPARES, str(tmp_path / "data")], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stderr, done.stdout.split()) == ("", [])


def test_the_garbage_collector_does_not_run_while_the_command_loads():
    done = subprocess.run([sys.executable, "-c", COMMAND], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stderr, done.stdout.split()) == ("kas: unknown flag: --no-such-flag\n", [])


@pytest.mark.parametrize("order", sorted(GRANIAN))
def test_a_listener_beside_granians_own_server(order):
    code = GRANIAN[order] + "\nimport granian._granian as g\nassert granian.Granian is Server and g.ASGIWorker is l.ASGIWorker"
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)


def test_pages_of_lists_stay_in_the_heap():
    assert PAGE_BYTES * 3 // 2 < MMAP_BYTES < TRIM_BYTES


def test_an_idle_worker_checks_no_health_and_writes_no_unchanged_metrics(tmp_path: Path):
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

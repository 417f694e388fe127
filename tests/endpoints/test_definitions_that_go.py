"""Definitions that are created, used and deleted under ever new names: what they leave behind is bounded."""

from __future__ import annotations

import functools
import gc
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kas.observe import _libc, caches
from kas.observe.process import bound_heaps
from tests.endpoints.customs import DEFINITIONS, definition, version
from tests.growth.counting import CONFIRMED_S, LONGEST_S
from tests.growth.serving import InProcess, Sent
from tests.vectors.files import lines

pytestmark = pytest.mark.long

MADE = 15
CONTAINERS = (dict, set, list, deque)
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


WIDE = {f"field{i}": {"type": "string", "description": "what a controller reads", "maxLength": 64} for i in range(200)}
WIDE["nested"] = {"type": "object", "properties": dict(WIDE)}


class Definitions:
    """``turn(n)`` creates one, uses it in every way and deletes it; ``more`` are further fields of its spec."""

    def __init__(self, served: InProcess) -> None:
        self._served = served

    def ask(self, method: str, path: str, body: Any = None, accept: str = "application/json") -> Any:
        status, found = self._served.ask(Sent(method, path, body, accept=accept))
        assert status < 300, found
        return found

    def turn(self, n: int, more: dict[str, Any] | None = None) -> None:
        self.use(n, more)
        self.take_away(n)

    def use(self, n: int, more: dict[str, Any] | None = None) -> None:
        """Creates it, and makes every kind of request."""
        group = f"g{n}.example.com"
        paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
        fields = {**(more or {}), "replicas": {"type": "integer", "default": 1}, "text": {"type": "string", "maxLength": 9}}
        one = version(
            spec=fields, subresources={"status": {}, "scale": paths}, selectableFields=[{"jsonPath": ".spec.text"}],
            additionalPrinterColumns=[{"name": "Text", "type": "string", "jsonPath": ".spec.text"}],
        )  # fmt: skip
        one["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] = [{"rule": f"self.replicas < {100 + n}"}]
        crd = definition(group, one)
        path = f"/apis/{group}/v1/namespaces/default/widgets"
        self.serve(crd)
        obj = {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"text": "x"}}
        stored = self.ask("POST", path, obj)
        stored = self.ask("PUT", f"{path}/a", stored | {"spec": {"text": "y"}})
        self.ask("PUT", f"{path}/a/status", stored | {"status": {"replicas": 1}})
        scale = self.ask("GET", f"{path}/a/scale")
        self.ask("PUT", f"{path}/a/scale", scale | {"spec": {"replicas": 2}})
        for shown in (path, f"{path}?fieldSelector=spec.text=y", f"/apis/{group}/v1"):
            self.ask("GET", shown)
        self.ask("GET", path, accept=TABLE)

    def serve(self, crd: dict[str, Any]) -> None:
        """Creates it, and sets the conditions as a controller would."""
        made = self.ask("POST", DEFINITIONS, crd)
        established = {"type": "Established", "status": "True", "reason": "Made", "lastTransitionTime": "2024-01-02T03:04:05Z"}
        made["status"] |= {"acceptedNames": made["spec"]["names"], "conditions": [established]}
        self.ask("PUT", f"{DEFINITIONS}/{crd['metadata']['name']}/status", made)

    def take_away(self, n: int) -> None:
        """Deletes its objects, and then itself."""
        group = f"g{n}.example.com"
        name, path = f"{DEFINITIONS}/widgets.{group}", f"/apis/{group}/v1/namespaces/default/widgets"
        self.ask("DELETE", f"{path}/a")
        self.ask("DELETE", path)
        self.forget(name)

    def forget(self, name: str) -> None:
        """Delete the definition."""
        self.ask("DELETE", name)
        # No controller runs here that would remove the finalizer.
        left = self.ask("GET", name)
        left["metadata"]["finalizers"] = []
        self.ask("PUT", name, left)


def grown(before: list[tuple[Any, int]], by: int, bounded: set[int]) -> list[str]:
    """Returns which containers have at least that many more entries; those in ``bounded`` are ignored."""
    return [
        f"{type(thing).__name__}: {was} to {len(thing)}, {list(thing)[-1:]!r:.200}"
        for thing, was in before
        if len(thing) - was >= by and id(thing) not in bounded
    ]


def turns(directory: Path) -> None:
    """Asserts that nothing grows. In a separate process, because what other tests left in this one may grow."""
    served = InProcess(directory)
    try:
        definitions, world = Definitions(served), served.server
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "9"}}}
        definitions.ask("POST", "/api/v1/namespaces/default/resourcequotas", quota)
        for n in range(3):
            definitions.turn(n)
        world.metrics.dump()
        gc.unfreeze()  # frozen objects are not reported
        gc.collect()
        before = [(o, len(o)) for o in gc.get_objects() if isinstance(o, CONTAINERS)]
        kept = {f: f.cache_info().currsize for f in gc.get_objects() if isinstance(f, functools._lru_cache_wrapper)}
        told = world.metrics._gone  # freed by the next read
        for n in range(100, 100 + MADE):
            definitions.turn(n)
        world.metrics.dump()
        gc.collect()
        # The last events, and caches with a size limit.
        bounded = {id(x) for o in gc.get_objects() if isinstance(o, caches.Cache) for x in (o, *gc.get_referents(o))}
        bounded |= {id(told), id(world.store.hub._ring), id(world.store.hub._routes)}
        bounded |= {id(flows) for _, flows in (world.flow_control._flows.values() if world.flow_control else ())}
        assert grown(before, MADE, bounded) == []
        assert [f.__qualname__ for f, was in kept.items() if f.cache_info().currsize - was >= MADE] == []
        assert not world.custom.definitions and not world.custom.served and not world.custom.groups
    finally:
        served.close()


def alive() -> int:
    """Returns the number of memory blocks that Python's allocator has given out."""
    gc.collect()
    return sys.getallocatedblocks()


def weighed(directory: Path) -> None:
    """Asserts that a definition's memory is freed when it is deleted, however many there were. What metrics, flow control and event routes
    keep of each is a few hundredths of it, and is bounded elsewhere."""
    served = InProcess(directory)
    try:
        definitions = Definitions(served)
        for n in range(3):
            definitions.turn(n, WIDE)
        gc.unfreeze()
        before = alive()
        definitions.use(3, WIDE)
        used = alive() - before
        definitions.take_away(3)
        assert used > 5 * 2 * len(WIDE)  # something was freed
        before = alive()
        for n in range(100, 100 + MADE):
            definitions.turn(n, WIDE)
        left = (alive() - before) / MADE
        assert left < used / 20, (left, used)
    finally:
        served.close()


def real() -> list[dict[str, Any]]:
    """Returns definitions of real projects, as they were sent to a server."""
    found = {}
    for row in lines("crds-real"):
        crd = row.get("crd")
        if isinstance(crd, dict):
            meta = {"name": crd["metadata"]["name"], "annotations": crd["metadata"].get("annotations") or {}}
            found[meta["name"]] = {"apiVersion": crd["apiVersion"], "kind": crd["kind"], "metadata": meta, "spec": crd["spec"]}
    return list(found.values())


def resident() -> int:
    """Returns the resident bytes of the process after free memory was returned."""
    _libc.malloc_trim()
    return int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]) << 10


def again_and_again(directory: Path) -> None:
    """Asserts that the definitions of real projects, created, listed and deleted, leave no more objects or memory the third time than the
    second. The first time fills the bounded caches of schemas, patterns and keys."""
    bound_heaps()  # as in a worker
    served = InProcess(directory)
    try:
        definitions, crds = Definitions(served), real()
        assert len(crds) > 100

        def turn() -> tuple[int, int, int]:
            """Returns blocks in use beside all of them, and blocks and bytes without."""
            for crd in crds:
                definitions.serve(crd)
            for spec in (crd["spec"] for crd in crds):
                served_version = next(v["name"] for v in spec["versions"] if v["served"])
                definitions.ask("GET", f"/apis/{spec['group']}/{served_version}/{spec['names']['plural']}")
            used = alive()
            for crd in crds:
                definitions.forget(f"{DEFINITIONS}/{crd['metadata']['name']}")
            served.server.metrics.dump()
            return used, alive(), resident()

        gc.unfreeze()
        turn()
        used, left, size = turn()
        _, then, grown = turn()
        # Three definitions of two rounds kept whole would be as much; they leave two blocks each in the cache of the latest events.
        assert used - left > 50_000
        assert then - left < (used - left) / 100, (used, left, then)
        # All of them take 6 MB and more. What an allocator keeps varies by 2.
        assert grown - size < 4 << 20, (size, grown)
    finally:
        served.close()


@pytest.mark.timeout(CONFIRMED_S)
@pytest.mark.parametrize("what", [turns, weighed, again_and_again])
def test_created_and_deleted_definitions_leave_nothing_that_grows(what: Callable[[Path], None], tmp_path: Path) -> None:
    call = f"import pathlib; from {__name__} import {what.__name__} as f; f(pathlib.Path({str(tmp_path)!r}))"
    done = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, timeout=LONGEST_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]

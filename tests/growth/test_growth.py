"""What a request costs grows with its size and not with the square of it, for every family of inputs up to the size limit.

Costs are instructions of this process where the machine counts them, else its CPU time, which other processes hardly touch
(``counting.py``): what C code does cannot be counted in calls or lines. Disturbances only add, so a family that seems to grow
too fast is looked at further on and measured again, the least of several counting, before it fails. What is larger than the processor's
caches costs more for each item, too: by how much is measured at the same moments with documents of the same sizes that are decoded and
copied, which is linear, and is taken off. Something that grows with n² stays above the bound at any size. What is not
reached here within a size that costs 12 ms, or 64 KB for a generated family, is not seen.
"""

from __future__ import annotations

import copy
import gc
import json
import logging
import math
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from kas.observe import caches
from kas.registry import pipeline
from kas.types.scheme import Resource, decode
from tests.growth import generated, tables
from tests.growth.beside import FAMILIES
from tests.growth.counting import Spent
from tests.growth.serving import InProcess, Sent

MOST_EXPONENT = 1.2
LIMIT_BYTES = 3 << 20
# Sizes are doubled until one costs so much: enough to be told from what every request costs.
ENOUGH_S, TOO_LONG_S = 0.012, 0.5
# What costs no more at its limit (of depth, of operations) than decoding and copying a document of so many bytes may have got there as
# it likes.
HARMLESS_BYTES = 4 << 20
# Of so many families most are looked at as far as here: a loop within a loop takes long by then.
GENERATED_BYTES = 64 << 10
AGAIN = 12
SLICES = 48

Ask = Callable[[int], "Prepared | None"]
Prepared = tuple[Callable[[], None], Sent]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    running = InProcess(Path(tmp_path_factory.mktemp("growth")) / "data")
    status, body = running.ask(Sent("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}}))
    assert status in (201, 409), body
    yield running
    running.close()


class Ladder:
    """The costs of a family by its size: n, 2n, 4n, ..."""

    def __init__(self, server: InProcess, ask: Ask, n: int = 32, first_bytes: int = LIMIT_BYTES) -> None:
        """``first_bytes`` is how far one looks while nothing is wrong."""
        self.server, self.ask, self.first_bytes = server, ask, first_bytes
        self.sizes: list[tuple[int, int]] = []  # n, bytes
        self.costs: list[float] = []
        self.next = n

    def grow(self) -> bool:
        """One size more; False at the limit."""
        made = self.ask(self.next)
        if made is None:
            return False
        prepare, sent = made
        size = len(sent.bytes()) + len(sent.path) + len(sent.accept) + sum(len(k) + len(v) for k, v in sent.headers)
        if size > LIMIT_BYTES or (self.sizes and size <= self.sizes[-1][1]):
            return False
        prepare()
        self.sizes.append((self.next, size))
        self.costs.append(self._cost(sent))
        self.next *= 2
        return True

    def _cost(self, sent: Sent) -> float:
        cost, _ = self.server.cost(sent)
        return cost

    def again(self, first: bool) -> None:
        """The last sizes once more, without what caches know of them. The costs before the ``first`` time may be of what they knew."""
        for i, (n, _) in list(enumerate(self.sizes))[-5:]:
            made = self.ask(n)
            assert made is not None
            made[0]()
            forget()
            cost = self._cost(made[1])
            self.costs[i] = cost if first else min(self.costs[i], cost)

    def exponent(self, steps: int) -> float:
        """Over so many doublings."""
        first, last = max(0, len(self.sizes) - 1 - steps), len(self.sizes) - 1
        if first == last:
            return 0.0
        return math.log(self.costs[last] / self.costs[first]) / math.log(self.sizes[last][1] / self.sizes[first][1])

    def machine(self, steps: int) -> float:
        """By how much the exponent of what is linear is above 1, over so many doublings of these sizes."""
        (_, first), (_, last) = self.sizes[max(0, len(self.sizes) - 1 - steps)], self.sizes[-1]
        if first == last:
            return 0.0
        cost = [min(_linear(size) for _ in range(2)) for size in (first, last)]
        return max(0.0, math.log(cost[1] / cost[0]) / math.log(last / first) - 1)

    def fault(self) -> str:
        """"" when the costs grow as they may."""
        while self.grow() and self.costs[-1] < ENOUGH_S and self.sizes[-1][1] < self.first_bytes:
            pass
        if not self.costs:
            return ""
        if self.costs[-1] < ENOUGH_S or self.exponent(2) <= MOST_EXPONENT:
            return ""
        # Something took longer than it should: another process perhaps. Further on it shows what it was.
        whole = False
        while self.costs[-1] < TOO_LONG_S:
            if not self.grow():
                whole = True
                break
            if self.exponent(4) <= MOST_EXPONENT:
                return ""
        for i in range(AGAIN):
            self.again(not i)
            if whole and self.costs[-1] < harmless():
                return ""
            if self.exponent(4) <= MOST_EXPONENT + self.machine(4):
                return ""
        shown = ", ".join(f"{n}: {size} bytes, {cost * 1000:.1f} ms" for (n, size), cost in zip(self.sizes, self.costs, strict=True))
        return f"n^{self.exponent(4):.2f} ({shown})"


def forget() -> None:
    """Empties what remembers texts of clients: what was asked before would cost less than what is twice as long and is not remembered."""
    for _, finders in caches._known.values():
        for find in finders:
            if isinstance(cache := find(), caches.Cache):
                cache.clear()


def harmless() -> float:
    """CPU seconds that ``HARMLESS_BYTES`` stand for on this machine."""
    return min(_linear(HARMLESS_BYTES // 4) for _ in range(3)) * 4


def _linear(size: int) -> float:
    """CPU seconds of decoding and copying a document of so many bytes."""
    text = json.dumps({f"k{i}": "v" for i in range(max(1, size // 16))})
    gc.collect()
    gc.disable()
    try:
        with Spent() as spent:
            copy.deepcopy(json.loads(text))
        return spent.seconds
    finally:
        gc.enable()


@pytest.fixture(autouse=True)
def no_panics(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.ERROR):
        yield
    assert "panic" not in caplog.text, caplog.text[-3000:]


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_named(server: InProcess, name: str) -> None:
    def ask(n: int) -> Prepared:
        made = FAMILIES[name](n)
        before, sent = ([], made) if isinstance(made, Sent) else made

        def prepare() -> None:
            for first in before:
                server.ask(first)

        return prepare, sent

    assert not Ladder(server, ask).fault()


def path_of(r: Resource) -> str:
    prefix = f"/apis/{r.group}/{r.version}" if r.group else f"/api/{r.version}"
    return f"{prefix}/{'namespaces/default/' if r.namespaced else ''}{r.resource}"


def nothing() -> None:
    """There is nothing to prepare."""


def store(server: InProcess, r: Resource, obj: dict[str, Any]) -> None:
    """Puts an object where it would be stored, whether it is valid or not."""
    registry = server.server.registries.of(r.group, r.resource)
    typed = pipeline.to_storage(r, decode(r.type, copy.deepcopy(obj))[0])
    typed["metadata"] |= {"uid": "u", "creationTimestamp": "2024-01-02T03:04:05Z"} | ({"namespace": "default"} if r.namespaced else {})
    key = registry.key("default" if r.namespaced else "", "a")

    async def commit() -> None:
        rec = server.store.get(key)
        await server.store.commit(registry.put(key, typed, rec.revision if rec is not None else 0))

    server.loop.run_until_complete(commit())


def requests(server: InProcess, grown: generated.Grown) -> Iterator[tuple[str, Ask]]:
    """A create, and for what is stored a replacement by something else."""
    r = grown.resource
    path = path_of(r)
    yield "create", lambda n: (nothing, Sent("POST", f"{path}?dryRun=All" if r.etcd_prefix else path, grown.make(n)))
    if r.etcd_prefix is None or "update" not in r.verbs or grown.how not in ("distinct", "bad keys"):
        return

    def over(n: int) -> Prepared | None:
        obj = grown.make(n)
        try:
            decode(r.type, copy.deepcopy(obj))
        except ValueError:
            return None  # nothing like it can be stored
        return lambda: store(server, r, obj), Sent("PUT", f"{path}/a?dryRun=All", generated.changed(grown, obj))

    yield "replace", over
    if "status" in r.subresources and grown.path[0].name == "status":
        def status(n: int) -> Prepared | None:
            made = over(n)
            return made and (made[0], Sent("PUT", f"{path}/a/status?dryRun=All", made[1].body))

        yield "replace status", status


@pytest.mark.parametrize("part", range(SLICES))
def test_generated(server: InProcess, part: int) -> None:
    """Every list and map of every kind, and its texts some at a time."""
    faults = []
    for grown in islice(generated.families(), part, None, SLICES):
        for what, ask in requests(server, grown):
            fault = Ladder(server, ask, 1024, GENERATED_BYTES).fault()
            if fault:
                faults.append(f"{grown.name} {what}: {fault}")
    assert not faults, "\n".join(faults)


def test_there_are_families_of_every_kind() -> None:
    found = list(generated.families())
    assert tables.MACROS and len(FAMILIES) >= 380 and len(found) >= 900
    kinds = {grown.resource.kind for grown in found}
    assert {"Pod", "Deployment", "CustomResourceDefinition", "ResourceClaim", "SubjectAccessReview", "Lease"} <= kinds

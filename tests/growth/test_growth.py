"""The cost of a request grows linearly with its size, for every family of inputs up to the size limit.

Costs are instructions of this process where the machine counts them, else its CPU time, which other processes hardly affect
(``counting.py``): the work of C code cannot be counted in calls or lines. Disturbances only add, so a family that seems to grow too fast
is measured at larger sizes and again, and the least of several measurements counts. What remains is counted in instructions by valgrind
before the test fails. Data larger than the processor's caches costs more for each item, too: how much is measured at the same time by
decoding and copying documents of the same sizes, which is linear, and is subtracted. Growth with n² exceeds the limit at any size. Growth
that does not show up to a size that costs 12 ms (the third size, if the first costs that much already), or up to 40 KB for a generated
family, is not detected.
"""

from __future__ import annotations

import copy
import gc
import json
import logging
import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from kas.config import features
from kas.observe import caches
from tests.growth import generated, tables, verbs
from tests.growth.counting import CONFIRMED_S, ONLY, Spent, confirmed, repeated
from tests.growth.further_families import FAMILIES
from tests.growth.held import OWN
from tests.growth.serving import InProcess, Sent
from tests.growth.verbs import Ask, Prepared

pytestmark = pytest.mark.timeout(CONFIRMED_S)
MOST_EXPONENT = 1.2
LIMIT_BYTES = 3 << 20
# Sizes are doubled until one costs this much: enough to differ from the cost of every request.
ENOUGH_S, TOO_LONG_S = 0.012, 0.5
# A family that costs no more at its limit (of depth, of operations) than decoding and copying a document of so many bytes may grow in any
# way.
# it likes.
HARMLESS_BYTES = 4 << 20
# There are so many families that most are measured up to this size only: a nested loop takes long by then.
GENERATED_BYTES, STEP = 40 << 10, 8
AGAIN = repeated(12)
SLICES = 48

EVERYTHING = {
    # Nothing reports storage versions here, and writes would wait for them.
    "runtime-config": {"api/all": "true"}, "feature-gates": {"kube": ["AllAlpha=true", "AllBeta=true", "StorageVersionAPI=false"]},
    "enable-admission-plugins": ["NodeRestriction"],
}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    running = InProcess(Path(tmp_path_factory.mktemp("growth")) / "data", **EVERYTHING)
    status, body = running.ask(Sent("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}}))
    assert status in (201, 409), body
    yield running
    running.close()
    features.DEFAULT.set({})


class Ladder:
    """The costs of a family by size."""

    def __init__(self, server: InProcess, ask: Ask, n: int = 32, step: int = 2, least: int = 3, first_bytes: int = LIMIT_BYTES) -> None:
        """Sizes are n, n * step, ...: at least ``least`` of them, however dear they are, and up to ``first_bytes`` while nothing is wrong.
        """
        self.server, self.ask, self.first_bytes, self.least = server, ask, first_bytes, least
        self.sizes: list[tuple[int, int]] = []  # n, bytes
        self.costs: list[float] = []
        self.next, self.step = n, step
        self.answered = 0, b""  # relative to the first

    def grow(self) -> bool:
        """Measures one more size; False at the limit."""
        made = self.ask(self.next)
        if made is None:
            return False
        prepare, sent = made
        size = sent.beside + len(sent.bytes()) + len(sent.path) + len(sent.accept) + sum(len(k) + len(v) for k, v in sent.headers)
        if size > LIMIT_BYTES or (self.sizes and size <= self.sizes[-1][1]):
            return False
        prepare()
        if not self.sizes:  # the cost of what the first request loads would hide the growth of the next
            self._cost(sent)
            self.answered = self.server.answered
            prepare, sent = self.ask(self.next) or made
            prepare()
        self.sizes.append((self.next, size))
        self.costs.append(self._cost(sent))
        self.next *= self.step
        return True

    def _cost(self, sent: Sent) -> float:
        cost, _ = self.server.cost(sent)
        return cost

    def again(self, first: bool) -> None:
        """Measures the last sizes once more, with empty caches. Costs before the ``first`` time may have profited from caches."""
        for i, (n, _) in list(enumerate(self.sizes))[-5:]:
            made = self.ask(n)
            assert made is not None
            made[0]()
            forget()
            cost = self._cost(made[1])
            self.costs[i] = cost if first else min(self.costs[i], cost)

    def _ends(self, times: int) -> tuple[int, int]:
        """The last size, and the one that is so many times smaller, or the smallest."""
        last = len(self.sizes) - 1
        return next((i for i in range(last, 0, -1) if self.sizes[i][1] * times <= self.sizes[last][1] * 1.1), 0), last

    def exponent(self, times: int) -> float:
        """The exponent of growth over sizes that are so many times larger."""
        first, last = self._ends(times)
        if first == last:
            return 0.0
        return math.log(self.costs[last] / self.costs[first]) / math.log(self.sizes[last][1] / self.sizes[first][1])

    def machine(self, times: int) -> float:
        """By how much the exponent of linear work exceeds 1, over these sizes."""
        first, last = (self.sizes[i][1] for i in self._ends(times))
        if first == last:
            return 0.0
        cost = [min(_linear(size) for _ in range(2)) for size in (first, last)]
        return max(0.0, math.log(cost[1] / cost[0]) / math.log(last / first) - 1)

    def fault(self) -> str:
        """"" when the costs grow as they may, else a description."""
        while self.grow():
            if len(self.sizes) >= self.least and (self.costs[-1] >= ENOUGH_S or self.sizes[-1][1] >= self.first_bytes):
                break
        if not self.costs:
            return ""
        if self.costs[-1] < ENOUGH_S or self.exponent(4) <= MOST_EXPONENT:
            return ""
        # It took longer than it should, perhaps because of another process. Larger sizes show whether it grows.
        whole, self.step, self.next = False, 2, self.sizes[-1][0] * 2
        while self.costs[-1] < TOO_LONG_S:
            if not self.grow():
                whole = True
                break
            if self.exponent(16) <= MOST_EXPONENT:
                return ""
        for i in range(AGAIN):
            self.again(not i)
            if whole and self.costs[-1] < harmless():
                return ""
            if self.exponent(16) <= MOST_EXPONENT + self.machine(16):
                return ""
        shown = ", ".join(f"{n}: {size} bytes, {cost * 1000:.1f} ms" for (n, size), cost in zip(self.sizes, self.costs, strict=True))
        return f"n^{self.exponent(16):.2f} ({shown})"


def forget() -> None:
    """Empties the caches of clients' texts: a text that was sent before would cost less than one that is twice as long and not in the
    cache."""
    for _, finders in caches._known.values():
        for find in finders:
            if isinstance(cache := find(), caches.Cache):
                cache.clear()


def harmless() -> float:
    """The CPU seconds that ``HARMLESS_BYTES`` stand for on this machine."""
    return min(_linear(HARMLESS_BYTES // 4) for _ in range(3)) * 4


def _linear(size: int) -> float:
    """The CPU seconds of decoding and copying a document of so many bytes."""
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
    said = [record.getMessage() for record in caplog.get_records("call")]
    assert not [text for text in said if "panic" in text], said


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_named(request: pytest.FixtureRequest, server: InProcess, name: str) -> None:
    def ask(n: int) -> Prepared:
        made = FAMILIES[name](n)
        before, sent = ([], made) if isinstance(made, Sent) else made

        def prepare() -> None:
            for first in before:
                server.ask(first)

        return prepare, sent

    fault = Ladder(server, ask).fault()
    assert not confirmed(request.node.nodeid, fault)


@pytest.mark.parametrize("name", sorted(OWN))
def test_own(request: pytest.FixtureRequest, server: InProcess, name: str) -> None:
    fault = Ladder(server, OWN[name](server)).fault()
    assert not confirmed(request.node.nodeid, fault)


# A request that was refused here was read as a whole, or merged.
REACHED = (200, 201, 409, 422)
UNCONDITIONAL = b"must be specified for an update"


def ends_before(grown: generated.Grown, what: str, status: int) -> bool:
    """Whether a request may be refused before its object is validated, because kube-apiserver refuses it there, too."""
    path, of = ".".join(f.name for f in grown.path), grown.path[-1].message
    if " texts" in grown.how and (path in generated.ASKED_FIRST or (of is not None and of.kind_name == "Quantity")):
        return status in (400, 403)  # by admission, or by the decoder
    if what.startswith("strategic") and grown.resource.kind == "CertificateSigningRequest":
        return status == 500  # it cannot merge a map of lists
    return what == "apply" and status == 500 and path == "spec.podFailurePolicy.rules.onExitCodes.values"  # a set with duplicates


@pytest.mark.parametrize("part", range(SLICES))
def test_generated(request: pytest.FixtureRequest, server: InProcess, part: int) -> None:
    """Every list and map of every kind, and some of its texts at a time."""
    faults = []
    for grown in islice(generated.families(), part, None, SLICES):
        n, asked = grown.count(GENERATED_BYTES), verbs.Verbs(server, grown)
        for what, ask in asked.all() if n else ():
            family = f"{grown.name} {what}"
            if ONLY not in ("", family):
                continue
            ladder = Ladder(server, ask, max(1, n // STEP), STEP, 2, GENERATED_BYTES // 2)
            if fault := confirmed(request.node.nodeid, ladder.fault(), family):
                faults.append(f"{family}: {fault}")
            status, body = ladder.answered
            if ladder.costs and not ends_before(grown, what, status) and (status not in REACHED or UNCONDITIONAL in body):
                faults.append(f"{grown.name} {what}: {status} {body[:300]!r}")
        asked.forget()
    assert not faults, "\n".join(faults)


def test_there_are_families_of_every_kind() -> None:
    found = list(generated.families())
    assert tables.MACROS and len(FAMILIES) >= 380 and len(found) >= 900
    kinds = {grown.resource.kind for grown in found}
    assert {"Pod", "Deployment", "CustomResourceDefinition", "ResourceClaim", "SubjectAccessReview", "Lease"} <= kinds

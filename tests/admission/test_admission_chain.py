"""The admission chain: synchronous and waiting steps, and the recorded duration of each."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kas.admission import Chain
from kas.admission.order import observer
from kas.meta import errors
from kas.observe.metrics import Registry
from tests.admission.admission_fakes import Request

NAME = "apiserver_admission_controller_admission_duration_seconds"


class Step:
    """A plug-in that records that it ran; ``waits`` makes it wait, ``refuses`` refuse."""

    def __init__(self, name: str, ran: list[str], waits: bool = False, refuses: bool = False) -> None:
        self.name, self._ran, self._waits, self._refuses = name, ran, waits, refuses

    def handles(self, a: Any) -> bool:
        return True

    def admit(self, a: Any) -> Any:
        if self._waits:
            return self._later(a)
        self._run(a)
        return None

    async def _later(self, a: Any) -> None:
        await asyncio.sleep(0)
        self._run(a)

    def _run(self, a: Any) -> None:
        self._ran.append(self.name)
        if self._refuses:
            raise a.forbid("no")


def counted(metrics: Registry) -> dict[tuple[str, ...], float]:
    rows = metrics.metrics[NAME].values
    assert all(row[-1] >= 0 for row in rows.values())
    return {labels: sum(row[:-1]) for labels, row in rows.items()}


def test_without_waiting_the_chain_runs_synchronously():
    ran: list[str] = []
    metrics = Registry()
    chain = Chain([Step("A", ran), Step("B", ran)], observer(metrics))
    attributes = Request(obj={"metadata": {"name": "a"}}).attributes
    for _ in range(3):
        assert chain.start_mutate(attributes) is None and chain.start_validate(attributes) is None
    assert ran == ["A", "B"] * 3
    assert counted(metrics) == {("A", "CREATE", "false", "admit"): 3, ("B", "CREATE", "false", "admit"): 3}


@pytest.mark.parametrize("waits", [(True, False, False), (False, True, True), (True, True, True)])
def test_the_order_holds_when_some_wait(waits):
    ran: list[str] = []
    metrics = Registry()
    chain = Chain([Step(name, ran, wait) for name, wait in zip("ABC", waits, strict=True)], observer(metrics))
    attributes = Request(obj={"metadata": {"name": "a"}}).attributes
    for _ in range(2):
        asyncio.run(chain.mutate(attributes))
    assert ran == ["A", "B", "C"] * 2
    assert set(counted(metrics).values()) == {2}


@pytest.mark.parametrize("waits", [False, True])
def test_a_refusal_ends_the_chain_and_is_counted(waits):
    ran: list[str] = []
    metrics = Registry()
    chain = Chain([Step("A", ran), Step("B", ran, waits, refuses=True), Step("C", ran)], observer(metrics))
    with pytest.raises(errors.ApiError):
        asyncio.run(chain.mutate(Request(obj={"metadata": {"name": "a"}}).attributes))
    assert ran == ["A", "B"]
    assert counted(metrics) == {("A", "CREATE", "false", "admit"): 1, ("B", "CREATE", "true", "admit"): 1}


def test_a_plugins_interest_may_change():
    ran: list[str] = []

    class Fickle(Step):
        wanted = False

        def handles(self, a: Any) -> bool:
            return self.wanted

        def on_change(self, changed: Any) -> None:
            self.changed = changed

    fickle = Fickle("fickle", ran)
    request = Request(fickle)
    request.run()
    fickle.wanted = True
    request.run()
    assert ran == []  # it was asked once for such requests
    fickle.changed()
    request.run()
    assert ran == ["fickle"]


def test_plans_of_removed_resources_are_dropped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kas.admission.PLANS", 3)
    chain = Chain([Step("A", [])])
    attributes = Request(obj={"metadata": {"name": "a"}}).attributes
    for n in range(5):
        attributes.group = f"g{n}"
        chain.start_mutate(attributes)
        assert len(chain._cache) <= 3
    chain.forget("g4", attributes.resource)
    assert [key[1] for key in chain._cache] == ["g3"]

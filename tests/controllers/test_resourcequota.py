"""What the quota controller counts while writes are between their charge and their commit."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kas.controllers.resourcequota import AGAIN_S, MOST_TRIES, QUIET_S, ResourceQuotas
from tests.growth.serving import InProcess, Sent

NS = "/api/v1/namespaces/default"
QUOTA = f"{NS}/resourcequotas/q"


class Quota:
    """A server with a quota on config maps, and its controller, which works when it is told to."""

    def __init__(self, server: InProcess) -> None:
        self.server, self.now = server, 0.0
        self.controller = ResourceQuotas(server.server.registries)
        self.controller.clock = lambda: self.now
        self.ask("POST", f"{NS}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "5"}}})
        assert self.count() == AGAIN_S and self.used == "0"

    def ask(self, method: str, path: str, body: Any = None, ctype: str = "application/json") -> Any:
        status, answer = self.server.ask(Sent(method, path, body, ctype))
        assert status < 300, answer
        return answer

    def count(self) -> float | None:
        return self.server.loop.run_until_complete(self.controller._sync("default"))

    def charge(self, used: int) -> None:
        """As admission does it before a write."""
        status = {"status": {"used": {"count/configmaps": str(used)}}}
        self.ask("PATCH", f"{QUOTA}/status", status, "application/merge-patch+json")

    @property
    def used(self) -> str:
        used: str = self.ask("GET", QUOTA)["status"]["used"]["count/configmaps"]
        return used


@pytest.fixture
def quota(tmp_path: Path):
    server = InProcess(tmp_path)
    asyncio.set_event_loop(server.loop)
    try:
        yield Quota(server)
    finally:
        asyncio.set_event_loop(None)
        server.close()


def test_what_was_charged_a_moment_ago_stays_charged(quota: Quota) -> None:
    quota.charge(2)
    assert quota.count() == QUIET_S and quota.used == "2"
    quota.now += QUIET_S / 2
    assert quota.count() == QUIET_S and quota.used == "2"
    # Charged again: half a second from now on.
    quota.charge(3)
    quota.now += QUIET_S
    assert quota.count() == QUIET_S and quota.used == "3"
    quota.now += QUIET_S
    assert quota.count() == AGAIN_S and quota.used == "0"
    assert quota.count() is None and not quota.controller.unconfirmed


def test_what_is_used_rises_at_once(quota: Quota) -> None:
    hard = {"spec": {"hard": {"count/configmaps": "5", "count/secrets": "7"}}}
    quota.charge(2)
    quota.ask("PATCH", QUOTA, hard, "application/merge-patch+json")
    assert quota.count() == QUIET_S
    status = quota.controller.client.get("", "resourcequotas", "default", "q")["status"]
    assert status == {"hard": hard["spec"]["hard"], "used": {"count/configmaps": "2", "count/secrets": "0"}}


def test_a_quota_that_is_charged_all_the_time_is_counted_all_the_same(quota: Quota) -> None:
    for i in range(MOST_TRIES):
        quota.charge(i % 2 + 2)
        assert quota.count() == QUIET_S
    quota.charge(5)
    assert quota.count() == AGAIN_S and quota.used == "0"


def test_others_have_their_turn_between_quotas(quota: Quota, monkeypatch: pytest.MonkeyPatch) -> None:
    """A count of nothing but numbers waits for nobody, however many there are."""
    paused = []

    class Over:
        over = True

        async def pause(self) -> None:
            paused.append(1)

    monkeypatch.setattr("kas.controllers.resourcequota.Stint", Over)
    for i in range(5):
        quota.ask("POST", f"{NS}/resourcequotas", {"metadata": {"name": f"m{i}"}, "spec": {"hard": {"count/configmaps": "5"}}})
    quota.count()
    assert len(paused) == 6


def test_a_new_quota_counts_for_itself(quota: Quota, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each counted for all quotas of its namespace: 1,200 of them, one after the other, took 110 s."""
    counted = []
    whole = ResourceQuotas._count

    async def count(self: ResourceQuotas, namespace: str, found: Any, hard: Any) -> Any:
        counted.append(found["metadata"]["name"])
        return await whole(self, namespace, found, hard)

    monkeypatch.setattr(ResourceQuotas, "_count", count)
    loop = quota.server.loop
    running = loop.create_task(quota.controller.run())

    async def settled() -> None:
        await asyncio.sleep(0)
        while len(quota.controller.queue):  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    loop.run_until_complete(settled())
    counted.clear()
    quota.ask("POST", f"{NS}/configmaps", {"metadata": {"name": "a"}})
    for n in range(10):
        quota.ask("POST", f"{NS}/resourcequotas", {"metadata": {"name": f"q{n}"}, "spec": {"hard": {"count/configmaps": "5"}}})
        loop.run_until_complete(settled())
    assert sorted(set(counted)) == sorted(f"q{n}" for n in range(10)) and len(counted) <= 20
    assert [quota.ask("GET", f"{NS}/resourcequotas/q{n}")["status"]["used"] for n in range(10)] == [{"count/configmaps": "1"}] * 10
    running.cancel()
    loop.run_until_complete(asyncio.gather(running, return_exceptions=True))


def test_only_what_was_freed_is_counted(quota: Quota, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was deleted in a namespace, its pods were read, for each of its quotas: also for events, which expire all the time."""
    controller, read, queued = quota.controller, list[str](), list[Any]()
    paced, number = controller.client.paced, controller.store.count

    def noted(of: Any) -> Any:
        def ask(prefix: str) -> Any:
            read.append(prefix.removesuffix("/default/"))
            return of(prefix)

        return ask

    monkeypatch.setattr(controller.client, "paced", noted(paced))
    monkeypatch.setattr(controller.store, "count", noted(number))
    monkeypatch.setattr(controller.queue, "add_after", lambda item, after: queued.append(item))
    quota.server.store.hub.listen("", controller._events)
    hard = {"pods": "5", "count/configmaps": "5"}
    quota.ask("POST", f"{NS}/serviceaccounts", {"metadata": {"name": "default"}})
    quota.ask("POST", f"{NS}/resourcequotas", {"metadata": {"name": "p"}, "spec": {"hard": hard}, "status": {"hard": hard}})
    for kind, more in {
        "pods": {"spec": {"containers": [{"name": "c", "image": "x"}]}}, "configmaps": {},
        "events": {"involvedObject": {"namespace": "default"}}, "secrets": {},
    }.items():
        quota.ask("POST", f"{NS}/{kind}", {"metadata": {"name": "a"}, **more})
    while quota.count() is not None:
        quota.now += QUIET_S
    controller.namespaces["default"] = 0.0

    def used() -> Any:
        return quota.ask("GET", f"{NS}/resourcequotas/p")["status"]["used"]

    def counted_for(kind: str) -> set[str]:
        read.clear(), queued.clear()
        quota.ask("DELETE", f"{NS}/{kind}/a?gracePeriodSeconds=0")
        while queued and quota.count() is not None:
            quota.now += QUIET_S
        return set(read)

    assert used() == {"pods": "1", "count/configmaps": "1"}
    assert counted_for("events") == counted_for("secrets") == set()
    assert counted_for("configmaps") == {"/registry/configmaps"}
    assert used() == {"pods": "1", "count/configmaps": "0"}
    assert counted_for("pods") == {"/registry/pods"}
    assert used() == {"pods": "0", "count/configmaps": "0"}
    assert not controller.freed
    controller._resync()
    quota.count()
    assert {"/registry/pods", "/registry/configmaps"} <= set(read)

"""Writers with a conflict queue up: one after another, skipped when one takes too long, and removed when cancelled."""

from __future__ import annotations

import asyncio
import json

import pytest

from kas.registry import lines
from kas.registry.lines import Lines
from tests.endpoints.inprocess import Api, run

MAPS = "/api/v1/namespaces/ns/configmaps"
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
WRITERS = 80


def test_writers_run_in_the_order_of_arrival() -> None:
    async def main() -> None:
        waiting, order, inside = Lines(), [], 0

        async def one(i: int) -> None:
            nonlocal inside
            turn = await waiting.turn("a")
            inside += 1
            assert inside == 1 and await waiting.turn("a", turn) is turn
            await asyncio.sleep(0)
            order.append(i)
            inside -= 1
            waiting.over("a", turn)
            waiting.over("a", turn)  # another object's

        await asyncio.gather(*(one(i) for i in range(10)))
        assert order == list(range(10)) and not waiting._lines

    asyncio.run(main())


def test_a_writer_that_takes_too_long_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one whose webhook writes the same object."""
    monkeypatch.setattr(lines, "PATIENCE_S", 0.001)

    async def main() -> None:
        waiting = Lines()
        slow = await waiting.turn("a")
        next_one = await waiting.turn("a")
        waiting.over("a", slow)
        assert waiting._lines["a"][0] is next_one
        again = asyncio.create_task(waiting.turn("a", slow))  # behind the current one
        await asyncio.sleep(0)
        assert waiting._lines["a"][0] is next_one and len(waiting._lines["a"]) == 2
        waiting.over("a", next_one)
        waiting.over("a", await again)
        assert not waiting._lines

    asyncio.run(main())


def test_a_cancelled_writer_delays_no_other() -> None:
    async def main() -> None:
        waiting = Lines()
        first = await waiting.turn("a")
        tasks = [asyncio.create_task(waiting.turn("a")) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.sleep(0)
        waiting.over("a", first)
        tasks[1].cancel()  # its turn has just come
        waiting.over("a", await tasks[2])
        assert not waiting._lines and all(t.cancelled() for t in tasks[:2])

    asyncio.run(main())


@pytest.mark.parametrize("ctype", [MERGE, APPLY])
def test_concurrent_writers_of_one_object_succeed_in_few_attempts(tmp_path, monkeypatch: pytest.MonkeyPatch, ctype: str) -> None:
    async def test(api: Api) -> None:
        attempts = 0
        commit = api.config_maps.commit

        def counted(*args, **more):
            nonlocal attempts
            attempts += 1
            return commit(*args, **more)

        monkeypatch.setattr(api.config_maps, "commit", counted)

        def body(i: int) -> dict[str, object]:
            meta = {"metadata": {"name": "a"}}
            return {"apiVersion": "v1", "kind": "ConfigMap", **meta, "data": {f"k{i}": "v"}}

        assert (await api("POST", MAPS, body(0)))[0] == 201
        asked = (api("PATCH", f"{MAPS}/a?fieldManager=m{i}", body(i), ctype) for i in range(WRITERS))
        answers = await asyncio.gather(*asked)
        assert [status for status, _ in answers] == [200] * WRITERS, json.dumps([a for a in answers if a[0] != 200][:1])
        assert len((await api("GET", f"{MAPS}/a"))[1]["data"]) == WRITERS
        assert attempts <= 3 * WRITERS  # each once on arrival and once more; quadratic would be 3,200

    run(tmp_path, test)


def test_replacements_with_a_revision_do_not_queue(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "PATIENCE_S", 3600)

    async def test(api: Api) -> None:
        status, stored = await api("POST", MAPS, {"metadata": {"name": "a"}})
        assert status == 201
        await api.config_maps.lines.turn(api.config_maps.key("ns", "a"))  # another writer's that does not end
        asked = asyncio.gather(*(api("PUT", f"{MAPS}/a", stored | {"data": {f"k{i}": "v"}}) for i in range(3)))
        assert sorted(status for status, _ in await asyncio.wait_for(asked, 60)) == [200, 409, 409]

    run(tmp_path, test)

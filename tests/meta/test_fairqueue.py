"""A semaphore for which clients take turns."""

from __future__ import annotations

import asyncio

from kas.meta.fairqueue import PASSED_OVER, FairQueue, FairSemaphore, whose, works_for


def test_clients_take_turns_and_one_of_them_never_has_all_places() -> None:
    rota = FairQueue[str](3)
    for i in range(5):
        rota.wait("many", i, f"m{i}")
    assert [rota.next(), rota.next()] == [("many", "m0"), ("many", "m1")]
    assert rota.next() is None, "the last place is for somebody else"
    rota.wait("one", 9, "o")
    assert rota.next() == ("one", "o")
    rota.wait("another", 10, "a")
    rota.rest("many")
    assert rota.next() == ("many", "m2"), "who came before"
    rota.rest("many")
    assert rota.next() == ("another", "a"), "then the others, though more of theirs wait"


def test_the_oldest_request_of_a_client_goes_first() -> None:
    rota = FairQueue[str](1)
    for request in (3, 1, 2, 1):
        rota.wait("c", request, str(request))
    found = []
    while (given := rota.next()) is not None:
        found.append(given[1])
        rota.rest("c")
    assert found == ["1", "1", "2", "3"]


def test_a_client_that_had_a_slot_comes_later_but_not_last_for_ever() -> None:
    rota = FairQueue[str](2)
    for client in ("a", "b"):
        rota.wait(client, 1, client, again=True)
        rota.wait(client, 2, f"{client} later")  # behind what has begun
    given = []
    for i in range(3 * PASSED_OVER):
        rota.wait(i, 10 + i, str(i))
        found = rota.next()
        assert found is not None
        given.append(found[1])
        rota.rest(found[0])
    assert given[:PASSED_OVER] == [str(i) for i in range(PASSED_OVER)] and given[PASSED_OVER] == "a"
    assert given.index("b") == 2 * PASSED_OVER + 1 and set(given) > {"a later"}


def test_nothing_is_kept_of_idle_clients() -> None:
    rota = FairQueue[int](2)
    for i in range(1000):
        rota.wait(i, i, i)
        assert rota.next() == (i, i)
        rota.rest(i)
    assert rota.free == 2 and not rota._held and not rota._waiting


async def _hold(places: FairSemaphore, client: str, done: list[str], go: asyncio.Event) -> None:
    works_for(client)
    async with places:
        assert whose()[0] == client
        await go.wait()
        done.append(client)


def test_a_slot_is_left_for_other_clients() -> None:
    async def run() -> None:
        places, done, go, free = FairSemaphore(4), [], asyncio.Event(), asyncio.Event()
        free.set()
        held = [asyncio.create_task(_hold(places, "many", done, go)) for _ in range(40)]
        await asyncio.sleep(0)
        await asyncio.wait_for(asyncio.create_task(_hold(places, "one", done, free)), 60)
        assert done == ["one"]
        go.set()
        await asyncio.gather(*held)

    asyncio.run(run())


def test_a_cancelled_client_releases_its_slot() -> None:
    async def run() -> None:
        places, done, go = FairSemaphore(1), [], asyncio.Event()
        first = asyncio.create_task(_hold(places, "a", done, go))
        await asyncio.sleep(0)
        left = [asyncio.create_task(_hold(places, "b", done, go)) for _ in range(3)]
        last = asyncio.create_task(_hold(places, "c", done, go))
        await asyncio.sleep(0)
        left[0].cancel()
        first.cancel()
        await asyncio.sleep(0)  # the slot is b's now, which is cancelled before it runs
        left[1].cancel()
        left[2].cancel()
        go.set()
        await asyncio.wait_for(last, 60)
        assert done == ["c"]
        assert (await asyncio.gather(first, *left, return_exceptions=True)).count(None) == 0

    asyncio.run(run())

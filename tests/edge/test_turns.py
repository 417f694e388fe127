"""While requests wait for seats others are begun a few a turn, by credential."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from kas.edge.asgi import App
from kas.edge.listener import Listener
from kas.edge.turns import BEGUN, TURN_S, Turns
from kas.request.http import Request, Response
from tests.filters.serving import answer, head


def scope(token: str = "", client: str = "10.0.0.1") -> dict[str, Any]:
    headers = [(b"host", b"x")] + ([(b"authorization", f"Bearer {token}".encode())] if token else [])
    return {"headers": headers, "client": (client, 1)}


def test_nobody_waits() -> None:
    asyncio.run(nobody())


async def nobody() -> None:
    assert not Turns(lambda: 0).hold(scope("a"), None, lambda r: None, "r")


def test_a_turn_that_is_long_is_over_for_all() -> None:
    """Of what came at once, one of each credential is begun, and again when that has taken long, too."""
    asyncio.run(long())


async def long() -> None:
    now, begun = [0.0], list[str]()
    turns = Turns(lambda: 0, lambda: now[0])

    def begin(name: str) -> None:
        """It takes long in the turn after this one."""
        begun.append(name)
        asyncio.get_running_loop().call_soon(wait)

    def wait() -> None:
        now[0] += 2 * TURN_S

    assert not turns.hold(scope("flood"), None, begin, "at once")
    now[0] += TURN_S / 2
    assert not turns.hold(scope("flood"), None, begin, "at once, too")
    now[0] += TURN_S
    for i in range(3):
        assert turns.hold(scope("flood"), None, begin, f"f{i}")
    assert turns.hold(scope("quiet"), None, begin, "q0")
    for n, last in enumerate(("f0", "q0", "f1", "f2"), 1):
        await asyncio.sleep(0)
        assert (len(begun), begun[-1]) == (n, last)
    await asyncio.sleep(0)
    assert not turns.hold(scope("flood"), None, begin, "f3")


def test_one_of_each_credential_in_turn() -> None:
    asyncio.run(in_turn())


async def in_turn() -> None:
    crowd, begun = [1], []
    turns = Turns(lambda: crowd[0])
    for i in range(3 * BEGUN):
        assert turns.hold(scope("flood"), None, begun.append, f"f{i}")
    assert turns.hold(scope("quiet"), None, begun.append, "q0")
    assert turns.hold(scope(client="10.0.0.2"), None, begun.append, "other")
    assert turns.hold(scope("quiet"), None, begun.append, "q1")
    assert begun == []
    await asyncio.sleep(0)
    assert begun == ["f0", "q0", "other", "f1", "q1", "f2", "f3", "f4"]
    # Nobody waits for seats any more, but those that came before are first.
    crowd[0] = 0
    assert turns.hold(scope("late"), None, begun.append, "late")
    await asyncio.sleep(0)
    assert len(begun) == 2 * BEGUN and "late" in begun
    for _ in range(3):
        await asyncio.sleep(0)
    assert [x for x in begun if x[0] == "f"] == [f"f{i}" for i in range(3 * BEGUN)]
    assert not turns.hold(scope("late"), None, begun.append, "later")


def test_what_is_begun_later_is_answered(tmp_path: Any) -> None:
    """Through a real listener; a request with a body, too."""
    asyncio.run(answered(tmp_path))


async def answered(tmp_path: Any) -> None:
    seen: list[str] = []

    def handler(req: Request) -> Response:
        seen.append(req.path)
        return Response(200, [], req.path.encode())

    class Counted(Turns):
        held = 0

        def hold(self, *args: Any) -> bool:
            found = super().hold(*args)
            self.held += found
            return found

    turns, path = Counted(lambda: 1), str(tmp_path / "s")
    listener = Listener(App(handler), "", 0, uds=path, rust_tasks=False, turns=turns)
    listener.start(1)
    try:
        async with contextlib.AsyncExitStack() as stack:
            opened = [await asyncio.open_unix_connection(path) for _ in range(2 * BEGUN)]
            for _, writer in opened:
                stack.callback(writer.close)
            for i, (_, writer) in enumerate(opened):
                writer.write(head("GET" if i % 2 else "POST", f"/{i}", f"Authorization: Bearer t{i % 3}", "Content-Length: 2") + b"{}")
            for i, (reader, _) in enumerate(opened):
                assert await answer(reader) == (200, f"/{i}".encode())
            # A connection goes on.
            opened[0][1].write(head("GET", "/again"))
            assert await answer(opened[0][0]) == (200, b"/again")
    finally:
        listener.stop()
        await listener.stopped
    assert turns.held == len(seen) == 2 * BEGUN + 1

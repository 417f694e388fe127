"""When requests begin: at once, or a few in each loop iteration, by credential."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kas.edge import dispatch, writelag
from kas.edge.asgi import App
from kas.edge.dispatch import HOLD_S, ITERATION_S, LONGEST_S, QUEUED_PER_ITERATION, SHARED_ITERATION_S, UNPROBED, YIELDS, Dispatcher
from kas.edge.listener import Listener
from kas.edge.writelag import BATCH, LATE_S, MOST
from kas.request.http import Request, Response
from tests.filters.serving import answer, head, until


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No exchange is considered over because of the real clock, which depends on the machine: see ``writelag.LONGEST_S``."""
    monkeypatch.setattr(writelag, "LONGEST_S", 3600.0)


class Arrived:
    """A request; beginning it takes ``takes``, and its task runs for ``later``."""

    def __init__(
        self, name: str, token: str = "", client: str = "10.0.0.1", takes: float = 0.0, later: float = 0.0, port: int = 1, large: int = 0,
        acts_as: str = "", remote: str = "",
    ) -> None:  # fmt: skip
        self.name, self.takes, self.later = name, takes, later
        headers = [(b"host", b"x" * (1 + large))] + ([(b"impersonate-user", acts_as.encode())] if acts_as else [])
        headers += [(b"x-remote-user", remote.encode())] if remote else []
        headers += [(b"authorization", f"Bearer {token}".encode())] if token else []
        self.scope: dict[str, Any] = {
            "type": "http", "method": "GET", "path": "/", "raw_path": b"/", "query_string": b"", "headers": headers,
            "client": (client, port),
        }  # fmt: skip
        self.proto: Any = self

    async def receive(self) -> dict[str, Any]:
        return {"type": "http.disconnect"}


class Unwritten(Arrived):
    """Collects answers until the dispatcher asks whether they are written; they are when one of ``asked`` is done."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.asked: list[asyncio.Future[dict[str, Any]]] = []

    def receive(self) -> Any:
        self.asked.append(asyncio.get_running_loop().create_future())
        return self.asked[-1]


class Loop:
    """Dispatchers with a clock of their own, and the requests that they began. Used in the running loop."""

    def __init__(self) -> None:
        self.now, self.crowd, self.several = 0.0, 0, False
        self.begun: list[str] = []
        self.refused: list[str] = []
        self.gave_way: list[int] = []  # after how many begun requests
        self.meanwhile: list[Arrived] = []  # arrive while other threads have the processor
        self.going: dict[str, asyncio.Future[None]] = {}  # by name, of requests that run until it is done
        self.large: set[str] = set()  # names of requests that are answered at length, in a task
        self.steps: list[str] = []  # what these did
        self.known = True  # whether credentials are known
        self.lone = False  # whether all are of one user
        self.dispatcher = Dispatcher(
            asyncio.get_running_loop(), lambda: self.crowd, lambda: self.several, lambda: self.now,
            self.give_way, lambda credential: self.known or b"quiet" in credential, lambda: self.lone,
            lambda credential, wanted: credential == b"Bearer proxy" and wanted != b"nobody",
            shows=self.shows, naming=[b"x-user", b"x-remote-user"],
        )  # fmt: skip

    def shows(self, certificates: bytes, named: str, wanted: bytes | None) -> tuple[object, ...] | None:
        if certificates == b"front":
            return (certificates, named, wanted) if named not in ("", "new") else None
        return (certificates,) if certificates == b"ann" and self.known else None

    def arrive(self, *requests: Arrived, introductions: Any = None) -> None:
        for request in requests:
            self.dispatcher.arrive(self.begin, introductions, request)

    def give_way(self) -> None:
        self.gave_way.append(len(self.begun))
        came, self.meanwhile = self.meanwhile, []
        self.arrive(*came)

    def begin(self, request: Any, scope: dict[str, Any] | None) -> asyncio.Future[None] | None:
        if scope is None:
            self.refused.append(request.proto.name)  # nothing else of it is kept
            return None
        assert scope is request.scope
        self.begun.append(request.name)
        self.pass_(request.takes)
        if request.later:
            asyncio.get_running_loop().call_soon(self.pass_, request.later)
        if request.name in self.large:
            self.going[request.name] = asyncio.get_running_loop().create_task(self.give(request.name))
        return self.going.get(request.name)

    async def give(self, name: str) -> None:
        self.steps.append(f"{name} makes it")
        if (others := self.dispatcher.gives()) is not None:
            await others
        self.steps.append(f"{name} gives it")
        await asyncio.Event().wait()

    def pass_(self, seconds: float) -> None:
        self.now += seconds

    async def turn(self) -> list[str]:
        """Returns what is begun in the next loop iteration."""
        before = len(self.begun)
        await asyncio.sleep(0)
        return self.begun[before:]


def test_short_work_is_begun_at_once_in_order() -> None:
    """All that came at once is begun at once, in its order, while that is short."""

    async def go() -> None:
        loop = Loop()
        loop.arrive(*(Arrived(f"{i}", f"t{i % 3}") for i in range(50)))
        assert loop.begun == []
        assert await loop.turn() == [f"{i}" for i in range(50)]
        loop.arrive(Arrived("next"))
        assert await loop.turn() == ["next"] and await loop.turn() == []

    asyncio.run(go())


def test_requests_from_another_thread_are_begun() -> None:
    async def go() -> None:
        loop = Loop()
        thread = threading.Thread(target=loop.arrive, args=[Arrived(f"{i}") for i in range(100)])
        thread.start()
        await asyncio.to_thread(thread.join)
        await until(lambda: len(loop.begun) == 100)
        assert loop.begun == [f"{i}" for i in range(100)]

    asyncio.run(go())


def test_in_a_long_iteration_one_request_of_each_credential_is_begun() -> None:
    """And again when their tasks take long, too."""

    async def go() -> None:
        loop = Loop()
        flood = [Arrived(f"f{i}", "flood", takes=ITERATION_S / 2, later=2 * ITERATION_S) for i in range(5)]
        loop.arrive(*flood, Arrived("q", "quiet"))
        assert await loop.turn() == ["f0", "f1", "f2"]
        assert [await loop.turn() for _ in range(4)] == [["f3"], ["q"], ["f4"], []]
        loop.arrive(Arrived("late", "flood"))
        assert await loop.turn() == ["late"]

    asyncio.run(go())


def test_iterations_are_short_while_several_users_send_requests() -> None:
    async def go() -> None:
        loop = Loop()
        loop.several = True
        flood = [Arrived(f"f{i}", "flood", takes=SHARED_ITERATION_S * 0.6) for i in range(6)]
        loop.arrive(*flood, Arrived("q", "quiet", takes=SHARED_ITERATION_S * 0.6))
        assert await loop.turn() == ["f0", "f1"]
        assert await loop.turn() == ["f2", "q"]
        assert await loop.turn() == ["f3", "f4"]
        loop.arrive(Arrived("q2", "quiet"))  # a client without queued requests comes before those with some
        assert await loop.turn() == ["q2", "f5"]

    asyncio.run(go())


def test_one_of_each_credential_in_turn() -> None:
    """While requests wait for seats."""

    async def go() -> None:
        loop = Loop()
        loop.crowd = 1
        loop.arrive(*(Arrived(f"f{i}", "flood") for i in range(3 * QUEUED_PER_ITERATION)))
        loop.arrive(Arrived("q0", "quiet"), Arrived("other", client="10.0.0.2"), Arrived("q1", "quiet"))
        assert await loop.turn() == ["f0", "q0", "other", "f1", "q1", "f2", "f3", "f4"]
        # No request waits for seats any more, but those queued before come first.
        loop.crowd = 0
        loop.arrive(Arrived("late", "late"))
        begun = await loop.turn()
        assert len(begun) == QUEUED_PER_ITERATION and begun[:2] == ["f5", "late"]
        while await loop.turn():
            pass
        assert [x for x in loop.begun if x[0] == "f"] == [f"f{i}" for i in range(3 * QUEUED_PER_ITERATION)]
        loop.arrive(Arrived("later"))
        assert await loop.turn() == ["later"]

    asyncio.run(go())


def test_impersonated_users_take_turns_separately() -> None:
    """Only if the proxy was allowed to impersonate them recently; otherwise, and for anonymous, the credential counts."""

    async def go() -> None:
        loop = Loop()
        loop.crowd = 1
        loop.arrive(*(Arrived(f"a{i}", "proxy", acts_as="ann") for i in range(3)), Arrived("b0", "proxy", acts_as="bob"))
        loop.arrive(*(Arrived(f"p{i}", "proxy", acts_as="nobody") for i in range(2)), Arrived("p2", "proxy"))
        loop.arrive(*(Arrived(f"x{i}", "other", acts_as=f"{i}") for i in range(2)))
        assert await loop.turn() == ["a0", "b0", "p0", "x0", "a1", "p1", "x1", "a2"] and await loop.turn() == ["p2"]
        # An unknown credential does not count as several users.
        loop.known = False
        loop.arrive(*(Arrived(f"u{i}", f"proxy {i}", acts_as=f"{i}") for i in range(2)), Arrived("q0", "quiet"))
        assert await loop.turn() == ["u0", "q0", "u1"]

    asyncio.run(go())


class Shown:
    """Introductions of clients whose certificates' key is their address."""

    def of(self, address: str) -> Any:
        return SimpleNamespace(client=address, certificates=SimpleNamespace(key=address.encode()))


def test_users_of_an_authenticating_proxy_take_turns_separately() -> None:
    """Those that it named recently; new ones share a turn. For a certificate that is no proxy's, and beside invalid credentials, only the
    certificate counts."""

    async def go() -> None:
        loop = Loop()
        loop.crowd = 1
        loop.arrive(
            *(Arrived(f"a{i}", client="front", remote="ann") for i in range(3)), Arrived("b0", client="front", remote="bob"),
            Arrived("i0", client="front", remote="bob", acts_as="eve"), *(Arrived(f"n{i}", client="front", remote="new") for i in range(2)),
            *(Arrived(f"c{i}", client="ann", remote=f"{i}") for i in range(2)), introductions=Shown(),
        )  # fmt: skip
        assert await loop.turn() == ["a0", "b0", "i0", "n0", "c0", "a1", "n1", "c1"] and await loop.turn() == ["a2"]
        loop.known = False
        loop.arrive(
            *(Arrived(f"c{i}", client="ann", remote=f"{i}") for i in range(2)), Arrived("q0", "quiet"),
            *(Arrived(f"t{i}", f"{i}", client="front", remote="ann") for i in range(2)), introductions=Shown(),
        )  # fmt: skip
        assert await loop.turn() == ["c0", "q0", "t0", "c1", "t1"]

    asyncio.run(go())


def flooded(count: int = 3 * QUEUED_PER_ITERATION) -> tuple[Loop, list[Arrived]]:
    """Several users send requests, requests wait for seats, and one user has many at once."""
    loop = Loop()
    loop.crowd, loop.several = 1, True
    return loop, [Arrived(f"f{i}", "flood") for i in range(count)]


def test_a_flood_gets_little_of_an_iteration() -> None:
    """While others send requests, and as long as it has more queued than all of them; other threads run before it."""

    async def go() -> None:
        loop, flood = flooded(2 * QUEUED_PER_ITERATION + 4)
        loop.arrive(*flood, Arrived("q0", "quiet"), Arrived("o0", "other"), Arrived("q1", "quiet"))
        assert await loop.turn() == ["q0", "o0", "f0", "q1"] and loop.gave_way == [2] * YIELDS
        assert await loop.turn() == ["f1"] and loop.gave_way == [2] * YIELDS + [4] * YIELDS
        # As many as one iteration begins are no flood.
        while loop.begun[-1] != f"f{len(flood) - QUEUED_PER_ITERATION - 2}":
            assert len(await loop.turn()) == 1 and loop.gave_way[-1] == len(loop.begun) - 1
        last = [f"f{i}" for i in range(len(flood) - QUEUED_PER_ITERATION - 1, len(flood))]
        assert [await loop.turn(), await loop.turn()] == [last[:-1], last[-1:]]
        gave_way = len(loop.gave_way)
        # Nor are many users with many requests each, nor a single user.
        loop.arrive(*(Arrived(f"{t}{i}", t) for i in range(QUEUED_PER_ITERATION + 1) for t in "abc"))
        assert await loop.turn() == ["a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2"]
        while await loop.turn():
            pass
        loop.several = False
        loop.arrive(*(Arrived(f"f{i}", "flood") for i in range(3 * QUEUED_PER_ITERATION)))
        assert len(await loop.turn()) == QUEUED_PER_ITERATION and len(loop.gave_way) == gave_way

    asyncio.run(go())


def test_equal_numbers_of_requests_are_no_flood() -> None:
    async def go() -> None:
        loop = Loop()
        loop.several = True
        loop.arrive(*(Arrived(f"{who}{i}", who, takes=SHARED_ITERATION_S / 20) for i in range(3 * QUEUED_PER_ITERATION) for who in "ab"))
        await loop.turn()
        left = 6 * QUEUED_PER_ITERATION - len(loop.begun)
        assert left > 2 * QUEUED_PER_ITERATION and len(await loop.turn()) == QUEUED_PER_ITERATION and not loop.gave_way
        half = QUEUED_PER_ITERATION // 2
        assert [name[0] for name in loop.begun[-QUEUED_PER_ITERATION:]] in (["a", "b"] * half, ["b", "a"] * half)

    asyncio.run(go())


def test_a_new_client_comes_first() -> None:
    """Before those with queued requests, and before the flood if it came while the flood gave way."""

    async def go() -> None:
        loop, flood = flooded()
        loop.arrive(*flood, Arrived("o0", "other"), Arrived("o1", "other"))
        assert await loop.turn() == ["o0", "f0", "o1"]
        loop.arrive(Arrived("o2", "other"), Arrived("q0", "quiet"))
        loop.meanwhile = [Arrived("late", "late")]
        assert await loop.turn() == ["o2", "q0", "late", "f1"]

    asyncio.run(go())


def test_a_new_clients_task_takes_its_first_step_before_others_are_begun() -> None:
    """A list is answered in a task, which would otherwise run after what is begun in between."""

    async def go() -> None:
        loop, flood = flooded()
        for name in ("q0", "p0"):
            loop.going[name] = asyncio.get_running_loop().create_future()
        loop.arrive(*flood, Arrived("o0", "other"), Arrived("o1", "other"), Arrived("q0", "quiet"), Arrived("p0", "peer"))
        assert await loop.turn() == ["o0", "q0", "p0"] and loop.gave_way == []
        assert await loop.turn() == ["f0", "o1"]
        # With a single user this would gain nothing.
        loop.several = False
        loop.going["r0"] = asyncio.get_running_loop().create_future()
        loop.arrive(Arrived("r0", "quiet"))
        assert "r0" in (begun := await loop.turn()) and len(begun) == QUEUED_PER_ITERATION

    asyncio.run(go())


@pytest.mark.parametrize("in_tasks", [False, True])
def test_new_credentials_do_not_starve_others(in_tasks: bool) -> None:
    """Another credential with each request."""

    async def go() -> None:
        loop, flood = flooded()
        if in_tasks:
            loop.going["x"] = asyncio.get_running_loop().create_future()
        loop.arrive(*flood)
        for turn in range(len(flood) + 2):
            loop.arrive(*(Arrived("x", f"{turn} {i}") for i in range(QUEUED_PER_ITERATION)))
            await loop.turn()
        assert len([x for x in loop.begun if x != "x"]) > len(flood) // 2

    asyncio.run(go())


def test_each_request_of_a_flood_waits_for_the_one_before() -> None:
    """For ``HOLD_S`` of its task, and no iteration is scheduled for it meanwhile; others are begun."""

    async def go() -> None:
        loop, flood = flooded()
        ends = loop.going["f0"] = asyncio.get_running_loop().create_future()
        loop.going["f1"] = asyncio.get_running_loop().create_future()
        loop.arrive(*flood)
        assert await loop.turn() == ["f0"]
        assert [await loop.turn() for _ in range(3)] == [[], [], []] and loop.gave_way == [0] * YIELDS
        loop.arrive(Arrived("q0", "quiet"), Arrived("q1", "quiet"))
        assert await loop.turn() == ["q0", "q1"]
        assert await loop.turn() == []
        ends.set_result(None)
        await until(lambda: loop.begun[-1] == "f1")
        assert await loop.turn() == []
        loop.pass_(HOLD_S)  # f1 continues
        await until(lambda: len(loop.begun) == len(flood) + 2)
        assert [x for x in loop.begun if x[0] == "f"] == [x.name for x in flood]

    asyncio.run(go())


def test_a_flood_waits_while_another_user_gets_a_large_answer() -> None:
    """For ``HOLD_S``, but in total no longer than ``LONGEST_S``."""

    async def go() -> None:
        loop, flood = flooded()
        loop.large = {"q0", "q1", "q2", "q3"}
        loop.arrive(*flood)
        assert await loop.turn() == ["f0"]
        for i in range(3):
            loop.arrive(Arrived(f"q{i}", "quiet"))
            assert await loop.turn() == [f"q{i}"]
            assert [await loop.turn() for _ in range(3)] == [[], [], []]
            loop.pass_(HOLD_S * 3 / 4)
        loop.going["f1"] = asyncio.get_running_loop().create_future()
        loop.pass_(LONGEST_S - HOLD_S * 9 / 4)
        await until(lambda: loop.begun[-1] == "f1")
        loop.arrive(Arrived("q3", "quiet"))
        assert await loop.turn() == ["q3"]
        loop.going["f1"].set_result(None)
        assert [await loop.turn() for _ in range(3)] == [[], [], []]
        loop.going["q3"].cancel()
        await until(lambda: "f2" in loop.begun)
        for task in loop.going.values():
            task.cancel()

    asyncio.run(go())


def test_a_flooding_user_is_answered_at_length_after_others() -> None:
    """A client that came while the answer was built is begun and answered first, also if that continues in a task."""

    async def go() -> None:
        loop, flood = flooded()
        loop.large = {"f0", "q0"}
        loop.arrive(*flood)
        assert await loop.turn() == ["f0"]
        loop.meanwhile = [Arrived("q0", "quiet")]
        await until(lambda: len(loop.steps) == 4)
        assert loop.steps == ["f0 makes it", "q0 makes it", "q0 gives it", "f0 gives it"] and loop.gave_way == [0] * YIELDS + [1] * YIELDS
        for task in loop.going.values():
            task.cancel()
        # Alone it does not wait.
        loop.several, loop.large = False, {"f1"}
        await until(lambda: loop.steps[-1] == "f1 gives it")
        assert len(loop.gave_way) == 2 * YIELDS
        loop.going["f1"].cancel()

    asyncio.run(go())


def test_an_iteration_scheduled_before_a_task_waits_for_its_first_step() -> None:
    """A client that came while the flood gave way had an iteration scheduled; nothing of the flood is begun in it before that client is
    answered."""

    async def go() -> None:
        loop, flood = flooded()
        loop.large = {"q0"}
        loop.arrive(*flood)
        loop.meanwhile = [Arrived("q0", "quiet")]
        assert await loop.turn() == ["q0"]
        await until(lambda: "q0 gives it" in loop.steps)
        assert loop.begun == ["q0"]
        loop.going["q0"].cancel()
        await until(lambda: "f0" in loop.begun)

    asyncio.run(go())


def test_requests_that_wait_for_seats_count_for_a_flood() -> None:
    """A flood that began while it was alone, and waits for seats with nearly all requests: no more than one in each iteration is begun."""

    async def go() -> None:
        loop = Loop()
        loop.crowd = 1
        for i in range(3 * QUEUED_PER_ITERATION):
            loop.going[f"f{i}"] = asyncio.get_running_loop().create_future()
        loop.arrive(*(Arrived(f"f{i}", "flood") for i in range(2 * QUEUED_PER_ITERATION)))
        assert len(await loop.turn()) == len(await loop.turn()) == QUEUED_PER_ITERATION
        loop.several = True
        loop.pass_(HOLD_S)
        more = range(2 * QUEUED_PER_ITERATION, 2 * QUEUED_PER_ITERATION + 4)
        loop.arrive(*(Arrived(f"f{i}", "flood") for i in more), Arrived("q0", "quiet"))
        assert await loop.turn() == ["q0", f"f{2 * QUEUED_PER_ITERATION}"] and loop.gave_way == [2 * QUEUED_PER_ITERATION + 1] * YIELDS
        assert await loop.turn() == []  # what was begun last has HOLD_S
        # Those that have their seats, and those from a time without waiting, do not count.
        for i in range(2 * QUEUED_PER_ITERATION + 1):
            loop.going[f"f{i}"].set_result(None)
        await asyncio.sleep(0)
        assert await loop.turn() == [f"f{2 * QUEUED_PER_ITERATION + i}" for i in (1, 2, 3)]

    asyncio.run(go())


def test_a_request_that_cannot_be_begun_does_not_block_others() -> None:
    class Broken(Arrived):
        @property
        def scope(self) -> dict[str, Any]:
            raise ValueError("no scope")

        @scope.setter
        def scope(self, value: dict[str, Any]) -> None:
            pass

    async def go() -> None:
        loop, told = Loop(), list[str]()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(str(context["exception"])))
        loop.arrive(Arrived("a"), Broken("b"), Arrived("c"))
        assert [await loop.turn(), await loop.turn()] == [["a"], ["c"]] and told == ["no scope"]
        loop.crowd = 1
        loop.arrive(Arrived("d"), Broken("e"), Arrived("f"))
        assert [await loop.turn(), await loop.turn()] == [[], ["d", "f"]] and await loop.turn() == []

    asyncio.run(go())


def test_requests_begun_later_are_answered(tmp_path: Any) -> None:
    """Through a real listener; also one with a body."""
    asyncio.run(answered(tmp_path))


async def answered(tmp_path: Any) -> None:
    seen: list[str] = []

    def handler(req: Request) -> Response:
        seen.append(req.path)
        return Response(200, [], req.path.encode())

    turned, path = Dispatcher(asyncio.get_running_loop(), lambda: 1), str(tmp_path / "s")
    listener = Listener(App(handler), "", 0, uds=path, dispatcher=turned)
    listener.start(1)
    try:
        async with contextlib.AsyncExitStack() as stack:
            opened = [await asyncio.open_unix_connection(path) for _ in range(2 * QUEUED_PER_ITERATION)]
            for _, writer in opened:
                stack.callback(writer.close)
            for i, (_, writer) in enumerate(opened):
                writer.write(head("GET" if i % 2 else "POST", f"/{i}", f"Authorization: Bearer t{i % 3}", "Content-Length: 2") + b"{}")
            for i, (reader, _) in enumerate(opened):
                assert await answer(reader) == (200, f"/{i}".encode())
            # The connection continues.
            opened[0][1].write(head("GET", "/again"))
            assert await answer(opened[0][0]) == (200, b"/again")
    finally:
        listener.stop()
        await listener.stopped
    assert len(seen) == 2 * QUEUED_PER_ITERATION + 1


def test_thousands_of_requests_are_queued_over_several_iterations() -> None:
    async def go() -> None:
        loop = Loop()
        loop.crowd = 1
        put_down = loop.dispatcher._enqueue

        def slow(*arrived: Any) -> None:
            loop.pass_(0.001)
            put_down(*arrived)

        loop.dispatcher._enqueue = slow  # type: ignore[method-assign]
        loop.arrive(*(Arrived(f"{i}", f"t{i}") for i in range(20)))
        await loop.turn()
        assert len(loop.dispatcher._arrivals) == 20 - 6  # the one that used up the time
        await until(lambda: len(loop.begun) == 20)

    asyncio.run(go())


def test_the_memory_of_queued_heads_is_bounded(monkeypatch) -> None:
    """100 HTTP/2 connections with 100 requests of 200 kB each, without a credential, made a worker 2.3 GB large."""
    monkeypatch.setattr(dispatch, "HEADS_BYTES", 40_000)

    async def go() -> None:
        loop = Loop()
        loop.crowd = 1
        first = [Arrived(f"{i}", f"{i}" + "t" * 9000) for i in range(6)]
        loop.arrive(*first, *(Arrived(f"s{i}", f"{i}" + "t" * 3000) for i in range(6)))
        socket = Arrived("socket", "t" * 9000)
        socket.scope["type"] = "websocket"
        loop.arrive(socket)
        await until(lambda: len(loop.begun) == 11)
        assert loop.refused == ["4", "5"] and "socket" in loop.begun
        # Requests that were begun free memory.
        loop.arrive(first[0])
        await until(lambda: len(loop.begun) == 12)
        assert len(loop.refused) == 2

    asyncio.run(go())


def test_a_request_beyond_the_bound_is_answered(tmp_path: Any, monkeypatch) -> None:
    """Through a real listener; also one with a body."""
    monkeypatch.setattr(dispatch, "HEADS_BYTES", 0)

    async def go() -> None:
        turned, path = Dispatcher(asyncio.get_running_loop(), lambda: 1), str(tmp_path / "s")
        listener = Listener(App(lambda req: Response(200, [], b"")), "", 0, uds=path, dispatcher=turned)
        listener.start(1)
        try:
            for method in ("GET", "POST", "HEAD"):
                reader, writer = await asyncio.open_unix_connection(path)
                writer.write(head(method, "/", "Connection: close", "Content-Length: 2", f"X-A: {'a' * 5000}") + b"{}")
                said = await reader.read()
                assert said.startswith(b"HTTP/1.1 429 ") and b"retry-after: 1" in said, said
                assert said.endswith(b"again later.\n") == (method != "HEAD")
                writer.close()
        finally:
            listener.stop()
            await listener.stopped

    asyncio.run(go())


def test_more_is_begun_if_answers_are_written_at_once() -> None:
    """And less again if not."""

    async def go() -> None:
        loop = Loop()
        loop.crowd = 1
        flood = [Unwritten(f"f{i}", "flood") for i in range(10 * MOST)]
        loop.arrive(*flood)
        assert len(await turned(loop)) == 2 * BATCH
        begun = []
        for passed in [0.0] * 6 + [LATE_S * 2] * 5:
            loop.pass_(passed)
            asked(flood)[0].set_result({})
            begun.append(len(await turned(loop)))
        # Those since the check are reported, and as many as may be begun then.
        assert begun == [3 * BATCH, 6 * BATCH, 12 * BATCH, MOST + 8 * BATCH, MOST, MOST, 8 * BATCH, 4 * BATCH, 2 * BATCH, BATCH, BATCH]

    asyncio.run(go())


def asked(requests: list[Unwritten]) -> list[asyncio.Future[dict[str, Any]]]:
    """Returns the exchanges that were checked and have not reported."""
    return [x for r in requests for x in r.asked if not x.done()]


async def turned(loop: Loop) -> list[str]:
    """Returns what is begun until nothing is."""
    begun = []
    for _ in range(100):
        begun += await loop.turn()
    return begun


def test_no_more_is_begun_than_is_written() -> None:
    """Except for new clients: they wait for what was begun already, and not for what would be meanwhile."""

    async def go() -> None:
        loop = Loop()
        loop.crowd = 1
        flood = [Unwritten(f"f{i}", "flood") for i in range(5 * BATCH)]
        loop.arrive(*flood)
        assert len(await turned(loop)) == 2 * BATCH and len(asked(flood)) == 1
        loop.arrive(*(quiet := [Unwritten("q0", "quiet")]))
        assert await turned(loop) == ["q0"]
        loop.pass_(2 * LATE_S)
        asked(flood)[0].set_result({"type": "http.disconnect"})
        assert await turned(loop) == [f"f{i}" for i in range(2 * BATCH, 3 * BATCH)] and len(asked(quiet)) == 1
        # One that never reports does not block others for ever.
        loop.pass_(2 * LATE_S)
        loop.dispatcher._write_lag._caught_up()
        assert len(await turned(loop)) == BATCH
        loop.pass_(2 * LATE_S)
        asked(flood)[-1].set_exception(OSError())
        assert len(await turned(loop)) == BATCH and loop.begun[-1] == flood[-1].name

    asyncio.run(go())


def test_a_flood_without_queued_requests_is_counted_too() -> None:
    """Its requests may arrive no faster than they are answered here, and yet faster than the answers are written."""

    async def go() -> None:
        loop = Loop()
        flood = [Unwritten(f"f{i}", "flood") for i in range(30 * BATCH)]
        for one in flood:
            loop.arrive(one)
            await loop.turn()
        assert len(loop.begun) == 2 * (UNPROBED + BATCH) + QUEUED_PER_ITERATION and len(asked(flood)) == 1
        while left := asked(flood):
            for one in left:
                one.set_result({})
            await turned(loop)
        assert loop.begun == [x.name for x in flood]

    asyncio.run(go())


def test_one_users_answers_delay_no_other() -> None:
    """As long as no other user sends requests, and none is refused."""

    async def go() -> None:
        loop = Loop()
        loop.lone = True
        flood = [Unwritten(f"f{i}", "one") for i in range(10 * MOST)]
        loop.arrive(*flood[: 5 * MOST])
        assert len(await loop.turn()) == 5 * MOST and not asked(flood)
        loop.several = True
        loop.arrive(*flood[5 * MOST :])
        assert len(await turned(loop)) < 5 * MOST and len(asked(flood)) == 1

    asyncio.run(go())


def test_unknown_credentials_count_by_connection() -> None:
    """A client with a new credential for each request has one turn for all of them, and waits until its answers are written."""

    async def go() -> None:
        loop = Loop()
        loop.crowd, loop.known = 1, False
        flood = [Unwritten(f"f{i}", f"token {i}") for i in range(4 * BATCH)]
        other = [Arrived(f"o{i}", f"another {i}", port=2) for i in range(4)]
        loop.arrive(*flood, *other, Arrived("q0", "quiet"))
        assert await loop.turn() == ["f0", "o0", "q0", "f1", "o1", "f2", "o2", "f3"]
        await turned(loop)
        # Clients with known credentials do not wait for new ones, and these wait for a while.
        new = [Arrived(f"n{i}", f"new {i}", port=10 + i) for i in range(3 * BATCH)]
        loop.arrive(*new, Arrived("q1", "quiet"))
        begun = await turned(loop)
        assert begun[0] == "q1" and begun[1:] == [x.name for x in new[: BATCH - 1]]

    asyncio.run(go())


def test_refusals_wait_while_answers_are_written() -> None:
    """All are sent in the end, also when nothing else is left."""

    async def go() -> None:
        loop = Loop()
        loop.crowd = 1
        large = dispatch.HEADS_BYTES // (2 * BATCH)
        flood = [Unwritten(f"f{i}", "flood", large=large) for i in range(6 * BATCH)]
        loop.arrive(*flood)
        await turned(loop)
        assert len(loop.begun) + len(loop.refused) == 2 * BATCH
        while left := asked(flood):
            for one in left:
                one.set_result({})
            await turned(loop)
        assert len(loop.begun) == 2 * BATCH - 1 and len(loop.begun) + len(loop.refused) == len(flood)

    asyncio.run(go())


def test_a_finished_exchange_reports_whether_its_answer_is_written(tmp_path: Any, monkeypatch) -> None:
    """Granian's, also one whose client has gone, repeatedly; nothing else happens here for an hour."""
    monkeypatch.setattr(writelag, "MOST", BATCH)

    async def go() -> None:
        turned, path = Dispatcher(asyncio.get_running_loop(), lambda: 1, knows=lambda credential: False), str(tmp_path / "s")
        listener = Listener(App(lambda req: Response(200, [], req.path.encode())), "", 0, uds=path, dispatcher=turned)
        listener.start(1)
        try:
            for again in range(2):
                opened = [await asyncio.open_unix_connection(path) for _ in range(5 * BATCH)]
                for i, (_, writer) in enumerate(opened):
                    writer.write(head("GET", f"/{i}", "Authorization: Bearer x"))
                for i, (reader, _) in enumerate(opened):
                    assert await answer(reader) == (200, f"/{i}".encode()), again
                for _, writer in opened:
                    writer.close()
            assert turned._write_lag._batch == BATCH and turned._write_lag.over is not None
        finally:
            listener.stop()
            await listener.stopped

    asyncio.run(go())

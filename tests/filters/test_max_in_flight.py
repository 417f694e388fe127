"""The limits of concurrent requests."""

from __future__ import annotations

from kas.auth.user import UserInfo
from kas.filters.max_in_flight import max_in_flight
from kas.observe.metrics import Registry
from tests.filters.requests import request


class Memory:
    """The shared counters of one process."""

    def __init__(self) -> None:
        self.n = {False: 0, True: 0}

    def enter(self, mutating: bool) -> int:
        self.n[mutating] += 1
        return self.n[mutating]

    def leave(self, mutating: bool) -> None:
        self.n[mutating] -= 1


def test_max_in_flight_counts_reads_and_writes_apart():
    memory, registry = Memory(), Registry()
    f = max_in_flight(memory, 2, 1, registry)
    reads = [request() for _ in range(3)]
    f.before(reads[0])
    f.before(reads[1])
    refused = f.before(reads[2])
    assert refused.status == 429 and refused.body == b"Too many requests, please try again later.\n"
    assert (b"retry-after", b"1") in refused.headers
    f.before(request("POST", "/api/v1/namespaces/a/pods"))
    assert f.before(request("POST", "/api/v1/namespaces/a/pods")).status == 429
    f.release(reads[0])
    f.before(reads[2])
    assert memory.n == {False: 2, True: 1}


def test_watches_masters_and_servers_without_a_limit_pass():
    memory = Memory()
    f = max_in_flight(memory, 1, 1, Registry())
    f.before(request())
    watch = request(query="watch=true")
    f.before(watch)
    f.release(watch)
    master = request()
    master.user = UserInfo("admin", ("system:masters",))
    f.before(master)
    f.release(master)
    assert memory.n[False] == 1
    unlimited = max_in_flight(Memory(), 0, 0, Registry())
    for _ in range(50):
        unlimited.before(request())


def test_a_master_beyond_the_limit_takes_no_seat():
    f = max_in_flight(Memory(), 1, 1, Registry())
    kept, master = request(), request()
    master.user = UserInfo("admin", ("system:masters",))
    f.before(kept)
    assert f.before(master) is None
    f.release(kept)
    assert f.before(request()) is None
    f.release(master)
    assert f.before(request()).status == 429


def test_refused_requests_are_not_counted_out():
    memory = Memory()
    f = max_in_flight(memory, 1, 1, Registry())
    kept, refused = request(), request()
    f.before(kept)
    assert f.before(refused).status == 429
    f.release(refused)
    assert memory.n[False] == 1

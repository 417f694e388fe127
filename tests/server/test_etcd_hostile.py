"""Another program answers at etcd's address: kas continues with its replica, reports it, and recovers by itself."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from kas.testing.server import KasServer
from tests.conftest import Client
from tests.controllers.waiting import until
from tests.etcd import Etcd
from tests.robustness.links import Link
from tests.server.test_etcd import CONFIG_MAPS, config_map

HUGE = b"\xff\xff\xff\x00\x00\x00\x00\x00\x01"  # the head of a frame of 16 MiB
# A HEADERS frame without an end, and continuations without end.
HEADERS = b"\x00\x00\x01\x01\x00\x00\x00\x00\x01\x20" + b"\x00\x00\x01\x09\x00\x00\x00\x00\x01\x20" * 5000
WAYS: dict[str, Callable[[Link], None]] = {
    "garbage": lambda link: link.garble(lambda said: os.urandom(len(said))),
    "huge frames": lambda link: link.garble(lambda said: HUGE * 1000),
    "endless headers": lambda link: link.garble(lambda said: b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + HEADERS),
    "bytes one by one": lambda link: link.slow(20),
}


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Link, KasServer]]:
    directory = tmp_path_factory.mktemp("hostile")
    with ExitStack() as stack:
        etcd = stack.enter_context(Etcd(directory))
        link = stack.enter_context(Link(urlsplit(etcd.url).port or 0))
        flags = ("--storage-backend=etcd3", f"--etcd-servers=http://127.0.0.1:{link.port}", "--advertise-address=127.0.0.1")
        yield link, stack.enter_context(KasServer(directory / "kas", *flags))


def memory_kb(pids: list[int]) -> int:
    return sum(int(line.split()[1]) for pid in pids for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in line)


@pytest.mark.parametrize("way", WAYS)
def test_a_peer_that_is_not_etcd_any_more(linked: tuple[Link, KasServer], way: str) -> None:
    link, server = linked
    client, name = Client(server), way.replace(" ", "-")
    until(lambda: client("POST", CONFIG_MAPS, config_map(name))[0] == 201)
    workers = server.worker_pids()
    before = memory_kb(workers)
    WAYS[way](link)
    told: list[tuple[int, dict]] = []
    writer = threading.Thread(target=lambda: told.append(Client(server)("PUT", f"{CONFIG_MAPS}/{name}", config_map(name, x="1"))))
    writer.start()
    try:
        status, answer = until(lambda: (found := client("GET", f"{CONFIG_MAPS}/{name}"))[0] != 200 and found)
        assert (status, answer["reason"]) == (503, "ServiceUnavailable"), answer
        assert client("GET", f"{CONFIG_MAPS}/{name}?resourceVersion=0")[0] == 200
        assert "etcd" in until(lambda: (found := client("GET", "/readyz"))[0] == 500 and found[1])
        if way == "garbage":
            writer.join()  # the outcome is unknown, or the write certainly did not happen
            assert told[0][0] in (503, 504) and told[0][1]["kind"] == "Status", told
    finally:
        link.heal()
    writer.join()
    assert told[0][0] in (200, 503, 504), told
    until(lambda: client("PUT", f"{CONFIG_MAPS}/{name}", config_map(name, x="2"))[0] == 200)
    until(lambda: client("GET", "/readyz")[0] == 200)
    assert client("GET", f"{CONFIG_MAPS}/{name}")[1]["data"] == {"x": "2"}
    assert server.worker_pids() == workers and memory_kb(workers) - before < 64 << 10

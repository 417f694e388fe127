"""How long a profile takes, and the uptime that a server reports."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from kas.endpoints import debug, zpages
from kas.request.http import Request
from kas.request.requestinfo import Query


@pytest.mark.parametrize(
    ("query", "seconds"),
    [("", 5), ("seconds=", 5), ("seconds=0", 5), ("seconds=-1", 5), ("seconds=x", 5), ("seconds=2", 2), ("seconds=999", 60)],
)
def test_a_profile_takes_as_long_as_asked_and_never_zero(query, seconds, monkeypatch, tmp_path):
    taken, written = [], []
    monkeypatch.setattr(debug, "_sample", lambda thread, length, counts: taken.append(length) or counts.update(["a;b"]))

    async def write(piece: bytes) -> None:
        written.append(piece)

    request = Request("GET", "/debug/pprof/profile", query, [])
    request.params = Query(query)
    answer = debug.Debug(0, SimpleNamespace(), SimpleNamespace(), tmp_path / "verbosity").profile(request)
    asyncio.run(answer.stream(write))
    assert (taken, written) == ([seconds], [b"a;b 1\n"])


@pytest.mark.parametrize("set_by_s", [-86400.0, 864000.0])
def test_the_uptime_does_not_follow_the_wall_clock(set_by_s, monkeypatch):
    clocks = [1e9, 5.0]
    monkeypatch.setattr(zpages.time, "time", lambda: clocks[0])
    monkeypatch.setattr(zpages.time, "monotonic", lambda: clocks[1])
    page = zpages.ZPages({}, [])
    clocks[:] = [1e9 + set_by_s, 5.0 + 3725.5]
    shown = page.statusz(Request("GET", "/statusz", "", [])).body.decode()
    assert "\nUp: 1 hr 02 min 05 sec\n" in shown

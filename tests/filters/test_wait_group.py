"""The requests in progress."""

from __future__ import annotations

import asyncio

from kas.filters.wait_group import WaitGroup, wait_group
from tests.filters.requests import request


def test_the_wait_group_knows_requests_in_progress():
    group = WaitGroup()
    f = wait_group(group)
    req, watch = request(), request(query="watch=1")
    f.before(req)
    f.before(watch)
    assert len(group.serving) == 1

    async def run() -> tuple[bool, bool]:
        first = await group.wait(0.01)
        asyncio.get_running_loop().call_later(0.01, f.release, req)
        return first, await group.wait(60)

    assert asyncio.run(run()) == (False, True)

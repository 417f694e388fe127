"""What requests cost in calls of Python functions: a number that no other process changes."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import kas
from tests.endpoints.test_write_steps import MAPS, MERGE, config_map, run

ROOM = kas.__path__[0]
WARM = 3  # the first of each makes what all others share


async def calls_of(api: Any, method: str, path: str, body: Any, ctype: str) -> list[str]:
    """The functions of kas that one request runs, each as often as it is called or goes on."""
    found: list[str] = []

    def seen(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(ROOM):
            found.append(frame.f_code.co_qualname)

    sys.setprofile(seen)
    try:
        status, _ = await api(method, path, body, ctype)
    finally:
        sys.setprofile(None)
    assert status < 300
    return found


@pytest.mark.parametrize(
    ("method", "most"),
    [("POST", 100), ("PUT", 126), ("PATCH", 145)],
)
def test_a_write_is_few_calls(tmp_path, method, most):
    """Each is some 600 instructions. Who needs more for what every write has to do may raise the number, and says why. (One more since what
    makes a Context is seen: a function that ``dataclass`` writes is in no file.)"""

    async def test(api):
        await api("POST", MAPS, config_map("c", a="first"))
        for n in range(WARM + 1):
            name = f"new-{n}" if method == "POST" else "c"
            path = MAPS if method == "POST" else f"{MAPS}/{name}"
            ctype = MERGE if method == "PATCH" else "application/json"
            found = await calls_of(api, method, path, config_map(name, a=str(n)), ctype)
        assert len(found) <= most, "\n".join(found)

    run(tmp_path, test)


def test_a_list_reads_its_query_once(tmp_path):
    async def test(api):
        await api("POST", MAPS, config_map("c", a="first"))
        for _ in range(WARM + 1):
            found = await calls_of(api, "GET", f"{MAPS}?labelSelector=a%3Db&limit=500&resourceVersion=0", None, "")
        assert found.count("Query.get") == 0 and found.count("Query.__contains__") == 0, "\n".join(found)

    run(tmp_path, test)

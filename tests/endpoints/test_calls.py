"""The cost of requests in calls of Python functions, a number that does not depend on the machine."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import kas
from tests.endpoints.inprocess import RESOURCE, V2
from tests.endpoints.test_write_steps import MAPS, MERGE, config_map, run

ROOM = kas.__path__[0]
WARM = 3  # the first one creates what all others share


async def calls_of(api: Any, method: str, path: str, body: Any, ctype: str) -> list[str]:
    """Returns the functions of kas that one request runs, each as often as it is called or resumed."""
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
    [("POST", 93), ("PUT", 109), ("PATCH", 120)],
)
def test_a_write_takes_few_calls(tmp_path, method, most):
    """A call is about 600 instructions. A change that needs more calls for every write may raise the number, with a reason. (A Context
    counts as one more, since functions that ``dataclass`` generates are in no file.)"""

    async def test(api):
        await api("POST", MAPS, config_map("c", a="first"))
        for n in range(WARM + 1):
            name = f"new-{n}" if method == "POST" else "c"
            path = MAPS if method == "POST" else f"{MAPS}/{name}"
            ctype = MERGE if method == "PATCH" else "application/json"
            found = await calls_of(api, method, path, config_map(name, a=str(n)), ctype)
        assert len(found) <= most, "\n".join(found)

    run(tmp_path, test)


def test_the_fast_route_matches_no_similar_path(tmp_path):
    """A verb once lost its slow path: similar paths have a name too many or too few, another scope, or a subresource."""
    asked = [
        ("POST", f"{MAPS}/c", 405), ("PUT", MAPS, 405), ("PATCH", MAPS, 405), ("POST", "/api/v1/configmaps", 405),
        ("PUT", "/api/v1/configmaps/c", 404), ("GET", f"{MAPS}/c/status", 404), ("PUT", f"{MAPS}/c/status", 404),
        ("HEAD", f"{MAPS}/c", 405),
        ("GET", "/api/v1/namespaces/ns/nodes/n", 404), ("PUT", "/api/v1/namespaces/ns/nodes/n", 404),
    ]  # fmt: skip

    async def test(api):
        async def status(method: str, path: str) -> int:
            body = None if method in ("GET", "HEAD", "DELETE") else config_map("c")
            return (await api(method, path, body, MERGE if method == "PATCH" else "application/json"))[0]

        before = [await status(method, path) for method, path, _ in asked]
        for method, path in ("POST", MAPS), ("PUT", f"{MAPS}/c"), ("PATCH", f"{MAPS}/c"), ("GET", f"{MAPS}/c"), ("DELETE", f"{MAPS}/c"):
            assert await status(method, path) < 300
        assert [await status(method, path) for method, path, _ in asked] == before == [expected for *_, expected in asked]

    run(tmp_path, test)


def test_a_status_goes_straight_to_its_handler_and_nothing_else_of_its_path_does(tmp_path):
    asked = [
        ("POST", f"{V2}/h/status", 405), ("DELETE", f"{V2}/h/status", 405), ("HEAD", f"{V2}/h/status", 405),
        ("PATCH", f"{V2}/none/status", 404), ("PUT", f"{V2}/h/scale", 404), ("PATCH", f"/apis/autoscaling/v2/{RESOURCE}/h/status", 404),
    ]  # fmt: skip

    async def test(api):
        async def call(method: str, path: str, most: int, desired: int):
            spec = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "maxReplicas": most}
            hpa = {"metadata": {"name": "h"}, "spec": spec, "status": {"desiredReplicas": desired}}
            return await api(method, path, hpa, MERGE if method == "PATCH" else "application/json")

        async def statuses() -> list[int]:
            return [(await call(method, path, 1, 1))[0] for method, path, _ in asked]

        made, said = await call("POST", V2, 1, 0)
        assert made == 201, said["message"]
        before = await statuses()
        for desired in 2, 3:
            for method in "PATCH", "PUT":
                status, obj = await call(method, f"{V2}/h/status", 9, desired)
                assert (status, obj["spec"]["maxReplicas"], obj["status"]["desiredReplicas"]) == (200, 1, desired)
        assert await statuses() == before == [expected for *_, expected in asked]

    run(tmp_path, test)


def test_a_list_reads_its_query_once(tmp_path):
    async def test(api):
        await api("POST", MAPS, config_map("c", a="first"))
        for _ in range(WARM + 1):
            found = await calls_of(api, "GET", f"{MAPS}?labelSelector=a%3Db&limit=500&resourceVersion=0", None, "")
        assert found.count("Query.get") == 0 and found.count("Query.__contains__") == 0, "\n".join(found)

    run(tmp_path, test)

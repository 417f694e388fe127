"""Measures what flow control adds to a request that need not wait, compared with max-in-flight.

It times the three calls of the filter and a loop iteration.
"""

from __future__ import annotations

import pytest

from kas._fastpath import parse
from kas.auth.user import UserInfo
from kas.filters.max_in_flight import max_in_flight
from kas.filters.priority_and_fairness import priority_and_fairness
from kas.observe.metrics import Registry
from kas.request.http import Request, Response
from kas.request.requestinfo import Query
from kas.store.shared import Shared

PATHS = {"get": "/api/v1/namespaces/default/pods/a", "list": "/api/v1/namespaces/default/pods"}


@pytest.mark.parametrize("verb", PATHS)
@pytest.mark.parametrize("which", ["max-in-flight", "user", "exempt"])
def test_filter(benchmark, api, which, verb):
    if which == "max-in-flight":
        f = max_in_flight(Shared.private().memory, 400, 200, Registry())
    else:
        f = priority_and_fairness(api.server.flow_control.gate)
    user = UserInfo("jane", ("system:masters", "system:authenticated") if which == "exempt" else ("system:authenticated",))
    req = Request("GET", PATHS[verb], "", [])
    req.params, req.info, req.user = Query(""), parse("GET", PATHS[verb]), user

    def once() -> None:
        f.before(req)
        if f.after is not None:
            f.after(req, Response(200, []))
        else:
            Response(200, [])
        f.release(req)

    benchmark(once)

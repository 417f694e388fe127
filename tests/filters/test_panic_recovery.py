"""A panic is answered, logged and counted, and its text is not shown."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from kas.filters.handler import Filter
from kas.filters.panic_recovery import METRIC, panic_recovery
from kas.observe.metrics import Registry
from kas.request.http import Response
from kas.request.websocket import Upgrade
from tests.filters.requests import header, request
from tests.filters.serving import Harness


def test_a_panic_is_a_500_without_internals(caplog):
    metrics = Registry()
    f = panic_recovery(metrics)
    req = request("POST", "/api/v1/namespaces/a/pods")
    req.audit_id = "id-1"
    try:
        raise KeyError("a secret")
    except KeyError as e:
        resp = f.recover(req, e)
    body = json.loads(resp.body)
    assert (resp.status, body["reason"], body["code"]) == (500, "InternalError", 500)
    assert body["message"] == "This request caused apiserver to panic. Look in the logs for details."
    assert b"secret" not in resp.body
    assert metrics.metrics[METRIC].values == {(): 1}
    (record,) = caplog.records
    assert record.levelno == logging.ERROR and record.exc_info[0] is KeyError
    assert record.getMessage() == 'apiserver panic\'d on POST "/api/v1/namespaces/a/pods" audit-ID="id-1"'


@pytest.mark.parametrize("later", [False, True])
def test_in_the_chain_the_answer_has_its_id_and_resources_are_released(later):
    async def go():
        h = Harness()
        if later:

            async def bug(req):
                await asyncio.sleep(0)
                raise ZeroDivisionError

            h.chain._endpoint = bug
        else:
            h.chain._endpoint = lambda req: 1 // 0
        result = h.chain(request())
        resp = await result if later else result
        assert resp.status == 500 and len(header(resp, b"audit-id")) == 1
        assert h.metrics.metrics[METRIC].values == {(): 1} and h.nothing_held()

    asyncio.run(go())


def test_a_panic_in_an_after_step_is_recovered_and_releases_resources():
    def bug(req, resp):
        raise ZeroDivisionError

    abandoned = []
    watch = Response(200, [], stream=lambda write: None)
    watch.finish = lambda: abandoned.append(2)  # seats that are held until its first events are sent
    for answer in (Response(200, [], b"x"), Upgrade("", lambda socket: None, lambda: abandoned.append(1)), watch):
        h = Harness()
        h.chain._endpoint = lambda req, answer=answer: answer
        h.chain._after = (*h.chain._after, bug)
        resp = h.chain(request())
        assert resp.status == 500 and h.metrics.metrics[METRIC].values == {(): 1} and h.nothing_held()
    assert abandoned == [1, 2]


def test_a_panic_in_an_after_step_of_a_disconnected_client_releases_resources():
    async def go():
        h = Harness(wait="filter")
        h.chain._after = (*h.chain._after, lambda req, resp: 1 // 0)
        task = asyncio.ensure_future(h.chain(request()))
        await h.began.wait()
        task.cancel()
        with pytest.raises(ZeroDivisionError):
            await task
        assert h.nothing_held()

    asyncio.run(go())


def test_the_recovery_filter_is_unique_and_outermost():
    h = Harness()
    assert h.chain.names[0] == "panic_recovery"
    assert isinstance(panic_recovery(h.metrics), Filter) and panic_recovery(h.metrics).before is None

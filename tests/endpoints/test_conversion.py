"""Conversion as a step that takes many objects and may wait: in every verb, when it fails, and when there is nothing to convert."""

from __future__ import annotations

import asyncio

import pytest

from kas.registry.versions import BUILT_IN
from kas.types.scheme import decode_protobuf, open_envelope
from tests.endpoints.inprocess import PROTOBUF, V1, V2, Api, Stream, WaitingConverter, autoscaler, run, whole

MERGE = "application/merge-patch+json"
FORMS = (
    "application/json",
    "application/yaml",
    PROTOBUF,
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    f"{PROTOBUF};as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
)


async def fill(api: Api, count: int) -> None:
    for i in range(count):
        status, _ = await api("POST", V2, autoscaler(f"h{i:03}"))
        assert status == 201


class Never:
    """Objects in their stored version are not converted."""

    total = False

    def convert(self, objects, target):
        raise AssertionError("nothing is to be converted")


def test_nothing_is_converted_in_the_stored_version(tmp_path):
    async def test(api: Api):
        await fill(api, 2)
        records = api.store.range(api.registry.prefix("ns")).records
        served = api.rest.resources["autoscaling", "v2"]["horizontalpodautoscalers"]
        assert served.convert(records) is records
        stream = Stream(await api.request("GET", V2 + "?watch=1"))
        assert [(await stream.next())["type"] for _ in range(2)] == ["ADDED"] * 2
        assert (await api("GET", V2 + "/h000"))[0] == 200
        for form in FORMS:
            assert (await api.request("GET", V2, accept=form)).status == 200
        assert (await api("PATCH", V2 + "/h000", {"spec": {"maxReplicas": 9}}, MERGE))[0] == 200
        assert (await api("PUT", V2 + "/h000", autoscaler("h000")))[0] == 200
        assert (await api("DELETE", V2))[0] == 200
        assert [(await stream.next())["type"] for _ in range(4)] == ["MODIFIED", "MODIFIED", "DELETED", "DELETED"]

    run(tmp_path, test, native=Never())


def v1(api: Api):
    return api.rest.resources["autoscaling", "v1"]["horizontalpodautoscalers"]


@pytest.mark.parametrize("form", FORMS)
def test_a_list_is_converted_in_one_step_in_every_format(tmp_path, form):
    converter = WaitingConverter()

    async def test(api: Api):
        await fill(api, 5)
        waited = await whole(await api.request("GET", V1, accept=form))
        assert converter.calls == [5]
        v1(api).converter, v1(api).streams = BUILT_IN, True
        assert waited == await whole(await api.request("GET", V1, accept=form))
        assert b"h004" in waited

    run(tmp_path, test, converter=converter)


def test_a_long_list_is_converted_page_by_page_and_whole(tmp_path):
    converter = WaitingConverter()

    async def test(api: Api):
        await fill(api, 300)
        _, body = await api("GET", V1)
        assert [i["metadata"]["name"] for i in body["items"]] == [f"h{i:03}" for i in range(300)]
        assert all(i["spec"]["targetCPUUtilizationPercentage"] == 60 for i in body["items"])
        assert sum(converter.calls) == 300 and len(converter.calls) < 10
        # The client's page, and the next one.
        _, body = await api("GET", V1 + "?limit=299")
        assert len(body["items"]) == 299
        _, body = await api("GET", f"{V1}?limit=299&continue={body['metadata']['continue']}")
        assert [i["metadata"]["name"] for i in body["items"]] == ["h299"]

    run(tmp_path, test, converter=converter)


@pytest.mark.parametrize("refused", ["h001", "h250"])
@pytest.mark.parametrize("form", FORMS)
def test_a_list_that_fails_in_the_middle_is_a_status(tmp_path, form, refused):
    converter = WaitingConverter()

    async def test(api: Api):
        await fill(api, 260)
        converter.refused = {refused}
        resp = await api.request("GET", V1, accept=form)
        assert resp.status == 500 and resp.stream is None
        assert f"conversion of {refused} failed".encode() in resp.body
        assert (await api("GET", f"{V1}/{refused}"))[1]["message"].endswith(f"conversion of {refused} failed")
        assert (await api("GET", f"{V1}/h000"))[0] == 200

    run(tmp_path, test, converter=converter)


@pytest.mark.parametrize("form", ["application/json", PROTOBUF, "application/json;as=Table;v=v1;g=meta.k8s.io"])
def test_one_object(tmp_path, form):
    converter = WaitingConverter()

    async def test(api: Api):
        await fill(api, 1)
        for query in ("", "?resourceVersion=1"):
            waited = await api.request("GET", f"{V1}/h000{query}", accept=form)
            v1(api).converter = BUILT_IN
            assert waited.status == 200 and waited.body == (await api.request("GET", f"{V1}/h000{query}", accept=form)).body
            v1(api).converter = converter
        assert converter.calls == [1, 1]
        if form == PROTOBUF:
            raw = open_envelope(waited.body)[2]
            assert decode_protobuf(v1(api).type, raw)["spec"]["targetCPUUtilizationPercentage"] == 60

    run(tmp_path, test, converter=converter)


def test_writes_through_a_converted_version(tmp_path):
    converter = WaitingConverter()

    async def test(api: Api):
        status, made = await api("POST", V1, autoscaler("a", "v1"))
        assert status == 201 and made["spec"]["targetCPUUtilizationPercentage"] == 60
        assert api.stored("a")["spec"]["metrics"][0]["resource"]["name"] == "cpu"
        status, made = await api("PUT", V1 + "/a", {**made, "spec": {**made["spec"], "targetCPUUtilizationPercentage": 70}})
        assert status == 200 and made["spec"]["targetCPUUtilizationPercentage"] == 70
        status, made = await api("PATCH", V1 + "/a", {"spec": {"targetCPUUtilizationPercentage": 80}}, MERGE)
        assert status == 200 and made["spec"]["targetCPUUtilizationPercentage"] == 80
        assert api.stored("a")["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 80
        status, made = await api("PATCH", V1 + "/a/status", {"status": {"currentReplicas": 2, "desiredReplicas": 2}}, MERGE)
        assert status == 200 and made["apiVersion"] == "autoscaling/v1" and made["status"]["currentReplicas"] == 2
        applied = autoscaler("b", "v1")
        status, made = await api("PATCH", V1 + "/b?fieldManager=me", applied, "application/apply-patch+yaml")
        assert status == 201 and made["metadata"]["managedFields"][0]["apiVersion"] == "autoscaling/v1"
        assert (await api("DELETE", V1 + "/a"))[0] == 200
        status, gone = await api("DELETE", V1)
        assert status == 200 and [i["spec"]["targetCPUUtilizationPercentage"] for i in gone["items"]] == [60]
        assert api.stored("a") is None and api.stored("b") is None

    run(tmp_path, test, converter=converter)


@pytest.mark.parametrize(
    ("method", "path", "body", "ctype"),
    [
        ("POST", V1, autoscaler("h001", "v1"), "application/json"),
        ("PUT", V1 + "/h000", autoscaler("h000", "v1", 9), "application/json"),
        ("PATCH", V1 + "/h000", {"spec": {"maxReplicas": 9}}, MERGE),
        ("PATCH", V1 + "/h000/status", {"status": {"currentReplicas": 9}}, MERGE),
        ("PATCH", V1 + "/h001?fieldManager=m", autoscaler("h001", "v1"), "application/apply-patch+yaml"),
        ("DELETE", V1, None, ""),
    ],
)
def test_a_write_whose_conversion_fails_changes_nothing(tmp_path, method, path, body, ctype):
    converter = WaitingConverter()

    async def test(api: Api):
        await fill(api, 1)
        before, revision = api.stored("h000"), api.store.revision
        converter.refused = {"h000", "h001"}
        status, answer = await api(method, path, body, ctype)
        assert status == 500 and answer["kind"] == "Status" and "conversion of h00" in answer["message"]
        assert api.stored("h000") == before and api.stored("h001") is None and api.store.revision == revision

    run(tmp_path, test, converter=converter)


def test_watches_share_a_conversion_that_waits(tmp_path):
    converter = WaitingConverter()

    async def test(api: Api):
        await fill(api, 1)
        rv = api.store.revision
        forms = ("application/json", "application/json", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")
        streams = [Stream(await api.request("GET", f"{V1}?watch=1&resourceVersion={rv}", accept=form)) for form in forms]
        converter.gate.clear()
        await api("PATCH", V2 + "/h000", {"spec": {"maxReplicas": 4}}, MERGE)
        await asyncio.wait_for(converter.called.wait(), 60)
        converter.gate.set()
        events = [await s.next() for s in streams]
        assert [e["type"] for e in events] == ["MODIFIED"] * 3
        assert events[0]["object"]["spec"]["targetCPUUtilizationPercentage"] == 60 and events[0] == events[1]
        await api("DELETE", V2 + "/h000")
        gone = [await s.next() for s in streams]
        assert {(e["type"], e["object"]["metadata"]["resourceVersion"]) for e in gone} == {("DELETED", str(api.store.revision))}
        assert gone[0]["object"]["apiVersion"] == "autoscaling/v1"
        assert converter.calls == [1, 1]

    run(tmp_path, test, converter=converter)


def test_a_watch_that_starts_when_the_conversion_is_done(tmp_path):
    """The result that it would wait for is there, and the waiters have not been woken yet."""
    converter = WaitingConverter()

    async def test(api: Api):
        await fill(api, 1)
        path = f"{V1}?watch=1&resourceVersion={api.store.revision}"
        first, late = Stream(await api.request("GET", path)), await api.request("GET", path)
        converter.gate.clear()
        await api("PATCH", V2 + "/h000", {"spec": {"maxReplicas": 4}}, MERGE)
        await asyncio.wait_for(converter.called.wait(), 60)
        converter.gate.set()
        second = Stream(late)  # runs right after the step that ends the conversion
        assert await first.next() == await second.next()
        assert converter.calls == [1]

    run(tmp_path, test, converter=converter)


def test_a_watch_gets_an_error_that_occurred_while_it_waited_for_another_conversion(tmp_path):
    converter = WaitingConverter()

    async def test(api: Api):
        await fill(api, 1)
        path = f"{V1}?watch=1&resourceVersion={api.store.revision}"
        first = Stream(await api.request("GET", path))
        converter.gate.clear()
        converter.refused = {"bad"}
        await api("PATCH", V2 + "/h000", {"spec": {"maxReplicas": 4}}, MERGE)
        await asyncio.wait_for(converter.called.wait(), 60)
        await api("POST", V2, autoscaler("bad"))
        converter.called.clear()
        both = Stream(await api.request("GET", path))  # waits for the first one's conversion and for its own
        await asyncio.wait_for(converter.called.wait(), 60)
        converter.gate.set()
        assert (await first.next())["type"] == "MODIFIED"
        for s in (first, both):
            last = await s.next()
            assert last["type"] == "ERROR" and "conversion of bad failed" in last["object"]["message"]

    run(tmp_path, test, converter=converter)


def test_a_watch_whose_conversion_fails_ends_with_an_error_event(tmp_path):
    converter = WaitingConverter()

    async def test(api: Api):
        await fill(api, 1)
        path = f"{V1}?watch=1&resourceVersion={api.store.revision}"
        streams = [Stream(await api.request("GET", path)) for _ in range(2)]
        await api("POST", V2, autoscaler("good"))
        assert [(await s.next())["object"]["metadata"]["name"] for s in streams] == ["good", "good"]
        converter.refused = {"bad"}
        await asyncio.gather(*(api("POST", V2, autoscaler(name)) for name in ("one", "bad", "two")))
        for s in streams:
            await asyncio.wait_for(s.ended, 60)
            *before, last = s.rest()
            # Objects converted in one step with the failing one are not shown.
            assert "bad" not in [e["object"]["metadata"]["name"] for e in before]
            assert last["type"] == "ERROR" and last["object"]["code"] == 500 and "conversion of bad failed" in last["object"]["message"]
        assert not api.watches.open
        converter.refused = set()
        again = Stream(await api.request("GET", path))
        assert {(await again.next())["object"]["metadata"]["name"] for _ in range(4)} == {"good", "one", "bad", "two"}

    run(tmp_path, test, converter=converter)


def test_a_watch_whose_initial_state_does_not_convert_waits_until_it_does(tmp_path):
    converter = WaitingConverter()

    async def test(api: Api):
        await fill(api, 3)
        converter.refused = {"h002"}
        over = Stream(await api.request("GET", V1 + "?watch=1&timeoutSeconds=1"))
        waiting = Stream(await api.request("GET", V1 + "?watch=1"))
        await asyncio.wait_for(over.ended, 60)
        assert over.rest() == []
        converter.refused = set()
        assert [(await waiting.next())["object"]["metadata"]["name"] for _ in range(3)] == ["h000", "h001", "h002"]
        # A client that waits for the end of the initial events learns that it does not come.
        converter.refused = {"h002"}
        told = Stream(await api.request("GET", V1 + "?watch=1&sendInitialEvents=1&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1"))
        await asyncio.wait_for(told.ended, 60)
        assert [(e["type"], e["object"]["kind"]) for e in told.rest()] == [("ERROR", "Status")]

    run(tmp_path, test, converter=converter)


@pytest.mark.parametrize("initial", [True, False])
def test_a_watch_ends_while_it_waits_for_a_conversion(tmp_path, initial):
    converter = WaitingConverter()

    async def test(api: Api):
        await fill(api, 1)
        converter.gate.clear()
        # A client that asked for the end of the initial events must not get it: it has not seen them.
        how = "&sendInitialEvents=1&resourceVersionMatch=NotOlderThan" if initial else f"&resourceVersion={api.store.revision}"
        s = Stream(await api.request("GET", f"{V1}?watch=1&allowWatchBookmarks=1{how}"))
        if not initial:
            await api("POST", V2, autoscaler("new"))
        await asyncio.wait_for(converter.called.wait(), 60)
        api.watches.end_all()
        await asyncio.wait_for(s.ended, 60)
        assert s.rest() == []

    run(tmp_path, test, converter=converter)

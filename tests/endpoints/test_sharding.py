"""``shardSelector``: its meaning, what is refused, and its effect on lists, watches and deletes."""

from __future__ import annotations

import uuid
from urllib.parse import quote

import orjson
import pytest

from kas.config import features
from kas.endpoints.sharding import ShardError, field_hash, parse
from kas.types.scheme import decode_protobuf, open_envelope
from tests.endpoints.inprocess import PROTOBUF, V1, V2, Api, Stream, autoscaler, run, whole

MAPS = "/api/v1/namespaces/ns/configmaps"
LOW, MIDDLE, TOP = "0x0000000000000000", "0x8000000000000000", "0x10000000000000000"


def shard(start: str, end: str, field: str = "uid") -> str:
    return f"shardRange(object.metadata.{field}, '{start}', '{end}')"


HALVES = (shard(LOW, MIDDLE), shard(MIDDLE, TOP))


def half(obj) -> int:
    return field_hash(obj["metadata"]["uid"]) >> 63


def query(selector: str) -> str:
    return "shardSelector=" + quote(selector)


@pytest.fixture
def sharded():
    with features.DEFAULT.overridden(ShardedListAndWatch=True):
        yield


async def fill(api: Api, count: int) -> list:
    out = []
    for i in range(count):
        status, body = await api("POST", MAPS, {"metadata": {"name": f"c{i:02}", "labels": {"even": str(i % 2 == 0).lower()}}})
        assert status == 201
        out.append(body)
    return out


def test_the_hash_is_fnv_1a():
    """Vectors of draft-eastlake-fnv."""
    assert field_hash("") == 0xCBF29CE484222325
    assert field_hash("a") == 0xAF63DC4C8601EC8C
    assert field_hash("foobar") == 0x85944171F73967E8


def test_ranges_include_their_start_and_exclude_their_end():
    at = field_hash("u")
    obj = {"metadata": {"uid": "u", "namespace": "n"}}
    assert parse(shard(f"0x{at:016x}", f"0x{at + 1:016x}")).matches(obj)
    assert not parse(shard(f"0x{at + 1:016x}", TOP)).matches(obj)
    assert not parse(shard(LOW, f"0x{at:016x}")).matches(obj)
    # Several, overlapping and unordered.
    parts = [shard(f"0x{at - 5:016x}", f"0x{at - 1:016x}"), shard(LOW, "0x0000000000000001"), shard(f"0x{at - 4:016x}", f"0x{at + 1:016x}")]
    assert parse(" || ".join(parts)).matches(obj) and not parse(" || ".join(parts[:2])).matches(obj)
    assert parse(shard(LOW, TOP, "namespace")).matches({"metadata": {"uid": "u"}})  # an empty namespace has the hash of an empty text
    where = field_hash("n")
    assert parse(shard(f"0x{where:016x}", TOP, "namespace")).matches(obj)


def test_a_selector_is_normalized():
    written = f"  shardRange( object.metadata.uid ,\"{LOW}\",r'{MIDDLE}') ||shardRange(object.metadata.uid,'{MIDDLE}','{TOP}') "
    assert parse(written).text == " || ".join(HALVES)
    assert parse(parse(written).text).text == parse(written).text


@pytest.mark.parametrize(
    "text, why",
    [
        ("  ", "empty shard selector is not allowed; omit the parameter for unfiltered lists"),
        ("shardRange(", "CEL parse error: Syntax error: mismatched input '<EOF>'"),
        ("object", "unexpected expression kind 3; expected shardRange() call or || operator"),
        ("'a'", "unexpected expression kind 5; expected shardRange() call or || operator"),
        (" && ".join(HALVES), 'unsupported function "_&&_"; only shardRange() and || are allowed'),
        (f"{HALVES[0]} || f(1)", 'unsupported function "f"; only shardRange() and || are allowed'),
        ("shardRange(object.metadata.uid, '0x0')", "shardRange() requires exactly 3 arguments, got 2"),
        (f"shardRange(f(1), '{LOW}', '{TOP}')", "shardRange() first argument: expected field path (e.g. object.metadata.uid), got "
         "expression kind 1"),
        (shard(LOW, TOP, "name"), 'unsupported field path "object.metadata.name"; supported: object.metadata.uid, '
         "object.metadata.namespace"),
        ("shardRange(object.metadata.uid, 0, 8)", "hexStart must be a string literal, got int64"),
        (f"shardRange(object.metadata.uid, '{LOW}', 8u)", "hexEnd must be a string literal, got uint64"),
        ("shardRange(object.metadata.uid, hex(0), '0x8')", "hexStart must be a string literal (e.g. '0xff'), got expression kind 1"),
        (shard(LOW[2:], TOP), 'hexStart must have \'0x\' prefix, got "0000000000000000"'),
        (shard("0x", TOP), "hexStart: hex value is required after '0x'"),
        (shard(LOW + "00", TOP), 'hexStart: hex value too long (18 chars, max 17): "000000000000000000"'),
        (shard("0x000000000000000G", TOP), 'hexStart: invalid hex character "G" in "0x000000000000000G"'),
        (shard(LOW, "0x10000000000000001"), "hexEnd: 17-digit hex value must be '0x10000000000000000' (2^64), got \"0x10000000000000001\""),
        (shard(LOW, "0xff"), 'hexEnd must be a 0x-prefixed 16-digit hex value, got "0xff" (did you mean "0x00000000000000ff"?)'),
        (shard(MIDDLE, MIDDLE), f"shard range start {MIDDLE} must be less than end {MIDDLE}"),
        (f"{HALVES[0]} || {shard(LOW, TOP, 'namespace')}", 'all shard ranges must use the same field, got "object.metadata.uid" and '
         '"object.metadata.namespace"'),
    ],
)  # fmt: skip
def test_invalid_selectors(text, why):
    with pytest.raises(ShardError) as e:
        parse(text)
    assert str(e.value).startswith(why)


def test_many_ranges_are_parsed():
    assert parse(" || ".join(HALVES * 60)).text == " || ".join(HALVES * 60)


def test_without_the_gate_everything_is_listed(tmp_path):
    async def test(api: Api):
        await fill(api, 6)
        for selector in (HALVES[0], "nonsense"):
            status, body = await api("GET", f"{MAPS}?{query(selector)}")
            assert status == 200 and len(body["items"]) == 6 and "shardInfo" not in body["metadata"]

    run(tmp_path, test)


@pytest.mark.usefixtures("sharded")
def test_lists_of_all_shards_are_complete(tmp_path):
    async def test(api: Api):
        made = await fill(api, 16)
        for i, selector in enumerate(HALVES):
            wanted = [o["metadata"]["name"] for o in made if half(o) == i]
            status, body = await api("GET", f"{MAPS}?{query(selector)}")
            assert status == 200 and body["metadata"]["shardInfo"] == {"selector": selector}
            assert [o["metadata"]["name"] for o in body["items"]] == wanted
            even = (await api("GET", f"{MAPS}?labelSelector=even%3Dtrue&{query(selector)}"))[1]["items"]
            assert [o["metadata"]["name"] for o in even] == [n for n in wanted if int(n[1:]) % 2 == 0]
            found, token = [], ""
            while True:
                page = (await api("GET", f"{MAPS}?limit=2&continue={token}&{query(selector)}"))[1]
                found += [o["metadata"]["name"] for o in page["items"]]
                assert len(page["items"]) <= 2 and page["metadata"]["shardInfo"] == {"selector": selector}
                assert "remainingItemCount" not in page["metadata"]
                token = page["metadata"].get("continue")
                if not token:
                    break
            assert found == wanted
        one = made[0]["metadata"]["name"]
        counts = [len((await api("GET", f"{MAPS}?fieldSelector=metadata.name%3D{one}&{query(s)}"))[1]["items"]) for s in HALVES]
        assert counts == ([1, 0] if half(made[0]) == 0 else [0, 1])
        assert "shardInfo" not in (await api("GET", MAPS))[1]["metadata"]

    run(tmp_path, test)


@pytest.mark.usefixtures("sharded")
def test_lists_of_shards_in_other_formats_and_versions(tmp_path):
    async def test(api: Api):
        halves = set[int]()
        while halves != {0, 1}:  # uids are random
            status, made = await api("POST", V2, autoscaler(f"h{uuid.uuid4()}"))
            assert status == 201
            halves.add(half(made))
        wanted = [o["metadata"]["name"] for o in (await api("GET", V2))[1]["items"] if half(o) == 0]
        asked = f"{V1}?{query(HALVES[0])}"
        assert [o["metadata"]["name"] for o in (await api("GET", asked))[1]["items"]] == wanted
        for kind in ("Table", "PartialObjectMetadataList"):
            resp = await api.request("GET", asked, accept=f"application/json;as={kind};v=v1;g=meta.k8s.io")
            body = orjson.loads(await whole(resp))
            assert body["metadata"]["shardInfo"] == {"selector": HALVES[0]}
            assert len(body["rows"] if kind == "Table" else body["items"]) == len(wanted)
        served = api.rest.resources["autoscaling", "v1"]["horizontalpodautoscalers"]
        body = await whole(await api.request("GET", asked, accept=PROTOBUF))
        value = decode_protobuf(served.list_type, open_envelope(body)[2])
        assert value["metadata"]["shardInfo"] == {"selector": HALVES[0]}
        assert [o["metadata"]["name"] for o in value["items"]] == wanted

    run(tmp_path, test)


@pytest.mark.usefixtures("sharded")
def test_watches_of_shards_see_only_their_objects(tmp_path):
    async def test(api: Api):
        made = await fill(api, 6)
        streams = [Stream(await api.request("GET", f"{MAPS}?watch=1&{query(s)}")) for s in HALVES]
        for i, stream in enumerate(streams):  # existing objects
            for obj in made:
                if half(obj) == i:
                    event = await stream.next()
                    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", obj["metadata"]["name"])
        for obj in made:
            await api("PATCH", f"{MAPS}/{obj['metadata']['name']}", {"data": {"a": "b"}}, "application/merge-patch+json")
        for obj in made:
            await api("DELETE", f"{MAPS}/{obj['metadata']['name']}")
        for i, stream in enumerate(streams):
            names = [obj["metadata"]["name"] for obj in made if half(obj) == i]
            events = [await stream.next() for _ in range(2 * len(names))]
            seen = [(e["type"], e["object"]["metadata"]["name"]) for e in events]
            assert seen == [("MODIFIED", n) for n in names] + [("DELETED", n) for n in names]
            assert stream.rest() == []

    run(tmp_path, test)


@pytest.mark.usefixtures("sharded")
def test_only_objects_in_the_shard_are_deleted(tmp_path):
    async def test(api: Api):
        made = await fill(api, 12)
        gone = [o["metadata"]["name"] for o in made if half(o) == 1]
        status, body = await api("DELETE", f"{MAPS}?{query(HALVES[1])}")
        assert status == 200 and [o["metadata"]["name"] for o in body["items"]] == gone
        assert body["metadata"]["shardInfo"] == {"selector": HALVES[1]}
        left = (await api("GET", MAPS))[1]["items"]
        assert [o["metadata"]["name"] for o in left] == [o["metadata"]["name"] for o in made if half(o) == 0]

    run(tmp_path, test)


@pytest.mark.usefixtures("sharded")
def test_a_wrong_selector_is_a_bad_request(tmp_path):
    async def test(api: Api):
        for method, path in (("GET", f"{MAPS}?"), ("GET", f"{MAPS}?watch=1&"), ("DELETE", f"{MAPS}?")):
            status, body = await api(method, path + query("f(1)"))
            assert (status, body.get("reason")) == (400, "BadRequest")
            assert body["message"] == 'invalid shard selector: unsupported function "f"; only shardRange() and || are allowed'

    run(tmp_path, test)

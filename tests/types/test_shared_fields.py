"""Stored objects with equal managed fields share them; reading and writing give the same results as without sharing."""

from __future__ import annotations

import tracemalloc

import orjson
import pytest

from kas._codecs import parse_sharing, shared_bytes
from kas.meta.stored import object_to_replace
from kas.observe import caches
from kas.types.scheme import builtin_type, encode_both, encode_stored
from tests.endpoints.test_write_steps import MAPS, MERGE, config_map, run

FIELDS = {"f:data": {".": {}, "f:a": {}, 'k:{"name":"x<y"}': {"f:ü": {}}}}
CONFIG_MAP = builtin_type("core.v1.ConfigMap")
APPLY = "application/apply-patch+yaml"


def entry(fields, manager="m", **more):
    return {"manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2024-01-02T03:04:05Z", "fieldsType": "FieldsV1",
            **({} if fields is None else {"fieldsV1": fields}), **more}  # fmt: skip


def stored(entries, data=None, **meta) -> tuple[bytes, int]:
    """Returns an object as it is stored, and where its metadata end."""
    obj = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c", **meta, "managedFields": entries}, "data": data or {"a": "b"}}
    head, tail, _, metadata_tail, _ = encode_stored(CONFIG_MAP, obj)
    middle = b'"resourceVersion":"7"' + (b"" if tail.startswith(b"}") else b",")
    return head + middle + tail, len(head) + len(middle) + metadata_tail


SAID = b',"managedFields":[{"manager":"m","fieldsV1":{"f:a":{}}}]'


@pytest.mark.parametrize("make", [
    lambda: stored([entry(FIELDS)]),
    lambda: stored([entry(FIELDS), entry({"f:data": {}}, "n", subresource="status"), entry(FIELDS, "o")]),
    lambda: stored([entry(None), entry(FIELDS, "n")]),
    lambda: stored([entry({}), entry(FIELDS, 'fieldsV1":{"')]),
    lambda: stored([entry({"f:a": 1})]),
    lambda: stored([entry({"f:a": {"f:b": []}})]),
    lambda: stored([entry([])]),
    lambda: stored([]),
    lambda: stored([entry(FIELDS)], {"a": SAID.decode()}),
    lambda: stored([entry(FIELDS)], labels={"managedFields": "x", "fieldsV1": "y"}),
    lambda: stored([entry(FIELDS)], annotations={"a": SAID.decode(), 'b"managedFields': "[{"}),
    lambda: stored([], {"a": "b"}, annotations={"a": SAID.decode()}),
    lambda: (stored([entry(FIELDS)])[0], 0),
    lambda: (b'{"metadata":{"managedFields":[{"fieldsV1":{"f:a":{}}}]},"spec":{"metadata":{"managedFields":[{"fieldsV1":{}}]}}}', 53),
    lambda: (b'{"metadata":{"name":"c"},"spec":{"metadata":{"managedFields":[{"fieldsV1":{"f:a":{}}}]}}}', 24),
])  # fmt: skip
def test_reading_gives_the_stored_fields(make):
    data, end = make()
    for _ in range(2):
        assert parse_sharing(data, end, orjson.loads) == orjson.loads(data)


def test_sets_with_equal_beginnings_are_distinguished():
    """By their head only some of them are found without a search; which ones changes with each that is read."""
    begin = {f"f:a-field-that-all-of-them-have-{n}": {} for n in range(4)}
    sets = [{**begin, f"f:{n}": {"f:z": {}} if n % 2 else {}} for n in range(7)] + [begin]
    texts = [stored([entry(fields), entry(sets[0], "n")]) for fields in sets]
    for data, end in texts * 2 + texts[::-1]:
        assert parse_sharing(data, end, orjson.loads) == orjson.loads(data)


def test_invalid_json_stays_invalid():
    data, end = stored([entry(FIELDS)])
    for cut in range(1, len(data), 7):
        with pytest.raises(orjson.JSONDecodeError):
            parse_sharing(data[:cut], end, orjson.loads)


def test_objects_share_a_set_and_write_it_unchanged():
    first, second = (parse_sharing(*stored([entry(FIELDS, manager)]), orjson.loads) for manager in ("m", "n"))
    shared = first["metadata"]["managedFields"][0]["fieldsV1"]
    assert shared is second["metadata"]["managedFields"][0]["fieldsV1"]
    apart = orjson.loads(orjson.dumps(second))
    assert encode_stored(CONFIG_MAP, second, least=0) == encode_stored(CONFIG_MAP, apart, least=0)
    assert encode_both(CONFIG_MAP, second) == encode_both(CONFIG_MAP, apart)


def test_only_the_objects_own_metadata_are_shared():
    fields = {"f:only-in-a-template": {}}
    data = orjson.dumps({"metadata": {"name": "c"}, "spec": {"metadata": {"managedFields": [entry(fields)]}}})
    before = shared_bytes()[0]
    parse_sharing(data, data.index(b"}") + 1, orjson.loads)
    assert shared_bytes()[0] == before


def test_the_memory_of_sets_is_bounded():
    worst = "{}"
    for i in range(90):
        worst = f'{{"{chr(97 + i % 26)}":{worst}}}'
    tracemalloc.start()
    try:
        for i in range(3000):
            fields = f'{{"f:{i}":{worst}' + "".join(f',"f:{i}-{j}":{{}}' for j in range(60)) + "}"
            data = b'{"metadata":{"managedFields":[{"fieldsV1":%b}]}}' % fields.encode()
            parse_sharing(data, len(data) - 1, orjson.loads)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    size, most = shared_bytes()
    assert 0 < size <= most and held <= most
    assert {row.name: row for row in caches.rows()}["shared_fields"].size == size


@pytest.mark.parametrize(("ctype", "patch"), [
    (MERGE, {"metadata": {"managedFields": [{**entry({"f:data": {"f:z": {}}}, "test")}]}}),
    ("application/json-patch+json", [{"op": "add", "path": "/metadata/managedFields/0/fieldsV1/f:data/f:z", "value": {}}]),
    ("application/json-patch+json", [{"op": "remove", "path": "/metadata/managedFields/0/fieldsV1/f:data"}]),
    ("application/strategic-merge-patch+json", {"metadata": {"managedFields": [{"fieldsV1": {"f:data": {"f:z": {}}}}]}}),
    ("application/strategic-merge-patch+json", {"data": {"b": "c"}}),
])  # fmt: skip
def test_changing_shared_fields_changes_one_object(tmp_path, ctype, patch):
    async def test(api):
        for name in "ab":
            await api("POST", MAPS, config_map(name, a="first"))
        for name in "ab":  # from here on they share it
            assert (await api("PATCH", f"{MAPS}/{name}", {"data": {"a": "second"}}, MERGE))[0] == 200
        _, before = await api("GET", f"{MAPS}/b")
        assert (await api("PATCH", f"{MAPS}/a", patch, ctype))[0] == 200
        assert (await api("PATCH", f"{MAPS}/b", {"metadata": {"labels": {"a": "b"}}}, MERGE))[0] == 200
        _, after = await api("GET", f"{MAPS}/b")
        had, has = (of["metadata"]["managedFields"] for of in (before, after))
        assert has[0]["fieldsV1"]["f:data"] == had[0]["fieldsV1"]["f:data"] == {".": {}, "f:a": {}}

    run(tmp_path, test)


def test_a_record_says_where_its_metadata_end(tmp_path):
    async def test(api):
        await api("POST", MAPS, config_map("c", a="first"))
        rec = api.store.get("/registry/configmaps/ns/c")
        assert orjson.loads(b"{" + rec.json[rec.type_prefix_len : rec.metadata_end] + b"}").keys() == {"metadata"}
        first, second = object_to_replace(rec), object_to_replace(rec)
        assert first == orjson.loads(rec.json)
        assert first["metadata"]["managedFields"][0]["fieldsV1"] is second["metadata"]["managedFields"][0]["fieldsV1"]

    run(tmp_path, test)

"""Long protobuf lists, whose length is sent before the objects are read, while others write."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from kas.endpoints.listing import Listing, answer
from kas.endpoints.respond import Media
from kas.endpoints.served import Served
from kas.meta.errors import ApiError
from kas.registry.generic import Registry
from kas.request.negotiation import PROTOBUF
from kas.store import Op, build_record, open_store
from kas.types.scheme import BUILTIN, decode, decode_protobuf, encode_protobuf, open_envelope

COUNT = 300


def config_map(name: str, text: str) -> dict:
    meta = {"name": name, "namespace": "ns", "uid": "u", "creationTimestamp": "2024-01-02T03:04:05Z"}
    data = {"x": text, **{f"k{i}": "" for i in range(150)}}  # with so many values that its message is stored
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": meta, "data": data}


@pytest.fixture
def served(tmp_path):
    store = open_store(str(tmp_path), sync=False)
    resource = BUILTIN.resource("", "v1", "configmaps")
    registry = Registry(resource, store, lambda: "")
    for i in range(COUNT):
        write(registry, f"c{i:03}", "y" * 20_000)
    yield Served(resource, registry)
    store.close()


def write(registry: Registry, name: str, text: str) -> None:
    registry.store.commit_now(Op(registry.key("ns", name), registry.draft(config_map(name, text))))


def collect(served: Served, limit: int, after_first) -> bytes:
    request = SimpleNamespace(header=lambda name: "", deadline=0, path="/x", params={}, user=None)
    q = Listing(request, served, Media(PROTOBUF, None, False, False), served.registry.prefix("ns"), None, "", limit, 0)
    parts: list[bytes] = []

    async def run() -> None:
        async def take(piece: bytes) -> None:
            if not parts:
                after_first()
            parts.append(piece)

        await (await answer(q)).stream(take)

    asyncio.run(run())
    return b"".join(parts)


def expected(served: Served, limit: int) -> bytes:
    store = served.registry.store
    page = store.range(served.registry.prefix("ns"), "", limit, 0, None, True)
    value = {"metadata": {"resourceVersion": str(page.revision)}, "items": [decode(served.type, served.object(r))[0] for r in page.records]}
    return encode_protobuf(served.list_type, value, api_version="v1", kind="ConfigMapList")


def test_objects_that_change_while_a_list_is_sent(served):
    registry = served.registry
    whole = expected(served, 0)

    def change() -> None:
        write(registry, "c150", "other")
        write(registry, "c299", "z" * 50_000)
        write(registry, "c2990", "new")
        registry.store.commit_now(Op(registry.key("ns", "c200"), None))

    assert collect(served, 0, change) == whole
    assert collect(served, 0, lambda: None) == expected(served, 0) != whole


def test_limits_longer_than_a_page(served):
    got = collect(served, 250, lambda: write(served.registry, "c249", "other"))
    _, kind, raw, _ = open_envelope(got)
    value = decode_protobuf(served.list_type, raw)
    assert kind == "ConfigMapList" and [x["metadata"]["name"] for x in value["items"]] == [f"c{i:03}" for i in range(250)]
    assert value["items"][249]["data"]["x"] == "y" * 20_000
    assert value["metadata"]["remainingItemCount"] == COUNT - 250 and value["metadata"]["continue"]


def test_records_without_a_message_are_transcoded(served):
    registry = served.registry
    old = registry.draft(config_map("c250", "é<"))
    registry.store.commit_now(Op(registry.key("ns", "c250"), build_record(old.head, old.tail, {}, {}, old.type_prefix_len)))
    assert collect(served, 0, lambda: None) == expected(served, 0)


def test_a_wrong_length_ends_the_answer(served):
    """The stored message comes from another version of the codecs: the message that replaces it may have another length."""
    registry = served.registry
    d = registry.draft(config_map("c299", "y"))
    message = encode_protobuf(served.type, config_map("c299", "longer"))
    registry.store.commit_now(Op(registry.key("ns", "c299"), build_record(d.head, d.tail, {}, {}, d.type_prefix_len, protobuf=message)))
    with pytest.raises(ApiError, match="bytes instead of"):
        collect(served, 0, lambda: write(registry, "c299", "z"))

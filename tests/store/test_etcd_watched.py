"""Watch responses and results of transactions are decoded as protobuf decodes them, whatever arrives."""

from __future__ import annotations

import random

import pytest
from google.protobuf.message import DecodeError

from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.rpc import Stream, Undecoded, succeeded_at, watched
from kas.store.etcd.rpc.status import Code, RpcError

NUMBERS = [0, 1, 127, 128, 1 << 31, (1 << 63) - 1]


def response(rng: random.Random) -> pb.WatchResponse:
    events = [
        pb.Event(
            type=rng.choice([pb.Event.PUT, pb.Event.DELETE]),
            kv=pb.KeyValue(
                key=rng.randbytes(rng.choice([0, 1, 200])), create_revision=rng.choice(NUMBERS), mod_revision=rng.choice(NUMBERS),
                version=rng.choice(NUMBERS), value=rng.randbytes(rng.choice([0, 5, 300])), lease=rng.choice(NUMBERS),
            ),
            prev_kv=pb.KeyValue(key=b"before", value=b"old") if rng.random() < 0.3 else None,
        )
        for _ in range(rng.choice([0, 1, 3]))
    ]  # fmt: skip
    return pb.WatchResponse(
        header=pb.ResponseHeader(
            cluster_id=rng.choice([*NUMBERS, (1 << 64) - 1]), member_id=7, revision=rng.choice(NUMBERS), raft_term=rng.choice(NUMBERS)
        ),
        watch_id=rng.choice([*NUMBERS, -1]), created=rng.random() < 0.3, canceled=rng.random() < 0.3,
        compact_revision=rng.choice(NUMBERS), cancel_reason=rng.choice(["", "why, é"]), fragment=rng.random() < 0.3, events=events,
    )  # fmt: skip


def as_protobuf_says(answer: pb.WatchResponse) -> object:
    told = (answer.watch_id, answer.created, answer.canceled, answer.compact_revision, answer.cancel_reason, answer.fragment)
    changes = [(e.kv.key, e.kv.value, e.kv.mod_revision, e.type == pb.Event.PUT) for e in answer.events]
    return answer.header.cluster_id, answer.header.revision, told, changes


def as_read(message: bytes) -> object:
    answer = watched(message)
    told = (answer.watch_id, answer.created, answer.canceled, answer.compact_revision, answer.cancel_reason, answer.fragment)
    return answer.cluster_id, answer.revision, told, [(e.key, e.value, e.mod_revision, e.put) for e in answer.events]


def test_watch_responses_are_decoded() -> None:
    rng = random.Random(1)
    for _ in range(300):
        answer = response(rng)
        assert as_read(answer.SerializeToString()) == as_protobuf_says(answer)


def test_unknown_fields_are_skipped() -> None:
    unknown = b"\xf8\x07\x96\x01" + b"\xf9\x07" + b"x" * 8 + b"\xfa\x07\x03abc" + b"\xfd\x07" + b"x" * 4
    for _ in range(2):
        answer = response(random.Random(2))
        assert as_read(unknown + answer.SerializeToString() + unknown) == as_protobuf_says(answer)


def test_damaged_responses_are_refused_or_decoded_as_by_protobuf() -> None:
    """Nothing is read beyond the end, and the result never differs from protobuf's."""
    rng = random.Random(3)
    told = {False: 0, True: 0}
    for _ in range(60):
        message = response(rng).SerializeToString()
        damaged = bytearray(message)
        for _ in range(rng.choice([1, 3])):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        for one in (message[: rng.randrange(len(message))], bytes(damaged)):
            try:
                expected = as_protobuf_says(pb.WatchResponse.FromString(one))
            except DecodeError:
                continue
            try:
                found = as_read(one)
            except Undecoded:  # groups, which etcd does not use
                continue
            told[found == expected] += 1
    assert told[True] > 20 and told[False] == 0
    for broken in (b"\x5a\x05abc", b"\x10", b"\x10" + b"\xff" * 10, b"\x0a\x02\x08", b"\x5a\x04\x12\x05ab", b"\x00", b"\x0b", b"\xff" * 20):
        with pytest.raises(Undecoded):
            watched(broken)


def over(*messages: bytes, error: RpcError | None = None) -> Stream:
    """Returns a call that has ended."""
    stream = Stream(b"", b"", True, True, None)
    stream.messages.extend(messages)
    stream.error = error
    return stream


def test_only_the_revision_of_a_successful_transaction_is_decoded() -> None:
    """Everything else is left to protobuf's reader, which makes an error or a conflict of it."""
    rng = random.Random(4)
    seen = {False: 0, True: 0}
    for _ in range(300):
        put = pb.ResponseOp(response_put=pb.PutResponse(header=pb.ResponseHeader(revision=3)))
        found = pb.ResponseOp(response_range=pb.RangeResponse(kvs=[pb.KeyValue(key=rng.randbytes(9), mod_revision=rng.choice(NUMBERS))]))
        answer = pb.TxnResponse(
            header=pb.ResponseHeader(cluster_id=rng.choice(NUMBERS), revision=rng.choice(NUMBERS)), succeeded=rng.random() < 0.5,
            responses=[rng.choice([put, found]) for _ in range(rng.choice([0, 1, 3]))],
        )  # fmt: skip
        message = answer.SerializeToString()
        assert succeeded_at(over(message)) == (answer.header.revision if answer.succeeded else 0)
        one = message[: rng.randrange(len(message))]
        try:
            expected = pb.TxnResponse.FromString(one)
        except DecodeError:
            assert succeeded_at(over(one)) == 0
            continue
        assert succeeded_at(over(one)) == (expected.header.revision if expected.succeeded else 0)
        seen[expected.succeeded] += 1
    assert all(seen.values())
    made = pb.TxnResponse(header=pb.ResponseHeader(revision=7), succeeded=True).SerializeToString()
    assert succeeded_at(over(made)) == 7
    assert succeeded_at(over()) == succeeded_at(over(made, made)) == succeeded_at(over(b"\xff" * 20)) == 0
    assert succeeded_at(over(made, error=RpcError(Code.UNAVAILABLE, "the connection broke off"))) == 0
    assert succeeded_at(over(pb.TxnResponse(header=pb.ResponseHeader(revision=-1), succeeded=True).SerializeToString())) == 0

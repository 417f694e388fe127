"""Records, selectors and frames of the compiled core."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from kas.store import Op, build_record, compile_matcher, frame_json, frame_record, open_store
from kas.store.lmdb import LMDBStore

TYPE = b'{"kind":"Pod","apiVersion":"v1",'


@pytest.fixture
def store(tmp_path: Path):
    store = open_store(str(tmp_path), sync=False)
    yield store
    store.close()


def make(store: LMDBStore, key: str = "/registry/pods/ns/a", **kwargs):
    op = Op(
        key,
        build_record(TYPE + b'"metadata":{"name":"a",', b'"uid":"u"},"spec":{}}', type_prefix_len=len(TYPE), **kwargs),
    )
    store.commit_now(op)
    return op.record


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 200])
def test_labels_are_stored_in_byte_order(count: int):
    """Selectors compare them in parallel. A few are sorted in place, many by Python."""
    names = ["gfedcba"[n % 7] + "é\uffee\U00010000"[n % 3] + str(n) for n in range(count)]
    labels = {name: f"ü{name}" for name in names}
    draft = build_record(TYPE + b'"metadata":{"name":"a",', b'"uid":"u"}}', labels, {"f": "x"}, type_prefix_len=len(TYPE))
    assert list(draft.label_map.items()) == sorted(labels.items(), key=lambda pair: pair[0].encode()) and draft.field_map == {"f": "x"}
    with pytest.raises(UnicodeEncodeError):
        build_record(b"{", b"}", {**labels, "\ud800": ""})
    with pytest.raises(ValueError, match="longer than 65535"):
        build_record(b"{", b"}", {**labels, "a" * 65536: ""})


# -- selectors --------------------------------------------------------------------------------------------------------

LABELS = {"app": "web", "tier": "", "n": "12", "neg": "-3", "big": "9223372036854775808", "word": "x1"}


@pytest.mark.parametrize(
    ("requirement", "accepted"),
    [
        (("app", "=", ("web",)), True),
        (("app", "==", "web"), True),
        (("app", "=", ("we",)), False),
        (("tier", "=", ("",)), True),
        (("none", "=", ("",)), False),
        (("app", "!=", ("web",)), False),
        (("none", "!=", ("web",)), True),
        (("app", "in", ("a", "web", "z")), True),
        (("app", "in", ("a", "z")), False),
        (("none", "in", ("a",)), False),
        (("app", "notin", ("a", "z")), True),
        (("app", "notin", ("web",)), False),
        (("none", "notin", ("web",)), True),
        (("tier", "exists", ()), True),
        (("none", "exists", ()), False),
        (("tier", "!", ()), False),
        (("none", "!", ()), True),
        (("n", "gt", ("11",)), True),
        (("n", "gt", ("12",)), False),
        (("n", "lt", ("13",)), True),
        (("neg", "lt", ("-2",)), True),
        (("neg", "gt", ("-4",)), True),
        (("big", "gt", ("1",)), False),
        (("word", "gt", ("0",)), False),
        (("none", "lt", ("5",)), False),
    ],
)
def test_label_requirement(requirement, accepted: bool) -> None:
    assert compile_matcher([requirement]).matches_maps(LABELS, {}) is accepted


@pytest.mark.parametrize(
    ("requirement", "accepted"),
    [
        (("status.phase", "=", "Running"), True),
        (("status.phase", "==", "Pending"), False),
        (("status.phase", "!=", "Running"), False),
        (("status.phase", "!=", "Pending"), True),
        (("spec.nodeName", "=", ""), True),
        (("spec.nodeName", "!=", ""), False),
    ],
)
def test_field_requirement(requirement, accepted: bool) -> None:
    assert compile_matcher((), [requirement]).matches_maps({}, {"status.phase": "Running"}) is accepted


def test_all_requirements_must_hold(store: LMDBStore) -> None:
    record = make(store, labels={"app": "web", "é": "ü"}, fields={"metadata.name": "a"})
    assert compile_matcher([("app", "=", ("web",)), ("é", "=", ("ü",))], [("metadata.name", "=", "a")]).matches(record)
    assert not compile_matcher([("app", "=", ("web",)), ("é", "!", ())]).matches(record)
    assert compile_matcher().matches(record)


def test_unknown_operators_and_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown label operator"):
        compile_matcher([("a", "~", ("b",))])
    with pytest.raises(ValueError, match="unknown field operator"):
        compile_matcher((), [("a", "in", "b")])
    with pytest.raises(ValueError):
        compile_matcher([("a", "gt", ("x",))])


words = st.text(alphabet="ab1-", max_size=3)


operators = st.sampled_from(["=", "!=", "in", "notin", "exists", "!"])


@given(st.dictionaries(words, words, max_size=4), words, operators, st.lists(words, min_size=1, max_size=3))
def test_the_matcher_agrees_with_a_model_in_python(labels, key, operator, values) -> None:
    there = key in labels
    wanted = {
        "=": there and labels.get(key) == values[0],
        "!=": not there or labels[key] != values[0],
        "in": there and labels[key] in values,
        "notin": not there or labels[key] not in values,
        "exists": there,
        "!": not there,
    }[operator]
    assert compile_matcher([(key, operator, values[:1] if operator in ("=", "!=") else values)]).matches_maps(labels, {}) is wanted


pairs = st.dictionaries(words, words, max_size=6)
terms = st.tuples(words, operators, st.lists(words, min_size=1, max_size=2))


@given(pairs, pairs, st.lists(terms, max_size=12), st.lists(st.tuples(words, st.sampled_from(["=", "!="]), words), max_size=4))
def test_many_requirements_match_if_each_of_them_does(labels, fields, wanted_labels, wanted_fields) -> None:
    """In any order, and with repeated keys."""
    asked = [(key, op, values[:1] if op in ("=", "!=") else values) for key, op, values in wanted_labels]
    each = [compile_matcher([one]).matches_maps(labels, fields) for one in asked]
    each += [compile_matcher((), [one]).matches_maps(labels, fields) for one in wanted_fields]
    assert compile_matcher(asked, wanted_fields).matches_maps(labels, fields) is all(each)


# -- records ----------------------------------------------------------------------------------------------------------


def test_a_record_has_its_parts(store: LMDBStore) -> None:
    record = make(store, labels={"b": "2", "a": "1"}, fields={"metadata.name": "a"}, metadata_tail=len(b'"uid":"u"}'))
    assert record.json == TYPE + b'"metadata":{"name":"a","resourceVersion":"1","uid":"u"},"spec":{}}'
    assert record.metadata_json == b'"metadata":{"name":"a","resourceVersion":"1","uid":"u"}'
    assert record.labels == {"a": "1", "b": "2"}
    assert record.protobuf is None
    assert json.loads(record.json_at(12345))["metadata"]["resourceVersion"] == "12345"
    assert pickle.loads(pickle.dumps(record)) == record
    assert store.get(record.key) == record


def message(resource_version: bytes, name: bytes = b"a") -> bytes:
    """{1: {1: name, 6: resourceVersion, 7: 1}, 2: "rest"}"""
    meta = b"\x0a" + bytes((len(name),)) + name + b"\x32" + bytes((len(resource_version),)) + resource_version + b"\x38\x01"
    length = bytes((len(meta),)) if len(meta) < 128 else bytes((len(meta) & 127 | 128, len(meta) >> 7))
    return b"\x0a" + length + meta + b"\x12\x04rest"


def test_the_protobuf_form_has_the_revision(store: LMDBStore) -> None:
    one = make(store, protobuf=message(b""))
    assert one.protobuf == message(b"1") and one.json.endswith(b'"spec":{}}')
    assert one.protobuf_at(1) == message(b"1") and one.protobuf_at(12345) == message(b"12345")
    # An existing revision is replaced; the lengths around it show the effect.
    long = b"n" * 122
    assert make(store, protobuf=message(b"7777777", long)).protobuf == message(b"2", long)
    assert store.get("/registry/pods/ns/a").protobuf_at(1234567890123456789) == message(b"1234567890123456789", long)
    whole = b"<\x12" + bytes((len(message(b"3")),)) + message(b"3") + b">"
    make(store, protobuf=message(b""))
    assert store.range_protobuf("/registry/pods/", wrap=lambda r: (b"<", b">")).body == whole
    make(store)
    assert store.range_protobuf("/registry/pods/").body is None
    assert make(store).protobuf_at(3) is None


@pytest.mark.parametrize("kept", [0, 1, 64, 3000, 1 << 20])
def test_the_end_of_a_page_is_returned_separately(store: LMDBStore, kept: int) -> None:
    for n in range(9):
        make(store, key=f"/registry/pods/ns/b{n}", protobuf=message(b""))
    for scan in (store.range_json, store.range_protobuf):
        whole = scan("/registry/pods/", wrap=lambda r: (b"<", b">")).body
        page = scan("/registry/pods/", wrap=lambda r: (b"<", b">", kept))
        assert page.body + page.end == whole and len(page.end) == min(kept, len(whole))


def test_a_page_ends_with_the_given_bytes(store: LMDBStore) -> None:
    """Only one of two stored representations has them."""
    text = len(make(store, protobuf=message(b"")).json)
    for n in range(9):
        make(store, key=f"/registry/pods/ns/b{n}", protobuf=message(b""))
    assert store.range("/registry/pods/", max_bytes=8 * text).count < 8
    page = store.range_json("/registry/pods/", wrap=lambda r: (b"", b""), max_bytes=8 * text)
    assert (page.count, page.more) == (8, True)
    given = len(message(b"1"))
    page = store.range_protobuf("/registry/pods/", wrap=lambda r: (b"", b""), max_bytes=4 * given)
    assert (page.count, page.more, page.size) == (4, True, 4 * (given + 2))


def test_history_keeps_no_protobuf(store: LMDBStore) -> None:
    one = make(store, protobuf=message(b""))
    make(store, protobuf=message(b""))
    old = store.get(one.key, 1)
    assert old.json == one.json and old.protobuf is None
    first, second = store.events("/registry/pods/", 0)[0]
    assert first.record.protobuf is None and second.record.protobuf == message(b"2")


def test_metadata_only_list(store: LMDBStore) -> None:
    make(store, metadata_tail=len(b'"uid":"u"}'))
    body = store.range_json("/registry/pods/", metadata_only=True, lead=b'{"kind":"P",').body
    assert body == b'{"kind":"P","metadata":{"name":"a","resourceVersion":"1","uid":"u"}}'
    make(store)
    assert store.range_json("/registry/pods/", metadata_only=True).body is None


def test_drafts_with_impossible_offsets_are_refused() -> None:
    for kwargs in ({"type_prefix_len": 9}, {"metadata_tail": 9}):
        with pytest.raises(ValueError):
            build_record(b"{", b"}", **kwargs)


@pytest.mark.parametrize(
    "damaged",
    [b"", b"\x0a", b"\x0a\x00", b"xx", b"\x0a\x02\x32\x01", b"\x0a\x01\x32", b"\x0a\x02\x38\x01", b"\x0a\x05\x0a\x09aaa",
     b"\x0a\xff\xff\xff\xff\xff\xff", b"\x0a\x7f\x32\x00", b"\x0a\x17\x32\x15" + b"1" * 21],
)  # fmt: skip
def test_protobuf_without_a_field_for_the_revision_is_refused(damaged: bytes) -> None:
    with pytest.raises(ValueError, match=r"metadata\.resourceVersion"):
        build_record(b"{", b"}", protobuf=damaged)


# -- frames -----------------------------------------------------------------------------------------------------------


def test_frames(store: LMDBStore) -> None:
    record = make(store)
    assert frame_json("ADDED", b'{"a":1}') == b'{"type":"ADDED","object":{"a":1}}\n'
    assert frame_record("MODIFIED", record) == b'{"type":"MODIFIED","object":' + record.json + b"}\n"
    assert frame_record("DELETED", record, 1000) == b'{"type":"DELETED","object":' + record.json_at(1000) + b"}\n"

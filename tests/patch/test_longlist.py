"""Lists stored in chunks behave as lists, and JSON patches return plain lists."""

from __future__ import annotations

import random

import orjson

from kas.patch import jsonpatch
from kas.patch.longlist import LONG, LongList


def test_it_behaves_as_a_list():
    r = random.Random(1)
    plain = list(range(6000))
    long = LongList(plain)
    for i in range(5000):
        what, at = r.randrange(4), r.choice((0, r.randrange(len(plain)), len(plain) - 1))
        if what == 0:
            plain.insert(at, i)
            long.insert(at, i)
        elif what == 1 and len(plain) > 1:
            del plain[at]
            del long[at]
        elif what == 2:
            plain[at] = -i
            long[at] = -i
        else:
            plain.append(i)
            long.append(i)
        assert len(long) == len(plain) and long[at % len(plain)] == plain[at % len(plain)]
    assert list(long) == plain


def test_an_emptied_list_can_grow_again():
    long = LongList([1])
    del long[0]
    assert list(long) == []
    long.append(2)
    long.insert(0, 1)
    assert list(long) == [1, 2]


def apply(document, *operations):
    return jsonpatch.apply(document, jsonpatch.decode(orjson.dumps(list(operations))))


def test_patches_of_long_lists():
    items = [{"n": i} for i in range(LONG + 10)]
    document = {"a": items, "b": [list(range(LONG + 5))]}
    got = apply(
        document,
        {"op": "add", "path": "/a/0", "value": {"n": -1}},
        {"op": "replace", "path": "/a/1/n", "value": "first"},
        {"op": "remove", "path": "/a/2"},
        {"op": "test", "path": "/a/-1", "value": {"n": LONG + 9}},
        {"op": "add", "path": "/b/0/-", "value": "end"},
        {"op": "move", "from": "/b/0", "path": "/c"},
        {"op": "copy", "from": "/c", "path": "/d"},
        {"op": "add", "path": "/d/0", "value": "only here"},
    )
    want = [{"n": -1}, {"n": "first"}, *items[2:]]
    numbers = [*range(LONG + 5), "end"]
    assert got == {"a": want, "b": [], "c": numbers, "d": ["only here", *numbers]}
    assert all(type(x) in (list, dict, str, int) for x in (got["a"], got["b"], got["c"], got["d"]))
    assert orjson.dumps(got)
    assert document["a"] == items and document["b"] == [list(range(LONG + 5))], "what was given is not changed"


def test_the_document_may_be_a_long_list():
    got = apply(list(range(LONG + 1)), {"op": "remove", "path": "/0"})
    assert got == list(range(1, LONG + 1)) and type(got) is list

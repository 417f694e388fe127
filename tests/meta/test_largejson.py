"""Large JSON in pieces: what is read is what the parser reads at once, and nobody's objects change when others are let go."""

from __future__ import annotations

import json
import random
from typing import Any

import orjson
import pytest

from kas._codecs import NotCutError, parse_in_pieces
from kas.meta import gojson
from kas.meta.largejson import WHOLE, let_go, parse

PIECE = 64 << 10  # of the codecs
MANY = 40_000

LARGE: dict[str, Any] = {
    "list": list(range(MANY)),
    "of objects": [{"a": [], "b": {}}] * MANY,
    "object": {f"k{i}": {"a": i} for i in range(MANY)},
    "members of an object": {"kind": "x", "l": [{"m": [i] * 9000, "s": ',]}\\"' * 3000} for i in range(12)], "z": {"y": []}},
    "one string": {"a": "x" * (3 * PIECE), "b": [1, {"c": "y" * (3 * PIECE)}]},
    "deep": json.loads("[0," * 400 + json.dumps(list(range(MANY))) + "]" * 400),
    "keys that are spelled": {'"\\\u00fc\n': [["\u20ac,"] * MANY], "\u00fc": []},
}


def cut(data: bytes) -> tuple[Any, list[int]]:
    """What is read, and how long each of the pieces is."""
    lengths = []

    def one(piece: bytes) -> Any:
        lengths.append(len(piece))
        return orjson.loads(piece)

    return parse_in_pieces(data, one), lengths


@pytest.mark.parametrize("spaced", [False, True])
@pytest.mark.parametrize("name", sorted(LARGE))
def test_pieces_are_small_and_make_the_same(name: str, spaced: bool) -> None:
    data = json.dumps(LARGE[name], indent=1 if spaced and name != "deep" else None, ensure_ascii=spaced).encode()
    found, lengths = cut(data)
    assert json.dumps(found) == json.dumps(LARGE[name])
    longest = 3 * PIECE + 100 if name == "one string" else 2 * PIECE + 100  # a text is no more than copied
    assert len(lengths) > 1 and max(lengths) <= longest


def test_of_a_name_that_is_repeated_the_last_counts() -> None:
    data = b'{"a":1,"b":[%b1],"a":2,"b":3,"c":[%b1]}' % (b"0," * MANY, b"0," * MANY)
    assert list(parse(data).items()) == list(orjson.loads(data).items())


@pytest.mark.parametrize("broken", [
    b"[%b]", b"[%b1,]", b"[%b1}", b"[%b1", b"[%b1]]", b"[%b1]x", b"{%b1}", b'{"a":[%b1],}', b'{"a":[%b1] "b":1}', b'{"a" [%b1]}',
    b'{a:[%b1]}', b'{"a":[%b1]:1}', b'[%b1,,[%b1]]', b"[[%b1][%b1]]", b"[1[%b1]]", b'["\xff",%b1]', b'["a,%b1]', b"[%b 1 2]",
])  # fmt: skip
def test_what_is_no_json_is_none_in_pieces_either(broken: bytes) -> None:
    data = broken.replace(b"%b", b"0," * MANY)
    with pytest.raises((NotCutError, orjson.JSONDecodeError)):
        cut(data)
    with pytest.raises(orjson.JSONDecodeError) as whole:
        orjson.loads(data)
    with pytest.raises(orjson.JSONDecodeError) as found:
        parse(data)
    assert str(found.value) == str(whole.value)
    said = gojson.syntax_error(data)
    if said is None:  # broken UTF-8 is none for Go
        assert gojson.loads(data)[0] == "\ufffd"
    else:
        with pytest.raises(gojson.JSONError) as go:
            gojson.loads(data)
        assert str(go.value) == said


def test_bytes_that_are_wrong_anywhere() -> None:
    """Whatever a byte becomes, pieces and the whole are read alike."""
    chance = random.Random(7)
    texts = [json.dumps(LARGE[name]).encode() for name in ("of objects", "members of an object", "keys that are spelled")]
    for _ in range(60):
        data = bytearray(chance.choice(texts))
        at = chance.choice((chance.randrange(len(data)), chance.randrange(100), -1 - chance.randrange(100)))
        data[at] = chance.choice(b',:{}[]" \\1a\xe2')
        try:
            want: Any = orjson.loads(data)
        except orjson.JSONDecodeError:
            want = None
        try:
            found = cut(bytes(data))[0]
        except (NotCutError, orjson.JSONDecodeError):
            found = None
        assert orjson.dumps(found) == orjson.dumps(want), bytes(data[:200])


def test_go_reads_what_is_large_with_the_same_leniency() -> None:
    many = b"0," * MANY
    assert gojson.loads(b"[%b123456789012345678901234567890]" % many)[-1] == 123456789012345678901234567890.0
    assert gojson.loads(b'[%b"\\ud800"]' % many)[-1] == "\ufffd"
    with pytest.raises(gojson.NumberError) as found:
        gojson.loads(b'{"kind":"x","l":[%b1e999]}' % many)
    assert found.value.value["kind"] == "x" and found.value.value["l"][-1] == float("inf")
    with pytest.raises(gojson.JSONError, match="exceeded max depth"):
        gojson.loads(b"[%b%b%b]" % (many, b"[" * 2000, b"]" * 2000))


class Kept(list):  # type: ignore[type-arg]
    """What says when it goes."""

    gone = 0

    def __del__(self) -> None:
        Kept.gone += 1


def test_what_is_let_go_is_as_it_was_for_others() -> None:
    shared = [{"a": [str(i)]} for i in range(WHOLE // 4)]
    values: list[Any] = [{"l": shared, "m": [Kept()]}, (shared, Kept()), Kept("x" * WHOLE), "x"]
    before, Kept.gone = orjson.dumps(shared), 0
    let_go(values)
    assert not values and Kept.gone == 3 and orjson.dumps(shared) == before


class Counting(list):  # type: ignore[type-arg]
    """What counts how often it is gone through."""

    times = 0

    def __iter__(self) -> Any:
        Counting.times += 1
        return super().__iter__()


def test_what_many_refer_to_is_gone_into_once() -> None:
    """A rule of 16,000 resources, which is found by each of them: minutes."""
    rule = Counting(["x"] * 1000)
    values: list[Any] = [[rule], {f"r{i}": [rule] for i in range(1000)}, [(rule, Kept())]]
    del rule
    Kept.gone = 0
    let_go(values)
    assert (values, Kept.gone, Counting.times) == ([], 1, 1)

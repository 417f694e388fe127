"""Large JSON in parts: the result is that of the parser, and freeing one value in parts leaves shared objects unchanged."""

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
    """Returns the result, and how long each part took."""
    lengths = []

    def one(piece: bytes) -> Any:
        lengths.append(len(piece))
        return orjson.loads(piece)

    return parse_in_pieces(data, one), lengths


@pytest.mark.parametrize("spaced", [False, True])
@pytest.mark.parametrize("name", sorted(LARGE))
def test_parts_are_short_and_give_the_same_result(name: str, spaced: bool) -> None:
    data = json.dumps(LARGE[name], indent=1 if spaced and name != "deep" else None, ensure_ascii=spaced).encode()
    found, lengths = cut(data)
    assert json.dumps(found) == json.dumps(LARGE[name])
    longest = 3 * PIECE + 100 if name == "one string" else 2 * PIECE + 100  # a text is only copied
    assert len(lengths) > 1 and max(lengths) <= longest


def test_the_last_of_repeated_names_counts() -> None:
    data = b'{"a":1,"b":[%b1],"a":2,"b":3,"c":[%b1]}' % (b"0," * MANY, b"0," * MANY)
    assert list(parse(data).items()) == list(orjson.loads(data).items())


@pytest.mark.parametrize("broken", [
    b"[%b]", b"[%b1,]", b"[%b1}", b"[%b1", b"[%b1]]", b"[%b1]x", b"{%b1}", b'{"a":[%b1],}', b'{"a":[%b1] "b":1}', b'{"a" [%b1]}',
    b'{a:[%b1]}', b'{"a":[%b1]:1}', b'[%b1,,[%b1]]', b"[[%b1][%b1]]", b"[1[%b1]]", b'["\xff",%b1]', b'["a,%b1]', b"[%b 1 2]",
])  # fmt: skip
def test_invalid_json_is_refused_in_parts_too(broken: bytes) -> None:
    data = broken.replace(b"%b", b"0," * MANY)
    with pytest.raises((NotCutError, orjson.JSONDecodeError)):
        cut(data)
    with pytest.raises(orjson.JSONDecodeError) as whole:
        orjson.loads(data)
    with pytest.raises(orjson.JSONDecodeError) as found:
        parse(data)
    assert str(found.value) == str(whole.value)
    said = gojson.syntax_error(data)
    if said is None:  # broken UTF-8 is accepted by Go
        assert gojson.loads(data)[0] == "\ufffd"
    else:
        with pytest.raises(gojson.JSONError) as go:
            gojson.loads(data)
        assert str(go.value) == said


def test_a_wrong_byte_anywhere() -> None:
    """Whatever a byte becomes, reading in parts and at once agree."""
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


def test_large_documents_are_read_with_gos_leniency() -> None:
    many = b"0," * MANY
    assert gojson.loads(b"[%b123456789012345678901234567890]" % many)[-1] == 123456789012345678901234567890.0
    assert gojson.loads(b'[%b"\\ud800"]' % many)[-1] == "\ufffd"
    with pytest.raises(gojson.NumberError) as found:
        gojson.loads(b'{"kind":"x","l":[%b1e999]}' % many)
    assert found.value.value["kind"] == "x" and found.value.value["l"][-1] == float("inf")
    with pytest.raises(gojson.JSONError, match="exceeded max depth"):
        gojson.loads(b"[%b%b%b]" % (many, b"[" * 2000, b"]" * 2000))


class Kept(list):  # type: ignore[type-arg]
    """An object that reports when it is freed."""

    gone = 0

    def __del__(self) -> None:
        Kept.gone += 1


def test_freeing_in_parts_leaves_shared_objects() -> None:
    shared = [{"a": [str(i)]} for i in range(WHOLE // 4)]
    values: list[Any] = [{"l": shared, "m": [Kept()]}, (shared, Kept()), Kept("x" * WHOLE), "x"]
    before, Kept.gone = orjson.dumps(shared), 0
    let_go(values)
    assert not values and Kept.gone == 3 and orjson.dumps(shared) == before


class Counting(list):  # type: ignore[type-arg]
    """A list that counts how often it is iterated over."""

    times = 0

    def __iter__(self) -> Any:
        Counting.times += 1
        return super().__iter__()


def test_shared_values_are_walked_once() -> None:
    """A rule of 16,000 resources that is referred to by each of them took minutes."""
    rule = Counting(["x"] * 1000)
    values: list[Any] = [[rule], {f"r{i}": [rule] for i in range(1000)}, [(rule, Kept())]]
    del rule
    Kept.gone = 0
    let_go(values)
    assert (values, Kept.gone, Counting.times) == ([], 1, 1)

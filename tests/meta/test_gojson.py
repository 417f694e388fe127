"""JSON as Go's decoder reads it, with its errors."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kas.meta.gojson import JSONError, NumberError, loads, syntax_error


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "unexpected end of JSON input"),
        (b"{", "unexpected end of JSON input"),
        (b"{a", "invalid character 'a' looking for beginning of object key string"),
        (b'{"a" 1}', "invalid character '1' after object key"),
        (b'{"a":1 "b"}', "invalid character '\"' after object key:value pair"),
        (b'{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        (b"[1 2]", "invalid character '2' after array element"),
        (b"[1,]", "invalid character ']' looking for beginning of value"),
        (b"1 2", "invalid character '2' after top-level value"),
        (b"01", "invalid character '1' after top-level value"),
        (b"-", "invalid character ' ' in numeric literal"),
        (b"1.x", "invalid character 'x' after decimal point in numeric literal"),
        (b"1e+", "invalid character ' ' in exponent of numeric literal"),
        (b"tru", "invalid character ' ' in literal true (expecting 'e')"),
        (b"nulx", "invalid character 'x' in literal null (expecting 'l')"),
        (b'"a\n"', "invalid character '\\n' in string literal"),
        (b'"\\x"', "invalid character 'x' in string escape code"),
        (b'"\\u12g4"', "invalid character 'g' in \\u hexadecimal character escape"),
        (b"'a'", "invalid character '\\'' looking for beginning of value"),
        ("é".encode(), "invalid character 'Ã' looking for beginning of value"),
        (b"[" * 10_001, "invalid character '[' exceeded max depth"),
        (b'{"a":' * 10_001, "invalid character '{' exceeded max depth"),
    ],
)
def test_messages(text, message):
    with pytest.raises(JSONError) as e:
        loads(text)
    assert str(e.value) == message


def test_invalid_text_and_large_numbers_are_read_as_in_go():
    assert loads(b'"\xff"') == "\ufffd"
    assert loads(b'{"a":"\\ud800"}') == {"a": "\ufffd"}
    assert loads(b"123456789012345678901234567890") == 1.2345678901234568e29


@pytest.mark.parametrize(("number", "value"), [("-1e400", -math.inf), ("9" * 5_000, math.inf)])
def test_a_number_out_of_range_is_distinguished(number, value):
    with pytest.raises(NumberError, match=f"cannot unmarshal number {number} into Go value of type float64") as raised:
        loads(b'{"kind":"A","n":[%b]}' % number.encode())
    assert raised.value.value == {"kind": "A", "n": [value]}


def test_depth_after_a_number_out_of_range():
    with pytest.raises(JSONError, match=r"^exceeded max depth$"):
        loads(b'{"n":1e400,"deep":' + b"[" * 9_000 + b"]" * 9_000 + b"}")


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda c: st.lists(c) | st.dictionaries(st.text(), c)))
def test_well_formed_is_well_formed(value):
    assert syntax_error(json.dumps(value).encode()) is None


@given(st.one_of(st.binary(), st.text('{}[]",:\\u0truefalsn1e.- \n').map(str.encode)))
def test_agrees_with_python_on_validity(data):
    message = syntax_error(data)
    try:
        json.loads(data.decode("utf-8", "replace"), parse_constant=lambda _: 1 / 0)
        well_formed = True
    except (ValueError, ZeroDivisionError):
        well_formed = False
    assert (message is None) == well_formed
    try:
        loads(data)
    except JSONError as e:
        assert str(e) == message

"""Values as the messages of field errors print them."""

import pytest

from kas.meta import field


@pytest.mark.parametrize(
    "value,text",
    [(1.0, "1"), (1.5, "1.5"), (-0.25, "-0.25"), (100000.0, "100000"), (1000000.0, "1e+06"), (123456789.5, "1.234567895e+08"),
     (0.0001, "0.0001"), (0.00001, "1e-05"), (0.0, "0"), (1e21, "1e+21"), (3, "3"), (True, "true"), (None, "null"), ("a<b", '"a<b"')],
)
def test_simple_values_are_printed_plainly(value, text):
    assert field.invalid("p", value, "d").error_body() == f"Invalid value: {text}: d"


def test_other_values_are_json_safe_in_html():
    found = field.duplicate("p", {"a": ["<b>&", "\u2028"]})
    assert str(found) == 'p: Duplicate value: {"a":["\\u003cb\\u003e\\u0026","\\u2028"]}'


def test_limits_of_one_are_singular():
    assert field.too_long("p", 1).error_body() == "Too long: may not be more than 1 byte"
    assert field.too_long("p", 2).error_body() == "Too long: may not be more than 2 bytes"
    assert field.too_many("p", 2, 1).error_body() == "Too many: 2: must have at most 1 item"


def test_deep_values_are_sorted_at_every_level_and_the_original_stays():
    value: object = {"b": 2.0, "a": [1e17, 0.5]}
    for _ in range(2000):
        value = [{"z": value, "y": 1.0}]
    got = field.in_go_order(value)
    for _ in range(2000):
        ((key, number), (_, got)), value = got[0].items(), value[0]["z"]
        assert key == "y" and type(number) is int
    assert list(got.items()) == [("a", [1e17, 0.5]), ("b", 2)] and type(got["b"]) is int
    assert list(value) == ["b", "a"] and type(value["b"]) is float

"""The highest cost of rules by their schemas: some sizes are limited by the schema, others by the size of a request."""

from __future__ import annotations

import pytest

from kas import cel
from kas.cel.declared import sizes_below
from kas.cel.schemas import Shapes

TEXT, NUMBER = {"type": "string"}, {"type": "number"}
OBJECT = {"type": "object", "properties": {"required": TEXT, "optional": TEXT}, "required": ["required"]}
ALL = "self.all(x, true)"


def text(most=None, **more):
    return TEXT | more if most is None else TEXT | more | {"maxLength": most}


def many(item, most=None):
    found = {"type": "array", "items": item}
    return found if most is None else found | {"maxItems": most}


def mapped(value, most=None):
    found = {"type": "object", "additionalProperties": value}
    return found if most is None else found | {"maxProperties": most}


def named(**properties):
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(("schema", "rule", "most"), [
    # Upstream's table of estimates.
    (many(NUMBER), ALL, 4718591), (many(NUMBER, 10), ALL, 32), (many(TEXT), ALL, 3145727), (many({"type": "boolean"}), ALL, 1887437),
    (many(many(NUMBER)), ALL, 3145727), (many(OBJECT), ALL, 555128), (many(OBJECT, 50), ALL, 152), (mapped(NUMBER), ALL, 1348169),
    (mapped(TEXT, 3), ALL, 11), (mapped(OBJECT), ALL, 428963), (mapped(many(NUMBER)), ALL, 1179647), (mapped(mapped(NUMBER), 10), ALL, 32),
    (many(text(format="duration")), ALL, 2359295), (many(text(format="date")), ALL, 725936), (many(text(format="date-time")), ALL, 428963),
    (mapped(text(format="date-time"), 25), ALL, 77), (many({"x-kubernetes-int-or-string": True}), ALL, 4718591),
    (many(NUMBER, 3 << 21), "self.all(x, x == 0.0)", 25165826), (many(NUMBER, 10), "self.all(x, self.all(y, self.all(z, true)))", 3552),
    (text(), "self.contains('test')", 314574), (text(10), "self.contains('test')", 5), (text(30), "self.endsWith('test')", 2),
    (text(), 'size(self + "hello") > size("hello")', 314578), (text(4), 'size(self + "hello") > size("hello")', 7),
    (text(), 'self.matches("x")', 314574), (text(50), 'self.matches("x")', 22), (text(), 'self.matches("")', 1),
    (text(), "self.find('[0-9]+') == ''", 629147), (text(0), 'self == "x"', 1), (text(0, format="byte"), 'self == b"x"', 1),
    (many(TEXT), "self[1] == self[1]", 314577), (many({"x-kubernetes-int-or-string": True}), "self[0] == 5", 3),
    (many(mapped(NUMBER)), "self.all(x, x.y == 25.2)", 6291452), (many(mapped(OBJECT)), 'self.all(x, x["y"].required == "z")', 7340027),
    (mapped(TEXT), "self.all(x, x.contains(self[x]))", 2752507), (mapped(text(10), 10), "self.all(x, x.contains(self[x]))", 72),
    (many(TEXT), "self.join(' ') == 'aa bb'", 329853068905), (many(text(10), 10), "self.join(' ') == 'aa bb'", 43),
    (many(TEXT), "self.isSorted() == true", 329854432052), (many(text(10), 10), "self.isSorted() == true", 52),
    (named(a=text(4), b=text(2), c=text(4)), "self.a.replace(self.b, self.c) == 'does not matter'", 12),
    (named(a=text(10), b=text(10)), "self.a.split(self.b) == []", 22), (text(10), "self.lowerAscii() == 'lower!'", 6),
    (mapped(text(format="date-time")), 'self["a"] == self["b"]', 8), (text(enum=["A", "B", "LongValue"]), "self.contains('A')", 2),
    (text(1000, enum=["A", "B", "LongValue"]), "self.contains('A')", 401),
])  # fmt: skip
def test_the_highest_cost_of_a_rule(schema, rule, most):
    shapes = Shapes(schema, False)
    found = shapes.of(schema, False)
    assert found is not None
    env = cel.BASE.extended({"self": found[0].type}, shapes.structs)
    assert cel.compile(rule, env).estimate(sizes_below(found[0])).high == most


@pytest.mark.parametrize(("text", "least", "most"), [
    ("[3, 1, 2].slice(0, 2)", 23, 23), ("[3, 1, 2].slice(2, 1)", cel.cost.MAX, cel.cost.MAX),
    ("lists.range(-1)", 11, 11), ("[[1], []].flatten(-1)", 41, 41),
    ("bytes(strings.quote('::1'.charAt(1)))", 2, 1844674407370955265),
])  # fmt: skip
def test_estimates_are_unsigned_numbers(text, least, most):
    assert cel.compile(text, cel.BASE).estimate(lambda path, t: None) == (least, most)

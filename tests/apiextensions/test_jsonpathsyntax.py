"""client-go's ``jsonpath`` parser: what it accepts, and its errors."""

import pytest

from kas.apiextensions.jsonpathsyntax import problem


@pytest.mark.parametrize(
    "path",
    [
        "spec.validations[0].expression", "a..b", "a.", ".a", "$.a", "a b", "a'", "'x'", r"'a\'b'", '"a\\u00e9"', "a}b", "a}{b",
        "a['x.y']", "a[*]", "[]", "[::]", "[-1]", "[1:2:3]", "[1,'b']", "[?(@.b==')')]", "[?(@.a[0]==1)].b", "a\\.b", "a\\", "+1", "-.5",
        "é", "[9223372036854775807]", "[-9223372036854775808]", "[000000000000000000000001]", "a.. .b",
    ],
)  # fmt: skip
def test_valid_paths(path):
    assert not problem(path)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("a{b", "unrecognized character in action: U+007B '{'"),
        ("*", "unrecognized character in action: U+002A '*'"),
        ("a]", "unrecognized character in action: U+005D ']'"),
        ("a\tb", "unrecognized character in action: U+0009"),
        ("a\nb", "unclosed action"),
        ("a}{.b{", "unrecognized character in action: U+007B '{'"),
        ("........", "invalid multiple recursive descent"),
        ("a.. ..b", "invalid multiple recursive descent"),
        ("[1", "unterminated array"),
        ("spec[foo]", "invalid array index foo"),
        ('a["x"]', 'invalid array index "x"'),
        ("[1,x]", "invalid array index x"),
        ("['a{']", "unrecognized character in action: U+007B '{'"),
        ("[-]", "array index - is not a number"),
        ("[1:9223372036854775808]", "array index 9223372036854775808 is not a number"),
        ("[-" + "9" * 5000 + "]", "array index -" + "9" * 5000 + " is not a number"),
        ("[?(.price]", "unterminated filter"),
        ("[?(@.a)b]", "unclosed array expect ]"),
        ("[?(@.a==*)]", "unrecognized character in action: U+002A '*'"),
        ("'x", "unterminated quoted string"),
        (r"'\q'", r"unquote string '\q' error invalid syntax"),
        ("1.2.3", "cannot parse number 1.2.3"),
        ("[?(" * 9999 + "a" + ")]" * 9999, "unterminated filter"),
        ("[?(.a'[?(.b\"[?(*)].b\")].a')]", "unrecognized character in action: U+002A '*'"),
    ],
)
def test_errors(path, why):
    assert problem(path) == why

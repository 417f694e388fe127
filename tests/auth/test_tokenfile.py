"""The token file."""

import pytest

from kas.auth.authn.bearer import bearer_token
from kas.auth.authn.tokenfile import TokenFileError, load_token_file, parse_token_file
from kas.auth.user import UserInfo


def test_token_file():
    users = parse_token_file('t1,alice,1,"a,b"\n\nt2,bob,2\nt3,carol,3,\n')
    assert users["t1"] == UserInfo("alice", ("a", "b"), "1")
    assert users["t2"] == UserInfo("bob", (), "2")
    assert users["t3"] == UserInfo("carol", ("",), "3")  # an empty column is one group with an empty name, as upstream


@pytest.mark.parametrize(("text", "says"), [
    ("t1,alice\n", "token file 'f' must have at least 3 columns (token, user name, user uid), found 2"),
    ("\nt1", "token file 'f' must have at least 3 columns (token, user name, user uid), found 1"),
    ('t1,alice,"1', 'parse error on line 1, column 12: extraneous or missing " in quoted field'),
])  # fmt: skip
def test_an_unusable_file_is_named(text, says):
    with pytest.raises(TokenFileError) as e:
        parse_token_file(text, "f")
    assert str(e.value) == says


@pytest.mark.parametrize(("text", "says"), [
    ('a,b,c,"x\n', 'parse error on line 1, column 10: extraneous or missing " in quoted field'),
    ('a,b,c\n\na,"b"d,c\n', 'parse error on line 3, column 5: extraneous or missing " in quoted field'),
    ('a,"b\nc"d,e\n', 'record on line 1; parse error on line 2, column 2: extraneous or missing " in quoted field'),
    ('a,b"c,d\n', 'parse error on line 1, column 4: bare " in non-quoted field'),
])  # fmt: skip
def test_misplaced_quotes(text, says):
    with pytest.raises(TokenFileError) as e:
        parse_token_file(text, "F")
    assert str(e.value) == says


def test_valid_quotes():
    assert [(t, u.name, u.uid, list(u.groups)) for t, u in parse_token_file('t,"a ""b""\nc",u,"g,h"\r\n').items()] == [
        ("t", 'a "b"\nc', "u", ["g", "h"])
    ]


def test_a_line_without_a_token_is_ignored():
    assert list(parse_token_file(",alice,1\nt2,bob,2\n", "f")) == ["t2"]


@pytest.mark.parametrize("secret", [b"gr\xc3\xbc\xc3\x9fe", b"\xff\xfe\xfc", b"\xc3\xbc\xff", "\u2713".encode()])
def test_header_bytes_are_compared_with_file_bytes(tmp_path, secret):
    (tmp_path / "f").write_bytes(secret + b',j\xc3\xa4\xff,1,"a,\xff"\n')
    users = load_token_file(str(tmp_path / "f"))
    header = (b"Bearer " + secret).decode("latin-1")  # as a request has it
    assert users.authenticate_token(bearer_token(header)) == UserInfo("jä\ufffd", ("a", "\ufffd"), "1")
    assert users.authenticate_token(bearer_token(header[:-1])) is None
    assert users.authenticate_token(bearer_token(header.encode("ascii", "replace").decode())) is None

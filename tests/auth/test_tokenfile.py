"""The token file."""

import pytest

from kas.auth.authn.tokenfile import TokenFileError, parse_token_file
from kas.auth.user import UserInfo


def test_token_file():
    users = parse_token_file('t1,alice,1,"a,b"\n\nt2,bob,2\nt3,carol,3,\n')
    assert users["t1"] == UserInfo("alice", ("a", "b"), "1")
    assert users["t2"] == UserInfo("bob", (), "2")
    assert users["t3"] == UserInfo("carol", ("",), "3")  # an empty column is one group without a name, as upstream


@pytest.mark.parametrize("text", ["t1,alice\n", "\nt1", ',alice,1,"x"'])
def test_token_file_errors_name_the_line(text):
    line = 2 if text.startswith("\n") else 1
    with pytest.raises(TokenFileError, match=f"^f:{line}: "):
        parse_token_file(text, "f")

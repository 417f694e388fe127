"""The headers of a request in which a name occurs twice."""

from kas.request.http import Request


def sent(*pairs: tuple[bytes, bytes]) -> Request:
    return Request("GET", "/api", "", list(pairs))


def test_the_first_of_two_headers_counts():
    req = sent((b"authorization", b"Bearer a"), (b"x", b"1"), (b"authorization", b"Bearer b"))
    assert (req.get("authorization"), req.raw_header(b"authorization")) == ("Bearer a", b"Bearer a")
    assert sent((b"authorization", b""), (b"authorization", b"Bearer b")).get("authorization") == ""


def test_removing_a_name_removes_both():
    req = sent((b"authorization", b"Bearer a"), (b"x", b"1"), (b"authorization", b"Bearer b"))
    req.drop_header(b"authorization")
    assert (req.get("authorization"), req.headers) == (None, [(b"x", b"1")])


def test_list_headers_are_joined_however_they_are_sent():
    for name in (b"connection", b"upgrade", b"sec-websocket-protocol", b"transfer-encoding", b"content-length", b"host"):
        assert sent((name, b"a"), (name, b"b"), (name, b"c")).header(name) == "a, b, c"

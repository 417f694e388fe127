"""Continue tokens beyond the vectors: which are refused, and with which messages."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kas.store.continuetoken import ContinueError, decode, encode

PREFIX = "/registry/pods/"


def token(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/"), min_size=1), st.integers(-1, 2**63 - 1).filter(bool))
def test_round_trip(name, revision):
    if name in (".", ".."):
        return
    assert decode(encode(PREFIX + name, PREFIX, revision), PREFIX) == (PREFIX + name, revision)


@pytest.mark.parametrize("start", ["../a", "a/../../b", "a//b", "a/", "//a", "./a"])
def test_no_token_leaves_the_prefix(start):
    with pytest.raises(ContinueError, match="continue key is not valid: "):
        decode(token(f'{{"v":"meta.k8s.io/v1","rv":1,"start":"{start}"}}'), PREFIX)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "unexpected end of JSON input"),
        ("[]", "json: cannot unmarshal array into Go value of type storage.continueToken"),
        ('{"rv":"1"}', "json: cannot unmarshal string into Go struct field continueToken.rv of type int64"),
        ('{"V":"v2"}', "server does not recognize this encoded version v2"),
        ('{"v":"meta.k8s.io/v1","rv":1}', "encoded start key empty (version meta.k8s.io/v1)"),
    ],
)
def test_messages(text, message):
    with pytest.raises(ContinueError) as e:
        decode(token(text), PREFIX)
    assert str(e.value) == f"continue key is not valid: {message}"


@given(st.one_of(st.text(), st.binary().map(lambda b: base64.urlsafe_b64encode(b).decode())))
def test_decoding_raises_only_its_own_error(text):
    try:
        key, _ = decode(text, PREFIX)
    except ContinueError:
        return
    assert key.startswith(PREFIX)

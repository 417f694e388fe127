"""Webhooks that answer with another place, compressed, or at a path that is written otherwise."""

from __future__ import annotations

import asyncio
import base64
import gzip

import pytest

from kas.client.hooks import MAX_ANSWER, HookClients, HookError, Shares
from kas.client.http import Egress
from kas.client.kubeconfig import Credentials, Users
from tests import pki
from tests.tlsstub import Answer, TLSStub

OK = Answer(200, b'{"kind": "x"}')


class Place:
    """A webhook that answers by path, and who asks it."""

    def __init__(self, tmp_path) -> None:
        self.ca = pki.authority("ca")
        files = pki.issue([("CN", "hook")], self.ca, ips=["127.0.0.1"], usages=("server",)).write(tmp_path, "hook")
        self.answers: dict[str, Answer] = {}
        self.stub = TLSStub(*files, lambda asked: self.answers[asked.path.partition("?")[0]])

    def ask(self, path: str, credentials: Credentials | None = None) -> bytes:
        config = {"url": self.stub.url + path, "caBundle": base64.b64encode(self.ca.pem).decode()}

        async def story() -> bytes:
            clients = HookClients(Users({"*": credentials} if credentials else {}), lambda *of: ("", 0), Shares(10), Egress())
            try:
                return await clients.of(config).post(b"question", 20.0)
            finally:
                clients.close()

        return asyncio.run(story())

    def refused(self, path: str) -> str:
        with pytest.raises(HookError) as e:
            self.ask(path)
        return str(e.value).replace(self.stub.url, "")


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    with made.stub:
        yield made


def to(where: str, status: int = 307) -> Answer:
    return Answer(status, b"", (("Location", where),))


@pytest.mark.parametrize("status", [307, 308])
def test_the_question_is_asked_there(place, status):
    place.answers |= {"/a": to(place.stub.url + "/b?c=d", status), "/b": to("/e", status), "/e": OK}
    assert place.ask("/a", Credentials(token="t")) == OK.body
    assert [(a.method, a.path, a.body) for a in place.stub.asked] == [
        ("POST", "/a?timeout=20s", b"question"), ("POST", "/b?c=d", b"question"), ("POST", "/e", b"question"),
    ]  # fmt: skip
    first, second, _ = (a.headers for a in place.stub.asked)
    assert (second["referer"], second["authorization"]) == (f"{place.stub.url}/a?timeout=20s", "Bearer t")
    assert "referer" not in first and second["content-type"] == "application/json"


@pytest.mark.parametrize("status", [301, 302, 303])
def test_others_are_asked_without_it(place, status):
    place.answers |= {"/a": to("/b", status), "/b": OK}
    assert place.ask("/a") == OK.body
    asked = place.stub.asked[1]
    assert (asked.method, asked.body) == ("GET", b"") and "content-type" not in asked.headers


def test_another_host_sees_no_credentials(place, tmp_path):
    files = pki.issue([("CN", "b")], place.ca, ips=["127.0.0.1"], usages=("server",)).write(tmp_path, "b")
    with TLSStub(*files, lambda asked: OK) as other:
        place.answers["/a"] = to(other.url + "/b")
        assert place.ask("/a", Credentials(token="t")) == OK.body
        assert "authorization" not in other.asked[0].headers and "authorization" in place.stub.asked[0].headers


@pytest.mark.parametrize(("location", "says"), [
    ("/a", 'Post "/a": stopped after 10 redirects'),
    ("", "the server responded with the status code 307 but did not return more information"),
    ("ftp://a/b", 'Post "ftp://a/b": unsupported protocol scheme "ftp"'),
    ("https://127.0.0.1:1/b", 'Post "https://127.0.0.1:1/b": dial tcp 127.0.0.1:1: connect: connection refused'),
])  # fmt: skip
def test_places_that_lead_nowhere(place, location, says):
    place.answers["/a"] = to(location)
    assert place.refused("/a") == says
    assert len(place.stub.asked) == (10 if "stopped" in says else 1)


def zipped(data: bytes) -> Answer:
    return Answer(200, data, (("Content-Type", "application/json"), ("Content-Encoding", "gzip")))


def test_a_compressed_answer(place):
    place.answers["/a"] = zipped(gzip.compress(b"{") + gzip.compress(b"}"))
    assert place.ask("/a") == b"{}"
    assert place.stub.asked[0].headers["accept-encoding"] == "gzip"


UNREADABLE = "unexpected error when reading response body. Please retry. Original error: "


@pytest.mark.parametrize(("data", "says"), [
    (b"not compressed", UNREADABLE + "gzip: invalid header"), (gzip.compress(b"{}")[:-9], UNREADABLE + "unexpected EOF"),
    (gzip.compress(b"{}")[:-8] + b"12345678", UNREADABLE + "gzip: invalid checksum"),
    (gzip.compress(b"x" * (MAX_ANSWER + 1)), f"the answer is larger than {MAX_ANSWER} bytes"),
    (gzip.compress(b""), "0-length response with status code: 200 and content type: application/json"),
], ids=range(5))  # fmt: skip
def test_compressed_answers_that_are_none(place, data, says):
    place.answers["/a"] = zipped(data)
    assert place.refused("/a") == says


def test_an_answer_without_text_and_one_without_a_type(place):
    place.answers |= {"/a": Answer(403, b"", (("Content-Type", "text/plain"),)), "/b": Answer(204, b"", ())}
    assert place.refused("/a") == ""
    assert place.refused("/b") == "0-length response with status code: 204 and content type: application/json"


@pytest.mark.parametrize(("path", "asked"), [
    ("/a/", "/a"), ("//a//b/", "/a/b"), ("/a/../b", "/b"), ("/a/.", "/a"), ("/%2fa", "/a"), ("", "/"), ("/a%3Fb", "/a%3Fb"),
])  # fmt: skip
def test_paths_are_cleaned(place, path, asked):
    place.answers[asked] = OK
    assert place.ask(path) == OK.body


def test_ports_that_are_none(place):
    def says(port: str) -> str:
        url = f"https://127.0.0.1:{port}/x"
        with pytest.raises(HookError) as e:
            asyncio.run(HookClients(Users({}), lambda *of: ("", 0), Shares(10)).of({"url": url}).post(b"", 1.0))
        return str(e.value)

    assert says("99999") == 'Post "https://127.0.0.1:99999/x?timeout=1s": dial tcp: address 99999: invalid port'
    assert says("0") == 'Post "https://127.0.0.1:0/x?timeout=1s": dial tcp 127.0.0.1:0: connect: connection refused'

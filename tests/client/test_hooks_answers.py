"""Webhooks whose answers redirect or are compressed, and paths in other spellings."""

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
    """A webhook that answers by path, and its callers."""

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


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(place, status):
    place.answers |= {"/a": Answer(status, b"", (("Location", place.stub.url + "/b"),)), "/b": OK}
    assert place.refused("/a") == f"the server responded with the status code {status} but did not return more information"
    assert len(place.stub.asked) == 1


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
def test_invalid_compressed_answers(place, data, says):
    place.answers["/a"] = zipped(data)
    assert place.refused("/a") == says


def test_an_answer_without_a_body_and_one_without_a_type(place):
    place.answers |= {"/a": Answer(403, b"", (("Content-Type", "text/plain"),)), "/b": Answer(204, b"", ())}
    assert place.refused("/a") == ""
    assert place.refused("/b") == "0-length response with status code: 204 and content type: application/json"


@pytest.mark.parametrize(("path", "asked"), [
    ("/a/", "/a"), ("//a//b/", "/a/b"), ("/a/../b", "/b"), ("/a/.", "/a"), ("/%2fa", "/a"), ("", "/"), ("/a%3Fb", "/a%3Fb"),
])  # fmt: skip
def test_paths_are_cleaned(place, path, asked):
    place.answers[asked] = OK
    assert place.ask(path) == OK.body


def test_invalid_ports(place):
    def says(port: str) -> str:
        url = f"https://127.0.0.1:{port}/x"
        with pytest.raises(HookError) as e:
            asyncio.run(HookClients(Users({}), lambda *of: ("", 0), Shares(10)).of({"url": url}).post(b"", 1.0))
        return str(e.value)

    assert says("99999") == 'Post "https://127.0.0.1:99999/x?timeout=1s": dial tcp: address 99999: invalid port'
    assert says("0") == 'Post "https://127.0.0.1:0/x?timeout=1s": dial tcp 127.0.0.1:0: connect: connection refused'

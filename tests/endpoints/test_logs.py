"""The files of a directory below /logs/, as Go's ``http.ServeFile`` serves them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from kas.endpoints.logs import logs_handler
from kas.meta.errors import ApiError
from kas.request.http import Request


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("no")
    root = tmp_path / "logs"
    (root / "sub").mkdir(parents=True)
    (root / "a.log").write_text("0123456789")
    (root / "sub" / "b?.log").write_text("b")
    (root / "a:b&c").write_text("c")
    (root / "round").symlink_to("round")
    (root / "out").symlink_to("../secret")
    os.mkfifo(root / "pipe")
    return root


def ask(root: Path, path: str, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    answer = logs_handler(root)(Request(method, f"/logs/{path}", "", raw))
    pieces = [answer.body]

    async def write(piece: bytes) -> None:
        pieces.append(piece)

    if answer.stream is not None:
        asyncio.run(answer.stream(write))
    return answer.status, b"".join(pieces).decode(), {k.decode(): v.decode() for k, v in answer.headers}


def test_a_directory_is_a_page_of_working_links(directory):
    status, page, headers = ask(directory, "")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert page == (
        '<pre>\n<a href="a.log">a.log</a>\n<a href="./a:b%26c">a:b&amp;c</a>\n<a href="out">out</a>\n<a href="pipe">pipe</a>\n'
        '<a href="round">round</a>\n<a href="sub/">sub/</a>\n</pre>\n'
    )
    assert ask(directory, "sub/")[1] == '<pre>\n<a href="b%3F.log">b?.log</a>\n</pre>\n'
    assert ask(directory, "a:b&c")[1] == "c"


def test_paths_with_a_wrong_final_slash_are_redirected(directory):
    for path, location in (("sub", "sub/"), ("a.log/", "../a.log")):
        status, _, headers = ask(directory, path)
        assert (status, headers["location"]) == (301, location)


@pytest.mark.parametrize("path", ["none", "out", "pipe", "round", "round/x", "a.log/x", "a\0b", "x" * 300, "../secret", "..", "\udcff"])
def test_paths_outside_of_the_directory_are_not_found(path, directory):
    assert ask(directory, path)[:2] == (404, "404 page not found\n")


def test_a_missing_directory_is_shown_as_empty(tmp_path):
    assert ask(tmp_path / "none", "")[:2] == (200, "<pre>\n</pre>\n")
    assert ask(tmp_path / "none", "a")[0] == 404


def test_an_unreadable_file_is_forbidden(directory, monkeypatch):
    def refuses(self: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", refuses)
    assert ask(directory, "a.log")[:2] == (403, "403 Forbidden\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
def test_files_are_read_only(method, directory):
    with pytest.raises(ApiError) as e:
        ask(directory, "a.log", method)
    assert e.value.code == 405


@pytest.mark.parametrize(
    ("asked", "status", "body", "content_range"),
    [
        ("bytes=2-4", 206, "234", "bytes 2-4/10"), ("bytes=-3", 206, "789", "bytes 7-9/10"), ("bytes=8-", 206, "89", "bytes 8-9/10"),
        ("bytes=1-2,4-5", 200, "0123456789", None), ("bytes=10-", 416, "invalid range: failed to overlap\n", "bytes */10"),
        ("lines=1", 416, "invalid range\n", None),
    ],
)  # fmt: skip
def test_the_end_of_a_long_file_by_range(asked, status, body, content_range, directory):
    found = ask(directory, "a.log", range=asked)
    assert found[:2] == (status, body) and found[2].get("content-range") == content_range
    changed = ask(directory, "a.log")[2]["last-modified"]
    assert ask(directory, "a.log", range="bytes=0-0", if_range=changed)[1] == "0"
    assert ask(directory, "a.log", range="bytes=0-0", if_range="Thu, 01 Jan 1970 00:00:00 GMT")[1] == "0123456789"


def test_a_file_that_grows_while_it_is_sent_ends(directory):
    path = directory / "a.log"
    answer, pieces = logs_handler(directory)(Request("GET", "/logs/a.log", "", [])), []

    async def write(piece: bytes) -> None:
        pieces.append(piece)
        with path.open("ab") as f:
            f.write(piece)

    asyncio.run(answer.stream(write))
    assert b"".join(pieces) == b"0123456789"

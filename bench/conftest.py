"""An in-process server without sockets. The handler chain is called directly, so that only kas' own code is measured."""

from __future__ import annotations

from typing import Any

import pytest
import uvloop

from kas import kinds
from kas.config.options import Options, complete
from kas.request.http import Request, Response

kinds.install()


class InProcess:
    """``call(method, path, body)`` runs one request through the whole handler chain."""

    def __init__(self, directory, **store: Any) -> None:
        from kas.preparation import prepare
        from kas.server import Server
        from kas.store import open_store
        from kas.store.shared import Shared

        raw = Options()
        raw.data_dir, raw.workers = str(directory), 1
        options = complete(raw)
        options = options._replace(run_dir=directory)
        prepare(options)
        self.loop = uvloop.new_event_loop()
        self.store = open_store(str(directory / "store"), shared=Shared.private(), **{"sync": False, **store})
        self.server = Server(options, self.store, self.store.shared, 0)
        self.server.heartbeat.start(self.loop)
        self.store.start(self.loop)
        self.server.bootstrap()
        self.store.hub.catch_up()
        self.server.load_derived()
        self.server.load_credentials()
        self.server.started = True
        token = (directory / "admin.token").read_text()
        self.headers = [
            (b"host", b"127.0.0.1:6443"), (b"user-agent", b"bench/1.0"), (b"accept", b"application/json"),
            (b"authorization", b"Bearer " + token.encode()),
        ]  # fmt: skip

    def request(self, method: str, path: str, body: bytes = b"", accept: bytes = b"application/json") -> Request:
        path, _, query = path.partition("?")
        headers = [*self.headers[:2], (b"accept", accept), self.headers[3]]
        if body:
            headers.append((b"content-type", b"application/json"))
        return Request(method, path, query, headers, body)

    def call(self, method: str, path: str, body: bytes = b"", accept: bytes = b"application/json") -> Response:
        result = self.server.chain(self.request(method, path, body, accept))
        return result if isinstance(result, Response) else self.loop.run_until_complete(result)

    def body(self, answer: Response) -> bytes:
        """Returns the whole body of an answer of ``call``. Long lists are encoded while they are sent."""
        if answer.stream is None:
            if answer.finish is not None:
                answer.finish()
            return answer.body
        parts: list[bytes] = []

        async def write(piece: bytes) -> None:
            parts.append(piece)

        self.loop.run_until_complete(answer.stream(write))
        if answer.finish is not None:
            answer.finish()
        return b"".join(parts)

    def close(self) -> None:
        self.store.close()
        self.loop.close()


@pytest.fixture(scope="session")
def api(tmp_path_factory):
    server = InProcess(tmp_path_factory.mktemp("bench"))
    yield server
    server.close()

"""The memory bound of lists whose clients do not read, tested over the network."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import kas
from kas.endpoints import listpages
from tests.library.calling import Caller

PATH = "/api/v1/namespaces/default/configmaps"
PATIENCE_S = 60.0


@contextlib.contextmanager
def not_reading(server: kas.Server) -> Iterator[None]:
    """A client that requests the list and reads only its first bytes."""
    address, tls = urlsplit(server.url), ssl.create_default_context(cafile=str(server.ca))
    with socket.socket() as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        plain.settimeout(PATIENCE_S)
        plain.connect((address.hostname, address.port))
        with tls.wrap_socket(plain, server_hostname=address.hostname) as s:
            s.sendall(f"GET {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n\r\n".encode())
            assert s.recv(12) == b"HTTP/1.1 200"
            yield


def listed(server: kas.Server) -> tuple[int, str | None]:
    """Returns the status of a list whose client reads, and its Retry-After."""
    address, tls = urlsplit(server.url), ssl.create_default_context(cafile=str(server.ca))
    with contextlib.closing(http.client.HTTPSConnection(address.netloc, timeout=PATIENCE_S, context=tls)) as connection:
        connection.request("GET", PATH, headers={"Authorization": f"Bearer {server.token}"})
        response = connection.getresponse()
        response.read()
        return response.status, response.headers["Retry-After"]


def until(server: kas.Server, wanted: tuple[int, str | None]) -> None:
    end = time.monotonic() + PATIENCE_S
    while (found := listed(server)) != wanted:
        assert time.monotonic() < end, found
        time.sleep(0.05)


def test_a_list_beyond_the_bound_is_429_until_others_end(tmp_path, monkeypatch):
    # One piece exceeds what is left then.
    monkeypatch.setattr(listpages, "room", listpages.Room(all_bytes=1 << 20))
    options = kas.Options(data_dir=tmp_path / "data", secure_port="auto", unsafe_no_fsync=True, workers=1)
    with kas.Server(options, kinds="none") as server:
        call = Caller(server)
        for i in range(24):
            status, _ = call("POST", PATH, {"metadata": {"name": f"large-{i}"}, "data": {"x": "v" * 900_000}})
            assert status == 201
        assert listed(server) == (200, None)
        with not_reading(server):
            until(server, (429, "1"))
            assert call("GET", f"{PATH}/large-0")[0] == 200  # other requests succeed
        until(server, (200, None))

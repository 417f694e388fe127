"""Fuzzing over HTTP/2: sixteen requests are streams of one connection."""

from __future__ import annotations

import socket
import ssl
import string
from collections.abc import Sequence
from urllib.parse import quote

import h2.config
import h2.connection
import h2.events
import h2.settings

from kas.testing.server import KasServer
from tests.robustness.fuzzwire import BODIES, CONNECTIONS, TIMEOUT_S, Answer, Asked

NOT_IN_HTTP2 = ("connection", "upgrade", "te")  # a stream with these headers is malformed (RFC 9113, 8.2.2)
WINDOW = 1 << 24


class Streams:
    """The administrator's HTTP/2 connection, opened again when the server closed it; otherwise like `Wire`. A CONNECT has another form
    there, and cannot be sent."""

    def __init__(self, server: KasServer) -> None:
        self.server = server
        self._context = ssl.create_default_context(cafile=server.ca)
        self._context.set_alpn_protocols(["h2"])
        self._socket: ssl.SSLSocket | None = None
        self._h2 = h2.connection.H2Connection()

    def ask(self, asked: Asked) -> Answer:
        """Returns the answer to one request."""
        return self.ask_all([asked])[0]

    def ask_all(self, asked: Sequence[Asked]) -> list[Answer]:
        """Returns the answers to requests, in their order. Status 0 means that the server reset the stream or closed the connection."""
        out: list[Answer] = []
        for at in range(0, len(asked), CONNECTIONS):
            out += self._exchange(asked[at : at + CONNECTIONS])
        return out

    def close(self) -> None:
        """Closes the connection."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _connected(self) -> ssl.SSLSocket:
        if self._socket is None:
            plain = socket.create_connection(("127.0.0.1", self.server.port), timeout=TIMEOUT_S)
            self._socket = self._context.wrap_socket(plain, server_hostname="127.0.0.1")
            loose = h2.config.H2Configuration(
                header_encoding="latin-1", validate_outbound_headers=False, normalize_outbound_headers=False,
            )  # fmt: skip
            self._h2 = h2.connection.H2Connection(loose)
            self._h2.initiate_connection()
            self._h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: WINDOW})
            self._h2.increment_flow_control_window(WINDOW)
        return self._socket

    def _exchange(self, asked: Sequence[Asked]) -> list[Answer]:
        sock, conn = self._connected(), self._h2
        begun: dict[int, tuple[int, str, bytearray]] = {}
        ids = []
        for one in asked:
            ids.append(stream := conn.get_next_available_stream_id())
            begun[stream] = (0, "", bytearray())
            conn.send_headers(stream, self._head(one), end_stream=not one.body)
            for at in range(0, len(one.body), conn.max_outbound_frame_size):
                piece = one.body[at : at + conn.max_outbound_frame_size]
                conn.send_data(stream, piece, end_stream=at + len(piece) == len(one.body))
        left = set(ids)
        while left:
            sock.sendall(conn.data_to_send())
            data = sock.recv(65536)
            if not data:
                self.close()
                break
            for event in conn.receive_data(data):
                self._take(event, begun, left)
        return [Answer(begun[i][0], begun[i][1], bytes(begun[i][2])) if i not in left else Answer(0) for i in ids]

    def _take(self, event: h2.events.Event, begun: dict[int, tuple[int, str, bytearray]], left: set[int]) -> None:
        """Handles one event of a stream."""
        match event:
            case h2.events.ResponseReceived(stream_id=int(stream), headers=headers) if headers:
                said = {str(k): str(v) for k, v in headers}
                begun[stream] = (int(said[":status"]), said.get("content-type", ""), bytearray())
            case h2.events.DataReceived(stream_id=int(stream), data=data) if data is not None:
                begun[stream][2].extend(data)
                if event.flow_controlled_length:
                    self._h2.acknowledge_received_data(event.flow_controlled_length, stream)
            case h2.events.StreamEnded(stream_id=int(stream)):
                left.discard(stream)
            case h2.events.StreamReset(stream_id=int(stream)) if stream in left:
                left.discard(stream)
                begun[stream] = (0, f"reset {event.error_code}", bytearray())
            case h2.events.ConnectionTerminated():
                self.close()
                left.clear()

    def _head(self, asked: Asked) -> list[tuple[bytes, bytes]]:
        # The HTTP library below closes a connection with a path that is not UTF-8, and a stream whose path does not begin with a slash.
        path = "/" + quote(asked.path, safe=string.punctuation).removeprefix("/")
        fields = [(":method", asked.verb), (":scheme", "https"), (":authority", f"127.0.0.1:{self.server.port}"), (":path", path)]
        given = {k.lower(): v for k, v in asked.headers.items() if k.lower() not in NOT_IN_HTTP2}
        given.setdefault("authorization", f"Bearer {self.server.token}")
        if asked.body or asked.verb in BODIES:
            given["content-length"] = str(len(asked.body))
        return [(k.encode(), v.encode("latin-1", "replace")) for k, v in (*fields, *given.items())]

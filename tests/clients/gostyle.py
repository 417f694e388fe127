"""The protobuf part of an informer as Go clients have it: raw HTTP, length-delimited frames, and as much of the wire format as is needed.
"""

from __future__ import annotations

import http.client
import ssl
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field

PROTOBUF = "application/vnd.kubernetes.protobuf"
ACCEPT = PROTOBUF + ",application/json"
MAGIC = b"k8s\0"


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of a message: bytes of length-delimited fields, numbers of the others."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 2:
            n, at = varint(data, at)
            value, at = data[at : at + n], at + n
            assert len(value) == n, "message cut short"
        else:
            n = {1: 8, 5: 4}[kind]
            value, at = data[at : at + n], at + n
        yield tag >> 3, value


def entries(values: list[bytes]) -> dict[str, str]:
    out = {}
    for v in values:
        pair = dict(fields(v))
        out[pair.get(1, b"").decode()] = pair.get(2, b"").decode()
    return out


@dataclass
class Object:
    """The fields of a ConfigMap (or of the empty one in a bookmark) that tests use."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)


def unwrap(data: bytes) -> tuple[str, str, bytes]:
    """(apiVersion, kind, message) of an enveloped object."""
    assert data[:4] == MAGIC, data[:16]
    outer = dict(fields(data[4:]))
    meta = dict(fields(outer[1]))
    return meta.get(1, b"").decode(), meta.get(2, b"").decode(), outer.get(2, b"")


def configmap(message: bytes, api_version: str = "", kind: str = "") -> Object:
    o, labels, annotations, data = Object(api_version, kind), [], [], []
    for number, value in fields(message):
        if number == 1:
            for n, v in fields(value):
                if n in (1, 3, 5, 6):
                    setattr(o, {1: "name", 3: "namespace", 5: "uid", 6: "resource_version"}[n], v.decode())
                elif n in (11, 12):
                    (labels if n == 11 else annotations).append(v)
        elif number == 2:
            data.append(value)
    o.labels, o.annotations, o.data = entries(labels), entries(annotations), entries(data)
    return o


class GoClient:
    """Lists and watches the ConfigMaps of one namespace in protobuf."""

    def __init__(self, server, namespace: str) -> None:
        self.host = urllib.parse.urlsplit(server.url).netloc
        self.context = ssl.create_default_context(cafile=server.ca)
        self.headers = {"Authorization": f"Bearer {server.token}", "Accept": ACCEPT, "User-Agent": "informer/v0"}
        self.path = f"/api/v1/namespaces/{namespace}/configmaps"

    def connect(self, timeout: float = 30) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self.host, context=self.context, timeout=timeout)

    def send(self, method: str, path: str, body: bytes | None = None, ctype: str = PROTOBUF) -> tuple[int, bytes]:
        connection = self.connect()
        try:
            connection.request(method, path, body, {**self.headers, **({"Content-Type": ctype} if body is not None else {})})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def list(self, query: str = "") -> tuple[str, list[Object]]:
        """(resourceVersion of the list, objects)."""
        status, data = self.send("GET", self.path + query)
        assert status == 200, data
        api_version, kind, message = unwrap(data)
        assert (api_version, kind) == ("v1", "ConfigMapList")
        revision, items = "", []
        for number, value in fields(message):
            if number == 1:
                revision = dict(fields(value)).get(2, b"").decode()
            elif number == 2:
                items.append(configmap(value))
        return revision, items

    def watch(self, query: str) -> Iterator[tuple[str, Object]]:
        """Yields (type, object) of each event until the server or the caller ends the watch."""
        connection = self.connect()
        try:
            connection.request(
                "GET", f"{self.path}?watch=true&{query}", headers={**self.headers, "Accept": PROTOBUF + ";stream=watch," + ACCEPT}
            )
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            assert answer.getheader("Content-Type").replace(" ", "") == PROTOBUF + ";stream=watch"
            while True:
                head = answer.read(4)
                if len(head) < 4:
                    return
                frame = answer.read(int.from_bytes(head, "big"))
                event = dict(fields(frame))
                api_version, kind, message = unwrap(dict(fields(event[2]))[1])
                yield event[1].decode(), configmap(message, api_version, kind)
        finally:
            connection.close()

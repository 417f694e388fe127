"""Rows of bodies that are small enough to be worked on in the loop, and come by the hundred at once."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import Any

from tests.hostile.attacker import JSON, YAML, Attacker
from tests.hostile.rows import row

CONNECTIONS = 100
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def at_once(a: Attacker, path: str, body: Any, ctype: str, *lines: str) -> None:
    """The same request on each of many connections, the last byte of each once all others are there."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = a.head("POST", path, f"Content-Type: {ctype}", f"Content-Length: {len(data)}", *lines) + data
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(a.wire(timeout=60)) for _ in range(CONNECTIONS)]
        for s in wires:
            s.sendall(sent[:-1])
        for s in wires:
            s.sendall(sent[-1:])
        for s in wires:
            a.codes.append(_status(s))


def _status(s: Any) -> int:
    """That of the answer, once all of it is there."""
    got = b""
    while b"\r\n\r\n" not in got:
        if not (data := s.recv(65536)):
            return 0
        got += data
    head, _, body = got.partition(b"\r\n\r\n")
    length = next((int(x.split(b":")[1]) for x in head.lower().split(b"\r\n") if x.startswith(b"content-length:")), 0)
    left = length - len(body)
    while left > 0:
        left -= len(s.recv(65536))
    return int(head[9:12])


def _crowd(name: str, path: str, body: Any, ctype: str = JSON, lines: Sequence[str] = ()) -> None:
    @row(f"crowds: 100 at once, {name}", 200, 201)
    def _(a: Attacker) -> None:
        at_once(a, path.format(a.room), body, ctype, *lines)


NAMESPACE = "/api/v1/namespaces/{}"
_SELECTOR = {"rawSelector": ",".join(f"k{i}!=a" for i in range(6000))}
_ASKED = {"verb": "list", "resource": "pods", "labelSelector": _SELECTOR}
_crowd("reviews of 6,000 terms", REVIEWS, {"spec": {"resourceAttributes": _ASKED}})
_crowd("services of 1,700 ports", f"{NAMESPACE}/services?dryRun=All",
       {"metadata": {"generateName": "s"}, "spec": {"ports": [{"name": f"p{i}", "port": i + 1} for i in range(1700)]}})  # fmt: skip
_crowd("maps of 5,000 keys as YAML", f"{NAMESPACE}/configmaps?dryRun=All",
       b"metadata: {generateName: w}\ndata:\n" + b"".join(b"  k%d: v\n" % i for i in range(5000)), YAML)  # fmt: skip
_crowd("maps of 3,500 keys, answered as YAML", f"{NAMESPACE}/configmaps?dryRun=All",
       {"metadata": {"generateName": "w"}, "data": {f"k{i}": "v" for i in range(3500)}}, JSON, ("Accept: application/yaml",))  # fmt: skip

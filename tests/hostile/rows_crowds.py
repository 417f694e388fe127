"""Rows of bodies that are small enough for the event loop, a hundred at once."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Sequence
from typing import Any

from tests.hostile.attacker import JSON, YAML, Attacker
from tests.hostile.rows import row

CONNECTIONS, ANSWERED_S = 100, 120
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def at_once(a: Attacker, path: str, body: Any, ctype: str, *lines: str) -> None:
    """Sends the same request on many connections; the last byte of each is sent when all others have arrived. Returns their statuses, 0
    for one that breaks off or takes longer than any request may."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = a.head("POST", path, f"Content-Type: {ctype}", f"Content-Length: {len(data)}", *lines) + data
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(a.wire(timeout=ANSWERED_S)) for _ in range(CONNECTIONS)]
        for piece in (sent[:-1], sent[-1:]):
            for s in wires:
                with contextlib.suppress(OSError):  # a server that reads no more may have answered
                    s.sendall(piece)
        a.codes += [_status(s) for s in wires]


def _status(s: socket.socket) -> int:
    """Returns the status once the answer is complete; 0 if it never is."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        answer = http.client.HTTPResponse(s)
        answer.begin()
        answer.read()
        return answer.status
    return 0


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

"""Every request has an id, the client's or ours; the answer carries it (``Audit-Id``)."""

from __future__ import annotations

from os import urandom

from kas.edge.http import Request, Response
from kas.filters.chain import Filter

MAX_LENGTH = 64  # upstream ignores what is longer


def _uuid4() -> str:
    h = urandom(16).hex()
    return f"{h[:8]}-{h[8:12]}-4{h[13:16]}-{'89ab'[int(h[16], 16) & 3]}{h[17:20]}-{h[20:]}"


def audit_id() -> Filter:
    def before(req: Request) -> None:
        given = req.header(b"audit-id")
        req.audit_id = given[:MAX_LENGTH] if given else _uuid4()

    def after(req: Request, resp: Response) -> None:
        resp.headers.append((b"audit-id", req.audit_id.encode("latin-1", "replace")))

    return Filter("audit_id", before, after)

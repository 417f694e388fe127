"""Every request has an id, the client's or ours; the answer carries it (``Audit-Id``)."""

from __future__ import annotations

from kas._fast_request import audit_id as new_id
from kas.edge.http import Request, Response
from kas.filters.chain import Filter

MAX_LENGTH = 64  # upstream ignores what is longer


def audit_id() -> Filter:
    def before(req: Request) -> None:
        given = req.header(b"audit-id")
        req.audit_id = given[:MAX_LENGTH] if given else new_id()

    def after(req: Request, resp: Response) -> None:
        resp.headers.append((b"audit-id", req.audit_id.encode("latin-1", "replace")))

    return Filter("audit_id", before, after)

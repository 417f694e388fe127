"""Every request has an id, the client's or ours; the answer carries it (``Audit-Id``)."""

from __future__ import annotations

from kas._fastpath import audit_id as new_id
from kas.filters.handler import Filter
from kas.request.http import Request, Response

MAX_LENGTH = 64  # upstream ignores what is longer


def audit_id() -> Filter:
    """Take the client's Audit-ID, cut to a limit, or draw one, and send it back with the response."""
    def before(req: Request) -> None:
        given = req.header(b"audit-id")
        req.audit_id = given[:MAX_LENGTH] if given else new_id()

    def after(req: Request, resp: Response) -> None:
        resp.headers.append((b"audit-id", req.audit_id.encode("latin-1", "replace")))

    return Filter("audit_id", before, after)

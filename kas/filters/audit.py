"""The place of the audit filter: the event of a request starts here, before impersonation changes its user.

Without an audit policy (``--audit-policy-file``) nothing is recorded, as upstream. Annotations are collected on the
request either way, so that every plug-in can say what it did.
"""

from __future__ import annotations

from kas.filters.handler import Filter
from kas.request.http import Request


def audit() -> Filter:
    """Begin the request without annotations for the audit log."""
    def before(req: Request) -> None:
        req.annotations = None

    return Filter("audit", before)

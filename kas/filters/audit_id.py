"""Every request has an id, the client's or ours; the answer carries it (``Audit-Id``)."""

from __future__ import annotations

from kas._fastpath import show_audit_id, take_audit_id
from kas.filters.handler import Filter


def audit_id() -> Filter:
    """Take the client's Audit-ID, cut to a limit, or draw one, and send it back with the response."""
    return Filter("audit_id", take_audit_id, show_audit_id)

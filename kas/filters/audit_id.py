"""Gives every request an id, the client's or a random one, which the response carries (``Audit-Id``)."""

from __future__ import annotations

from kas._fastpath import show_audit_id, take_audit_id
from kas.filters.handler import Filter


def audit_id() -> Filter:
    """Takes the client's Audit-ID, truncated to a limit, or draws one, and sends it back with the response."""
    return Filter("audit_id", take_audit_id, show_audit_id)

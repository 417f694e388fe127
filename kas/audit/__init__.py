"""The audit log: what was asked of the server, by whom, and what came of it."""

from kas.audit._engine import escaped

__all__ = ["escaped"]

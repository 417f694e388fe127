"""The audit log: who requested what from the server, and with what result."""

from kas.audit._engine import escaped

__all__ = ["escaped"]

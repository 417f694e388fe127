"""What pods may ask for at all on this server (upstream ``pkg/capabilities``): one set a process, set once before anything is served."""

from __future__ import annotations


class Capabilities:
    """``allow_privileged``: ``--allow-privileged``."""

    allow_privileged = True


CURRENT = Capabilities()

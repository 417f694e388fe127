"""What there is at all on this server, for pods to ask for (upstream ``pkg/capabilities``) and of what a delete begins: one set a process,
set once before anything is served."""

from __future__ import annotations


class Capabilities:
    """``allow_privileged``: ``--allow-privileged``; ``enable_garbage_collector``: ``--enable-garbage-collector``."""

    allow_privileged = True
    enable_garbage_collector = True


CURRENT = Capabilities()

"""The flags of ``kas serve`` as a table: kube-apiserver's by its sections, and kas' own.

Each row describes what the flag does here. The command line, ``--help``, ``Options``, ``/flagz``, the warnings at startup and docs/flags.md
are derived from it.
"""

from __future__ import annotations

from kas.config.flags.access import ADMISSION, AUTHENTICATION, AUTHORIZATION
from kas.config.flags.auditing import AUDITING
from kas.config.flags.misc import API_ENABLEMENT, EGRESS_SELECTOR, GLOBAL, MISC
from kas.config.flags.observing import FEATURES, LOGS, METRICS, TRACES
from kas.config.flags.own import OWN
from kas.config.flags.row import Effect, Flag
from kas.config.flags.serving import GENERIC, SECURE_SERVING
from kas.config.flags.storage import ETCD

__all__ = ["BY_NAME", "FLAGS", "SECTIONS", "Effect", "Flag"]

SECTIONS: dict[str, tuple[Flag, ...]] = {
    "kas": OWN,
    "generic": GENERIC,
    "etcd": ETCD,
    "secure serving": SECURE_SERVING,
    "auditing": AUDITING,
    "features": FEATURES,
    "authentication": AUTHENTICATION,
    "authorization": AUTHORIZATION,
    "api enablement": API_ENABLEMENT,
    "egress selector": EGRESS_SELECTOR,
    "admission": ADMISSION,
    "metrics": METRICS,
    "logs": LOGS,
    "traces": TRACES,
    "misc": MISC,
    "global": GLOBAL,
}
FLAGS = [flag for rows in SECTIONS.values() for flag in rows]
BY_NAME = {flag.name: flag for flag in FLAGS}

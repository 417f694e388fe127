"""Rules of flags whose parts kas does not have yet: who asks for one learns at once what else is wrong with the command line.

Upstream: ``pkg/kubeapiserver/options``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kas.config.options import Options

def findings(o: Options) -> Iterator[str]:
    """Every finding, one line each."""
    for check in (_webhooks,):
        yield from check(o)


def _value(o: Options, name: str) -> Any:
    return getattr(o, name.replace("-", "_"))


def _webhooks(o: Options) -> Iterator[str]:
    asked, file = "Webhook" in o.authorization_mode, _value(o, "authorization-webhook-config-file")
    if asked and not file:
        yield "authorization-mode Webhook's authorization config file not passed"
    if file and not asked:
        yield "cannot specify --authorization-webhook-config-file without mode Webhook"
    others = (name == "authorization-mode" or name.startswith("authorization-webhook-") for name in o.given)
    if _value(o, "authorization-config") and any(others):
        yield "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined"

"""Webhooks whose certificates have properties that Go once accepted: counted and reported, so that their operators learn why they fail.

Upstream: ``k8s.io/apiserver/pkg/util/x509metrics``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kas.client.http import INSECURE_SHA1, MISSING_SAN
from kas.observe.metrics import Registry

if TYPE_CHECKING:
    from kas.client.hooks import HookError

log = logging.getLogger("kas.client")


class OutdatedCertificates:
    """Counts such certificates, whoever calls the webhooks."""

    def __init__(self, metrics: Registry) -> None:
        self._counts = {
            MISSING_SAN: metrics.counter(
                "apiserver_webhooks_x509_missing_san_total",
                "Counts the number of requests to servers missing SAN extension in their serving certificate OR the number of connection "
                "failures due to the lack of x509 certificate SAN extension missing (either/or, based on the runtime environment)",
            ),
            INSECURE_SHA1: metrics.counter(
                "apiserver_webhooks_x509_insecure_sha1_total",
                "Counts the number of requests to servers with insecure SHA1 signatures in their serving certificate OR the number of "
                "connection failures due to the insecure SHA1 signatures (either/or, based on the runtime environment)",
            ),
        }

    def seen(self, error: HookError) -> tuple[str, str] | None:
        """Counts a failed call if it failed because of such a certificate. Returns the key and value of the audit
        annotation, None otherwise."""
        if error.outdated is None:
            return None
        prefix = f"{error.outdated.id}.invalid-cert.kubernetes.io"
        log.info('%s: invalid certificate detected connecting to "%s": %s', prefix, error.host, error.outdated.reason)
        self._counts[error.outdated].inc()
        return f"{prefix}/{error.host}", error.outdated.reason

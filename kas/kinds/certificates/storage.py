"""Metrics of whether signers honor requested durations (upstream ``registry/certificates/certificates/storage``)."""

from __future__ import annotations

import base64
import logging
from collections.abc import Awaitable
from datetime import timedelta

from kas.meta.pem import pem_blocks, unreadable
from kas.meta.records import NamedTuple
from kas.observe.metrics import Counter
from kas.observe.metrics import Registry as Metrics
from kas.registry.admission import Encoded
from kas.registry.generic import Registry
from kas.registry.registries import Registries
from kas.registry.strategy import Context, Obj
from kas.registry.versions import Shown

log = logging.getLogger("kas.certificates")

OWN = "kubernetes.io/"  # prefix of the signer names that metrics distinguish
SLACK_S = 300  # by how much a certificate may be backdated


class Issued(NamedTuple):
    """A certificate, in base64, issued for a request with a duration."""

    name: str
    signer: str
    wanted_s: int
    certificate: str


class SigningRequestRegistry(Registry):
    """Counts issued certificates whose request had a duration, and those that are valid about as long."""

    requested: Counter | None = None
    honored: Counter | None = None

    def commit(
        self, key: str, obj: Obj, expected: int, encoded: Encoded | None = None, old: Obj | None = None, ctx: Context | None = None
    ) -> Awaitable[Shown]:
        """Commit as any object, counting a certificate that the update issues."""
        issued = _issued(obj, old) if old is not None else None
        written = super().commit(key, obj, expected, encoded, old, ctx)
        return written if issued is None else self._counted(written, issued)

    async def _counted(self, written: Awaitable[Shown], issued: Issued) -> Shown:
        record = await written
        signer = (issued.signer if issued.signer.startswith(OWN) else "other",)
        if self.requested is not None and self.honored is not None:
            self.requested.inc(signer)
            if _honored(issued):
                self.honored.inc(signer)
        return record


def install(registries: Registries, metrics: Metrics) -> None:
    """Count the certificates of ``registries`` from now on."""
    registry = registries.of("certificates.k8s.io", "certificatesigningrequests")
    assert isinstance(registry, SigningRequestRegistry)
    name, total = "apiserver_certificates_registry_csr_%s_duration_total", "Total number of issued CSRs with a requested duration"
    sliced = "sliced by signer (only kubernetes.io signer names are specifically identified)"
    registry.requested = metrics.counter(name % "requested", f"{total}, {sliced}", ("signerName",))
    registry.honored = metrics.counter(name % "honored", f"{total} that was honored, {sliced}", ("signerName",))


def _issued(obj: Obj, old: Obj) -> Issued | None:
    """Return the certificate that an update issues for a request with a duration, if any."""
    certificate, spec = (obj.get("status") or {}).get("certificate"), old["spec"]
    wanted_s = spec.get("expirationSeconds")
    if not certificate or wanted_s is None or (old.get("status") or {}).get("certificate"):
        return None
    return Issued(old["metadata"]["name"], spec["signerName"], wanted_s, certificate)


def _honored(issued: Issued) -> bool:
    from cryptography import x509

    block = next((b for b in pem_blocks(base64.b64decode(issued.certificate)) if b.kind == "CERTIFICATE" and not b.has_headers), None)
    try:
        found = x509.load_der_x509_certificate(block.der if block is not None else b"")
        valid = found.not_valid_after_utc - found.not_valid_before_utc
    except unreadable() as e:
        log.error("metrics recording failed to parse certificate for CSR %s: %s", issued.name, e)
        return False
    return abs(valid - timedelta(seconds=issued.wanted_s)) < timedelta(seconds=SLACK_S + issued.wanted_s / 20)

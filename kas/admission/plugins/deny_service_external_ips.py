"""DenyServiceExternalIPs: nobody adds external IPs to a Service (CVE-2020-8554).

Upstream: ``plugin/pkg/admission/serviceexternalips``.
"""

from __future__ import annotations

from kas.admission import CREATE, UPDATE, Attributes


class Plugin:
    """Sees Services that are created or updated."""

    name = "DenyServiceExternalIPs"

    def handles(self, a: Attributes) -> bool:
        """Creates and updates of Services."""
        return a.resource == "services" and not a.group and not a.subresource and a.operation in (CREATE, UPDATE)

    def validate(self, a: Attributes) -> None:
        """Refuse external addresses that the stored service does not have."""
        new = set((a.obj.get("spec") or {}).get("externalIPs") or ())
        if new - set(((a.old or {}).get("spec") or {}).get("externalIPs") or ()):
            raise a.forbid("Use of external IPs is denied by admission control.")

"""DenyServiceExternalIPs: external IPs cannot be added to a Service (CVE-2020-8554).

Upstream: ``plugin/pkg/admission/serviceexternalips``.
"""

from __future__ import annotations

from kas.admission import CREATE, UPDATE, Attributes


class Plugin:
    """Applies to new and updated Services."""

    name = "DenyServiceExternalIPs"

    def handles(self, a: Attributes) -> bool:
        """Handle creates and updates of Services."""
        return a.resource == "services" and not a.group and not a.subresource and a.operation in (CREATE, UPDATE)

    def validate(self, a: Attributes) -> None:
        """Refuse external addresses that the stored Service does not have."""
        new = set((a.obj.get("spec") or {}).get("externalIPs") or ())
        if new - set(((a.old or {}).get("spec") or {}).get("externalIPs") or ()):
            raise a.forbid("Use of external IPs is denied by admission control.")

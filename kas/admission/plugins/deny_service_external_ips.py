"""DenyServiceExternalIPs: nobody adds external IPs to a Service (CVE-2020-8554).

Upstream: ``plugin/pkg/admission/serviceexternalips``.
"""

from __future__ import annotations

from typing import Any

from kas.admission import CREATE, UPDATE, Attributes


class Plugin:
    name = "DenyServiceExternalIPs"

    def __init__(self, server: Any) -> None:
        pass

    def handles(self, a: Attributes) -> bool:
        return a.resource == "services" and not a.group and not a.subresource and a.operation in (CREATE, UPDATE)

    def validate(self, a: Attributes) -> None:
        new = set((a.obj.get("spec") or {}).get("externalIPs") or ())
        if new - set(((a.old or {}).get("spec") or {}).get("externalIPs") or ()):
            raise a.forbid("Use of external IPs is denied by admission control.")

"""podresources: the resources of a pod for quotas, which include those in its status, and for limits, which do not."""

from __future__ import annotations

from kas.admission.pods import amounts, effective


def check(vector: dict, group: list[dict]) -> None:
    pod, want = vector["in"], vector["out"]
    for kind in ("requests", "limits"):
        assert effective(pod["spec"], kind, overhead=True, status=pod["status"]) == amounts(want["held"][kind])
        assert effective(pod["spec"], kind) == amounts(want["asked"][kind])

"""Entries for the tests of backends."""

from __future__ import annotations

from kas.audit.event import Entry


def entry(n: int = 0, **more) -> Entry:
    fields = {
        "level": "Metadata", "auditID": f"id-{n}", "stage": "ResponseComplete", "requestURI": f"/api/v1/pods?n={n}", "verb": "list",
        "user": {"username": "jane", "groups": ["a", "b"]}, "sourceIPs": ["127.0.0.1"], "userAgent": "t",
        "objectRef": {"resource": "pods", "namespace": "ns", "apiVersion": "v1"}, "responseStatus": {"metadata": {}, "code": 200},
        "requestReceivedTimestamp": "2026-01-02T03:04:05.000000Z", "stageTimestamp": "2026-01-02T03:04:05.000001Z",
    }  # fmt: skip
    return Entry({**fields, **more})

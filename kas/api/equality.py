"""Semantic equality of objects: apimachinery's ``equality.Semantic.DeepEqual`` on plain dicts.

An absent list, map or value equals an empty one. Decoded objects hold canonical scalars, so quantities of the same
value are equal text except when they were written in different formats (``1Ki`` and ``1024``); those compare by value.
A present but empty message is told from an absent one only where the caller's type says so: ``{}`` and None are equal
here unless ``strict`` names the fields whose presence means something.
"""

from __future__ import annotations

from typing import Any

# Fields whose empty object chooses a member of a union: {"emptyDir": {}} is not {}.
PRESENCE = frozenset(
    {
        "emptyDir", "securityContext", "selector", "labelSelector", "namespaceSelector", "podSelector", "rollingUpdate",
        "hostPath", "affinity", "nodeAffinity", "podAffinity", "podAntiAffinity", "downwardAPI", "projected", "configMap",
        "secret", "template", "resources", "capabilities", "clientIP", "sessionAffinityConfig", "dnsConfig", "tcpSocket",
        "httpGet", "exec", "grpc", "sleep", "lifecycle", "preStop", "postStart", "configMapRef", "secretRef", "behavior",
        "scaleUp", "scaleDown", "ordinals", "podFailurePolicy", "successPolicy", "serviceAccountToken", "ephemeral",
        "volumeClaimTemplate", "csi", "nfs", "image", "defaultBackend", "ipBlock", "objectSelector",
    }
)  # fmt: skip
# selector and labels are maps in some kinds and messages in others; the callers that care compare them by themselves.


def _empty(value: Any) -> bool:
    return value is None or value == [] or value == {}


def semantic_equal(a: Any, b: Any) -> bool:
    """True when upstream would see no change between the two values."""
    if a is b or (a == b and type(a) is type(b)):
        return True
    if isinstance(a, dict) and isinstance(b, dict):
        for k in a.keys() | b.keys():
            if k in a and k in b:
                if not semantic_equal(a[k], b[k]):
                    return False
            else:
                value = a[k] if k in a else b[k]
                if not _empty(value) or (value == {} and k in PRESENCE):
                    return False
        return True
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(semantic_equal, a, b))
    return _empty(a) and _empty(b)

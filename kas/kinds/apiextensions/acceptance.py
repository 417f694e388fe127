"""Conditions, besides its names, for accepting and serving a CustomResourceDefinition: a usable CA bundle, and an approval for groups of
the Kubernetes community. Separate from validation, because every server's controller needs this and few servers validate a definition.
"""

from __future__ import annotations

from typing import Any

from kas.kinds.core.webhookclient import ca_bundle
from kas.meta import field, gourl
from kas.meta.field import FieldError

SHAPE = "NonStructuralSchema"  # the condition of a definition stored before schemas had to be structural
APPROVAL_ANNOTATION = "api-approved.kubernetes.io"


def ca_bundle_errors(spec: dict[str, Any]) -> list[FieldError]:
    """Return the errors in the CA bundle of a stored conversion webhook. A definition with one may be created, but is not served."""
    return ca_bundle("", (spec.get("conversion") or {}).get("webhookClientConfig") or {})


def approval_state(annotations: dict[str, str] | None) -> tuple[str, str]:
    """Return (missing, invalid, bypassed or approved; reason) for a group of the Kubernetes community (KEP-1111)."""
    text = (annotations or {}).get(APPROVAL_ANNOTATION) or ""
    see = "see https://github.com/kubernetes/enhancements/pull/1111"
    if not text:
        return "missing", f'protected groups must have approval annotation "{APPROVAL_ANNOTATION}", {see}'
    if text.startswith("unapproved"):
        return "bypassed", f'not approved: "{text}"'
    try:
        url = gourl.parse(text)
    except ValueError:
        url = None
    if url is not None and url.scheme and url.host:
        return "approved", f"approved in {text}"
    why = f'protected groups must have approval annotation "{APPROVAL_ANNOTATION}" with either a URL or a reason starting with "unapproved"'
    return "invalid", f"{why}, {see}"


def is_protected(group: str) -> bool:
    """Whether a group belongs to the Kubernetes community."""
    return any(group == domain or group.endswith(f".{domain}") for domain in ("k8s.io", "kubernetes.io"))


def approval(obj: dict[str, Any], old: dict[str, Any] | None) -> list[FieldError]:
    """``validateAPIApproval``: groups of the Kubernetes community need an approval annotation; a stored state is tolerated."""
    group = (obj.get("spec") or {}).get("group") or ""
    if not is_protected(group):
        return []
    annotations = obj["metadata"].get("annotations")
    state, why = approval_state(annotations)
    if old is not None and approval_state(old["metadata"].get("annotations"))[0] == state:
        return []
    path = field.key("metadata.annotations", APPROVAL_ANNOTATION)
    if state == "missing":
        return [field.required(path, why)]
    return [field.invalid(path, annotations[APPROVAL_ANNOTATION], why)] if state == "invalid" and annotations else []

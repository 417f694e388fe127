"""Validation of access reviews (``pkg/apis/authorization/validation``)."""

from __future__ import annotations

from typing import Any

from kas.meta import field
from kas.meta.field import FieldError
from kas.meta.labelselectors import label_name
from kas.meta.names import is_label_value
from kas.registry.strategy import Obj
from kas.types.gostruct import render


def review(obj: Obj, subject: bool = True) -> list[FieldError]:
    """Validate a SubjectAccessReview; without ``subject`` a SelfSubjectAccessReview, which names no user."""
    errs = _spec(obj.get("spec") or {}, subject)
    if _meta(obj, "managedFields"):
        errs.append(field.invalid("metadata", render("meta.ObjectMeta", obj.get("metadata")), "must be empty"))
    return errs


def local_review(obj: Obj) -> list[FieldError]:
    """``ValidateLocalSubjectAccessReview``: a review of resources in its metadata's namespace, without other metadata."""
    spec = obj.get("spec") or {}
    errs = _spec(spec, True)
    meta = obj.get("metadata") or {}
    if _meta(obj, "managedFields", "namespace"):
        errs.append(field.invalid("metadata", render("meta.ObjectMeta", meta), "must be empty except for namespace"))
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and (resource.get("namespace") or "") != (meta.get("namespace") or ""):
        errs.append(field.invalid("spec.resourceAttributes.namespace", resource.get("namespace") or "", "must match metadata.namespace"))
    if other is not None:
        shown = render("authorization.NonResourceAttributes", other)
        errs.append(field.invalid("spec.nonResourceAttributes", shown, "disallowed on this kind of request"))
    return errs


def _meta(obj: Obj, *ignored: str) -> dict[str, Any]:
    return {k: v for k, v in (obj.get("metadata") or {}).items() if k not in ignored and v not in (None, "", {}, [])}


def _spec(spec: dict[str, Any], subject: bool) -> list[FieldError]:
    errs: list[FieldError] = []
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and other is not None:
        why = "cannot be specified in combination with resourceAttributes"
        errs.append(field.invalid("spec.nonResourceAttributes", render("authorization.NonResourceAttributes", other), why))
    if resource is None and other is None:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        errs.append(field.invalid("spec.resourceAttributes", None, why))
    if subject and not spec.get("user") and not spec.get("groups"):
        errs.append(field.invalid("spec.user", spec.get("user") or "", "at least one of user or group must be specified"))
    for kind in ("fieldSelector", "labelSelector"):
        selector = (resource or {}).get(kind)
        if selector is not None:
            errs.extend(_selector(selector, f"spec.resourceAttributes.{kind}", kind == "labelSelector"))
    return errs


def _selector(selector: dict[str, Any], path: str, labels: bool) -> list[FieldError]:
    errs: list[FieldError] = []
    raw, requirements = selector.get("rawSelector") or "", selector.get("requirements") or []
    if raw and requirements:
        errs.append(field.invalid(f"{path}.rawSelector", raw, "may not specified at the same time as requirements"))
    if not raw and not requirements:
        errs.append(field.required(f"{path}.requirements", f"when {path} is specified, requirements or rawSelector is required"))
    for i, r in enumerate(requirements):
        at, values = f"{path}.requirements[{i}]", r.get("values") or []
        if not labels and not r.get("key"):
            errs.append(field.required(f"{at}.key", "must be specified"))
        # Unknown operators are not an error: newer clients and servers may know them.
        if r.get("operator") in ("In", "NotIn") and not values:
            errs.append(field.required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        if r.get("operator") in ("Exists", "DoesNotExist") and values:
            errs.append(field.forbidden(f"{at}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
        if labels:
            errs.extend(label_name(r.get("key") or "", f"{at}.key"))
            for j, value in enumerate(values):
                errs.extend(field.invalid(f"{at}.values[{j}]", value, m) for m in is_label_value(value))
    return errs

"""Cell texts that several kinds share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

NONE = "<none>"
UNSET = "<unset>"


def part(obj: dict[str, Any], *keys: str) -> dict[str, Any]:
    """The nested object at ``keys``, an empty one when any step is absent."""
    for key in keys:
        found = obj.get(key)
        if not found:
            return {}
        obj = found
    return obj


def labels(pairs: dict[str, str] | None) -> str:
    """``labels.FormatLabels``: sorted pairs, ``<none>`` when there are none."""
    return ",".join(f"{k}={v}" for k, v in sorted(pairs.items())) if pairs else NONE


def containers(template: dict[str, Any]) -> tuple[str, str]:
    """Names and images of a pod template's containers."""
    found = part(template, "spec").get("containers") or ()
    return ",".join(c.get("name", "") for c in found), ",".join(c.get("image", "") for c in found)


def selector_text(selector: dict[str, Any] | None) -> str | None:
    """A LabelSelector as ``labels.Selector.String``; None when it cannot be a selector.

    An absent selector selects nothing and an empty one everything; both print as the empty text.
    """
    if not selector:
        return ""
    terms = [(k, f"{k}={v}") for k, v in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        key, operator = expression.get("key", ""), expression.get("operator")
        values = expression.get("values") or []
        if (operator in ("In", "NotIn")) != bool(values):
            return None
        match operator:
            case "In":
                terms.append((key, f"{key} in ({','.join(sorted(values))})"))
            case "NotIn":
                terms.append((key, f"{key} notin ({','.join(sorted(values))})"))
            case "Exists":
                terms.append((key, key))
            case "DoesNotExist":
                terms.append((key, f"!{key}"))
            case _:
                return None
    terms.sort(key=lambda term: term[0])
    return ",".join(text for _, text in terms)


def selector(value: dict[str, Any] | None) -> str:
    """``metav1.FormatLabelSelector``: ``<none>`` for an empty text, ``<error>`` for an invalid selector."""
    text = selector_text(value)
    return "<error>" if text is None else text or NONE


def first_three(items: Sequence[str], count: int | None = None) -> str:
    """Up to three items and how many more there are."""
    count = len(items) if count is None else count
    text = ",".join(items[:3])
    return f"{text} + {count - 3} more..." if count > 3 else text


def is_true(conditions: Iterable[dict[str, Any]] | None, kind: str) -> bool:
    """Does a condition of this type have status True?"""
    return any(c.get("type") == kind and c.get("status") == "True" for c in conditions or ())


def kind_slash_name(ref: dict[str, Any]) -> str:
    return f"{ref.get('kind', '')}/{ref.get('name', '')}"


def name_with_default(obj: dict[str, Any], *annotations: str) -> str:
    """The name, marked when one of the annotations makes the object its kind's default."""
    meta = obj["metadata"]
    found = meta.get("annotations") or {}
    is_default = any(found.get(key) == "true" for key in annotations)
    return meta.get("name", "") + (" (default)" if is_default else "")


def load_balancer(status: dict[str, Any]) -> str:
    """Sorted unique addresses of a load balancer status."""
    found = part(status, "loadBalancer").get("ingress") or ()
    return ",".join(sorted({i.get("ip") or i.get("hostname") for i in found} - {None, ""}))

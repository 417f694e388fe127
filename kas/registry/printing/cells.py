"""Cell texts that several kinds share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kas.meta.selectors import SelectorError, format_label_selector, from_label_selector

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


def selector(value: dict[str, Any] | None) -> str:
    """A LabelSelector as text: ``<none>`` when it is absent or empty, ``<error>`` when it is invalid."""
    return format_label_selector(value) if value else NONE


def selector_text(value: dict[str, Any] | None) -> str:
    """As ``selector``, but empty when there is nothing to show and ``<invalid>`` for what is no selector."""
    try:
        return str(from_label_selector(value))
    except SelectorError:
        return "<invalid>"


def first_three(items: Sequence[str], count: int | None = None) -> str:
    """Up to three items and how many more there are."""
    count = len(items) if count is None else count
    text = ",".join(items[:3])
    return f"{text} + {count - 3} more..." if count > 3 else text


def is_true(conditions: Iterable[dict[str, Any]] | None, kind: str) -> bool:
    """Has the first condition of this type status True?"""
    return next((c.get("status") == "True" for c in conditions or () if c.get("type") == kind), False)


def kind_slash_name(ref: dict[str, Any]) -> str:
    """``kind/name`` of a reference."""
    return f"{ref.get('kind', '')}/{ref.get('name', '')}"


def name_with_default(obj: dict[str, Any], *annotations: str) -> str:
    """The name, marked when one of the annotations makes the object its kind's default."""
    meta = obj["metadata"]
    found = meta.get("annotations") or {}
    is_default = any(found.get(key) == "true" for key in annotations)
    name: str = meta.get("name", "")
    return f"{name} (default)" if is_default else name


def load_balancer(status: dict[str, Any]) -> str:
    """Sorted unique addresses of a load balancer status."""
    found = part(status, "loadBalancer").get("ingress") or ()
    return ",".join(sorted({i.get("ip") or i.get("hostname") for i in found} - {None, ""}))

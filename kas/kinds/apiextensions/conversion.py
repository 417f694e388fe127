"""apiextensions.k8s.io: CustomResourceDefinition v1 and v1beta1 (``apiextensions/{v1,v1beta1}/conversion.go``).

v1beta1 states what all versions share once, at the top of the spec; v1 states it per version.
"""

from __future__ import annotations

from typing import Any

from kas.meta.equality import semantic_equal
from kas.types.conversion import Obj, converts
from kas.types.scheme import builtin_type

GROUP = "apiextensions.k8s.io"
V1 = (GROUP, "v1", "CustomResourceDefinition")
V1BETA1 = (GROUP, "v1beta1", "CustomResourceDefinition")
# (per version, at the top of a v1beta1 spec)
_SHARED = (
    ("schema", "validation"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
)


def _rename_path(columns: list[Obj] | None, old: str, new: str) -> list[Obj] | None:
    return columns and [{new if k == old else k: v for k, v in c.items()} for c in columns]


def _same(name: str, value: Any, other: Any) -> bool:
    """Whether two versions have the same value; empty values equal absent ones."""
    if value is None or other is None or value == other:
        return value == other
    version = builtin_type("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1beta1.CustomResourceDefinitionVersion")
    return semantic_equal(value, other, version.by_name[name])


@converts(V1, V1BETA1)
def to_v1beta1(obj: Obj) -> Obj:
    """Convert from v1: common parts of all versions move to the spec, and the webhook's fields are flattened. ``obj`` is not changed."""
    spec = dict(obj.get("spec") or {})
    versions = [dict(v) for v in spec.get("versions") or ()]
    for v in versions:
        if v.get("additionalPrinterColumns"):
            v["additionalPrinterColumns"] = _rename_path(v["additionalPrinterColumns"], "jsonPath", "JSONPath")
    for name, top in _SHARED:
        values = [v.get(name) for v in versions]
        if values and all(_same(name, value, values[0]) for value in values):
            for v in versions:
                v.pop(name, None)
            if values[0] is not None and values[0] != []:
                spec[top] = values[0]
    if versions:
        spec["versions"] = versions
        spec["version"] = versions[0].get("name", "")
    # v1beta1 defaults an unset value to true.
    spec["preserveUnknownFields"] = bool(spec.get("preserveUnknownFields"))
    if spec.get("conversion"):
        conversion = {k: v for k, v in spec["conversion"].items() if k != "webhook"}
        webhook = spec["conversion"].get("webhook")
        if webhook:
            if webhook.get("clientConfig") is not None:
                conversion["webhookClientConfig"] = webhook["clientConfig"]
            conversion["conversionReviewVersions"] = webhook.get("conversionReviewVersions")
        spec["conversion"] = conversion
    return {**obj, "spec": spec}


@converts(V1BETA1, V1)
def to_v1(obj: Obj) -> Obj:
    """Convert from v1beta1: parts of the spec are repeated in each version without its own. ``obj`` is not changed."""
    spec = dict(obj.get("spec") or {})
    first = spec.pop("version", "")
    versions = [dict(v) for v in spec.get("versions") or ()]
    if not versions and first:
        versions = [{"name": first, "served": True, "storage": True}]
    for name, top in _SHARED:
        shared = spec.pop(top, None)
        for v in versions:
            if shared is not None and not v.get(name):
                v[name] = shared
    for v in versions:
        if v.get("additionalPrinterColumns"):
            v["additionalPrinterColumns"] = _rename_path(v["additionalPrinterColumns"], "JSONPath", "jsonPath")
    if versions:
        spec["versions"] = versions
    if spec.get("conversion"):
        conversion = dict(spec["conversion"])
        client, reviews = conversion.pop("webhookClientConfig", None), conversion.pop("conversionReviewVersions", None)
        if client is not None or reviews:
            conversion["webhook"] = {"conversionReviewVersions": reviews}
            if client is not None:
                conversion["webhook"]["clientConfig"] = client
        spec["conversion"] = conversion
    return {**obj, "spec": spec}

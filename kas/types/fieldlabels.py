"""Which fields a kind can be selected by, and what their values are in a stored object.

The names come from the resource table (``Resource.field_selectors``; ``a=>b`` means a is accepted and evaluated as b);
the values are upstream's ``ToSelectableFields`` of each registry. Every registry's set has metadata.name and, for
namespaced kinds, metadata.namespace; what more there is stands in ``_VALUES``, by group and resource.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kas.meta.field import go_quote
from kas.meta.selectors import FieldSelector, SelectorError

Obj = dict[str, Any]


class FieldLabelError(SelectorError):
    """A field the kind cannot be selected by; a 400 for the client."""


class Selectable(Protocol):
    """What is needed of a ``Resource``; a custom resource's definition brings the same."""

    group: str
    version: str
    resource: str
    kind: str
    namespaced: bool

    @property
    def field_selectors(self) -> Sequence[str]:
        """The labels a list may select by, beyond name and namespace."""


_ONLY_METADATA = {"metadata.name", "metadata.namespace"}


def convert_field_label(resource: Selectable, label: str, value: str, custom: bool = False) -> tuple[str, str]:
    """The canonical name of field ``label``; raises FieldLabelError in the words of the kind's conversion function.

    ``custom`` is set for custom resources, whose conversion words its refusal differently.
    """
    for entry in resource.field_selectors or _ONLY_METADATA:
        name, _, target = entry.partition("=>")
        if name == label:
            return target or name, value
    raise FieldLabelError(_refusal(resource, label, custom))


def _refusal(resource: Selectable, label: str, custom: bool) -> str:
    if not custom and set(resource.field_selectors or _ONLY_METADATA) == _ONLY_METADATA:
        return f'{go_quote(label)} is not a known field selector: only "metadata.name", "metadata.namespace"'
    if (resource.group, resource.resource) == ("batch", "jobs"):
        return f"field label {go_quote(label)} not supported for Job"
    if (resource.group, resource.resource) == ("resource.k8s.io", "resourceslices"):
        return f"field label not supported for {resource.group}/{resource.version}, Kind={resource.kind}: {label}"
    return f"field label not supported: {label}"


def convert_field_selector(resource: Selectable, selector: FieldSelector, custom: bool = False) -> FieldSelector:
    """``selector`` in the canonical names of the kind. Raises FieldLabelError."""
    if selector.empty:
        return selector
    return selector.transform(lambda label, value: convert_field_label(resource, label, value, custom))


def selectable_fields(resource: Selectable, obj: Obj) -> dict[str, str]:
    """Every selectable field of ``obj`` with its value as text; what is unset is ""."""
    metadata = obj.get("metadata") or {}
    out = {"metadata.name": metadata.get("name") or ""}
    if resource.namespaced:
        out["metadata.namespace"] = metadata.get("namespace") or ""
    more = _VALUES.get((resource.group, resource.resource))
    if more is not None:
        more(obj, out)
    return out


def custom_selectable_fields(obj: Obj, namespaced: bool, paths: Sequence[str]) -> dict[str, str]:
    """The same for a custom resource; ``paths`` are the dotted selectableFields of its version without the leading dot."""
    metadata = obj.get("metadata") or {}
    out = {"metadata.name": metadata.get("name") or ""}
    if namespaced:
        out["metadata.namespace"] = metadata.get("namespace") or ""
    for path in paths:
        out[path] = _text(_at(obj, path.split(".")))
    return out


def _at(obj: Any, path: Sequence[str]) -> Any:
    for step in path:
        if not isinstance(obj, dict):
            return None
        obj = obj.get(step)
    return obj


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _spec_texts(*names: str) -> Callable[[Obj, dict[str, str]], None]:
    def add(obj: Obj, out: dict[str, str]) -> None:
        spec = obj.get("spec") or {}
        for name in names:
            out[f"spec.{name}"] = spec.get(name) or ""

    return add


def _pod(obj: Obj, out: dict[str, str]) -> None:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    for name in ("nodeName", "restartPolicy", "schedulerName", "serviceAccountName"):
        out[f"spec.{name}"] = spec.get(name) or ""
    out["spec.hostNetwork"] = "true" if spec.get("hostNetwork") else "false"
    out["status.phase"] = status.get("phase") or ""
    # The internal type knows only podIPs; a podIP that disagrees with its first entry replaces the list.
    ips = status.get("podIPs") or ()
    out["status.podIP"] = status.get("podIP") or (ips[0].get("ip") or "" if ips else "")
    out["status.nominatedNodeName"] = status.get("nominatedNodeName") or ""


def _event(obj: Obj, out: dict[str, str]) -> None:
    # Core's form, or that of events.k8s.io where fields were renamed.
    involved = obj.get("involvedObject") or obj.get("regarding") or {}
    for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"):
        out[f"involvedObject.{name}"] = involved.get(name) or ""
    reporting = obj.get("reportingComponent") or obj.get("reportingController") or ""
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    out["reason"] = obj.get("reason") or ""
    out["reportingComponent"] = reporting
    out["source"] = source.get("component") or reporting
    out["type"] = obj.get("type") or ""


def _namespace(obj: Obj, out: dict[str, str]) -> None:
    out["status.phase"] = (obj.get("status") or {}).get("phase") or ""


def _node(obj: Obj, out: dict[str, str]) -> None:
    out["spec.unschedulable"] = "true" if (obj.get("spec") or {}).get("unschedulable") else "false"


def _replication_controller(obj: Obj, out: dict[str, str]) -> None:
    out["status.replicas"] = str((obj.get("status") or {}).get("replicas") or 0)


def _job(obj: Obj, out: dict[str, str]) -> None:
    out["status.successful"] = str((obj.get("status") or {}).get("succeeded") or 0)


def _secret(obj: Obj, out: dict[str, str]) -> None:
    out["type"] = obj.get("type") or ""


_VALUES: dict[tuple[str, str], Callable[[Obj, dict[str, str]], None]] = {
    ("", "pods"): _pod,
    ("", "events"): _event,
    ("events.k8s.io", "events"): _event,
    ("", "namespaces"): _namespace,
    ("", "nodes"): _node,
    ("", "replicationcontrollers"): _replication_controller,
    ("", "secrets"): _secret,
    ("", "services"): _spec_texts("clusterIP", "type"),
    ("batch", "jobs"): _job,
    ("certificates.k8s.io", "certificatesigningrequests"): _spec_texts("signerName"),
    ("certificates.k8s.io", "clustertrustbundles"): _spec_texts("signerName"),
    ("certificates.k8s.io", "podcertificaterequests"): _spec_texts("signerName", "podName", "nodeName"),
    ("resource.k8s.io", "resourceslices"): _spec_texts("nodeName", "driver"),
}

"""Field selectors: which fields a kind can be selected by, and their values in an object.

The names come from the resource table (``Resource.field_selectors``; ``a=>b`` means that a is accepted and evaluated as b). The values are
those of upstream's ``ToSelectableFields`` in each registry. Every set has metadata.name and, for namespaced kinds, metadata.namespace;
``_VALUES`` adds the others by group and resource.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kas.meta.field import go_quote
from kas.meta.selectors import FieldSelector, SelectorError

Obj = dict[str, Any]


class FieldLabelError(SelectorError):
    """The kind has no such selectable field; a 400 for the client."""


class Selectable(Protocol):
    """The attributes of a ``Resource`` used here; definitions of custom resources provide them too."""

    group: str
    version: str
    resource: str
    kind: str
    namespaced: bool

    @property
    def field_selectors(self) -> Sequence[str]:
        """The field labels that a list may select by besides name and namespace."""


_ONLY_METADATA = {"metadata.name", "metadata.namespace"}


def convert_field_label(resource: Selectable, label: str, value: str, custom: bool = False) -> tuple[str, str]:
    """(canonical name of the field ``label``, value). Raises FieldLabelError with the text of the kind's conversion function.

    ``custom`` is True for custom resources, whose conversion has another error text.
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
    """``selector`` with the kind's canonical field names. Raises FieldLabelError."""
    if selector.empty:
        return selector
    return selector.transform(lambda label, value: convert_field_label(resource, label, value, custom))


def selectable_fields(resource: Selectable, obj: Obj) -> dict[str, str]:
    """The selectable fields of ``obj`` and their values as text; an unset one is ""."""
    metadata = obj.get("metadata") or {}
    out = {"metadata.name": metadata.get("name") or ""}
    if resource.namespaced:
        out["metadata.namespace"] = metadata.get("namespace") or ""
    more = _VALUES.get((resource.group, resource.resource))
    if more is not None:
        more(obj, out)
    return out


def custom_selectable_fields(obj: Obj, namespaced: bool, paths: Sequence[str]) -> dict[str, str]:
    """Like ``selectable_fields``, for a custom resource. ``paths`` are the selectableFields of its version, dotted and without the leading
    dot.
    """
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
    out["spec.nodeName"] = spec.get("nodeName") or ""
    out["spec.restartPolicy"] = spec.get("restartPolicy") or ""
    out["spec.schedulerName"] = spec.get("schedulerName") or ""
    out["spec.serviceAccountName"] = spec.get("serviceAccountName") or ""
    out["spec.hostNetwork"] = "true" if spec.get("hostNetwork") else "false"
    out["status.phase"] = status.get("phase") or ""
    # Upstream's internal type has only podIPs; a podIP that differs from its first entry replaces the list.
    ips = status.get("podIPs") or ()
    out["status.podIP"] = status.get("podIP") or (ips[0].get("ip") or "" if ips else "")
    out["status.nominatedNodeName"] = status.get("nominatedNodeName") or ""


def _event(obj: Obj, out: dict[str, str]) -> None:
    # The form of core, or that of events.k8s.io, which renamed fields.
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

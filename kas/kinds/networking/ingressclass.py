"""Strategy of IngressClass (upstream ``pkg/registry/networking/ingressclass``)."""

from __future__ import annotations

from typing import Any

from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import dns_label, dns_subdomain, immutable, required_path_segment, unsupported
from kas.meta.field import FieldError
from kas.registry.printing.cells import NONE, name_with_default, part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for

MAX_CONTROLLER = 250


@strategy_for("networking.k8s.io", "ingressclasses")
class IngressClassStrategy(Strategy):
    """IngressClasses, whose controller is immutable."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateIngressClass``."""
        errs = object_meta(obj["metadata"], False, names.dns_subdomain)
        spec = obj.get("spec") or {}
        controller = spec.get("controller") or ""
        if not controller:
            errs.append(field.required("spec.controller"))
        else:
            if len(controller.encode()) > MAX_CONTROLLER:
                errs.append(field.too_long("spec.controller", MAX_CONTROLLER))
            errs += names.domain_prefixed_path("spec.controller", controller)
        return errs + _parameters(spec.get("parameters"), "spec.parameters")

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateIngressClassUpdate``: the controller may not change."""
        errs = object_meta_update(obj["metadata"], old["metadata"])
        new_spec, old_spec = obj.get("spec") or {}, old.get("spec") or {}
        errs += immutable(new_spec.get("controller") or "", old_spec.get("controller") or "", "spec.controller")
        return errs + self.validate(ctx, obj)


def _parameters(params: dict[str, Any] | None, path: str) -> list[FieldError]:
    if params is None:
        return []
    errs: list[FieldError] = []
    if params.get("apiGroup") is not None:
        errs += dns_subdomain(params["apiGroup"], field.child(path, "apiGroup"))
    errs += required_path_segment(params.get("kind") or "", field.child(path, "kind"), "kind is required")
    errs += required_path_segment(params.get("name") or "", field.child(path, "name"), "name is required")
    scope, namespace, at = params.get("scope"), params.get("namespace"), field.child(path, "namespace")
    if scope is None:
        errs.append(field.required(field.child(path, "scope")))
    elif scope == "Namespace":
        if namespace is None:
            errs.append(field.required(at, "`parameters.scope` is set to 'Namespace'"))
        else:
            errs += dns_label(namespace, at)
    elif scope == "Cluster":
        if namespace is not None:
            errs.append(field.forbidden(at, "`parameters.scope` is set to 'Cluster'"))
    else:
        errs.append(unsupported(field.child(path, "scope"), scope, ("Cluster", "Namespace")))
    return errs


@printer("networking.k8s.io", "IngressClass")
def ingress_class_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, marked when it is the default, controller, parameters as ``kind.group/name``, age."""
    spec = part(obj, "spec")
    ref, text = spec.get("parameters"), NONE
    if ref is not None:
        group = ref.get("apiGroup")
        text = ref.get("kind", "") + ("" if group is None else f".{group}") + f"/{ref.get('name', '')}"
    name = name_with_default(obj, "ingressclass.kubernetes.io/is-default-class")
    return [name, spec.get("controller", ""), text, age(obj, now)]

"""Strategy of IngressClass (upstream ``pkg/registry/networking/ingressclass``)."""

from __future__ import annotations

from typing import Any

from kas.api import field
from kas.api.field import FieldError
from kas.api.validation import names
from kas.api.validation.checks import dns_label, dns_subdomain, immutable, required_path_segment, unsupported
from kas.api.validation.coremeta import object_meta, object_meta_update
from kas.registry.strategy import Context, Obj, Strategy, strategy_for

MAX_CONTROLLER = 250


@strategy_for("networking.k8s.io", "ingressclasses")
class IngressClassStrategy(Strategy):
    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
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

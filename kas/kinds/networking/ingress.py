"""Strategy of Ingress (upstream ``pkg/registry/networking/ingress``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kas.config import features
from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import (
    dns_label,
    dns_subdomain,
    invalid_each,
    legacy_ip,
    port_name,
    port_number,
    required_path_segment,
    unsupported,
)  # fmt: skip
from kas.meta.field import FieldError
from kas.meta.ip import parse_ip
from kas.registry.printing.cells import NONE, load_balancer, part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for

CLASS_ANNOTATION = "kubernetes.io/ingress.class"
PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
BAD_SEQUENCES = ("//", "/./", "/../", "%2f", "%2F")
BAD_SUFFIXES = ("/..", "/.")


@dataclass(slots=True, frozen=True)
class Options:
    """Which errors of the stored object an update may leave in place."""

    bad_secrets: bool = False
    bad_wildcards: bool = False
    relaxed_names: bool = False


@strategy_for("networking.k8s.io", "ingresses")
class IngressStrategy(Strategy):
    """Stored values that would be refused today are tolerated."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateIngressCreate``: the class annotation and the field must not contradict each other."""
        errs = self._validate(obj, Options())
        annotation = (obj["metadata"].get("annotations") or {}).get(CLASS_ANNOTATION)
        wanted = (obj.get("spec") or {}).get("ingressClassName")
        if annotation is not None and wanted is not None and annotation != wanted:
            path = field.child("annotations", CLASS_ANNOTATION)
            errs.append(field.invalid(path, annotation, "must match `ingressClassName` when both are specified"))
        return errs

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """Tolerate stored secret names, wildcard rules and service names from before their checks."""
        spec, strict = old.get("spec") or {}, Options()
        allowed = Options(
            bad_secrets=any(_secret_messages(tls.get("secretName") or "") for tls in spec.get("tls") or ()),
            bad_wildcards=any("*" in (rule.get("host") or "") and _rule_value(rule, "", strict) for rule in spec.get("rules") or ()),
            relaxed_names=any(_is_relaxed(name) for name in _services(spec)),
        )
        return object_meta_update(obj["metadata"], old["metadata"]) + self._validate(obj, allowed)

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateIngressStatusUpdate``: metadata and the load balancer's addresses, stored ones tolerated."""
        errs = object_meta_update(obj["metadata"], old["metadata"])
        stored = frozenset(i["ip"] for i in _load_balancer(old) if i.get("ip"))
        for i, item in enumerate(_load_balancer(obj)):
            path = field.index("status.loadBalancer.ingress", i)
            ip, host = item.get("ip"), item.get("hostname")
            if ip:
                errs += legacy_ip(field.child(path, "ip"), ip, stored)
            if host:
                at = field.child(path, "hostname")
                errs += dns_subdomain(host, at)
                if parse_ip(host) is not None:
                    errs.append(field.invalid(at, host, "must be a DNS name, not an IP address"))
        return errs

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """Return a warning if the class is given as an annotation and not as the field."""
        annotations = obj["metadata"].get("annotations") or {}
        if CLASS_ANNOTATION in annotations and (obj.get("spec") or {}).get("ingressClassName") is None:
            return [f'annotation "{CLASS_ANNOTATION}" is deprecated, please use \'spec.ingressClassName\' instead']
        return []

    def _validate(self, obj: Obj, allowed: Options) -> list[FieldError]:
        errs = object_meta(obj["metadata"], True, names.dns_subdomain)
        return errs + _spec(obj.get("spec") or {}, allowed)


def _load_balancer(obj: Obj) -> list[dict[str, Any]]:
    return ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []


def _services(spec: dict[str, Any]) -> list[str]:
    """Return the names of the backend services."""
    backends = [spec.get("defaultBackend") or {}]
    for rule in spec.get("rules") or ():
        backends += [path.get("backend") or {} for path in (rule.get("http") or {}).get("paths") or ()]
    return [(backend["service"].get("name") or "") for backend in backends if backend.get("service") is not None]


def _is_relaxed(name: str) -> bool:
    return not names.is_dns1123_label(name) and bool(names.is_dns1035_label(name))


def _spec(spec: dict[str, Any], allowed: Options) -> list[FieldError]:
    errs: list[FieldError] = []
    rules, backend = spec.get("rules"), spec.get("defaultBackend")
    if not rules and backend is None:
        errs.append(field.invalid("spec", rules, "either `defaultBackend` or `rules` must be specified"))
    if backend is not None:
        errs += _backend(backend, "spec.defaultBackend", allowed)
    for i, rule in enumerate(rules or ()):
        errs += _rule(rule, field.index("spec.rules", i), allowed)
    for i, tls in enumerate(spec.get("tls") or ()):
        path = field.index("spec.tls", i)
        for j, host in enumerate(tls.get("hosts") or ()):
            errs += _host_syntax(host, field.index(field.child(path, "hosts"), j))
        if not allowed.bad_secrets:
            secret = tls.get("secretName") or ""
            errs += invalid_each(field.child(path, "secretName"), secret, _secret_messages(secret))
    name = spec.get("ingressClassName")
    if name is not None:
        errs += dns_subdomain(name, "spec.ingressClassName")
    return errs


def _secret_messages(name: str) -> list[str]:
    return names.is_dns1123_subdomain(name) if name else []


def _host_syntax(host: str, path: str) -> list[FieldError]:
    if "*" in host:
        return invalid_each(path, host, names.is_wildcard_dns1123_subdomain(host))
    return dns_subdomain(host, path)


def _rule(rule: dict[str, Any], path: str, allowed: Options) -> list[FieldError]:
    errs: list[FieldError] = []
    host = rule.get("host") or ""
    if host:
        at = field.child(path, "host")
        if parse_ip(host) is not None:
            errs.append(field.invalid(at, host, "must be a DNS name, not an IP address"))
        errs += _host_syntax(host, at)
    if not ("*" in host and allowed.bad_wildcards):
        errs += _rule_value(rule, path, allowed)
    return errs


def _rule_value(rule: dict[str, Any], path: str, allowed: Options) -> list[FieldError]:
    http = rule.get("http")
    if http is None:
        return []
    at = field.child(path, "http", "paths")
    errs = [] if http.get("paths") else [field.required(at)]
    for i, item in enumerate(http.get("paths") or ()):
        errs += _http_path(item, field.index(at, i), allowed)
    return errs


def _http_path(item: dict[str, Any], path: str, allowed: Options) -> list[FieldError]:
    errs: list[FieldError] = []
    path_type, text, at = item.get("pathType"), item.get("path") or "", field.child(path, "path")
    if path_type is None:
        return [field.required(field.child(path, "pathType"), "pathType must be specified")]
    if path_type in ("Exact", "Prefix"):
        if not text.startswith("/"):
            errs.append(field.invalid(at, text, "must be an absolute path"))
        errs += [field.invalid(at, text, f"must not contain '{bad}'") for bad in BAD_SEQUENCES if bad in text]
        errs += [field.invalid(at, text, f"cannot end with '{bad}'") for bad in BAD_SUFFIXES if text.endswith(bad)]
    elif path_type == "ImplementationSpecific":
        if text and not text.startswith("/"):
            errs.append(field.invalid(at, text, "must be an absolute path"))
    else:
        errs.append(unsupported(field.child(path, "pathType"), path_type, PATH_TYPES))
    return errs + _backend(item.get("backend") or {}, field.child(path, "backend"), allowed)


def _backend(backend: dict[str, Any], path: str, allowed: Options) -> list[FieldError]:
    resource, service = backend.get("resource"), backend.get("service")
    if resource is not None and service is not None:
        return [field.invalid(path, "", "cannot set both resource and service backends")]
    if resource is not None:
        at = field.child(path, "resource")
        errs: list[FieldError] = []
        if resource.get("apiGroup") is not None:
            errs += dns_subdomain(resource["apiGroup"], field.child(at, "apiGroup"))
        errs += required_path_segment(resource.get("kind") or "", field.child(at, "kind"), "kind is required")
        return errs + required_path_segment(resource.get("name") or "", field.child(at, "name"), "name is required")
    if service is None:
        return [field.invalid(path, "", "resource or service backend is required")]
    name, at = service.get("name") or "", field.child(path, "service")
    if not name:
        errs = [field.required(field.child(at, "name"))]
    elif allowed.relaxed_names or features.DEFAULT.enabled("RelaxedServiceNameValidation"):
        errs = dns_label(name, field.child(at, "name"))
    else:
        errs = invalid_each(field.child(at, "name"), name, names.is_dns1035_label(name))
    port = service.get("port") or {}
    port_label, number = port.get("name") or "", port.get("number") or 0
    if port_label and number:
        errs.append(field.invalid(path, "", "cannot set both port name & port number"))
    elif port_label:
        errs += port_name(port_label, field.child(at, "port", "name"))
    elif number:
        errs += port_number(number, field.child(at, "port", "number"))
    else:
        errs.append(field.required(path, "port name or number is required"))
    return errs


def _hosts(rules: list[Obj]) -> str:
    shown: list[str] = []
    for rule in rules:
        if len(shown) == 3:
            return f"{','.join(shown)} + {len(rules) - 3} more..."
        if rule.get("host"):
            shown.append(rule["host"])
    return ",".join(shown) or "*"


@printer("networking.k8s.io", "Ingress")
def ingress_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, class, hosts, address, ports, age."""
    spec = part(obj, "spec")
    return [
        obj["metadata"].get("name", ""), spec.get("ingressClassName", NONE), _hosts(spec.get("rules") or []),
        load_balancer(part(obj, "status")), "80, 443" if spec.get("tls") else "80", age(obj, now),
    ]  # fmt: skip

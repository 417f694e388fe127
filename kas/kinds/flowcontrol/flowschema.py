"""Strategy of FlowSchema (upstream ``pkg/registry/flowcontrol/flowschema``)."""

from __future__ import annotations

from typing import Any

from kas.kinds.core.objectmeta import object_meta
from kas.kinds.flowcontrol.mandatory import FLOW_SCHEMAS
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import dns_label, dns_subdomain, invalid_each, unsupported
from kas.meta.equality import semantic_equal
from kas.meta.field import FieldError
from kas.registry.printing.cells import NONE, part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for, take
from kas.types.gostruct import render
from kas.types.scheme import builtin_type

MAX_PRECEDENCE = 10000
DISTINGUISHERS = ("ByNamespace", "ByUser")
SUBJECT_KINDS = ("Group", "ServiceAccount", "User")
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch")
_MEMBERS = {"ServiceAccount": "serviceAccount", "User": "user", "Group": "group"}


class FlowControlStrategy(Strategy):
    """What FlowSchemas and PriorityLevelConfigurations have in common."""

    def prepare_for_status_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Carry over the spec and all metadata except managed fields."""
        super().prepare_for_status_update(ctx, obj, old)
        take(obj["metadata"], old["metadata"], "generateName")

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """Validate the whole new object, without comparing it with the stored one."""
        return self.validate(ctx, obj)

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateFlowSchemaStatus`` and ``ValidatePriorityLevelConfigurationStatus``: the conditions only."""
        return status_conditions(obj)


@strategy_for("flowcontrol.apiserver.k8s.io", "flowschemas")
class FlowSchemaStrategy(FlowControlStrategy):
    """FlowSchemas; the mandatory ones must equal their fixed specs."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateFlowSchema``: mandatory schemas equal their fixed spec; the status' conditions are validated, too."""
        errs = object_meta(obj["metadata"], False, names.dns_subdomain)
        name, spec = obj["metadata"].get("name") or "", obj.get("spec") or {}
        errs += _spec(name, spec)
        fixed = FLOW_SCHEMAS.get(name)
        if fixed is not None and not semantic_equal(spec, fixed, builtin_type("flowcontrol.v1.FlowSchemaSpec")):
            errs.append(field.invalid("spec", render("flowcontrol.FlowSchemaSpec", spec), f"spec of '{name}' must equal the fixed value"))
        return errs + status_conditions(obj)


def status_conditions(obj: Obj) -> list[FieldError]:
    """Validate conditions of the flow-control kinds: each has a type, and none is repeated."""
    errs: list[FieldError] = []
    seen: set[str] = set()
    for i, condition in enumerate((obj.get("status") or {}).get("conditions") or ()):
        path, kind = field.index("status.conditions", i) + ".type", condition.get("type") or ""
        if kind in seen:
            errs.append(field.duplicate(path, kind))
        seen.add(kind)
        if not kind:
            errs.append(field.required(path, "must not be empty"))
    return errs


def _spec(name: str, spec: dict[str, Any]) -> list[FieldError]:
    errs: list[FieldError] = []
    precedence, path = spec.get("matchingPrecedence") or 0, "spec.matchingPrecedence"
    if precedence <= 0:
        errs.append(field.invalid(path, precedence, "must be a positive value"))
    if precedence > MAX_PRECEDENCE:
        errs.append(field.invalid(path, precedence, f"must not be greater than {MAX_PRECEDENCE}"))
    if precedence == 1 and name != "exempt":
        errs.append(field.invalid(path, precedence, "only the schema named 'exempt' may have matchingPrecedence 1"))
    method = spec.get("distinguisherMethod")
    if method is not None and (method.get("type") or "") not in DISTINGUISHERS:
        errs.append(unsupported("spec.distinguisherMethod.type", render("flowcontrol.FlowDistinguisherMethod", method), DISTINGUISHERS))
    level, path = (spec.get("priorityLevelConfiguration") or {}).get("name") or "", "spec.priorityLevelConfiguration.name"
    errs += dns_subdomain(level, path) if level else [field.required(path, "must reference a priority level")]
    for i, rule in enumerate(spec.get("rules") or ()):
        errs += _rule(rule, field.index("spec.rules", i))
    return errs


def _rule(rule: dict[str, Any], path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    if not rule.get("subjects"):
        errs.append(field.required(field.child(path, "subjects"), "subjects must contain at least one value"))
    for i, subject in enumerate(rule.get("subjects") or ()):
        errs += _subject(subject, field.index(field.child(path, "subjects"), i))
    if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
        errs.append(field.required(path, "at least one of resourceRules and nonResourceRules has to be non-empty"))
    for i, item in enumerate(rule.get("resourceRules") or ()):
        errs += _resource_rule(item, field.index(field.child(path, "resourceRules"), i))
    for i, item in enumerate(rule.get("nonResourceRules") or ()):
        errs += _non_resource_rule(item, field.index(field.child(path, "nonResourceRules"), i))
    return errs


def _subject(subject: dict[str, Any], path: str) -> list[FieldError]:
    kind = subject.get("kind") or ""
    member = _MEMBERS.get(kind)
    if member is None:
        return [unsupported(field.child(path, "kind"), kind, SUBJECT_KINDS)]
    at, value = field.child(path, member), subject.get(member)
    errs: list[FieldError] = []
    if value is None:
        errs.append(field.required(at, f"{member} is required when subject kind is '{kind}'"))
    else:
        name = value.get("name") or ""
        if not name:
            errs.append(field.required(field.child(at, "name")))
        if member == "serviceAccount":
            if name and name != "*":
                errs += dns_subdomain(name, field.child(at, "name"))
            namespace = value.get("namespace") or ""
            if namespace:
                errs += dns_label(namespace, field.child(at, "namespace"))
            else:
                errs.append(field.required(field.child(at, "namespace"), "must specify namespace for service account"))
    for other_kind, other in _MEMBERS.items():
        if other != member and subject.get(other) is not None:
            errs.append(field.forbidden(field.child(path, other), f"{other} is forbidden when subject kind is not '{other_kind}'"))
    return errs


def _verbs(verbs: list[str] | None, path: str) -> list[FieldError]:
    if not verbs:
        return [field.required(path, "verbs must contain at least one value")]
    if "*" in verbs:
        return [] if len(verbs) == 1 else [field.invalid(path, verbs, "if '*' is present, must not specify other verbs")]
    return [] if set(verbs) <= set(VERBS) else [unsupported(path, verbs, VERBS)]


def _resource_rule(rule: dict[str, Any], path: str) -> list[FieldError]:
    errs = _verbs(rule.get("verbs"), field.child(path, "verbs"))
    for name, one, many in (("apiGroups", "api group", "api groups"), ("resources", "resource", "resources")):
        values, at = rule.get(name), field.child(path, name)
        if not values:
            errs.append(field.required(at, f"resource rules must supply at least one {one}"))
        elif len(values) > 1 and "*" in values:
            errs.append(field.invalid(at, values, f"if '*' is present, must not specify other {many}"))
    namespaces, at = rule.get("namespaces") or [], field.child(path, "namespaces")
    if not namespaces and not rule.get("clusterScope"):
        errs.append(field.required(at, "resource rules that are not cluster scoped must supply at least one namespace"))
    elif "*" in namespaces:
        if len(namespaces) > 1:
            errs.append(field.invalid(at, namespaces, "if '*' is present, must not specify other namespaces"))
    else:
        for i, namespace in enumerate(namespaces):
            intro = "each member of this list must be '*' or a DNS-1123 label; "
            errs += invalid_each(field.index(at, i), namespace, [intro + m for m in names.is_dns1123_label(namespace)])
    return errs


def _non_resource_rule(rule: dict[str, Any], path: str) -> list[FieldError]:
    errs = _verbs(rule.get("verbs"), field.child(path, "verbs"))
    urls, at = rule.get("nonResourceURLs") or [], field.child(path, "nonResourceURLs")
    if not urls:
        errs.append(field.required(at, "nonResourceURLs must contain at least one value"))
    elif "*" in urls:
        if len(urls) > 1:
            errs.append(field.invalid(at, urls, "if '*' is present, must not specify other non-resource URLs"))
    else:
        for i, url in enumerate(urls):
            message = _url_path(url)
            if message:
                errs.append(field.invalid(field.index(at, i), url, message))
    return errs


def _url_path(url: str) -> str:
    if not url:
        return "must not be empty"
    if url == "/":
        return ""
    if not url.startswith("/"):
        return "must start with slash"
    if " " in url:
        return "must not contain white-space"
    if "//" in url:
        return "must not contain double slash"
    stars = url.count("*")
    if stars > 1 or (stars == 1 and not url.endswith("/*")):
        return "wildcard can only do suffix matching"
    return ""


@printer("flowcontrol.apiserver.k8s.io", "FlowSchema")
def flow_schema_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, priority level, precedence, distinguisher, age, whether the level is missing."""
    spec, conditions = part(obj, "spec"), part(obj, "status").get("conditions") or ()
    method = spec.get("distinguisherMethod")
    return [
        obj["metadata"].get("name", ""), part(spec, "priorityLevelConfiguration").get("name", ""),
        spec.get("matchingPrecedence", 0), NONE if method is None else method.get("type", ""), age(obj, now),
        next((c.get("status", "") for c in conditions if c.get("type") == "Dangling"), "?"),
    ]  # fmt: skip

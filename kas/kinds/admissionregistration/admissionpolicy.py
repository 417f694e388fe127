"""Strategies of ValidatingAdmissionPolicy and MutatingAdmissionPolicy.

Upstream: ``pkg/registry/admissionregistration/{validating,mutating}admissionpolicy``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kas.kinds.admissionregistration.staticnames import ConfigurationStrategy
from kas.kinds.admissionregistration.webhooks import FAILURE_POLICIES, match_conditions, match_resources, mutating_operations
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import conditions, qualified_name, unsupported
from kas.meta.compilebudget import CompileBudget
from kas.meta.equality import semantic_equal
from kas.meta.field import FieldError
from kas.meta.objectmeta import validate_object_meta
from kas.registry.printing.cells import UNSET, part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, strategy_for
from kas.types.gostruct import render_list
from kas.types.scheme import builtin_type

if TYPE_CHECKING:
    from kas.cel.expressions import PolicyExpressions

GROUP = "admissionregistration.k8s.io"
MAX_AUDIT_ANNOTATIONS = 20
MAX_VALUE_EXPRESSION = 5 * 1024
REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
PATCH_TYPES = ("ApplyConfiguration", "JSONPatch")
REINVOCATION = ("Never", "IfNeeded")
NEITHER = "validations or auditAnnotations must contain at least one item"
_IDENTIFIER = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")


class _PolicyStrategy(ConfigurationStrategy):
    costly = True

    def rules(self, obj: Obj) -> list[FieldError]:
        return self._validate(obj, skip_match_conditions=False)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        new, before = obj.get("spec") or {}, old.get("spec") or {}
        fields = builtin_type(f"admissionregistration.v1.{self.resource.kind}Spec").by_name
        same = all(semantic_equal(new.get(name), before.get(name), fields[name]) for name in ("paramKind", "matchConditions"))
        return self._validate(obj, same)

    def _validate(self, obj: Obj, skip_match_conditions: bool) -> list[FieldError]:
        errs = validate_object_meta(obj["metadata"], False, names.dns_subdomain)
        spec = obj.get("spec") or {}
        policy = spec.get("failurePolicy")
        if policy is None:
            errs.append(field.required("spec.failurePolicy"))
        elif policy not in FAILURE_POLICIES:
            errs.append(unsupported("spec.failurePolicy", policy, FAILURE_POLICIES))
        if spec.get("paramKind") is not None:
            errs += _param_kind(spec["paramKind"], "spec.paramKind")
        constraints = spec.get("matchConstraints")
        if constraints is None:
            errs.append(field.required("spec.matchConstraints"))
        else:
            errs += match_resources(constraints, "spec.matchConstraints")
            # without a rule the types of the expressions' objects are unknown
            if not constraints.get("resourceRules"):
                errs.append(field.required("spec.matchConstraints.resourceRules"))
            errs += self._constraints(constraints)
        allowance = CompileBudget()
        if not skip_match_conditions:
            errs += match_conditions(spec.get("matchConditions"), "spec.matchConditions", allowance, spec.get("paramKind") is not None)
        from kas.cel.expressions import PolicyExpressions  # most servers never have a policy

        expressions = PolicyExpressions(spec.get("paramKind") is not None, allowance)
        for i, variable in enumerate(spec.get("variables") or ()):
            errs += _variable(variable, field.index("spec.variables", i), expressions)
        return errs + self._rest(obj["metadata"].get("name") or "", spec, expressions)

    def _constraints(self, constraints: dict[str, Any]) -> list[FieldError]:
        return []

    def _rest(self, name: str, spec: dict[str, Any], expressions: PolicyExpressions) -> list[FieldError]:
        raise NotImplementedError


@strategy_for(GROUP, "validatingadmissionpolicies")
class ValidatingAdmissionPolicyStrategy(_PolicyStrategy):
    """Policies that refuse, warn or annotate; the status contains the type check of their expressions."""

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """Validate the warnings of the type check, which need a text and a field, and the conditions, but not the spec."""
        status = obj.get("status") or {}
        errs: list[FieldError] = []
        for i, warning in enumerate((status.get("typeChecking") or {}).get("expressionWarnings") or ()):
            path = field.index("status.typeChecking.expressionWarnings", i)
            if not warning.get("warning"):
                errs.append(field.required(field.child(path, "warning")))
            errs += _field_ref((warning.get("fieldRef") or "").strip(field.GO_SPACE), field.child(path, "fieldRef"))
        return errs + conditions(status.get("conditions"), "status.conditions")

    def _rest(self, name: str, spec: dict[str, Any], expressions: PolicyExpressions) -> list[FieldError]:
        validations, annotations = spec.get("validations") or [], spec.get("auditAnnotations") or []
        if not validations and not annotations:
            return [field.required("spec.validations", NEITHER), field.required("spec.auditAnnotations", NEITHER)]
        errs: list[FieldError] = []
        for i, validation in enumerate(validations):
            errs += _validation(validation, field.index("spec.validations", i), expressions)
        if len(annotations) > MAX_AUDIT_ANNOTATIONS:
            text = f"must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations"
            shown = render_list("admissionregistration.AuditAnnotation", annotations)
            errs.append(field.invalid("spec.auditAnnotations", shown, text))
        seen: set[str] = set()
        for i, annotation in enumerate(annotations):
            path, key = field.index("spec.auditAnnotations", i), annotation.get("key") or ""
            errs += _audit_annotation(name, annotation, path, expressions)
            if key in seen:
                errs.append(field.duplicate(field.child(path, "key"), key))
            seen.add(key)
        return errs


@strategy_for(GROUP, "mutatingadmissionpolicies")
class MutatingAdmissionPolicyStrategy(_PolicyStrategy):
    """Policies that change the written object; their mutations are expressions, too."""

    def _constraints(self, constraints: dict[str, Any]) -> list[FieldError]:
        return mutating_operations(constraints, "spec.matchConstraints")

    def _rest(self, name: str, spec: dict[str, Any], expressions: PolicyExpressions) -> list[FieldError]:
        errs: list[FieldError] = []
        mutations = spec.get("mutations") or []
        if not mutations:
            errs.append(field.required("spec.mutations", "mutations must contain at least one item"))
        for i, mutation in enumerate(mutations):
            errs += _mutation(mutation, field.index("spec.mutations", i), expressions)
        reinvocation = spec.get("reinvocationPolicy") or ""
        if not reinvocation:
            errs.append(field.required("spec.reinvocationPolicy"))
        elif reinvocation not in REINVOCATION:
            errs.append(unsupported("spec.reinvocationPolicy", reinvocation, REINVOCATION))
        return errs


def _field_ref(ref: str, path: str) -> list[FieldError]:
    """``validateFieldRef``: a JSON path; its target is not checked."""
    if not ref:
        return [field.required(path)]
    from kas.apiextensions.jsonpathsyntax import problem  # most servers never need this

    why = problem(ref)
    return [field.invalid(path, ref, f"invalid JSONPath: {why}")] if why else []


def _mutation(mutation: dict[str, Any], path: str, expressions: PolicyExpressions) -> list[FieldError]:
    """Validate a mutation; the patch type selects which of the two expressions must be given."""
    kind = mutation.get("patchType") or ""
    members = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}
    if not kind:
        return [field.required(field.child(path, "patchType"))]
    if kind not in members:
        return [unsupported(field.child(path, "patchType"), kind, PATCH_TYPES)]
    errs: list[FieldError] = []
    own = mutation.get(members[kind])
    other = next(name for k, name in members.items() if k != kind)
    if own is None:
        errs.append(field.required(field.child(path, members[kind]), f"must be specified when patchType is {kind}"))
    else:
        text, at = (own.get("expression") or "").strip(field.GO_SPACE), field.child(path, members[kind], "expression")
        errs += expressions.mutation(text, at, kind == "JSONPatch") if text else [field.required(at)]
    if mutation.get(other) is not None:
        errs.append(field.invalid(field.child(path, other), f"{{{other}}}", f"must not be specified when patchType is {kind}"))
    return errs


def _param_kind(kind: dict[str, Any], path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    api_version, at = kind.get("apiVersion") or "", field.child(path, "apiVersion")
    if not api_version:
        errs.append(field.required(at))
    elif api_version.count("/") > 1:
        errs.append(field.invalid(at, api_version, f"unexpected GroupVersion string: {api_version}"))
    else:
        group, _, version = api_version.rpartition("/")
        found = names.is_dns1123_subdomain(group) if group else []
        if found:
            errs.append(field.invalid(at, group, ",".join(found)))
        if not version:
            errs.append(field.invalid(at, api_version, "version must be specified"))
        elif names.is_dns1035_label(version):
            errs.append(field.invalid(at, version, ",".join(names.is_dns1035_label(version))))
    name, at = kind.get("kind") or "", field.child(path, "kind")
    if not name:
        errs.append(field.required(at))
    elif names.is_dns1035_label(name.lower()):
        text = "may have mixed case, but should otherwise match: " + ",".join(names.is_dns1035_label(name.lower()))
        errs.append(field.invalid(at, name, text))
    return errs


def _variable(variable: dict[str, Any], path: str, expressions: PolicyExpressions) -> list[FieldError]:
    from kas.cel.words import LITERALS, RESERVED  # imports all of CEL

    errs: list[FieldError] = []
    name = variable.get("name") or ""
    if not name.strip(field.GO_SPACE):
        errs.append(field.required(field.child(path, "name"), "name is not specified"))
    elif not _IDENTIFIER.fullmatch(name) or name in RESERVED or name in LITERALS:
        errs.append(field.invalid(field.child(path, "name"), name, "must be a valid CEL identifier"))
    if not (variable.get("expression") or "").strip(field.GO_SPACE):
        errs.append(field.required(field.child(path, "expression"), "expression is not specified"))
    else:
        errs += expressions.variable(name, variable["expression"], field.child(path, "expression"))
    return errs


def _validation(validation: dict[str, Any], path: str, expressions: PolicyExpressions) -> list[FieldError]:
    errs: list[FieldError] = []
    message, message_expression = validation.get("message") or "", validation.get("messageExpression") or ""
    if not (validation.get("expression") or "").strip(field.GO_SPACE):
        errs.append(field.required(field.child(path, "expression"), "expression is not specified"))
    else:
        errs += expressions.validation(validation["expression"], field.child(path, "expression"))
    if message_expression and not message_expression.strip(field.GO_SPACE):
        errs.append(field.invalid(field.child(path, "messageExpression"), message_expression, "must be non-empty if specified"))
    elif message_expression:
        errs += expressions.message(message_expression, field.child(path, "messageExpression"))
    if message and not message.strip(field.GO_SPACE):
        errs.append(field.invalid(field.child(path, "message"), message, "must be non-empty if specified"))
    elif re.search(r"[\n\r]", message.strip(field.GO_SPACE)):
        errs.append(field.invalid(field.child(path, "message"), message, "must not contain line breaks"))
    reason = validation.get("reason")
    if reason is not None and reason not in REASONS:
        errs.append(unsupported(field.child(path, "reason"), reason, REASONS))
    return errs


def _audit_annotation(
    policy_name: str, annotation: dict[str, Any], path: str, expressions: PolicyExpressions
) -> list[FieldError]:
    errs: list[FieldError] = []
    key, at = annotation.get("key") or "", field.child(path, "key")
    if policy_name:
        errs += qualified_name(f"{policy_name}/{key}", at)
    else:
        errs.append(field.invalid(at, key, "requires metadata.name be non-empty"))
    expression, at = annotation.get("valueExpression") or "", field.child(path, "valueExpression")
    trimmed = expression.strip(field.GO_SPACE)
    if not trimmed:
        errs.append(field.required(at, "valueExpression is not specified"))
    elif len(trimmed.encode()) > MAX_VALUE_EXPRESSION:
        errs.append(field.required(at, f"must not exceed {MAX_VALUE_EXPRESSION} bytes in length"))
    else:
        errs += [FieldError(e.type, e.field, expression, e.detail) for e in expressions.annotation(trimmed, at)]
    return errs


def _param_kind_cell(spec: Obj) -> str:
    kind = spec.get("paramKind")
    return UNSET if kind is None else f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}"


@printer("admissionregistration.k8s.io", "ValidatingAdmissionPolicy")
def validating_admission_policy_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, number of validations, kind of the parameters, age."""
    spec = part(obj, "spec")
    return [obj["metadata"].get("name", ""), len(spec.get("validations") or ()), _param_kind_cell(spec), age(obj, now)]


@printer("admissionregistration.k8s.io", "MutatingAdmissionPolicy")
def mutating_admission_policy_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, number of mutations, kind of the parameters, age."""
    spec = part(obj, "spec")
    return [obj["metadata"].get("name", ""), len(spec.get("mutations") or ()), _param_kind_cell(spec), age(obj, now)]

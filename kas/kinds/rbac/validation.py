"""Validation shared by the RBAC kinds (upstream ``pkg/apis/rbac/validation``)."""

from __future__ import annotations

from typing import Any

from kas import checks
from kas.meta import field, metachecks, names
from kas.meta.checks import dns_subdomain, invalid_each, unsupported
from kas.meta.field import FieldError
from kas.types.checktables import ANY, EMPTY, TOP, Checked, each, either, need
from kas.types.gostruct import render

GROUP = "rbac.authorization.k8s.io"


def minimal_name(name: str, prefix: bool) -> list[str]:
    """Check a name or generateName of a role or binding, which may be any URL path segment."""
    return names.is_path_segment_name(name)


metachecks.name_rule(minimal_name, checks.path_segment(), checks.path_segment())
_SOME = each(ANY, 1)
_RESOURCE_RULE = {"verbs": need(_SOME), "apiGroups": need(_SOME), "resources": need(_SOME), "resourceNames": ANY}
_URL_RULE = {"verbs": need(_SOME), "nonResourceURLs": need(_SOME)}
_PERSON = {"kind": need(checks.option("User", "Group")), "apiGroup": need(checks.option(GROUP)), "name": need(checks.text(1)),
"namespace": ANY}
_ACCOUNT = {
    "kind": need(checks.option("ServiceAccount")), "apiGroup": EMPTY, "name": need(checks.dns_subdomain()),
    "namespace": need(checks.text(1)),
}  # fmt: skip


def _binding_of(name: str, *roles: str) -> Checked:
    ref = {"apiGroup": need(checks.option(GROUP)), "kind": need(checks.option(*roles)), "name": need(checks.path_segment())}
    return Checked(f"rbac.v1.{name}", {**TOP, "roleRef": need(ref), "subjects": each(either(_PERSON, _ACCOUNT))})


# By whether the role is namespaced.
RULES_CHECK = {
    True: Checked("rbac.v1.Role", {**TOP, "rules": each(_RESOURCE_RULE)}),
    False: Checked("rbac.v1.ClusterRole", {**TOP, "rules": each(either(_RESOURCE_RULE, _URL_RULE)), "aggregationRule": ANY}),
}
BINDING_CHECK = {True: _binding_of("RoleBinding", "Role", "ClusterRole"), False: _binding_of("ClusterRoleBinding", "ClusterRole")}


def policy_rules(obj: dict[str, Any], namespaced: bool) -> list[FieldError]:
    """``ValidatePolicyRule`` for each rule; a ``namespaced`` role may not have rules about URLs."""
    errs: list[FieldError] = []
    if RULES_CHECK[namespaced].passes(obj):
        return errs
    for i, rule in enumerate(obj.get("rules") or ()):
        errs += _policy_rule(rule, namespaced, field.index("rules", i))
    return errs


def _policy_rule(rule: dict[str, Any], namespaced: bool, path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    if not rule.get("verbs"):
        errs.append(field.required(field.child(path, "verbs"), "verbs must contain at least one value"))
    urls = rule.get("nonResourceURLs")
    if urls:
        at = field.child(path, "nonResourceURLs")
        if namespaced:
            errs.append(field.invalid(at, urls, "namespaced rules cannot apply to non-resource URLs"))
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            errs.append(field.invalid(at, urls, "rules cannot apply to both regular resources and non-resource URLs"))
        return errs
    if not rule.get("apiGroups"):
        errs.append(field.required(field.child(path, "apiGroups"), "resource rules must supply at least one api group"))
    if not rule.get("resources"):
        errs.append(field.required(field.child(path, "resources"), "resource rules must supply at least one resource"))
    return errs


def binding(obj: dict[str, Any], namespaced: bool) -> list[FieldError]:
    """Validate roleRef and subjects of a RoleBinding (``namespaced``) or ClusterRoleBinding."""
    errs: list[FieldError] = []
    if BINDING_CHECK[namespaced].passes(obj):
        return errs
    ref = obj.get("roleRef") or {}
    if (ref.get("apiGroup") or "") != GROUP:
        errs.append(unsupported("roleRef.apiGroup", ref.get("apiGroup") or "", (GROUP,)))
    kinds = ("Role", "ClusterRole") if namespaced else ("ClusterRole",)
    if ref.get("kind") not in kinds:
        errs.append(unsupported("roleRef.kind", ref.get("kind") or "", kinds))
    name = ref.get("name") or ""
    if not name:
        errs.append(field.required("roleRef.name"))
    else:
        errs += invalid_each("roleRef.name", name, names.is_path_segment_name(name))
    for i, subject in enumerate(obj.get("subjects") or ()):
        errs += _subject(subject, namespaced, field.index("subjects", i))
    return errs


def _subject(subject: dict[str, Any], namespaced: bool, path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    name, kind, group = subject.get("name") or "", subject.get("kind") or "", subject.get("apiGroup") or ""
    at_name, at_group = field.child(path, "name"), field.child(path, "apiGroup")
    if not name:
        errs.append(field.required(at_name))
    if kind == "ServiceAccount":
        if name:
            errs += dns_subdomain(name, at_name)
        if group:
            errs.append(unsupported(at_group, group, ("",)))
        if not namespaced and not subject.get("namespace"):
            errs.append(field.required(field.child(path, "namespace")))
    elif kind in ("User", "Group"):
        if group != GROUP:
            errs.append(unsupported(at_group, group, (GROUP,)))
    else:
        errs.append(unsupported(field.child(path, "kind"), kind, ("ServiceAccount", "User", "Group")))
    return errs


def role_ref_unchanged(obj: dict[str, Any], old: dict[str, Any]) -> list[FieldError]:
    """Check that the granted role does not change."""
    new, before = (render("rbac.RoleRef", o.get("roleRef")) for o in (obj, old))
    return [] if new == before else [field.invalid("roleRef", new, "cannot change roleRef")]

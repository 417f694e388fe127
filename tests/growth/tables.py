"""Families made of tables: every macro and function of CEL with long arguments, every step of a JSONPath, the columns of every kind,
selectors of every kind's fields, and the ways in which managers own fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from tests.growth.named import (
    APPLY,
    CLEAN,
    CRDS,
    DRY,
    FAMILIES,
    MAPS,
    NS,
    PODS,
    _admission_policy,
    _crd,
    config_map,
    create,
    keys,
)
from tests.growth.serving import Sent

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"

# -- CEL

MACROS = ("all(x, {})", "exists(x, {})", "exists_one(x, {})", "map(x, {})", "filter(x, {})", "map(x, {}, x)")


def _nested(macro: str, n: int) -> str:
    inner = "true"
    for _ in range(min(n, 40)):
        inner = "self.l." + macro.format(inner)
    return inner


def _ruled(rule: str) -> Sent:
    items = {"type": "array", "maxItems": 4, "items": {"type": "string", "maxLength": 4}}
    rules = [{"rule": rule, "message": "x"}]
    return create(CRDS, _crd({"type": "object", "properties": {"l": items, "m": items}, "x-kubernetes-validations": rules}))


for _macro in MACROS:
    _plain = "self.l." + _macro.format("x == 'a'")
    FAMILIES[f"CEL: {_macro} again and again"] = lambda n, one=_plain: _ruled(" && ".join([f"size([{one}]) > 0"] * n))
    FAMILIES[f"CEL: {_macro} within itself"] = lambda n, macro=_macro: _ruled(f"[{_nested(macro, n)}].size() > 0" + " " * (16 * n))
    FAMILIES[f"CEL: {_macro} over a long list"] = lambda n, macro=_macro: _admission_policy(
        validations=[{"expression": f"[[{', '.join(str(i) for i in range(n))}].{macro.format('x > 1')}].size() > 0"}]
    )

TEXT_CALLS = (
    "'{}'.matches('a+b')", "'a'.matches('{}')", "'{}'.split('a')", "'{}'.replace('a', 'b')", "'{}'.find('a*b')", "'{}'.findAll('a')",
    "'{}'.indexOf('ab')", "'{}'.lastIndexOf('ba')", "'{}'.substring(1)", "'{}'.lowerAscii()", "'{}'.trim()", "'{}'.charAt(1)",
    "'{}'.startsWith('a')", "'{}'.contains('ab')", "isQuantity('{}')", "isIP('{}')", "isCIDR('{}')", "isURL('{}')", "isSemver('{}')",
    "'{}'.format([1])", "format.dns1123Label().value().validate('{}')", "duration('{}')", "timestamp('{}')", "int('{}')", "bytes('{}')",
    "double('{}')",
)  # fmt: skip
for _call in TEXT_CALLS:
    FAMILIES[f"CEL: {_call}"] = lambda n, call=_call: _admission_policy(
        validations=[{"expression": f"[{call.format('a' * (16 * n))}].size() > 0"}]
    )

LIST_CALLS = (
    "{}.isSorted()", "{}.sum()", "{}.min()", "{}.indexOf(1)", "{}.distinct()", "{}.sort()", "{}.reverse()", "{}.slice(0, 1)",
    "sets.contains({0}, {0})", "sets.equivalent({0}, {0})", "sets.intersects({0}, {0})", "{0} + {0}", "{0} == {0}", "1 in {}",
)  # fmt: skip
VALUES: dict[str, Callable[[int], str]] = {
    "numbers": lambda n: "[" + ", ".join(str(i) for i in range(n)) + "]",
    "equal ones": lambda n: "[" + ", ".join(["1"] * n) + "]",
}
for _call in LIST_CALLS:
    for _what, _value in VALUES.items():
        FAMILIES[f"CEL: {_call} of {_what}"] = lambda n, call=_call, value=_value: _admission_policy(
            validations=[{"expression": f"[{call.format(value(n))}].size() > 0"}]
        )
LONG: dict[str, Callable[[int], str]] = {
    "a map": lambda n: "{" + ", ".join(f"'k{i}': {i}" for i in range(n)) + "}.size() > 0",
    "a map of one key": lambda n: "{" + ", ".join(["'k': 1"] * n) + "}.size() > 0",
    "a choice": lambda n: "true ? true : " * n + "true",
    "indexes": lambda n: "object" + "[0]" * n + " == 1",
    "fields": lambda n: "object" + ".a" * n + " == 1",
    "optional fields": lambda n: "object" + ".?a" * n + ".hasValue()",
    "not": lambda n: "!" * (8 * n) + "true",
    "minus": lambda n: "-" * (8 * n) + "1 < 0",
    "lists": lambda n: "[" * n + "]" * n + " == []",
    "sums": lambda n: " + ".join(["1"] * (4 * n)) + " > 0",
    "comparisons": lambda n: " == ".join(["true"] * (2 * n)),
    "escapes": lambda n: "'" + "\\x41" * (8 * n) + "' == 'a'",
    "a comment": lambda n: "true //" + "/" * (16 * n),
    "names nobody knows": lambda n: " || ".join(f"unknown{i}" for i in range(n)),
}  # fmt: skip
for _name, _long in LONG.items():
    FAMILIES[f"CEL: {_name} at length"] = lambda n, long=_long: _admission_policy(validations=[{"expression": long(n)}])

# -- JSONPath, in columns and selectable fields

STEPS = (".a", "['a']", "[0]", "[-1]", "[*]", ".*", "..a", "[0:2]", "[0:2:1]", "[?(@.a=='x')]", "[?(@.a)]", "['a','b']", "[0,1]", ".a\\.b")
for _step in STEPS:
    FAMILIES[f"JSONPath: {_step} in a column"] = lambda n, step=_step: create(CRDS, _crd({"type": "object"}, additionalPrinterColumns=[
        {"name": "c", "type": "string", "jsonPath": ".spec" + step * n}
    ]))  # fmt: skip
    FAMILIES[f"JSONPath: {_step} in a selectable field"] = lambda n, step=_step: create(CRDS, _crd(
        {"type": "object", "properties": {"a": {"type": "string"}}}, selectableFields=[{"jsonPath": ".spec" + step * n}]
    ))  # fmt: skip
FAMILIES["definition: selectable fields"] = lambda n: create(CRDS, _crd(
    {"type": "object", "properties": keys(n, {"type": "string"})}, selectableFields=[{"jsonPath": f".spec.k{i}"} for i in range(n)]
))  # fmt: skip
FAMILIES["definition: selectable fields that are one"] = lambda n: create(CRDS, _crd(
    {"type": "object", "properties": {"a": {"type": "string"}}}, selectableFields=[{"jsonPath": ".spec.a"}] * n
))  # fmt: skip
FAMILIES["definition: columns of one name"] = lambda n: create(CRDS, _crd({"type": "object"}, additionalPrinterColumns=[
    {"name": "c", "type": "string", "jsonPath": ".spec.a"}
] * n))  # fmt: skip

# -- field selectors, of fields that each kind has

SELECTABLE = {
    "pods": ("metadata.name", "spec.nodeName", "status.phase", "status.podIP", "spec.restartPolicy"),
    "events": ("involvedObject.name", "reason", "type", "source"),
    "secrets": ("type", "metadata.namespace"),
    "services": ("spec.clusterIP", "spec.type"),
    "configmaps": ("metadata.name", "spec.none"),
}
for _resource, _labels in SELECTABLE.items():
    for _label in _labels:
        FAMILIES[f"field selector: {_resource} by {_label}"] = lambda n, resource=_resource, label=_label: Sent(
            "GET", f"{NS}/{resource}?fieldSelector=" + quote(",".join(f"{label}!=b{i}" for i in range(n)))
        )

# -- Tables: the created object is returned as a row

PRINTED: dict[str, Callable[[int], tuple[str, dict[str, Any]]]] = {
    "a pod's containers": lambda n: (PODS, {"spec": {"containers": [{"name": f"c{i}", "image": "x"} for i in range(n)]}}),
    "a pod's gates": lambda n: (PODS, {"spec": {"containers": [{"name": "c", "image": "x"}],
        "readinessGates": [{"conditionType": f"a.b/c{i}"} for i in range(n)]}}),
    "a service's ports": lambda n: (f"{NS}/services", {"spec": {"ports": [{"name": f"p{i}", "port": i % 65535 + 1} for i in range(n)]}}),
    "a service's addresses": lambda n: (f"{NS}/services", {"spec": {"ports": [{"port": 80}],
        "externalIPs": [f"10.{i >> 16 & 255}.{i >> 8 & 255}.{i & 255}" for i in range(n)]}}),
    "an ingress's hosts": lambda n: ("/apis/networking.k8s.io/v1/namespaces/default/ingresses", {"spec": {"rules": [
        {"host": f"h{i}.example.com"} for i in range(n)]}}),
    "endpoints": lambda n: (f"{NS}/endpoints", {"subsets": [{"addresses": [
        {"ip": f"10.{i >> 16 & 255}.{i >> 8 & 255}.{i & 255}"} for i in range(n)], "ports": [{"port": 80}]}]}),
    "a deployment's selector": lambda n: ("/apis/apps/v1/namespaces/default/deployments", {"spec": {
        "selector": {"matchLabels": keys(n)}, "template": {"metadata": {"labels": keys(n)},
        "spec": {"containers": [{"name": f"c{i}", "image": "x"} for i in range(n)]}}}}),
    "a binding's subjects": lambda n: ("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": f"u{i}", "apiGroup": "rbac.authorization.k8s.io"} for i in range(n)]}),
    "a quota": lambda n: (f"{NS}/resourcequotas", {"spec": {"hard": {f"count/k{i}.x.io": "1" for i in range(n)}}}),
    "labels": lambda n: (MAPS, {"metadata": {"generateName": "a", "labels": keys(n)}}),
}  # fmt: skip
for _name, _printed in PRINTED.items():

    def _as_table(n: int, printed: Callable[[int], tuple[str, dict[str, Any]]] = _printed) -> Sent:
        path, obj = printed(n)
        return create(f"{path}?{DRY}", {"metadata": {"generateName": "a"}} | obj, accept=TABLE)

    FAMILIES[f"table: {_name}"] = _as_table

# -- managers


def _owned(n: int, fields: Callable[[int], dict[str, Any]], **more: Any) -> list[dict[str, Any]]:
    base = {"operation": "Apply", "apiVersion": "v1", "time": "2024-01-02T03:04:05Z", "fieldsType": "FieldsV1"}
    return [base | {"manager": f"m{i}", "fieldsV1": fields(i)} | {k: v(i) for k, v in more.items()} for i in range(n)]


MANAGERS: dict[str, Callable[[int], list[dict[str, Any]]]] = {
    "that own one field": lambda n: _owned(n, lambda i: {"f:data": {"f:k0": {}}}),
    "that own a field each": lambda n: _owned(n, lambda i: {"f:data": {f"f:k{i}": {}}}),
    "that own nothing": lambda n: _owned(n, lambda i: {}),
    "of versions": lambda n: _owned(n, lambda i: {"f:data": {"f:k0": {}}}, apiVersion=lambda i: f"v{i}"),
    "of subresources": lambda n: _owned(n, lambda i: {"f:data": {"f:k0": {}}}, subresource=lambda i: f"s{i}"),
    "that update": lambda n: _owned(n, lambda i: {"f:data": {f"f:k{i}": {}}}, operation=lambda i: "Update"),
}
for _name, _managers in MANAGERS.items():
    for _force in ("", "&force=true"):
        FAMILIES[f"apply{' by force' if _force else ''}: over managers {_name}"] = lambda n, managers=_managers, force=_force: (
            [CLEAN, create(MAPS, config_map("ssa", data=keys(n, "1"), metadata={"managedFields": managers(n)}))],
            Sent("PATCH", f"{MAPS}/ssa?fieldManager=x{force}", config_map("ssa", data=keys(n, "2")), APPLY),
        )

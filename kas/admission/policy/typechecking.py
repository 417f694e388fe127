"""Type checking of the expressions of a ValidatingAdmissionPolicy (upstream ``validating/typechecking.go``).

The expressions are compiled once more for each kind that the policy's rules name, with the real types of ``object``, ``oldObject`` and
``params``. Type errors become warnings; the policy itself is not changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from kas import cel
from kas.admission.matching import GVK
from kas.admission.versioned import shown
from kas.cel.admission import STRUCTS, seen, with_variables
from kas.cel.environment import Environment
from kas.cel.library.objects import AUTHORIZER
from kas.cel.schemas import Structs, declare, escape
from kas.cel.types import BOOL, BYTES, DOUBLE, DYN, INT, STRING, TIMESTAMP, Type, list_of, map_of, struct
from kas.meta import field
from kas.meta.records import NamedTuple
from kas.types.scheme import Field, TypeDesc, builtin_type

Obj = dict[str, Any]
MAX_TYPES = 10  # per rule
MAX_LOOKED_UP = 10_000  # names in all rules; some ten milliseconds
MAX_CHECKED = 10_000  # expressions times kinds; seconds in a thread
_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_PLAIN = {"string": STRING, "bool": BOOL, "int32": INT, "int64": INT, "double": DOUBLE, "bytes": BYTES}
# Messages that are not objects in JSON. Some OpenAPI names have no type: fields of such types, quantities above all, are unknown to
# upstream's expressions, too ("undefined field 'limits'").
_FORMATS = {"date-time": TIMESTAMP, "date-time-micro": TIMESTAMP, "duration": STRING, "int-or-string": DYN}
_TYPELESS = re.compile(r"\.(Quantity|JSON|JSONSchemaPropsOr\w+)\Z")


class Shape(NamedTuple):
    """A kind's type for expressions, and the fields of all object types below it, by type name."""

    type: Type
    structs: Structs


ANYTHING = Shape(DYN, {})


def builtin_shape(type_: TypeDesc) -> Shape:
    """Return the shape of a built-in kind."""
    structs: Structs = {}
    _add(type_, structs)
    return Shape(struct(type_.name), structs)


def custom_shape(schema: Obj, name: str) -> Shape:
    """Return the shape of a custom resource with this schema and the common metadata; ANYTHING if the schema has no type."""
    structs: Structs = {}
    found = declare(schema, name, structs, is_root=True)
    if found is None:
        return ANYTHING
    if name in structs:
        _add(builtin_type(_OBJECT_META), structs)
        structs[name]["metadata"] = struct(_OBJECT_META)
    return Shape(found[0].type, structs)


def _add(type_: TypeDesc, structs: Structs) -> None:
    waiting = [type_]
    while waiting:
        now = waiting.pop()
        if now.name in structs:
            continue
        fields = structs[now.name] = {}
        for f in now.json_fields:
            name = escape(f.name)
            if f.message is not None and _TYPELESS.search(f.message.name):
                continue
            if name:
                fields[name] = _of_field(f)
            if f.message is not None and f.format not in _FORMATS:
                waiting.append(f.message)


def _of_field(f: Field) -> Type:
    item = _PLAIN.get(f.type)
    if item is None:
        message = f.message
        if message is None:
            item = DYN
        elif f.format in _FORMATS:
            item = _FORMATS[f.format]
        else:
            item = list_of(STRING) if (message.custom_json or "").startswith("list-of-string") else struct(message.name)
    return list_of(item) if f.card == "list" else map_of(STRING, item) if f.card == "map" else item


# Lookups: (group, version, resource) -> the kind, None if not served; kind -> its shape, None if unknown.
KindOf = Callable[[str, str, str], GVK | None]
ShapeOf = Callable[[GVK], Shape | None]


def warnings(policy: Obj, kind_of: KindOf, shape_of: ShapeOf) -> list[Obj]:
    """Return ``status.typeChecking.expressionWarnings`` of a policy; limited to its first validations if it has thousands for many
    kinds."""
    spec = policy.get("spec") or {}
    params = _kind_of_params(spec.get("paramKind"))
    # Parameters of an unknown kind may have any field.
    param_shape = (shape_of(params) or ANYTHING) if params is not None else None
    found = [(kind, shape) for kind in _kinds(spec, kind_of) if (shape := shape_of(kind)) is not None]
    variables = [(v.get("name") or "", v.get("expression") or "") for v in spec.get("variables") or ()]
    environments = [(kind, _environment(shape, param_shape, variables)) for kind, shape in found]
    out = []
    for i, validation in enumerate(islice(spec.get("validations") or (), MAX_CHECKED // max(1, len(environments)))):
        path = field.index("spec.validations", i)
        for name in ("expression", "messageExpression"):
            text = validation.get(name)
            if not text:
                continue
            said = [f"{shown(kind)}: {why}\n" for kind, env in environments if (why := _why_not(text, env))]
            if said:
                out.append({"fieldRef": field.child(path, name), "warning": "\n".join(said)})
    return out


def _environment(shape: Shape, params: Shape | None, variables: Iterable[tuple[str, str]]) -> Environment:
    names: dict[str, Type] = {
        "namespaceObject": struct("kubernetes.Namespace"), "request": struct("kubernetes.AdmissionRequest"),
        "object": shape.type, "oldObject": shape.type, "authorizer": AUTHORIZER,
    }  # fmt: skip
    structs: Mapping[str, Mapping[str, Type]] = STRUCTS | shape.structs
    if params is not None:
        names["params"] = params.type
        structs = {**structs, **params.structs}
    base = cel.BASE.extended(names, structs)
    known: dict[str, Type] = {}
    for name, text in variables:
        try:
            known[name] = seen(cel.compile(text, with_variables(base, known)).type)
        except (cel.CompileError, cel.ProgramError):
            known[name] = DYN
    return with_variables(base, known)


def _why_not(text: str, env: Environment) -> str:
    try:
        cel.compile(text, env)
    except cel.CompileError as e:
        return str(e)
    except cel.ProgramError:
        return ""  # the types are correct
    return ""


def _kind_of_params(kind: Mapping[str, Any] | None) -> GVK | None:
    if kind is None:
        return None
    group, _, version = (kind.get("apiVersion") or "").rpartition("/")
    return group, version, kind.get("kind") or ""


def _kinds(spec: Obj, kind_of: KindOf) -> list[GVK]:
    """Return the kinds that the rules name.

    A rule with a wildcard in groups or versions names none. The search ends at the rule that reaches ``MAX_TYPES`` kinds, and the number
    of names in total is bounded, since groups, versions and resources multiply.
    """
    found: set[GVK] = set()
    left = MAX_LOOKED_UP
    for rule in (spec.get("matchConstraints") or {}).get("resourceRules") or ():
        count = 0
        for group, version, resource in islice(_named(rule), left):
            left -= 1
            kind = kind_of(group, version, resource)
            if kind is not None:
                found.add(kind)
                count += 1
                if count == MAX_TYPES:
                    return sorted(found)
    return sorted(found)


def _named(rule: Obj) -> Iterator[tuple[str, str, str]]:
    groups, versions = sorted(rule.get("apiGroups") or ()), sorted(rule.get("apiVersions") or ())
    if any("*" in text for text in (*groups, *versions)):
        return
    resources = sorted(r for r in rule.get("resources") or () if "*" not in r and "/" not in r)
    for group in groups:
        for version in versions:
            for resource in resources:
                yield group, version, resource

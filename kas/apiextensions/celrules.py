"""Evaluation of a schema's CEL rules on objects: apiextensions-apiserver ``pkg/apiserver/schema/cel`` (Validator).

A rule sees the value of its schema as ``self`` and, in an update, the corresponding old value as ``oldSelf`` if there is one. All rules of
one object share a cost budget; when it is spent, no further rule is evaluated.
"""

from __future__ import annotations

import contextlib
from time import perf_counter
from typing import Any

from kas import cel
from kas.apiextensions import celmetrics
from kas.apiextensions.celvalues import field_value, struct_value
from kas.apiextensions.schema import RULES, FieldPathError, Schema, find_path
from kas.apiextensions.schemavalues import ABSENT, NIL_PATH, Correlated, SchemaValidator, validator
from kas.cel.literals import walk
from kas.cel.schemas import Shapes, as_seen_from
from kas.cel.syntax import Ident, Select
from kas.cel.types import BOOL, STRING, Type, optional_of
from kas.cel.values import NONE, Optional
from kas.meta import field
from kas.meta.equality import same_json
from kas.meta.field import FieldError, go_quote
from kas.meta.offload import abandoned
from kas.types.scheme import Field, TypeDesc

BUDGET = 10_000_000
MAX_MESSAGE_B = 5 * 1024
_OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"
_UNTYPED = "rule compiler initialization error: failed to convert to declType for CEL validation rules"


class OutOfBudget(Exception):
    """No further rule may be evaluated. The error to report has already been added."""


class _Rule:
    """One compiled rule. ``error`` is its compile error, if any; ``path`` is the path of its errors, relative to the value."""

    __slots__ = ("asked", "error", "fields", "message", "optional_old", "path", "program", "reason", "shown", "uses_old", "words")

    def __init__(self, rule: Schema, schema: Schema, is_root: bool, shapes: Shapes) -> None:
        found = shapes.of(schema, is_root)
        text, self.error = rule.get("rule") or "", ""
        self.optional_old = rule.get("optionalOldSelf") is True
        self.program: cel.Program | None = None
        self.message: cel.Program | None = None
        given = (rule.get("message") or "").strip(field.GO_SPACE)
        self.shown = given or text.strip(field.GO_SPACE)
        self.words = given or f"failed rule: {self.shown}"
        self.asked = go_quote(rule.get("messageExpression") or "")
        self.reason = rule.get("reason")
        self.path = ""
        with contextlib.suppress(FieldPathError):  # no fieldPath, or an invalid one that an earlier version accepted
            self.path = find_path(schema, rule.get("fieldPath") or "").text
        self.uses_old = False
        self.fields: frozenset[str] | None = frozenset()  # the fields that it accesses; None: the whole value
        if found is None or not text.strip():
            return
        shape = found[0].type
        env = rule_environment(shape, self.optional_old, shapes)
        try:
            self.program = cel.compile(text, env)
            if self.program.type != BOOL:
                self.error = "cel expression must evaluate to a bool"
        except cel.CompileError as e:
            self.error = f"compilation failed: {as_seen_from(shape, str(e))}"
        except cel.ProgramError as e:
            self.error = f"program instantiation failed: {e}"
        if self.program is not None and rule.get("messageExpression"):
            with contextlib.suppress(cel.CompileError, cel.ProgramError):
                message = cel.compile(rule["messageExpression"], env)
                self.message = message if message.type == STRING else None
            if self.message is None:  # then upstream ignores both messageExpression and fieldPath
                self.path = ""
        if self.program is not None:
            names = (node.variable.name for node in walk(self.program.root) if isinstance(node, Ident) and node.variable is not None)
            self.uses_old = "oldSelf" in names
            of = [_selected(program) for program in (self.program, self.message) if program is not None]
            self.fields = None if None in of else frozenset().union(*(fields for fields in of if fields is not None))


def rule_environment(shape: Type, optional_old: bool, shapes: Shapes) -> cel.Environment:
    """Return the environment of the rules of a value of type ``shape``."""
    old = optional_of(shape) if optional_old else shape
    return cel.BASE.extended({"self": shape, "oldSelf": old}, shapes.structs, text_keys=True)


def _selected(program: cel.Program) -> frozenset[str] | None:
    """Return the fields of ``self`` and ``oldSelf`` that a program selects; None if it uses them in any other way."""
    nodes = list(walk(program.root))
    selections = [n for n in nodes if isinstance(n, Select) and _is_self(n.operand)]
    if len(selections) < sum(map(_is_self, nodes)):
        return None
    return frozenset(n.field for n in selections)


def _is_self(node: Any) -> bool:
    return isinstance(node, Ident) and node.variable is not None and node.variable.name in ("self", "oldSelf")


class _Change:
    """A value, the corresponding old value, and the change of the parent value.

    ``schema`` is the validator of the value; None if the schema does not describe the value, or if changes are irrelevant.
    """

    __slots__ = ("new", "old", "parent", "same", "schema")

    def __init__(self, new: Any, old: Any, parent: _Change | None, schema: SchemaValidator | None) -> None:
        self.new, self.old, self.parent, self.schema = new, old, parent, schema
        self.same: bool | None = None

    def is_none(self) -> bool:
        """Whether nothing changed here or, if there is no corresponding old value, in the nearest ancestor that has one."""
        if self.same is None:
            if self.old is ABSENT:
                self.same = self.parent is not None and self.parent.is_none()
            else:
                self.same = self.schema.unchanged(self.new, self.old) if self.schema is not None else same_json(self.new, self.old)
        return self.same


class Node:
    """The rules of a schema and of the schemas below it. ``untyped``: it has rules, but expressions have no type for its values."""

    __slots__ = ("additional", "fields", "items", "keys", "kind", "order", "properties", "rules", "transitions", "untyped")

    def __init__(self, schema: Schema, is_root: bool, shapes: Shapes) -> None:
        self.kind: str = schema.get("type") or ""
        began = perf_counter()
        self.rules = [_Rule(rule, schema, is_root, shapes) for rule in schema.get(RULES) or ()]
        if self.rules:
            celmetrics.compiled(perf_counter() - began)
        self.transitions = any(r.uses_old for r in self.rules)
        # The fields that any of the rules accesses; None for all.
        self.fields = None if any(r.fields is None for r in self.rules) else frozenset().union(*(r.fields or () for r in self.rules))
        self.properties: dict[str, Node] = {}
        self.order: list[str] = []  # the names of the properties, sorted
        self.items: Node | None = None
        self.additional: Node | None = None
        self.keys: tuple[str, ...] = ()
        self.untyped = False

    def is_empty(self) -> bool:
        """Whether neither this schema nor one below it has a rule."""
        return not (self.rules or self.properties or self.items or self.additional or self.untyped)


class _Ruled(Shapes):
    """The types that expressions see of a schema. Also records which of its schemas have rules in or below them, to skip the others."""

    def __init__(self, root: Schema, is_root: bool) -> None:
        super().__init__(root, is_root)
        self._ruled: set[int] = set()
        self._find(root)

    def _find(self, schema: Schema) -> bool:
        found = bool(schema.get(RULES))
        for below in (*(schema.get("properties") or {}).values(), schema.get("additionalProperties"), schema.get("items")):
            if isinstance(below, dict):
                found = self._find(below) or found
        if found:
            self._ruled.add(id(schema))
        return found

    def are_in(self, schema: Schema) -> bool:
        """Whether the schema, or one below it, has rules."""
        return id(schema) in self._ruled


def of_type(type: TypeDesc) -> Node | None:
    """Return the compiled rules of a type, made once; None if it has none."""
    if "rules" not in type.derived:
        node = _struct_node(type, type.schema, _Ruled(type.schema, type.embedded))
        type.derived["rules"] = None if node.is_empty() else node
    found: Node | None = type.derived["rules"]
    return found


def _struct_node(type: TypeDesc, schema: Schema, shapes: _Ruled) -> Node:
    node = Node(schema, type.embedded, shapes)
    node.properties = {f.name: below for f in type.fields if (below := _field_node(f, shapes)) is not None}
    node.order = sorted(node.properties)
    node.additional = _field_node(type.additional, shapes) if type.additional is not None else None
    return node


def _field_node(f: Field, shapes: _Ruled) -> Node | None:
    if not shapes.are_in(f.schema):
        return None
    if not f.schema.get("type") and f.type != "intOrString":  # expressions cannot access such a field
        return None
    if f.card == "single" and f.message is not None:
        node = _struct_node(f.message, f.schema, shapes)
    else:
        node = Node(f.schema, False, shapes)
        if f.card == "list":
            node.items = _field_node(f.element, shapes)
            node.keys = f.list_map_keys if f.list_type == "map" else ()
        elif f.card == "map":
            node.additional = _field_node(f.element, shapes)
    if f.card == "single":
        node.items = _untyped_node(f.schema.get("items"), shapes)
    return None if node.is_empty() else node


def _untyped_node(schema: Any, shapes: Shapes) -> Node | None:
    """Return the rules of an ``items`` schema whose parent is not a list; objects from before a change of type may still hold a list.

    Properties of a value that has no type for expressions have no type either, and are skipped.
    """
    if not isinstance(schema, dict):
        return None
    node = Node({name: said for name, said in schema.items() if name != RULES}, False, shapes)
    node.untyped = bool(schema.get(RULES))
    node.items = _untyped_node(schema.get("items"), shapes)
    node.additional = _untyped_node(schema.get("additionalProperties"), shapes)
    return None if node.is_empty() else node


class _Run:
    """The validation of one object: the remaining budget, and the errors and warnings so far."""

    def __init__(self, budget: int, ratchet: bool) -> None:
        self.left, self.ratchet = budget, ratchet
        self.errors: list[FieldError] = []
        self.warnings: list[str] = []

    def node(self, node: Node, f: TypeDesc | Field | None, value: Any, change: _Change, path: str) -> None:
        if value is None:
            return
        if node.untyped:
            self.errors.append(field.invalid(path, node.kind, _UNTYPED))
        if node.rules:
            began = perf_counter()
            try:
                self.rules(node, f, value, change, path)
            finally:
                celmetrics.evaluated(perf_counter() - began)
        if isinstance(value, list) and node.items is not None:
            found = Correlated(node.keys, change.old)
            schema = change.schema.item() if change.schema is not None and change.schema.items is not None else None
            element = f.element if isinstance(f, Field) and f.card == "list" else None
            for i, item in enumerate(value):
                self.node(node.items, element, item, _Change(item, found.of(item), change, schema), field.index(path, i))
        elif isinstance(value, dict):
            self.object(node, f, value, change, path)

    def object(self, node: Node, f: TypeDesc | Field | None, value: dict[str, Any], change: _Change, path: str) -> None:
        old = change.old if isinstance(change.old, dict) else {}
        type = f.message if isinstance(f, Field) and f.card == "single" else f
        for key in node.order if node.additional is None else sorted(value):
            if key not in value:
                continue
            below, at = node.properties.get(key), key if path == NIL_PATH else f"{path}.{key}"
            inner = type.by_name.get(key) if isinstance(type, TypeDesc) else None
            if below is None and inner is None:
                below, at = node.additional, field.key("" if path == NIL_PATH else path, key)
                inner = type.additional if isinstance(type, TypeDesc) else type.element if isinstance(type, Field) else None
            if below is not None:
                inside = _Change(value[key], old.get(key, ABSENT), change, change.schema.below(key) if change.schema is not None else None)
                if change.parent is None and key in ("apiVersion", "kind"):  # both objects were converted to the same version
                    inside.same = False
                self.node(below, inner, value[key], inside, at)

    def rules(self, node: Node, f: TypeDesc | Field | None, value: Any, change: _Change, path: str) -> None:
        def seen(v: Any) -> Any:
            if isinstance(f, TypeDesc):
                return struct_value(f, v, node.fields)
            return field_value(f, v, node.fields) if f is not None else v

        if self.left <= 0:
            self.stop(field.invalid(path, node.kind, _OUT_OF_BUDGET))
        me = seen(value)
        was = seen(change.old) if change.old is not ABSENT and change.old is not None else None
        for rule in node.rules:
            if rule.error:
                self.errors.append(field.invalid(path, node.kind, f"rule compile error: {rule.error}"))
            elif rule.program is not None and not (rule.uses_old and was is None and not rule.optional_old):
                old = (Optional(was) if was is not None else NONE) if rule.optional_old else was
                if not self.holds(rule, {"self": me, "oldSelf": old}, node.kind, path):
                    # The messageExpression of any rule may use oldSelf if at least one rule of the schema does.
                    past = {"oldSelf": was} if was is not None and node.transitions else {}
                    self.failed(rule, {"self": me, **past}, node, value, change, path)

    def holds(self, rule: _Rule, variables: dict[str, Any], kind: str, path: str) -> bool:
        assert rule.program is not None
        if abandoned():
            raise OutOfBudget  # the client has disconnected
        found, cost = rule.program.run_in_turn(variables)
        if cost > self.left:
            self.stop(field.invalid(path, kind, _OUT_OF_BUDGET))
        self.left -= cost
        if not isinstance(found, cel.EvaluationError):
            return found is True
        text = str(found)
        if isinstance(found, cel.CostLimitError):
            why = f"'{text}': no further validation rules will be run due to call cost exceeds limit for rule: {rule.shown}"
            self.stop(field.invalid(path, kind, why))
        if text.startswith("no such overload"):
            text = f"'{text}': call arguments did not match a supported operator, function or macro signature for rule: {rule.shown}"
        else:
            text = f"{text} evaluating rule: {rule.shown}"
        self.errors.append(field.invalid(path, kind, text))
        return True

    def failed(self, rule: _Rule, variables: dict[str, Any], node: Node, value: Any, change: _Change, path: str) -> None:
        at = path
        if rule.path:
            at = rule.path if path == NIL_PATH else f"{path}.{rule.path}"  # also for a map entry: "spec.[a]"
        unchanged = self.ratchet and not rule.uses_old and change.is_none()

        def report(error: FieldError) -> None:
            if unchanged:
                self.warnings.append(str(error))
            else:
                self.errors.append(error)

        words = rule.words
        if rule.message is not None:
            text, cost = rule.message.run_in_turn(variables)
            why = ""
            if cost > self.left:
                why = "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run"
            elif isinstance(text, cel.CostLimitError):
                why = f"no further validation rules will be run due to call cost exceeds limit for messageExpression: {rule.asked}"
            if why:
                report(field.invalid(at, node.kind, why))
                raise OutOfBudget
            self.left -= cost
            words = _message(text) or words
        shown = field.OMIT_VALUE if node.kind in ("object", "array") else value
        report(_error(rule.reason, at, shown, words))

    def stop(self, error: FieldError) -> None:
        self.errors.append(error)
        raise OutOfBudget


def _message(found: Any) -> str:
    """Return the value of a messageExpression if it is a usable message, else ""."""
    text = found.strip(field.GO_SPACE) if isinstance(found, str) else ""
    return text if len(text.encode()) <= MAX_MESSAGE_B and "\n" not in text else ""


def _error(reason: str | None, path: str, value: Any, words: str) -> FieldError:
    if reason == field.FORBIDDEN:
        return field.forbidden(path, words)
    if reason == field.REQUIRED:
        return field.required(path, words)
    if reason == field.DUPLICATE:
        return field.duplicate(path, value)
    return field.invalid(path, value, words)


def errors(
    type: TypeDesc, obj: dict[str, Any], old: Any = ABSENT, budget: int = BUDGET, ratchet: bool = True
) -> tuple[list[FieldError], list[str]]:
    """Evaluate the rules of the type. ``budget`` is in cost units.

    Returns the errors, and with ``ratchet`` warnings instead for rules that fail on unchanged values.
    """
    node = of_type(type)
    if node is None:
        return [], []
    run = _Run(budget, ratchet and old is not ABSENT)
    with contextlib.suppress(OutOfBudget):
        run.node(node, type, obj, _Change(obj, old, None, validator(type) if run.ratchet else None), NIL_PATH)
    return run.errors, run.warnings


def default_errors(f: Field, value: Any, budget: int, path: str) -> tuple[list[FieldError], int]:
    """As ``errors``, for a default at ``path``. Also returns the remaining budget, which may be below 0.

    The default is validated first as an unchanged value and, if that succeeds, as a new one: a rule can tell these apart by an optional
    ``oldSelf``.
    """
    is_root = f.card == "single" and f.message is not None and f.message.embedded
    shapes = _Ruled(f.schema, is_root)
    if not shapes.are_in(f.schema):
        return [], budget
    # Below other values, a value that expressions cannot access is skipped; a default that is such a value itself is not.
    node = _field_node(f, shapes) if shapes.of(f.schema, is_root) is not None else _untyped_node(f.schema, shapes)
    if node is None:
        return [], budget
    left = budget
    for old in value, ABSENT:
        run = _Run(budget, False)
        try:
            run.node(node, f, value, _Change(value, old, None, None), path)
        except OutOfBudget:
            return run.errors, -1
        left = min(left, run.left)
        if run.errors:
            return run.errors, left
    return [], left

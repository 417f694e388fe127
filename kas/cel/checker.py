"""The type checker: sets the type of every node and resolves names and calls (cel-go ``checker/checker.go``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kas.cel import messages
from kas.cel.problems import CompileError, Problem
from kas.cel.syntax import Call, Const, Fold, Ident, ListOf, MapOf, Node, Select, qualified_name
from kas.cel.types import (
    ANY,
    BOOL,
    DYN,
    ERROR,
    INT,
    Bindings,
    Type,
    assignable,
    assignable_all,
    is_dyn,
    is_open,
    list_of,
    map_of,
    most_general,
    optional_of,
    param,
    substitute,
    type_text,
    variables_of,
)
from kas.cel.values import type_of_value

if TYPE_CHECKING:
    from kas.cel.environment import Environment, Function, Variable


MOST_PROBLEMS = 10_000  # including repetitions for shared nodes, which can double at each level


def check(env: Environment, text: str, root: Node) -> Type:
    """Check a tree and annotate its nodes; return the type of the root. Raises CompileError."""
    c = _Checker(env)
    c.visit(root)
    if c.problems:
        raise CompileError(text, c.problems)
    for node in c.seen:
        node.type = substitute(c.bound, node.type, True)
    return root.type


class _Checker:
    def __init__(self, env: Environment) -> None:
        self.env, self.problems, self.bound = env, list[Problem](), Bindings()
        self.scopes: list[dict[str, Variable]] = []
        self.seen: list[Node] = []
        self.faults: dict[int, list[Problem]] = {}  # by the id of the shared node that contains them
        self.count = 0

    def report(self, at: int, message: str) -> None:
        self.problems.append(Problem(at, message))

    def variable(self) -> Type:
        self.count += 1
        return param(f"_var{self.count - 1}")

    def lookup(self, name: str) -> Variable | None:
        plain = name.removeprefix(".")
        if plain == name:
            for scope in reversed(self.scopes):
                if name in scope:
                    return scope[name]
        return self.declared(plain)

    def declared(self, name: str) -> Variable | None:
        """Return the variable of that name in the environment, or one that every environment has."""
        return self.env.variables.get(name) or messages.VARIABLES.get(name)

    def accepts(self, wanted: Type, given: Type) -> bool:
        """Whether ``given`` is assignable to ``wanted``; if so, the resulting bindings of type variables are kept."""
        return assignable(self.bound, wanted, given)

    def shown(self, t: Type) -> Type:
        return substitute(self.bound, t, False)

    def type_text(self, t: Type) -> str:
        """Return a type as errors show it, with its bound type variables replaced."""
        return type_text(self.shown(t))

    def require(self, node: Node, wanted: Type) -> None:
        if not self.accepts(wanted, node.type):
            self.report(node.at, f"expected type '{self.type_text(wanted)}' but found '{self.type_text(node.type)}'")

    def visit(self, node: Node) -> Type:
        if node.shared and node.type is not None:
            return self._again(node)
        before = len(self.problems)
        node.type = self._visit(node)
        self.seen.append(node)
        if node.shared and len(self.problems) > before:
            self.faults[id(node)] = self.problems[before:]
        return node.type

    def _again(self, node: Node) -> Type:
        """Return the type found at the first visit of a shared node, and report its errors again."""
        faults = self.faults.get(id(node), [])
        if len(self.problems) + len(faults) <= MOST_PROBLEMS:
            self.problems.extend(faults)
        checked: Type = node.type
        return checked

    def _visit(self, node: Node) -> Type:
        if isinstance(node, Const):
            return type_of_value(node.value)
        if isinstance(node, Ident):
            return self._ident(node)
        if isinstance(node, Select):
            return self._select(node)
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, ListOf):
            return self._list(node)
        if isinstance(node, MapOf):
            return self._message(node) if node.name else self._map(node)
        assert isinstance(node, Fold)
        return self._fold(node)

    def _undeclared(self, at: int, name: str) -> Type:
        self.report(at, f"undeclared reference to '{name}' (in container '')")
        return ERROR

    def _ident(self, node: Ident) -> Type:
        node.variable = self.lookup(node.name)
        return node.variable.type if node.variable is not None else self._undeclared(node.at, node.name)

    def _select(self, node: Select) -> Type:
        name = qualified_name(node)
        if name and not self._local(name):
            variable = self.declared(name.removeprefix("."))
            if variable is not None:
                node.variable = variable
                return variable.type
        out = self._field(node.at, self.visit(node.operand), node.field)
        return BOOL if node.test else out

    def _local(self, name: str) -> bool:
        """Whether a dotted name begins with a macro's variable, which then takes precedence."""
        first = name.split(".", 1)[0]
        return any(first in scope for scope in self.scopes)

    def _field(self, at: int, operand: Type, field: str) -> Type:
        t = self.shown(operand)
        if t.kind == "opaque" and t.name == "optional_type":  # only one level of optional is unwrapped
            return optional_of(self._plain_field(at, self.shown(t.params[0]), field))
        return self._plain_field(at, t, field)

    def _plain_field(self, at: int, t: Type, field: str) -> Type:
        if is_open(t):
            return DYN
        if t.kind == "map":
            return t.params[1]
        if t.kind == "param":
            # The type is not known yet: treat it as dyn from here on.
            self.accepts(DYN, t)
            return DYN
        if t.kind == "struct":
            fields = self.env.fields_of(t.name)
            if fields is None:
                self.report(at, f"unexpected failed resolution of '{t.name}'")
                return ERROR
            found = fields.get(field)
            if found is None:
                self.report(at, f"undefined field '{field}'")
                return ERROR
            return found
        self.report(at, f"type '{type_text(t)}' does not support field selection")
        return DYN

    # --- calls

    def _call(self, node: Call) -> Type:
        if node.function == "_?._":
            return self._optional_select(node)
        for arg in node.args:
            self.visit(arg)
        if node.target is None:
            function = self.env.functions.get(node.function.removeprefix("."))
            if function is None:
                return self._undeclared(node.at, node.function)
            return self._resolve(node, function, None)
        name = qualified_name(node.target)
        if name:
            function = self.env.functions.get(f"{name.removeprefix('.')}.{node.function}")
            if function is not None:
                node.function, node.target = function.name, None
                return self._resolve(node, function, None)
        self.visit(node.target)
        function = self.env.functions.get(node.function)
        if function is None:
            return self._undeclared(node.at, node.function)
        return self._resolve(node, function, node.target)

    def _optional_select(self, node: Call) -> Type:
        operand, field = node.args
        t = self.visit(operand)
        if not isinstance(field, Const) or not isinstance(field.value, str):
            self.report(field.at, "unsupported optional field selection")
            return ERROR
        self.visit(field)
        out = self._field(node.at, t, field.value)
        return out if out.kind == "opaque" and out.name == "optional_type" and self._is_optional(t) else optional_of(out)

    def _is_optional(self, t: Type) -> bool:
        shown = self.shown(t)
        return shown.kind == "opaque" and shown.name == "optional_type"

    def _resolve(self, node: Call, function: Function, target: Node | None) -> Type:
        args = [*([target] if target is not None else []), *node.args]
        given = [self.shown(a.type) for a in args]
        if function.name in ("_&&_", "_||_"):
            ok = True
            for arg in args:
                if not self.accepts(BOOL, arg.type):
                    self.report(arg.at, f"expected type 'bool' but found '{self.type_text(arg.type)}'")
                    ok = False
            node.overloads = list(function.overloads)
            return BOOL if ok else ERROR
        result: Type | None = None
        for overload in function.overloads:
            if overload.member != (target is not None):
                continue
            wanted, returned = overload.args, overload.result
            if overload.generic:
                fresh = {name: self.variable() for name in dict.fromkeys(v for t in (*wanted, returned) for v in variables_of(t))}
                wanted = tuple(substitute(fresh, t, False) for t in wanted)
                returned = substitute(fresh, returned, False)
            if not assignable_all(self.bound, given, wanted):
                continue
            node.overloads.append(overload)
            found = substitute(self.bound, returned, False)
            if result is None:
                result = found
            elif not is_dyn(result) and found != result:
                result = DYN
        if result is None:
            found_types = [substitute(self.bound, t, True) for t in given]
            shown = ", ".join(map(type_text, found_types[1 if target is not None else 0 :]))
            on = f"{type_text(found_types[0])}." if target is not None else ""
            self.report(node.at, f"found no matching overload for '{function.name}' applied to '{on}({shown})'")
            return ERROR
        return result

    # --- containers

    def _join(self, before: Type | None, t: Type) -> Type:
        if before is None:
            return t
        # Mixed elements make the container dyn; literals.py rejects it where that is not wanted.
        return most_general(before, t) if self.accepts(before, t) else DYN

    def _given(self, node: Node, t: Type) -> Type:
        """Return the element type of an optional value of type ``t``, used with ``?``."""
        shown = self.shown(t)
        if self._is_optional(shown):
            return shown.params[0]
        if not is_dyn(t):
            self.report(node.at, f"expected type 'optional_type({self.type_text(t)})' but found '{self.type_text(t)}'")
        return t

    def _list(self, node: ListOf) -> Type:
        t: Type | None = None
        for i, item in enumerate(node.items):
            own = self.visit(item)
            if i in node.optional:
                own = self._given(item, own)
            t = self._join(t, own)
        return list_of(t if t is not None else self.variable())

    def _map(self, node: MapOf) -> Type:
        keys: Type | None = None
        values: Type | None = None
        for key, value, optional in node.entries:
            keys = self._join(keys, self.visit(key))
            own = self.visit(value)
            if optional:
                own = self._given(value, own)
            values = self._join(values, own)
        if keys is None or values is None:
            return map_of(self.variable(), self.variable())
        return map_of(keys, values)

    def _message(self, node: MapOf) -> Type:
        name = node.name.removeprefix(".")
        variable = self.lookup(node.name)
        fields, out = messages.fields_of(name), ERROR
        if variable is None:
            fields, out = self.env.fields_of(name), Type("struct", name)
            if fields is None:
                return self._undeclared(node.at, node.name)
        elif fields is not None:
            out = variable.type.params[0]
        else:
            self._not_a_message(node.at, variable.type)
        for (field, at), value, optional in node.entries:
            own = self.visit(value)
            if fields is None:
                self.report(at, f"unexpected failed resolution of '{name}'")
                continue
            if optional:
                own = self._given(value, own)
            wanted = fields.get(field)
            if wanted is None:
                self.report(at, f"undefined field '{field}'")
            elif not self.accepts(wanted, own):
                expected, provided = self.type_text(wanted), self.type_text(own)
                self.report(at, f"expected type of field '{field}' is '{expected}' but provided type is '{provided}'")
        return out

    def _not_a_message(self, at: int, t: Type) -> None:
        """Report fields after the name of a non-message: of a value, or of a type without fields."""
        if t.kind != "type" or not t.params:
            self.report(at, f"'{t.name}' is not a type")
        else:
            self.report(at, f"'{t.params[0].name}' is not a message type")

    def _fold(self, node: Fold) -> Type:
        from kas.cel.environment import Variable

        ranged = self.shown(self.visit(node.range))
        accumulated = self.visit(node.init)
        first, second = ERROR, ERROR
        if ranged.kind == "list":
            first, second = (INT, ranged.params[0]) if node.second else (ranged.params[0], ERROR)
        elif ranged.kind == "map":
            first, second = ranged.params
        elif ranged.kind in ("dyn", "error", "param") and ranged != ANY:
            if ranged.kind == "param":
                self.accepts(DYN, ranged)
            first = second = DYN
        else:
            message = f"expression of type '{type_text(ranged)}' cannot be range of a comprehension (must be list, map, or dynamic)"
            self.report(node.range.at, message)
        self.scopes.append({node.accumulator: Variable(node.accumulator, accumulated)})
        inner = {node.variable: Variable(node.variable, first)}
        if node.second:
            inner[node.second] = Variable(node.second, second)
        self.scopes.append(inner)
        self.visit(node.condition)
        self.require(node.condition, BOOL)
        self.visit(node.step)
        self.require(node.step, accumulated)
        self.scopes.pop()
        result = self.visit(node.result)
        self.scopes.pop()
        return self.shown(result)




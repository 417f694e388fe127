"""CEL in an AuthenticationConfiguration (``apiserver/pkg/authentication/cel``): variables, compilation and evaluation."""

from __future__ import annotations

from typing import Any

from kas import cel
from kas.auth.user import UserInfo
from kas.cel.admission import STRUCTS
from kas.cel.base import BASE
from kas.cel.schemas import unescape
from kas.cel.syntax import Call, Const, Fold, Ident, ListOf, MapOf, Node, Select
from kas.cel.types import ANY, BOOL, STRING, Type, map_of, struct
from kas.meta import field
from kas.meta.field import FieldError

USER = "kubernetes.UserInfo"
CLAIMS = BASE.extended({"claims": map_of(STRING, ANY)})
USERS = BASE.extended({"user": struct(USER)}, {USER: STRUCTS[USER]})


class Expression:
    """A compiled expression and its text."""

    __slots__ = ("program", "text")

    def __init__(self, text: str, program: cel.Program) -> None:
        self.text, self.program = text, program

    def evaluate(self, variables: dict[str, Any]) -> Any:
        """Return the value. Raises ``cel.EvaluationError``, and BudgetSpentError if the cost budget of the loop iteration does not
        suffice."""
        value, _ = self.program.run_in_turn(variables)
        if isinstance(value, cel.EvaluationError):
            raise value
        return value

    def uses(self, claim: str) -> bool:
        """Return whether the expression accesses ``claims.<claim>`` by name."""
        return _selects(self.program.root, claim)


def compiled(text: str, env: cel.Environment, path: str, wanted: Type | None = None) -> tuple[Expression | None, FieldError | None]:
    """Return the compiled expression, or an error. ``wanted`` is the type it must have; None allows any, to be checked at evaluation."""
    try:
        program = cel.compile(text, env)
    except cel.CompileError as e:
        return None, field.invalid(path, text, f"compilation failed: {e}")
    except cel.ProgramError as e:
        return None, field.internal(path, f"program instantiation failed: {e}")
    if wanted is not None and program.type != wanted:
        return None, field.invalid(path, text, f"must evaluate to {wanted}")
    return Expression(text, program), None


def rule(text: str, env: cel.Environment, path: str) -> tuple[Expression | None, FieldError | None]:
    """Compile a rule, which must be a boolean."""
    return compiled(text, env, path, BOOL)


class Escaped(dict[str, Any]):
    """A JSON object whose members are accessible by escaped names: ``claims.kubernetes__dot__io`` is ``kubernetes.io``."""

    __slots__ = ()

    def __contains__(self, key: object) -> bool:
        return super().__contains__(self._stored(key))

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(self._stored(key))

    def _stored(self, key: Any) -> Any:
        name = unescape(key) if isinstance(key, str) else None
        return key if name is None else name


class EscapedClaims(Escaped):
    """All claims; here, a name that is not a valid escaped name matches nothing."""

    __slots__ = ()

    def _stored(self, key: Any) -> Any:
        return unescape(key) if isinstance(key, str) else key


def claim_variables(claims: dict[str, Any]) -> dict[str, Any]:
    """Return the variables of expressions about claims."""
    return {"claims": EscapedClaims({k: _seen(v) for k, v in claims.items()})}


def _seen(value: Any) -> Any:
    """Convert a JSON value for expressions: every number is a double, as in Go's JSON decoding."""
    if isinstance(value, dict):
        return Escaped({k: _seen(v) for k, v in value.items()})
    if isinstance(value, list):
        return [_seen(v) for v in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def user_variables(user: UserInfo) -> dict[str, Any]:
    """Return the variables of rules about users, with all fields present."""
    return {"user": {"username": user.name, "uid": user.uid, "groups": list(user.groups), "extra": Escaped(user.extra)}}


def _selects(node: Node, claim: str) -> bool:
    if isinstance(node, Select):
        return (_is_claims(node.operand) and node.field == claim) or _selects(node.operand, claim)
    if isinstance(node, Call):
        if node.function == "_?._" and len(node.args) == 2 and _is_claims(node.args[0]):
            name = node.args[1]
            if isinstance(name, Const) and name.value == claim:
                return True
        return any(_selects(n, claim) for n in (*node.args, *((node.target,) if node.target is not None else ())))
    if isinstance(node, ListOf):
        return any(_selects(n, claim) for n in node.items)
    if isinstance(node, MapOf):
        return any(isinstance(n, Node) and _selects(n, claim) for key, value, _ in node.entries for n in (key, value))
    if isinstance(node, Fold):
        return any(_selects(n, claim) for n in (node.range, node.init, node.condition, node.step, node.result))
    return False


def _is_claims(node: Node) -> bool:
    return isinstance(node, Ident) and node.name == "claims"

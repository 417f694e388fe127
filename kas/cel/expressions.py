"""Validation of CEL expressions in objects: whether they compile, and their type (apiserver ``pkg/admission/plugin/cel``)."""

from __future__ import annotations

from collections.abc import Sequence

from kas import cel
from kas.cel.admission import OBJECT, PATCH, environment, seen, with_variables
from kas.cel.environment import Environment
from kas.cel.types import BOOL, DYN, NULL, STRING, Type, list_of
from kas.meta import field
from kas.meta.compilebudget import CompileBudget
from kas.meta.field import FieldError
from kas.observe.caches import Cache

# Results are cached because controllers write the same expressions repeatedly: the type and the number of pattern instructions, or whether
# the text is to blame and why it does not compile.
Found = tuple[Type, int] | tuple[bool, str]
_types: Cache[tuple[str, Environment], Found] = Cache(
    "cel_types", "the types of expressions in objects", 4 << 20, 4096
)


def _compiled(text: str, env: Environment) -> Found:
    found = _types.entries.get((text, env))
    if found is None:
        found = _compile(text, env)
        _types.put((text, env), found, len(text) + (len(found[1]) if isinstance(found[1], str) else 0))
    return found


def _compile(text: str, env: Environment) -> Found:
    try:
        program = cel.compile(text, env)
        return program.type, program.patterns
    except cel.CompileError as e:
        return True, f"compilation failed: {e}"
    except cel.ProgramError as e:
        return False, f"program instantiation failed: {e}"


def compile_expression(
    text: str, env: Environment, path: str, *wanted: Type, allowance: CompileBudget | None = None
) -> tuple[Type | None, list[FieldError]]:
    """Return the type of the expression (None: it does not compile) and its errors. ``wanted``: the allowed types; none: any."""
    if allowance is not None and (errs := allowance.spent(path)):
        return None, errs
    found, more = _compiled(text, env)
    if isinstance(more, str):
        return None, [field.invalid(path, text, more) if found else field.internal(path, more)]
    assert isinstance(found, Type)
    if allowance is not None:
        allowance.left -= more
    if wanted and found not in wanted:
        return found, [field.invalid(path, text, unfit(found, wanted))]
    return found, []


def unfit(found: Type, wanted: Sequence[Type]) -> str:
    """Return the error text for an expression whose type is none of ``wanted``."""
    expected = str(wanted[0]) if len(wanted) == 1 else "one of [" + " ".join(map(str, wanted)) + "]"
    return f"must evaluate to {expected} but got {found}"


def device_selector(text: str, path: str, allowance: CompileBudget) -> list[FieldError]:
    """Validate a device selector, which must be certain to stay within its cost limit."""
    from kas.cel import devices

    if errs := allowance.spent(path):
        return errs
    try:
        program = cel.compile(text, devices.ENVIRONMENT)
    except cel.CompileError as e:
        return [field.invalid(path, text, f"compilation failed: {e}")]
    except cel.ProgramError as e:
        return [field.internal(path, f"program instantiation failed: {e}")]
    allowance.left -= program.patterns
    if program.type not in (BOOL, DYN):
        return [field.invalid(path, text, f"must evaluate to {BOOL} or the unknown type, not {program.type}")]
    if program.estimate(devices.sizes).high > devices.MAX_COST:
        return [field.forbidden(path, "too complex, exceeds cost limit")]
    return []


def condition(text: str, path: str, params: bool, allowance: CompileBudget) -> list[FieldError]:
    """Validate a match condition; ``params``: whether it may use ``params``."""
    return compile_expression(text, environment(params), path, BOOL, allowance=allowance)[1]


class PolicyExpressions:
    """The expressions of one admission policy; each declared variable extends ``variables``."""

    def __init__(self, params: bool, allowance: CompileBudget) -> None:
        self._params, self._types, self._allowance = params, dict[str, Type](), allowance

    def _environment(self, params: bool, authorizer: bool = True, patches: bool = False) -> Environment:
        return with_variables(environment(params, authorizer, patches), self._types)

    def variable(self, name: str, text: str, path: str) -> list[FieldError]:
        """Compile ``variables[].expression``; later expressions see its type."""
        found, errs = compile_expression(text, self._environment(self._params), path, allowance=self._allowance)
        self._types[name] = seen(found) if found is not None else DYN
        return errs

    def validation(self, text: str, path: str) -> list[FieldError]:
        """Compile ``validations[].expression``, which must be a bool."""
        return compile_expression(text, self._environment(self._params), path, BOOL, allowance=self._allowance)[1]

    def message(self, text: str, path: str) -> list[FieldError]:
        """Compile a ``messageExpression``, which must be a string and may not use the authorizer."""
        return compile_expression(text, self._environment(self._params, authorizer=False), path, STRING, allowance=self._allowance)[1]

    def annotation(self, text: str, path: str) -> list[FieldError]:
        """Compile an audit annotation's ``valueExpression``: a string or null."""
        return compile_expression(text, self._environment(self._params), path, STRING, NULL, allowance=self._allowance)[1]

    def mutation(self, text: str, path: str, json_patch: bool) -> list[FieldError]:
        """Compile a mutation: a list of JSON patch operations, or the object of an apply configuration."""
        env = self._environment(self._params, patches=True)
        return compile_expression(text, env, path, list_of(PATCH) if json_patch else OBJECT, allowance=self._allowance)[1]

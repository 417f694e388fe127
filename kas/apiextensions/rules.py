"""The CEL rules in a CustomResourceDefinition's schema: compilation and cost limits.

Upstream: apiextensions-apiserver ``pkg/apis/apiextensions/validation`` (CELSchemaContext) and ``pkg/apiserver/schema/cel``.
For structural schemas only.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from dataclasses import field as attribute
from time import perf_counter

from kas import cel
from kas.apiextensions import celmetrics
from kas.apiextensions.celrules import rule_environment
from kas.apiextensions.schema import EMBEDDED, LIST_TYPE, MAP_TYPE, RULES, Schema, shown_rule
from kas.cel.cost import MAX
from kas.cel.declared import sizes_below
from kas.cel.literals import walk
from kas.cel.schemas import Shapes, as_seen_from, most_often
from kas.cel.syntax import Ident
from kas.cel.types import BOOL, STRING, Type
from kas.meta import field
from kas.meta.compilebudget import MOST_PATTERNS, UNWANTED
from kas.meta.field import FieldError
from kas.meta.offload import abandoned

RULE_LIMIT, TOTAL_LIMIT = 10_000_000, 100_000_000
_KNOWN_MAPS = (None, "granular", "atomic")
MOST_NAMED = 4  # of the rules that cost a hundredth of the limit or more
_HINT = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"


@dataclass(slots=True)
class _Place:
    """A schema and its surroundings.

    ``often``: the maximum number of its values in an object, None if unbounded. ``apart``: the path of an enclosing list, or of an object
    of unknown map type, whose parts cannot be correlated across an update. ``ruled``: a rule is here or around. ``lost``: expressions have
    no type for it, or for an enclosing schema with rules.
    """

    schema: Schema
    path: str
    often: int | None
    apart: str = ""
    is_root: bool = False
    ruled: bool = False
    lost: bool = False

    def below(self, schema: Schema, path: str, often: int | None, apart: str) -> _Place:
        return _Place(schema, path, often, apart, bool(schema.get(EMBEDDED)), self.ruled, self.lost)


@dataclass(slots=True)
class _Budget:
    limited: bool = True
    total: int = 0
    patterns: int = 0  # regular expression instructions in rules and messages
    spent: list[tuple[int, str]] = attribute(default_factory=list)

    def spend(self, path: str, cost: int) -> None:
        self.total = min(self.total + cost, MAX)
        self.spent.append((cost, path))

    def within(self, path: str, name: str, cost: int) -> list[FieldError]:
        """Return an error if one rule costs too much."""
        return [field.forbidden(path, _exceeds(name, cost, RULE_LIMIT))] if self.limited and cost > RULE_LIMIT else []


def rules(schema: Schema, path: str, faulty: Set[str] = frozenset(), limited: bool = True) -> list[FieldError]:
    """Compile every ``x-kubernetes-validations`` rule of the schema and check the estimated costs of each and of all against the limits.

    ``faulty`` are the paths of schemas that have other errors in or below them: their rules are skipped. Without ``limited`` the limit of a
    single rule does not apply.
    """
    errs: list[FieldError] = []
    budget, shapes = _Budget(limited), Shapes(schema, True)
    for place in _places(_Place(schema, path, 1, is_root=True), shapes):
        if budget.patterns > MOST_PATTERNS:
            break
        if place.schema.get(RULES) and place.path not in faulty:
            errs += _rules_of(place, budget, shapes)
    if budget.patterns > MOST_PATTERNS:
        errs.append(field.forbidden(path, f"the patterns of all rules must compile to {MOST_PATTERNS} instructions at most together"))
    if budget.total > TOTAL_LIMIT:
        text = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        dearest = sorted((x for x in budget.spent if x[0] >= TOTAL_LIMIT // 100), key=lambda x: -x[0])[:MOST_NAMED]
        errs += [field.forbidden(at, text) for _, at in dearest]
        name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        errs.append(field.forbidden(path, _exceeds(name, budget.total, TOTAL_LIMIT)))
    return errs


def _places(place: _Place, shapes: Shapes) -> Iterator[_Place]:
    """Yield the places below, then the schema itself."""
    schema, path = place.schema, place.path
    place.ruled = place.ruled or bool(schema.get(RULES))
    if place.ruled and not place.lost:
        place.lost = shapes.of(schema, place.is_root) is None
    additional, items = schema.get("additionalProperties"), schema.get("items")
    if isinstance(additional, dict):
        often = _times(place.often, schema.get("maxProperties"))
        yield from _places(place.below(additional, f"{path}.additionalProperties", often, place.apart), shapes)
    apart = place.apart or ("" if schema.get(MAP_TYPE) in _KNOWN_MAPS else path)
    for name, inner in (schema.get("properties") or {}).items():
        yield from _places(place.below(inner, field.key(f"{path}.properties", name), place.often, apart), shapes)
    if isinstance(items, dict):
        apart = place.apart or ("" if schema.get(LIST_TYPE) == "map" else path)
        yield from _places(place.below(items, f"{path}.items", _times(place.often, schema.get("maxItems")), apart), shapes)
    yield place


def _times(often: int | None, most: int | None) -> int | None:
    return None if often is None or most is None else min(often * max(most, 0), MAX)


def _rules_of(place: _Place, budget: _Budget, shapes: Shapes) -> list[FieldError]:
    began = perf_counter()
    try:
        return _checked(place, budget, shapes)
    finally:
        celmetrics.compiled(perf_counter() - began)


def _checked(place: _Place, budget: _Budget, shapes: Shapes) -> list[FieldError]:
    found = shapes.of(place.schema, place.is_root)
    if found is None or place.lost:
        why = "unable to convert structural schema to CEL declarations"
        text = f"internal error: failed to construct type information for x-kubernetes-validations rules: {why}"
        return [field.internal(f"{place.path}.{RULES}", text)]
    shape, least = found
    often = place.often if place.often is not None else most_often(least)
    sizes = sizes_below(shape)
    errs: list[FieldError] = []
    for i, rule in enumerate(place.schema[RULES]):
        if budget.patterns > MOST_PATTERNS:
            break
        at, text = field.index(f"{place.path}.{RULES}", i), rule.get("rule") or ""
        env = rule_environment(shape.type, bool(rule.get("optionalOldSelf")), shapes)
        if not text.strip():
            continue
        if abandoned():  # stop before the next rule if the client has disconnected
            return [*errs, field.forbidden(at, UNWANTED)]
        program, why = _compiled(text, env, shape.type)
        budget.patterns += program.patterns if program is not None else 0
        if program is not None and program.type != BOOL:
            program, why = None, "cel expression must evaluate to a bool"
        cost = min(program.estimate(sizes).high * often, MAX) if program is not None else 0
        errs += budget.within(f"{at}.rule", "estimated rule cost", cost)
        budget.spend(f"{at}.rule", cost)
        if program is None:
            errs.append(field.invalid(f"{at}.rule", shown_rule(rule), why))
        else:
            errs += _message(rule, env, sizes, at, budget, shape.type)
        if program is not None and _has_past(program):
            if place.apart:
                text = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {place.apart}"
                errs.append(field.invalid(f"{at}.rule", rule.get("rule"), text))
        elif rule.get("optionalOldSelf") is not None:
            errs.append(field.invalid(f"{at}.optionalOldSelf", rule["optionalOldSelf"], "may not be set if oldSelf is not used in rule"))
    return errs


def _has_past(program: cel.Program) -> bool:
    return any(isinstance(node, Ident) and node.variable is not None and node.variable.name == "oldSelf" for node in walk(program.root))


def _compiled(text: str, env: cel.Environment, place: Type) -> tuple[cel.Program | None, str]:
    try:
        return cel.compile(text, env), ""
    except cel.CompileError as e:
        return None, f"compilation failed: {as_seen_from(place, str(e))}"
    except cel.ProgramError as e:
        return None, f"program instantiation failed: {e}"


def _message(rule: Schema, env: cel.Environment, sizes: cel.Sizes, at: str, budget: _Budget, place: Type) -> list[FieldError]:
    text, path = rule.get("messageExpression") or "", f"{at}.messageExpression"
    if not text.strip():
        return []
    program, why = _compiled(text, env, place)
    budget.patterns += program.patterns if program is not None else 0
    if program is not None and program.type != STRING:
        program, why = None, "messageExpression must evaluate to a string"
    elif program is None:
        why = f"messageExpression {why}"
    if program is None:
        return [field.invalid(path, shown_rule(rule), why)]
    cost = program.estimate(sizes).high
    budget.spend(path, cost)
    return budget.within(path, "estimated messageExpression cost", cost)


def _exceeds(name: str, cost: int, limit: int) -> str:
    factor = cost / limit
    shown = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    return f"{name} exceeds budget by factor of {shown} {_HINT}"

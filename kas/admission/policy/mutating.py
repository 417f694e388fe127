"""The mutations of a MutatingAdmissionPolicy (upstream ``policy/mutating/patch``)."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from time import monotonic
from typing import Any

from kas.admission import Attributes
from kas.admission.expressions import BUDGET, MATCH_CONDITIONS_BUDGET, Evaluator, Failed, activation
from kas.admission.policy.compiled import Mutation, evaluator_of
from kas.admission.policy.govalues import go_values
from kas.admission.policy.metrics import INVALID_ERROR, NO_ERROR, MutatingMetrics, error_type
from kas.admission.policy.policies import ConfigurationFault, Found
from kas.admission.versioned import Versioned
from kas.apiextensions.mergeschema import crd_schema
from kas.auth.attributes import Authorizer, Outcome
from kas.cel.admission import OPERATION
from kas.cel.problems import CostLimitError
from kas.cel.schemas import MAX_REQUEST_BYTES
from kas.cel.stackdepth import with_deep_stack
from kas.cel.values import MOST_COMPARED, Duration, Message, Optional, Timestamp, characters, nodes
from kas.meta import errors
from kas.meta.field import go_quote
from kas.meta.offload import in_turn, is_large
from kas.meta.scalars import format_duration
from kas.meta.waiting import TimeSlice
from kas.patch import jsonpatch
from kas.patch.fieldmanager import Schema, UnfitError, apply_unowned, builtin
from kas.types.scheme import DecodeError, EncodeError, Kind

Obj = dict[str, Any]


class MutationError(Exception):
    """A mutation that cannot be applied; the failure policy decides what follows."""


class Run:
    """Runs the policies on one request, one after the other. ``faults`` are the failures."""

    def __init__(
        self, a: Attributes, objects: Versioned, namespace: Obj | None, authorizer: Authorizer, metrics: MutatingMetrics
    ) -> None:
        self._a, self._objects, self._namespace, self._authorizer, self._metrics = a, objects, namespace, authorizer, metrics
        self._known: dict[Any, Outcome] = {}
        self._time_slice = TimeSlice()  # shared by all policies, each of which may be small
        self.faults: list[ConfigurationFault] = []

    async def _variables(self, found: Found) -> Obj:
        await self._objects.ready(values=True)
        out = activation(self._a, found.invocation, self._objects, self._authorizer, self._namespace, self._known)
        out["params"] = found.param
        return out

    async def matches(self, found: Found) -> bool:
        """Return whether the policy's match conditions hold."""
        if not found.policy.conditions:
            return True
        try:
            variables = await self._variables(found)
            variables["namespaceObject"] = None  # not visible to match conditions, as upstream
            evaluator = Evaluator(variables, MATCH_CONDITIONS_BUDGET)
            return await found.policy.conditions.match(evaluator, self._metrics.conditions, found.policy.name, self._a.operation)
        except Failed as e:
            self._failed(found, e)
            return False

    async def mutate(self, found: Found) -> bool:
        """Apply the policy's mutations, each to the result of the previous one; return whether they changed the object. Raises a 500 if
        the result cannot be decoded."""
        changed = False
        for mutation in found.policy.mutations:
            if self._objects.obj is None:
                continue
            if self._time_slice.over:
                await self._time_slice.pause()
            began, error = monotonic(), INVALID_ERROR
            try:
                if isinstance(why := await mutation.expression.ready(), str):
                    raise Failed(why)
                wanted = await evaluator_of(found.policy, await self._variables(found), BUDGET).value(mutation.expression)
                in_thread = is_large(self._objects.obj) or is_large(wanted)
                changed |= await in_turn(in_thread, _changed, mutation, wanted, self._objects)
                error = NO_ERROR
            except (Failed, MutationError) as e:
                error = error_type(str(e))
                self._failed(found, e)
            except (DecodeError, EncodeError) as e:
                raise errors.internal(str(e)) from None
            finally:
                self._metrics.observe(found.policy.name, found.binding.name, error, monotonic() - began)
        return changed

    def _failed(self, found: Found, e: Exception) -> None:
        self.faults.append(ConfigurationFault(found.policy, found.binding, str(e), "Invalid"))


def _check_names(wanted: Any, name: str) -> None:
    """Check that each object's type name is the path to it from type ``name``: ``Object.spec`` below ``spec``. Raises MutationError."""
    wrong = with_deep_stack(lambda: list(_misnamed(wanted, name)))
    if wrong:
        raise MutationError("type mismatch: " + "\n".join(wrong))


def _misnamed(value: Any, name: str) -> Iterator[str]:
    if isinstance(value, Message):
        if value.name != name:
            names = f"unexpected type name {go_quote(value.name)}, expected {go_quote(name)}"
            yield f"{names}, which matches field name path from root Object type"
        for key, inner in value.items():
            yield from _misnamed(inner, f"{name}.{key}")
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _misnamed(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _misnamed(inner, name)


def _changed(mutation: Mutation, wanted: Any, objects: Versioned) -> bool:
    """Apply a mutation; return whether it changed the object."""
    # Values may share structure (a list that contains another list twice, and so on), so a small value can be huge once written out.
    if nodes(wanted) >= MOST_COMPARED or characters(wanted, MAX_REQUEST_BYTES) > MAX_REQUEST_BYTES:
        raise MutationError(str(CostLimitError()))
    if not mutation.json_patch:
        _check_names(wanted, "Object")
    elif other := next((name for operation in wanted for name in operation if name not in OPERATION), None):
        raise MutationError(f"expression '{mutation.expression.text}' resulted in error: unexpected JSONPatchType field: {other}")
    else:
        for operation in wanted:
            if isinstance(value := operation.get("value"), Message):
                _check_names(value, value.name)
    return objects.replace(_made(mutation, wanted, objects), strict=mutation.json_patch)


def _made(mutation: Mutation, wanted: Any, objects: Versioned) -> Any:
    value = objects.plain()[0]
    assert value is not None  # checked by the caller
    if mutation.json_patch:
        # An operation without "op" or "path" has "" there.
        return _patched(value, [{"op": "", "path": "", **operation} for operation in to_json(wanted)])
    return _merged(value, wanted, objects.kind_record())


def _patched(value: Obj, operations: Any) -> Any:
    if len(operations) > jsonpatch.MAX_OPERATIONS:
        raise MutationError(f"JSON Patch: more than {jsonpatch.MAX_OPERATIONS} operations")
    try:
        return jsonpatch.apply(value, operations)
    except jsonpatch.TestFailedError:
        return value  # a failed test skips the remaining operations and is not an error
    except jsonpatch.ApplyError as e:
        raise MutationError(f"JSON Patch: {e}") from None


def _merged(value: Obj, wanted: Any, kind: Kind) -> Obj:
    named = {"apiVersion": kind.api_version, "kind": kind.kind}
    try:
        return apply_unowned(_schema(kind), value, {**to_json(wanted), **named}, {**go_values(wanted), **named})
    except UnfitError as e:
        raise MutationError(f"error applying patch: {e}") from None


def _schema(kind: Kind) -> Schema:
    if kind.type.schema is None:
        return builtin(kind.group, kind.version, kind.kind)
    found: Schema | None = kind.type.derived.get("applied")
    if found is None:
        found = kind.type.derived["applied"] = crd_schema(kind.type, kind.api_version, kind.kind)
    return found


def to_json(value: Any) -> Any:
    """Convert a value of an expression to JSON types, however deep it is nested: it may be a part of the object."""
    return with_deep_stack(lambda: _to_json(value))


def _to_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k).lower() if isinstance(k, bool) else str(k): _to_json(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_to_json(v) for v in value]
    if isinstance(value, Optional):
        return _to_json(value.value) if value.present else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Timestamp):
        return value.text()
    if isinstance(value, Duration):
        return format_duration(value.ns)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return value if value is None or isinstance(value, (str, bool, float)) else str(value)

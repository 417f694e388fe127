"""ValidatingAdmissionPolicy: configured expressions decide what may be written; a failed validation is refused, warned about or audited.

Upstream: ``pkg/admission/plugin/policy/validating``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import orjson

from kas.admission import Attributes
from kas.admission.configuration import Section
from kas.admission.initializer import RESTMapper
from kas.admission.matching import GVK, Equivalents, Invocation
from kas.admission.policy.metrics import INVALID_ERROR, ValidatingMetrics, error_type
from kas.admission.policy.policies import ConfigurationFault, Found, Policies, configured, static_policies
from kas.admission.versioned import Versioned
from kas.auth.attributes import Authorizer
from kas.informers import Informers, Objects
from kas.meta import names
from kas.meta.errors import ApiError
from kas.observe.metrics import Registry as Metrics
from kas.registry.registries import Registries

if TYPE_CHECKING:
    from kas.admission.expressions import Activation
    from kas.admission.policy.validating import Decision

FAILURES = "validation.policy.admission.k8s.io/validation_failure"
_CODES = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413}


class Plugin:
    """Applies to requests that a stored policy and its bindings match; disabled while there are none."""

    name = "ValidatingAdmissionPolicy"
    configured = staticmethod(partial(configured, "validating"))

    def __init__(
        self, informers: Informers, objects: Objects, mapper: RESTMapper, equivalents: Equivalents, authorizer: Authorizer,
        metrics: Metrics, registries: Registries, identity: str = "", section: Section | None = None,
    ) -> None:  # fmt: skip
        self._policies = Policies("validating", informers, objects, mapper, equivalents)
        self.manifests = static_policies(section, self.name, self._policies, registries, metrics, identity)
        self._authorizer, self._metrics = authorizer, ValidatingMetrics(metrics)

    def on_change(self, changed: Callable[[], None]) -> None:
        """Set the function to call when the result of ``handles`` may have changed."""
        self._policies.changed = changed

    def handles(self, a: Attributes) -> bool:
        """Return whether a bound policy may match; False for policies themselves and reviews."""
        return self._policies.handle(a)

    async def validate(self, a: Attributes) -> None:
        """Evaluate the policies. Raises the first refusal."""
        from kas.admission.policy.validating import evaluate  # CEL is large, and most servers never have a policy

        known: dict[Invocation, Activation] = {}
        own = Versioned(a, self._policies.equivalents)
        versions = {own.kind: own}
        results, conditions = _Results(a, self._metrics), self._metrics.conditions
        async for found in self._policies.about(a, own):
            if isinstance(found, ConfigurationFault):
                results.fault(found)
                continue
            about = known.get(found.invocation)
            if about is None:
                about = known[found.invocation] = await self._about(a, found.invocation, versions)
            outcome = await evaluate(found.policy, a, about, found.param, conditions)
            for i, decision in enumerate(outcome.decisions):
                if decision.denied or decision.failed:
                    results.failure(found, i, decision)
            for decision in outcome.failed:
                results.refuse(found, decision)
            for key, value in outcome.annotations:
                results.annotate(f"{found.policy.name}/{key}", value)
        results.end()

    async def _about(self, a: Attributes, invocation: Invocation, versions: dict[GVK, Versioned]) -> Activation:
        """Return the variables for a request in a version, shared by all policies."""
        from kas.admission.expressions import activation

        objects = versions.get(invocation.kind)
        if objects is None:
            objects = versions[invocation.kind] = Versioned(a, self._policies.equivalents)
            await objects.show(invocation)
        await objects.ready(values=True)
        return activation(a, invocation, objects, self._authorizer, self._policies.namespace(a))


class _Results:
    """Collects the results of all policies for a request."""

    def __init__(self, a: Attributes, metrics: ValidatingMetrics) -> None:
        self._a, self._metrics = a, metrics
        self._refusal: ApiError | None = None
        self._failures: list[dict[str, object]] = []
        self._annotations: dict[str, list[str]] = {}

    def fault(self, fault: ConfigurationFault) -> None:
        """Refuse the request because a policy cannot be evaluated, unless its failure policy is Ignore."""
        if not fault.policy.ignore:
            with_ = f" with binding '{fault.binding.name}'" if fault.binding is not None else ""
            self._refuse(f"ValidatingAdmissionPolicy '{fault.policy.name}'{with_} denied request: {fault.message}", "")

    def failure(self, found: Found, index: int, decision: Decision) -> None:
        """Process a failed validation by the binding's actions. One whose evaluation failed under failurePolicy Ignore is only
        counted."""
        policy, binding = found.policy.name, found.binding
        error = error_type(decision.denied) if decision.failed else INVALID_ERROR
        if not decision.denied:
            self._metrics.observe(policy, binding.name, error, "allow", decision.seconds)
            return
        for action in binding.actions:
            self._metrics.observe(policy, binding.name, error, action.lower(), decision.seconds)
            if action == "Deny":
                self._refuse(_denied(found, decision), decision.reason)
            elif action == "Warn":
                text = f"Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding.name}': {decision.denied}"
                self._a.warn(text)
            elif action == "Audit" and not self._failures:  # upstream records only the first of a list
                self._failures.append({
                    "message": decision.denied, "policy": policy, "binding": binding.name, "expressionIndex": index,
                    "validationActions": binding.actions,
                })  # fmt: skip

    def refuse(self, found: Found, decision: Decision) -> None:
        """Refuse the request because an audit annotation could not be evaluated, whatever the binding's actions are."""
        self._metrics.observe(found.policy.name, found.binding.name, error_type(decision.denied), "deny", decision.seconds)
        self._refuse(_denied(found, decision), decision.reason)

    def annotate(self, key: str, value: str) -> None:
        """Add an audit annotation; several values of one key are joined."""
        values = self._annotations.setdefault(key, [])
        if value not in values:
            values.append(value)

    def _refuse(self, message: str, reason: str) -> None:
        if self._refusal is None:
            e = self._a.forbid(message)
            e.reason = reason or "Invalid"
            e.code = _CODES.get(e.reason, 422)
            e.details = {**(e.details or {}), "causes": [{"message": message}]}
            self._refusal = e

    def end(self) -> None:
        """Write the audit annotations, and raise the first refusal."""
        if self._failures:  # first, because the first value of a key is kept, and a policy's name may give the same key
            self._a.annotate(FAILURES, orjson.dumps(self._failures).decode())
        for key, values in self._annotations.items():
            if not names.is_qualified_name(key):
                self._a.annotate(key, ", ".join(values))
        refusal, self._refusal = self._refusal, None
        try:
            if refusal is not None:
                raise refusal
        finally:
            del refusal  # break the cycle error -> traceback -> this frame, which would keep the object in memory


def _denied(found: Found, decision: Decision) -> str:
    return f"ValidatingAdmissionPolicy '{found.policy.name}' with binding '{found.binding.name}' denied request: {decision.denied}"

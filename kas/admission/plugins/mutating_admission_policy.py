"""MutatingAdmissionPolicy: configured expressions change an object before it is written.

Policies are evaluated in order of name, each on the result of the previous one. Once a mutation was applied, even one without effect, all
mutating plug-ins run once more. In that round only those policies are evaluated again that want to be (``reinvocationPolicy: IfNeeded``),
and only if the object was changed after them.

Upstream: ``pkg/admission/plugin/policy/mutating``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kas.admission import Attributes
from kas.admission.configuration import Section
from kas.admission.initializer import RESTMapper
from kas.admission.matching import Equivalents
from kas.admission.policy.metrics import MutatingMetrics
from kas.admission.policy.policies import ConfigurationFault, Policies, configured, static_policies
from kas.admission.reinvocation import Rounds
from kas.admission.versioned import Versioned
from kas.auth.attributes import Authorizer
from kas.config import features
from kas.informers import Informers, Objects
from kas.meta import errors
from kas.meta.errors import ApiError
from kas.meta.field import go_quote
from kas.observe.metrics import Registry as Metrics
from kas.registry.registries import Registries


class Plugin:
    """Applies to requests that a stored policy and its bindings match; disabled while there are none."""

    name = "MutatingAdmissionPolicy"
    configured = staticmethod(partial(configured, "mutating"))

    def __init__(
        self, informers: Informers, objects: Objects, mapper: RESTMapper, equivalents: Equivalents, authorizer: Authorizer,
        metrics: Metrics, registries: Registries, identity: str = "", section: Section | None = None,
    ) -> None:  # fmt: skip
        self._policies = Policies("mutating", informers, objects, mapper, equivalents)
        self.manifests = static_policies(section, self.name, self._policies, registries, metrics, identity)
        self._authorizer, self._metrics = authorizer, MutatingMetrics(metrics)

    def on_change(self, changed: Callable[[], None]) -> None:
        """Set the function to call when the result of ``handles`` may have changed."""
        self._policies.changed = changed

    def handles(self, a: Attributes) -> bool:
        """Return whether a bound policy may match; False for policies themselves and reviews, and while the feature gate is off."""
        return features.DEFAULT.enabled("MutatingAdmissionPolicy") and self._policies.handle(a)

    async def admit(self, a: Attributes) -> None:
        """Evaluate the policies and apply their mutations. Raises 403 for failures of policies with failurePolicy Fail, and 500 if a
        mutation makes the object undecodable."""
        from kas.admission.policy.mutating import Run  # CEL is large, and most servers never have a policy

        policies, reinvocation = self._policies, a.reinvoked()
        rounds: Rounds = reinvocation.values.setdefault(self.name, Rounds())
        objects = Versioned(a, policies.equivalents)
        rounds.begin(reinvocation, objects)
        # Selectors see the object as it was before the policies changed it.
        found = [f async for f in policies.about(a, Versioned(a, policies.equivalents))]
        faults = [f for f in found if isinstance(f, ConfigurationFault)]
        run = Run(a, objects, policies.namespace(a) if len(faults) < len(found) else None, self._authorizer, self._metrics)
        for one in found:
            if isinstance(one, ConfigurationFault):
                continue
            await objects.show(one.invocation)
            if not await run.matches(one) or not rounds.due(reinvocation, one.key):
                continue
            if await run.mutate(one):
                rounds.changed()
            if one.policy.if_needed:
                rounds.asked(one.key)
        if objects.dirty:
            rounds.changed()
            reinvocation.required = True
        try:
            await objects.finish()
        except ApiError as e:
            raise errors.internal(f"failed to convert object: {e.message}") from None
        rounds.end(reinvocation, objects)
        refusal = _refusal(a, [fault for fault in (*faults, *run.faults) if not fault.policy.ignore])
        if refusal is not None:
            raise refusal


def _refusal(a: Attributes, faults: list[ConfigurationFault]) -> ApiError | None:
    """Return the 403 of failed policies, or None: the message is the first failure's, and each failure is a cause."""
    if not faults:
        return None
    e = a.forbid("")
    texts = [_text(fault) for fault in faults]
    e.message, e.reason = texts[0], faults[0].reason or "Forbidden"
    e.details = {**(e.details or {}), "causes": [{"message": text} for text in texts]}
    return e


def _text(fault: ConfigurationFault) -> str:
    if fault.binding is None:
        return f"policy {go_quote(fault.policy.name)} denied request: {fault.message}"
    return f"policy '{fault.policy.name}' with binding '{fault.binding.name}' denied request: {fault.message}"

"""PodSecurity: enforces the Pod Security Standards by the labels of a namespace.

The configuration sets the levels for namespaces without labels ("privileged" without a configuration) and the exemptions. When the
enforced level of a namespace changes, its pods are checked.

Upstream: ``plugin/pkg/admission/security/podsecurity`` and ``k8s.io/pod-security-admission/admission``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from kas.admission import CREATE, UPDATE, Attributes
from kas.admission.configuration import Section
from kas.admission.plugins._podsecurity.configuration import ignored_warning, load
from kas.admission.plugins._podsecurity.metrics import PodSecurityMetrics
from kas.admission.plugins._podsecurity.policy import LEVELS, PRIVILEGED, LevelVersion, Policy, policy_of
from kas.informers import Informers
from kas.meta import errors
from kas.meta.field import go_quote
from kas.meta.offload import POOL
from kas.meta.stored import object_of
from kas.observe.metrics import Registry as Metrics
from kas.registry.registries import Registries

if TYPE_CHECKING:
    from kas.admission.plugins._podsecurity.checks import Check, Finding

Obj = dict[str, Any]
AUDIT = "pod-security.kubernetes.io/"
MAX_PODS_TO_CHECK, CHECKED_S, PAGE = 3000, 1.0, 100
MANY = 200  # containers, volumes and sysctls of a pod; a dozen checks examine each
IGNORED_SUBRESOURCES = frozenset(("exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"))
# The path of the pod template in each kind.
TEMPLATES = {
    ("", "podtemplates"): ("template",),
    ("", "replicationcontrollers"): ("spec", "template"),
    ("apps", "replicasets"): ("spec", "template"),
    ("apps", "deployments"): ("spec", "template"),
    ("apps", "statefulsets"): ("spec", "template"),
    ("apps", "daemonsets"): ("spec", "template"),
    ("batch", "jobs"): ("spec", "template"),
    ("batch", "cronjobs"): ("spec", "jobTemplate", "spec", "template"),
}

_OPEN = str(LevelVersion())


class Plugin:
    """Applies to pods, to kinds with a pod template, and to namespaces whose labels change."""

    name = "PodSecurity"

    configured = staticmethod(load)

    def __init__(self, registries: Registries, informers: Informers, metrics: Metrics, section: Section | None = None) -> None:
        self._registries, self._metrics = registries, PodSecurityMetrics(metrics)
        self._settings = settings = self.configured(section)
        self._exempt = bool(settings.namespaces or settings.usernames)
        self._policies = informers.lister("", "namespaces", lambda obj: policy_of(obj["metadata"].get("labels"), settings.defaults))

    def handles(self, a: Attributes) -> bool:
        """Handle creates and updates of pods, of kinds with a pod template, and of namespaces."""
        if a.operation not in (CREATE, UPDATE):
            return False
        if not a.group and a.resource == "pods":
            return a.subresource not in IGNORED_SUBRESOURCES
        return not a.subresource and ((a.group, a.resource) == ("", "namespaces") or (a.group, a.resource) in TEMPLATES)

    def validate(self, a: Attributes) -> Awaitable[None] | None:
        """Refuse pods below the namespace's level, and warn and annotate by its other levels; check the labels of a namespace. Long work
        runs in the thread pool."""
        if a.resource == "namespaces":
            return self._namespace(a)
        if self._exempt and self._exempted(a):
            return None
        # Namespaces are cluster-scoped, so their names are the keys.
        known = self._policies.all().get(a.namespace)
        if known is None:
            self._lost(a)
            return None
        policy, wrong = known
        if policy.open and not wrong:
            if a.resource == "pods":
                a.annotate(AUDIT + "enforce-policy", _OPEN)  # in every version, there is nothing to check
                self._metrics.open(a.operation, a.subresource)
            return None
        if a.resource == "pods":
            if a.operation == CREATE or _significant(a.obj, a.old):
                return self._pod(a, policy, wrong, a.obj["metadata"], a.obj["spec"], enforced=True)
            return None
        if not wrong and policy.warn.level == policy.audit.level == PRIVILEGED:
            return None
        template = a.obj
        for name in TEMPLATES[a.group, a.resource]:
            template = template.get(name) or {}
        if template:
            return self._pod(a, policy, wrong, template.get("metadata") or {}, template.get("spec") or {}, enforced=False)
        return None

    def _lost(self, a: Attributes) -> None:
        """Handle a missing namespace, whose policy is unknown: a pod is refused, a pod template only annotated."""
        self._metrics.error(a, fatal=True)
        refusal = errors.internal(f"failed to lookup namespace {go_quote(a.namespace)}")
        said = refusal.message if a.resource == "pods" else f"failed to lookup namespace {go_quote(a.namespace)}"
        a.annotate(AUDIT + "error", f"{said}: namespaces {go_quote(a.namespace)} not found")
        if a.resource == "pods":
            raise refusal

    def _exempted(self, a: Attributes) -> bool:
        for what, exempt in (("namespace", a.namespace in self._settings.namespaces), ("user", a.user.name in self._settings.usernames)):
            if exempt:
                a.annotate(AUDIT + "exempt", what)
                self._metrics.exempt(a)
                return True
        return False

    def _pod(self, a: Attributes, policy: Policy, wrong: list[Any], meta: Obj, spec: Obj, enforced: bool) -> Awaitable[None] | None:
        if self._settings.runtime_classes and spec.get("runtimeClassName") in self._settings.runtime_classes:
            a.annotate(AUDIT + "exempt", "runtimeClass")
            self._metrics.exempt(a)
            return None
        if wrong:
            a.annotate(AUDIT + "error", f"Failed to parse policy: {_aggregate(wrong)}")
            self._metrics.error(a, fatal=False)
        if _is_large(spec):
            return self._evaluate_in_pool(a, policy, meta, spec, enforced)
        self._apply_results(a, policy, meta, spec, enforced, {})
        return None

    async def _evaluate_in_pool(self, a: Attributes, policy: Policy, meta: Obj, spec: Obj, enforced: bool) -> None:
        from kas.admission.plugins._podsecurity.checks import evaluate

        levels = {policy.audit, policy.warn, *((policy.enforce,) if enforced else ())}
        results = await POOL.run(lambda: {level: evaluate(level, meta, spec) for level in levels})
        self._apply_results(a, policy, meta, spec, enforced, results)

    def _apply_results(
        self, a: Attributes, policy: Policy, meta: Obj, spec: Obj, enforced: bool, results: dict[LevelVersion, list[Finding]]
    ) -> None:
        """Report the findings of all levels; ``results`` holds those already computed."""
        from kas.admission.plugins._podsecurity.checks import detail, evaluate  # only needed if namespaces have levels

        def found(level: LevelVersion) -> list[Finding]:
            if level not in results:
                results[level] = evaluate(level, meta, spec)
            return results[level]

        if enforced:
            a.annotate(AUDIT + "enforce-policy", str(policy.enforce))
            self._metrics.evaluated(a, policy.enforce, "enforce", not found(policy.enforce))
        if found(policy.audit):
            self._metrics.evaluated(a, policy.audit, "audit", False)
            a.annotate(AUDIT + "audit-violations", f'would violate PodSecurity "{policy.audit}": {detail(found(policy.audit))}')
        if enforced and found(policy.enforce):
            why = f'violates PodSecurity "{policy.enforce}": {detail(found(policy.enforce))}'
            raise errors.forbidden(a.group, a.resource, a.name, why)
        if found(policy.warn):
            self._metrics.evaluated(a, policy.warn, "warn", False)
            a.warn(f'would violate PodSecurity "{policy.warn}": {detail(found(policy.warn))}')

    # --- labels of namespaces

    def _namespace(self, a: Attributes) -> Awaitable[None] | None:
        name, labels, defaults = a.obj["metadata"].get("name", ""), a.obj["metadata"].get("labels"), self._settings.defaults
        new, wrong = policy_of(labels, defaults)
        ignored = ignored_warning(name, new, defaults, labels or {}) if name in self._settings.namespaces else ""
        if a.operation == CREATE:
            if wrong:
                raise errors.invalid(a.group, a.kind, a.name, wrong)
            if ignored:
                a.warn(ignored)
            return None
        old, wrong_before = policy_of(a.old["metadata"].get("labels"), defaults)
        if wrong and (not wrong_before or _aggregate(wrong) != _aggregate(wrong_before)):
            raise errors.invalid(a.group, a.kind, a.name, wrong)
        if new.enforce == old.enforce or new.enforce.level == PRIVILEGED:
            return None
        if new.enforce.version == old.enforce.version and LEVELS[new.enforce.level] <= LEVELS[old.enforce.level]:
            return None
        if name in self._settings.namespaces:
            if ignored:
                a.warn(ignored)
            return None
        return self._warned(a, name, new.enforce)

    async def _warned(self, a: Attributes, name: str, enforce: LevelVersion) -> None:
        for text in await POOL.run(self._existing, name, enforce, a.deadline):
            a.warn(text)

    def _existing(self, namespace: str, enforce: LevelVersion, deadline: float) -> list[str]:
        """Check existing pods against the new level and return warnings: the first ``MAX_PODS_TO_CHECK``, and for ``CHECKED_S`` or half of
        what is left until the request's ``deadline`` at most.

        A controller's further pods come after all others, and while they are put off, half of the time is for reading. Exempt pods do
        not count. The pods are not changed.
        """
        from kas.admission.plugins._podsecurity.checks import checks_of

        now, registry, checks = monotonic(), self._registries.of("", "pods"), checks_of(enforce)
        allowed = min(CHECKED_S, (deadline - now) / 2)
        until = now + allowed
        pods: dict[str, list[str]] = {}
        controllers: set[str] = set()
        put_off: list[Any] = []
        start, more, checked, total, late = "", True, 0, 0, False
        while more and checked < MAX_PODS_TO_CHECK and not late:
            page = registry.store.range(registry.prefix(namespace), start, limit=PAGE, count=not start)
            total = total or len(page.records) + max(page.remaining, 0)
            for rec in page.records:
                pod = object_of(rec)
                if (pod.get("spec") or {}).get("runtimeClassName") in self._settings.runtime_classes:
                    total -= 1
                    continue
                owner = _controller(pod)
                if owner in controllers:
                    if len(put_off) < MAX_PODS_TO_CHECK:
                        put_off.append(rec)
                    continue
                if owner is not None:
                    controllers.add(owner)
                checked += 1
                self._look(pod, checks, pods)
                late = checked == MAX_PODS_TO_CHECK or monotonic() >= until
                if late:
                    break
            start, more = page.next_key, page.more
            late = late or (more and monotonic() >= (until - allowed / 2 if put_off else until))
        for rec in put_off[: MAX_PODS_TO_CHECK - checked]:
            if monotonic() >= until:
                break
            checked += 1
            self._look(object_of(rec), checks, pods)
        out = []
        if checked < total:
            out.append(f"new PodSecurity enforce level only checked against the first {checked} of {total} existing pods")
        if pods:
            out.append(f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level "{enforce}"')
        return out + sorted(f"{_named(names)}: {reasons}" for reasons, names in pods.items())

    def _look(self, pod: Obj, checks: Sequence[Check], pods: dict[str, list[str]]) -> None:
        """Add the pod's name to the entry of its violations."""
        from kas.admission.plugins._podsecurity.checks import found_by

        reasons = [reason for reason, _ in found_by(checks, pod["metadata"], pod.get("spec") or {})]
        if reasons:
            pods.setdefault(", ".join(reasons), []).append(pod["metadata"]["name"])


def _controller(pod: Obj) -> str | None:
    return next((ref.get("uid") for ref in pod["metadata"].get("ownerReferences") or () if ref.get("controller")), None)


def _is_large(spec: Obj) -> bool:
    kinds = ("containers", "initContainers", "ephemeralContainers", "volumes")
    sysctls = (spec.get("securityContext") or {}).get("sysctls") or ()
    return sum(len(spec.get(kind) or ()) for kind in kinds) + len(sysctls) >= MANY


def _named(names: list[str]) -> str:
    others = len(names) - 1
    if not others:
        return names[0]
    return f"{min(names)} (and {others} other pod{'' if others == 1 else 's'})"


def _aggregate(found: list[Any]) -> str:
    texts = list(dict.fromkeys(map(str, found)))
    return texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"


def _significant(pod: Obj, old: Obj) -> bool:
    """Return whether an update adds a container or changes an image or a container's seccomp annotation."""
    from kas.admission.plugins._podsecurity.checks import SECCOMP_CONTAINER

    spec, old_spec = pod["spec"], old["spec"]
    pairs: list[tuple[Obj, Obj]] = []
    for kind in ("containers", "initContainers"):
        new_ones, old_ones = spec.get(kind) or (), old_spec.get(kind) or ()
        if len(new_ones) != len(old_ones):
            return True
        pairs += zip(new_ones, old_ones, strict=True)
    known = {c.get("name"): c for c in old_spec.get("ephemeralContainers") or ()}
    for new in spec.get("ephemeralContainers") or ():
        if new.get("name") not in known:
            return True
        pairs.append((new, known[new.get("name")]))
    if any(new.get("image") != was.get("image") for new, was in pairs):
        return True
    annotations, before = pod["metadata"].get("annotations") or {}, old["metadata"].get("annotations") or {}
    keys = (f"{SECCOMP_CONTAINER}{new.get('name', '')}" for new, _ in pairs) if annotations != before else ()
    return any((annotations.get(key) or "") != (before.get(key) or "") for key in keys)

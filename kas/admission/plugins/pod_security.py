"""PodSecurity: the Pod Security Standards, as a namespace's labels ask for them.

The configuration says what counts without labels ("privileged" without one) and who is exempt. The pods of
a namespace are listed when its enforced level changes.

Upstream: ``plugin/pkg/admission/security/podsecurity`` and ``k8s.io/pod-security-admission/admission``.
"""

from __future__ import annotations

from typing import Any

from kas.admission import CREATE, UPDATE, Attributes
from kas.admission.configuration import Section
from kas.admission.plugins._podsecurity.checks import APPARMOR_ANNOTATION, SECCOMP_CONTAINER, SECCOMP_POD, Finding, detail, evaluate
from kas.admission.plugins._podsecurity.configuration import ignored_warning, load
from kas.admission.plugins._podsecurity.policy import LEVELS, PRIVILEGED, LevelVersion, Policy, policy_of
from kas.informers import Informers
from kas.meta import errors
from kas.meta.stored import object_of
from kas.registry.registries import Registries

Obj = dict[str, Any]
AUDIT = "pod-security.kubernetes.io/"
MAX_PODS_TO_CHECK = 3000
IGNORED_SUBRESOURCES = frozenset(("exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"))
# Where the pod is in what makes pods.
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


class Plugin:
    """Sees pods, what holds pod templates, and namespaces whose labels change."""

    name = "PodSecurity"

    def __init__(self, registries: Registries, informers: Informers, section: Section | None = None) -> None:
        self._registries = registries
        self._settings = settings = load(section)
        self._exempt = bool(settings.namespaces or settings.usernames)
        self._policies = informers.lister("", "namespaces", lambda obj: policy_of(obj["metadata"].get("labels"), settings.defaults))

    def handles(self, a: Attributes) -> bool:
        """Creates and updates of pods, of what makes pods, and of namespaces."""
        if a.operation not in (CREATE, UPDATE):
            return False
        if not a.group and a.resource == "pods":
            return a.subresource not in IGNORED_SUBRESOURCES
        return not a.subresource and ((a.group, a.resource) == ("", "namespaces") or (a.group, a.resource) in TEMPLATES)

    def validate(self, a: Attributes) -> None:
        """Refuse pods below the namespace's level, warn and annotate by its other levels; of a namespace, look at its labels."""
        if a.resource == "namespaces":
            self._namespace(a)
            return
        if self._exempt and self._exempted(a):
            return
        # Namespaces are cluster-scoped, so that their own names are what they are kept under.
        known = self._policies.all().get(a.namespace)
        if known is None:
            raise errors.internal(f"failed to lookup namespace {a.namespace}")
        policy, wrong = known
        if policy.open and not wrong:
            if a.resource == "pods" and a.operation == CREATE:
                a.annotate(AUDIT + "enforce-policy", str(policy.enforce))
            return
        if a.resource == "pods":
            if a.operation == CREATE or _significant(a.obj, a.old):
                self._pod(a, policy, wrong, a.obj["metadata"], a.obj["spec"], enforced=True)
            return
        if not wrong and policy.warn.level == policy.audit.level == PRIVILEGED:
            return
        template = a.obj
        for name in TEMPLATES[a.group, a.resource]:
            template = template.get(name) or {}
        if template:
            self._pod(a, policy, wrong, template.get("metadata") or {}, template.get("spec") or {}, enforced=False)

    def _exempted(self, a: Attributes) -> bool:
        for what, exempt in (("namespace", a.namespace in self._settings.namespaces), ("user", a.user.name in self._settings.usernames)):
            if exempt:
                a.annotate(AUDIT + "exempt", what)
                return True
        return False

    def _pod(self, a: Attributes, policy: Policy, wrong: list[Any], meta: Obj, spec: Obj, enforced: bool) -> None:
        if self._settings.runtime_classes and spec.get("runtimeClassName") in self._settings.runtime_classes:
            a.annotate(AUDIT + "exempt", "runtimeClass")
            return
        if wrong:
            a.annotate(AUDIT + "error", f"Failed to parse policy: {_aggregate(wrong)}")
        results: dict[LevelVersion, list[Finding]] = {}

        def found(level: LevelVersion) -> list[Finding]:
            if level not in results:
                results[level] = evaluate(level, meta, spec)
            return results[level]

        if enforced:
            a.annotate(AUDIT + "enforce-policy", str(policy.enforce))
        if found(policy.audit):
            a.annotate(AUDIT + "audit-violations", f'would violate PodSecurity "{policy.audit}": {detail(found(policy.audit))}')
        if enforced and found(policy.enforce):
            why = f'violates PodSecurity "{policy.enforce}": {detail(found(policy.enforce))}'
            raise errors.forbidden(a.group, a.resource, a.name, why)
        if found(policy.warn):
            a.warn(f'would violate PodSecurity "{policy.warn}": {detail(found(policy.warn))}')

    # --- the labels themselves

    def _namespace(self, a: Attributes) -> None:
        name, labels, defaults = a.obj["metadata"].get("name", ""), a.obj["metadata"].get("labels"), self._settings.defaults
        new, wrong = policy_of(labels, defaults)
        ignored = ignored_warning(name, new, defaults, labels or {}) if name in self._settings.namespaces else ""
        if a.operation == CREATE:
            if wrong:
                raise errors.invalid(a.group, a.kind, a.name, wrong)
            if ignored:
                a.warn(ignored)
            return
        old, wrong_before = policy_of(a.old["metadata"].get("labels"), defaults)
        if wrong and (not wrong_before or _aggregate(wrong) != _aggregate(wrong_before)):
            raise errors.invalid(a.group, a.kind, a.name, wrong)
        if new.enforce == old.enforce or new.enforce.level == PRIVILEGED:
            return
        if new.enforce.version == old.enforce.version and LEVELS[new.enforce.level] <= LEVELS[old.enforce.level]:
            return
        if name in self._settings.namespaces:
            if ignored:
                a.warn(ignored)
            return
        for text in self._existing(name, new.enforce):
            a.warn(text)

    def _existing(self, namespace: str, enforce: LevelVersion) -> list[str]:
        """What the new level thinks of the pods that are there. Only a warning: they stay."""
        registry = self._registries.of("", "pods")
        page = registry.store.range(registry.prefix(namespace), limit=MAX_PODS_TO_CHECK, count=True)
        pods: dict[str, list[str]] = {}
        for rec in page.records:
            pod = object_of(rec)
            if (pod.get("spec") or {}).get("runtimeClassName") in self._settings.runtime_classes:
                continue
            reasons = [reason for reason, _ in evaluate(enforce, pod["metadata"], pod.get("spec") or {})]
            if reasons:
                pods.setdefault(", ".join(reasons), []).append(pod["metadata"]["name"])
        out = []
        if page.more:
            total = len(page.records) + max(page.remaining, 0)
            out.append(f"new PodSecurity enforce level only checked against the first {len(page.records)} of {total} existing pods")
        if pods:
            out.append(f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level "{enforce}"')
        return out + sorted(f"{_crowd(names)}: {reasons}" for reasons, names in pods.items())


def _crowd(names: list[str]) -> str:
    others = len(names) - 1
    if not others:
        return names[0]
    return f"{min(names)} (and {others} other pod{'' if others == 1 else 's'})"


def _aggregate(found: list[Any]) -> str:
    texts = list(dict.fromkeys(map(str, found)))
    return texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"


def _significant(pod: Obj, old: Obj) -> bool:
    """Whether an update touches anything a check looks at and an update may touch."""
    annotations, before = pod["metadata"].get("annotations") or {}, old["metadata"].get("annotations") or {}
    watched = (APPARMOR_ANNOTATION, SECCOMP_CONTAINER)
    if annotations is not before:
        for key in annotations.keys() | before.keys():
            if (key == SECCOMP_POD or key.startswith(watched)) and annotations.get(key) != before.get(key):
                return True
    spec, old_spec = pod["spec"], old["spec"]
    for kind in ("containers", "initContainers"):
        new_ones, old_ones = spec.get(kind) or (), old_spec.get(kind) or ()
        if len(new_ones) != len(old_ones) or any(n.get("image") != o.get("image") for n, o in zip(new_ones, old_ones, strict=True)):
            return True
    images = {c.get("name"): c.get("image") for c in old_spec.get("ephemeralContainers") or ()}
    return any(c.get("name") not in images or images[c.get("name")] != c.get("image") for c in spec.get("ephemeralContainers") or ())

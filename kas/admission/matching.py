"""Matching of requests by webhooks and policies: rules, namespace selector, object selector, and match policy.

Upstream: ``pkg/admission/plugin/webhook/predicates`` and ``pkg/admission/plugin/policy/matching``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from kas.admission import CREATE, UPDATE, Attributes
from kas.informers import Informers, Objects
from kas.meta import errors
from kas.meta.records import NamedTuple
from kas.meta.selectors import EVERYTHING, LabelSelector, SelectorError, from_label_selector
from kas.registry.versions import Family

Obj = dict[str, Any]
Labels = Mapping[str, str]
GVK = tuple[str, str, str]

GROUP = "admissionregistration.k8s.io"
ANY = "*"
_POLICIES = frozenset((
    "mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "validatingadmissionpolicies", "validatingadmissionpolicybindings",
))  # fmt: skip
_CONFIGURATIONS = _POLICIES | {"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}
# Reviews, without which a cluster cannot work (``pkg/kubeapiserver/admission/exclusion``).
_REVIEWS = {
    "authentication.k8s.io": frozenset(("selfsubjectreviews", "tokenreviews")),
    "authorization.k8s.io": frozenset(
        ("localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews")
    ),
}

# (group, resource) -> the served resources (``endpoints.served.Served``, ``rest.Virtual`` or, for a custom one, ``Offered``) that are
# equivalent in other versions or groups, including itself.
Equivalents = Callable[[str, str], Family]


def beyond_webhooks(a: Attributes) -> bool:
    """Return whether webhooks of the API are skipped: for the configurations of admission themselves
    (``IsExemptAdmissionConfigurationResource``).

    Otherwise a user locked out by a webhook could not remove it. Webhooks from manifest files are not skipped.
    """
    return a.group == GROUP and a.resource in _CONFIGURATIONS


def beyond_policies(a: Attributes) -> bool:
    """Return whether policies of the API are skipped: for policies themselves, and for reviews. Webhook configurations are subject to
    policies like any other resource."""
    return a.resource in (_POLICIES if a.group == GROUP else _REVIEWS.get(a.group, ()))


def is_policy(a: Attributes) -> bool:
    """Return whether the request is about policies or their bindings."""
    return a.group == GROUP and a.resource in _POLICIES


def kind_of(a: Attributes) -> GVK:
    """Return group, version and kind of the request's objects; for a subresource they often differ from the resource's."""
    obj = a.obj if a.obj is not None else a.old
    if not obj or "apiVersion" not in obj or "kind" not in obj:
        return a.group, a.version, a.kind
    group, _, version = obj["apiVersion"].rpartition("/")
    return group, version, obj["kind"]


def namespace_of(a: Attributes) -> str:
    """Return the namespace that webhooks and policies see: for a Namespace it is the object itself."""
    return a.name if a.resource == "namespaces" and not a.group else a.namespace


class Invocation(NamedTuple):
    """The resource and version under which a webhook or policy sees the request."""

    group: str
    version: str
    resource: str
    kind: GVK


_Question = tuple[str, str, str, str, str, bool, GVK]
MOST_STEPS = 1000  # of the search whether any configuration may match, milliseconds at most; beyond, the answer is yes
MAX_DIRECT = 64  # results that a matcher caches


class Rule:
    """A RuleWithOperations, or a NamedRuleWithOperations."""

    __slots__ = ("groups", "names", "operations", "resources", "scope", "versions")

    def __init__(self, rule: Mapping[str, Any]) -> None:
        self.operations = frozenset(rule.get("operations") or ())
        self.groups, self.versions = frozenset(rule.get("apiGroups") or ()), frozenset(rule.get("apiVersions") or ())
        self.resources = frozenset(text.partition("/")[::2] for text in rule.get("resources") or ())
        self.scope: str = rule.get("scope") or "*"
        self.names = frozenset(rule.get("resourceNames") or ())

    def may_match(self, operation: str, group: str, resource: str, subresource: str) -> bool:
        """Return whether the rule covers such requests, in some version and scope."""
        return _of(self.operations, operation) and _of(self.groups, group) and self._of_resource(resource, subresource)

    def _of_resource(self, resource: str, subresource: str) -> bool:
        asked = self.resources
        return not asked.isdisjoint(((resource, subresource), ("*", subresource), (resource, "*"), ("*", "*")))

    def matches(self, a: Attributes, group: str, version: str, resource: str) -> bool:
        """Return whether the rule would match the request if its resource were this one."""
        return self.matches_but_for_version(a, group, resource) and _of(self.versions, version)

    def matches_but_for_version(self, a: Attributes, group: str, resource: str) -> bool:
        """Return the same, ignoring the version."""
        if self.scope != "*" and (self.scope == "Namespaced") != bool(a.namespace):
            return False
        if self.names and a.name not in self.names:
            return False
        return self.may_match(a.operation, group, resource, a.subresource)


def _of(allowed: frozenset[str], value: str) -> bool:
    return value in allowed or "*" in allowed


class Namespaces:
    """Namespaces and their labels, from the informer's cache, or from the store if they are not in it."""

    def __init__(self, informers: Informers, objects: Objects) -> None:
        self._objects = objects
        self._found = informers.lister("", "namespaces", _seen)

    def labels(self, name: str) -> Labels:
        """Return the labels of a namespace. Raises 404 if it does not exist."""
        labels: Labels = self.get(name)["metadata"].get("labels") or {}
        return labels

    def get(self, name: str) -> Obj:
        """Return a namespace; do not modify it. Raises 404."""
        found = self._found.all().get(name) or self._objects.get("", "namespaces", "", name)
        if found is None:
            raise errors.not_found("", "namespaces", name)
        return found


def _seen(obj: Obj) -> Obj:
    # Selectors and expressions do not see the managed fields.
    obj["metadata"].pop("managedFields", None)
    return obj


class Matcher:
    """The rules and selectors of one webhook, policy or binding.

    ``spec`` has the form of MatchResources; the ``rules`` of a webhook are passed as ``resourceRules`` are. With ``open``, a matcher
    without rules matches every resource: a binding only narrows what its policy matches.
    """

    __slots__ = (
        "_broken", "_by_name", "_direct", "_excluded", "_namespaces", "_objects", "_open", "_rules", "equivalent", "resources", "steps",
    )  # fmt: skip

    def __init__(self, spec: Mapping[str, Any], rules: Sequence[Mapping[str, Any]], open: bool = False) -> None:
        self._rules = tuple(map(Rule, rules))
        self._excluded = tuple(map(Rule, spec.get("excludeResourceRules") or ()))
        self._namespaces = self._objects = EVERYTHING
        self._broken = ""  # validation accepts invalid selectors that an older server stored
        try:
            self._namespaces = from_label_selector(spec.get("namespaceSelector") or {})
            self._objects = from_label_selector(spec.get("objectSelector") or {})
            self._namespaces.look()
            self._objects.look()
        except SelectorError as e:
            self._broken = str(e)
        self.equivalent = spec.get("matchPolicy") != "Exact"
        self._open = open and not self._rules
        # The index keys, and the number of steps that ``may_match`` takes.
        self.resources = frozenset((ANY,)) if self._open else frozenset(resource for rule in self._rules for resource, _ in rule.resources)
        self.steps = 1 + len(self._rules)
        # Results for resources matched in the request's own version, which depend on the rules only.
        self._by_name, self._direct = any(rule.names for rule in self._rules), dict[_Question, Invocation]()

    def may_match(self, a: Attributes, equivalents: Equivalents) -> bool:
        """Return whether requests of this operation, group, resource and subresource can match at all."""
        if self._open:
            return True
        groups = equivalents(a.group, a.resource).groups | {a.group} if self.equivalent else (a.group,)
        return any(rule.may_match(a.operation, group, a.resource, a.subresource) for rule in self._rules for group in groups)

    def match(
        self, a: Attributes, obj: Obj | None, old: Obj | None, spaces: Namespaces, equivalents: Equivalents, own: GVK | None = None
    ) -> Invocation | None:
        """Return the resource and version in which the request is to be shown; None if it does not match.

        ``obj`` and ``old`` are what the object selector sees; ``own`` is the result of ``kind_of`` if known. Raises ApiError if the
        namespace does not exist or a selector is invalid, but only if the request matches otherwise.
        """
        if not self._objects.empty and not (_selected(self._objects, obj) or _selected(self._objects, old)):
            return None
        if self._excluded and self._find(self._excluded, a, equivalents) is not None:
            return None
        if self._open:
            found: Invocation | None = Invocation(a.group, a.version, a.resource, own or kind_of(a))
        else:
            asked = a.operation, a.group, a.version, a.resource, a.subresource, not a.namespace, own or kind_of(a)
            found = self._direct.get(asked)
            if found is None:
                found = self._found(a, asked, equivalents)
        if found is not None and self._broken:
            raise errors.internal(self._broken)
        return found if found is not None and (self._namespaces.empty or self._in_namespace(a, obj, spaces)) else None

    def _found(self, a: Attributes, asked: _Question, equivalents: Equivalents) -> Invocation | None:
        """Return the match by the rules alone, without selectors."""
        found = self._find(self._rules, a, equivalents)
        if found is not None and not self._by_name and found[:3] == (a.group, a.version, a.resource):
            if len(self._direct) >= MAX_DIRECT:
                self._direct.clear()
            self._direct[asked] = found
        return found

    def _in_namespace(self, a: Attributes, obj: Obj | None, spaces: Namespaces) -> bool:
        itself = a.resource == "namespaces"
        name = namespace_of(a)
        if not name and not itself:
            return True  # a namespace selector does not apply to cluster-scoped objects
        if itself and not a.subresource and a.operation in (CREATE, UPDATE) and obj is not None:
            return self._namespaces.matches((obj.get("metadata") or {}).get("labels"))
        return self._namespaces.matches(spaces.labels(name))

    def _find(self, rules: tuple[Rule, ...], a: Attributes, equivalents: Equivalents) -> Invocation | None:
        for rule in rules:
            if rule.matches(a, a.group, a.version, a.resource):
                return Invocation(a.group, a.version, a.resource, kind_of(a))
        if not self.equivalent:
            return None
        for rule in rules:
            served = _first(rule, a, equivalents(a.group, a.resource))
            if served is not None:
                return Invocation(served.group, served.version, served.resource, _kind_for(served, a.subresource))
        return None


def _first(rule: Rule, a: Attributes, family: Family) -> Any:
    """Return the served resource of the first version in the family that the rule matches, or None.

    A family may have thousands of versions and a rule, too, so neither is scanned in full. The request's own version is in the family,
    but the rule does not match it, since that was checked before.
    """
    found: list[tuple[int, Any]] = []
    for (group, resource), versions in family.by_version.items():
        if rule.matches_but_for_version(a, group, resource):
            named = versions.values() if "*" in rule.versions else (versions[v] for v in rule.versions if v in versions)
            found += (it for it in named if not a.subresource or a.subresource in it[1].subresources)
    return min(found, key=itemgetter(0))[1] if found else None


def _kind_for(served: Any, subresource: str) -> GVK:
    if not subresource:
        return served.group, served.version, served.kind
    sub = served.record.subresources[subresource]
    return sub.group, sub.version, sub.kind


def _selected(selector: LabelSelector, obj: Obj | None) -> bool:
    return obj is not None and selector.matches((obj.get("metadata") or {}).get("labels"))

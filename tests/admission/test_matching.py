"""Rules, selectors, and the version that an object is shown in."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import pytest

from kas.admission import Attributes
from kas.admission.matching import MAX_DIRECT, Matcher, Namespaces, beyond_policies, beyond_webhooks, namespace_of
from kas.meta.errors import ApiError
from kas.registry.versions import Family
from tests.admission.admission_fakes import ADMIN
from tests.admission.webhook.hook_server import rule


def about(resource="pods", group="", version="v1", operation="CREATE", subresource="", namespace="ns1", name="a", obj=None, old=None):
    return Attributes(
        operation, group, version, resource, subresource, "Kind", namespace, name, obj, old, ADMIN, {}, False, "", print, print
    )


def none(group, resource):
    return Family()


@pytest.fixture
def spaces(server):
    server.add("", "namespaces", {"metadata": {"name": "ns1", "labels": {"team": "a"}}})
    return Namespaces(server.registries, server.registries)


def matches(spaces, a, *rules, equivalents=none, **spec):
    matcher = Matcher(spec, rules)
    found = matcher.match(a, a.obj, a.old, spaces, equivalents)
    # A rule that can match is never skipped.
    assert found is None or matcher.may_match(a, equivalents)
    return found is not None


@pytest.mark.parametrize(("given", "yes"), [
    (rule("pods"), True), (rule("*"), True), (rule("*/*"), True), (rule("pods/*"), True), (rule("pods/status"), False),
    (rule("*/exec"), False),
    (rule("services", "pods"), True), (rule("pods", groups=("apps",)), False), (rule("pods", groups=("*",)), True),
    (rule("pods", versions=("v2",)), False), (rule("pods", versions=("*",)), True), (rule("pods", operations=["UPDATE", "DELETE"]), False),
    (rule("pods", operations=["UPDATE", "CREATE"]), True), (rule("pods", scope="Namespaced"), True), (rule("pods", scope="Cluster"), False),
    (rule("pods", resourceNames=["a"]), True), (rule("pods", resourceNames=["b"]), False),
])  # fmt: skip
def test_rules(spaces, given, yes):
    assert matches(spaces, about(), given) is yes


@pytest.mark.parametrize(("given", "yes"), [
    (rule("pods"), False), (rule("*"), False), (rule("*/*"), True), (rule("pods/*"), True), (rule("pods/exec"), True),
    (rule("*/exec"), True), (rule("*/attach"), False), (rule("services/*"), False),
])  # fmt: skip
def test_rules_of_subresources(spaces, given, yes):
    assert matches(spaces, about(subresource="exec", operation="CONNECT"), given) is yes


def test_the_first_matching_rule_decides_the_version(spaces):
    served = Family(
        SimpleNamespace(group=group, version=version, resource="pods", kind=f"Kind{version}", subresources=())
        for group, version in (("a", "v1"), ("b", "v3"), ("b", "v2"), ("a", "v2"), ("a", "v4"))
    )
    a = about(group="a", version="v1")

    def shown(*rules):
        found = Matcher({}, rules).match(a, None, None, spaces, lambda group, resource: served)
        return found and found[:2]

    assert shown(rule("pods", groups=("a",), versions=("v4", "v2"))) == ("a", "v2")
    assert shown(rule("pods", groups=("a", "b"), versions=("v4", "v2", "v3"))) == ("b", "v3")
    assert shown(rule("pods", groups=("b",), versions=("*",))) == ("b", "v3")
    assert shown(rule("pods", groups=("a",), versions=("v5",)), rule("pods", groups=("*",), versions=("v4",))) == ("a", "v4")
    assert shown(rule("pods", groups=("a",), versions=("v3",)), rule("services", groups=("b",), versions=("v2",))) is None
    assert shown(rule("pods", groups=("b",), versions=("v2",)), rule("pods", groups=("a",), versions=("v1",))) == ("a", "v1")


def test_rules_do_not_search_all_versions(spaces):
    """Thousands of rules times thousands of versions blocked the loop for minutes."""
    looked = 0

    class Served(SimpleNamespace):
        @property
        def version(self):
            nonlocal looked
            looked += 1
            return self.name

    served = Family(Served(group="", name=f"v{i}", resource="pods", kind="Kind", subresources=()) for i in range(300))
    rules = [rule("pods", versions=(f"v{i}alpha1",)) for i in range(300)]
    for _ in range(5):  # webhooks
        assert not matches(spaces, about(version="v0"), *rules, equivalents=lambda group, resource: served)
    assert 0 < looked <= 2 * len(served)


@pytest.mark.parametrize("rules", [
    [rule("pods", scope="Namespaced", operations=["CREATE"]), rule("services", "pods/exec", versions=("v1", "v2"))],
    [rule("pods", resourceNames=["a"]), rule("nodes", groups=("", "apps"), scope="Cluster")], [rule("*/*", versions=("v2",))],
])  # fmt: skip
def test_a_cached_result_is_the_same(spaces, rules):
    matcher = Matcher({}, rules)
    asked = [
        about(resource, group, version, operation, subresource, namespace, name, {"kind": kind, "apiVersion": "v1"})
        for resource, group, version, operation, subresource, namespace, name, kind in product(
            ("pods", "services", "nodes"), ("", "apps"), ("v1", "v2"), ("CREATE", "UPDATE"), ("", "exec"), ("ns1", ""), ("a", "b"),
            ("Kind", "Scale"),
        )
    ]  # fmt: skip
    for a in [*asked, *reversed(asked)]:
        assert matcher.match(a, a.obj, None, spaces, none) == Matcher({}, rules).match(a, a.obj, None, spaces, none)
        assert len(matcher._direct) <= MAX_DIRECT


def test_results_for_other_versions_are_not_cached(spaces):
    matcher, a = Matcher({}, [rule("pods", versions=("v2",))]), about()
    other = SimpleNamespace(group="", version="v2", resource="pods", kind="Pod", subresources=())
    assert matcher.match(a, None, None, spaces, lambda group, resource: Family((other,))) == ("", "v2", "pods", ("", "v2", "Pod"))
    assert matcher.match(a, None, None, spaces, none) is None  # it is no longer served


def test_the_scope_of_namespaces(spaces):
    for name, yes in (("Cluster", True), ("Namespaced", False), ("*", True)):
        assert matches(spaces, about("namespaces", namespace="", name="ns1"), rule("*", scope=name)) is yes


def test_excluded_resources(spaces):
    assert not matches(spaces, about(), rule("*"), excludeResourceRules=[rule("pods")])
    assert matches(spaces, about("services"), rule("*"), excludeResourceRules=[rule("pods")])
    assert Matcher({}, (), open=True).match(about(), None, None, spaces, none) is not None
    assert Matcher({}, ()).match(about(), None, None, spaces, none) is None


def labelled(**labels):
    return {"metadata": {"labels": labels}}


def test_object_selectors_match_either_object(spaces):
    selector = {"matchLabels": {"x": "y"}}
    for obj, old, yes in (
        (labelled(x="y"), None, True), (labelled(), labelled(x="y"), True), (None, labelled(x="y"), True), (labelled(), None, False),
        (labelled(), labelled(), False), (None, None, False),
    ):  # fmt: skip
        assert matches(spaces, about(obj=obj, old=old), rule("*"), objectSelector=selector) is yes
    # A selector may look for missing labels.
    absent = {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}
    assert matches(spaces, about(obj=labelled()), rule("*"), objectSelector=absent)


def test_namespace_selectors(spaces):
    a, b = ({"matchLabels": {"team": team}} for team in "ab")
    assert matches(spaces, about(), rule("*"), namespaceSelector=a) and not matches(spaces, about(), rule("*"), namespaceSelector=b)
    # They match all cluster-scoped objects; a Namespace by the labels that it will have, or has when it is deleted.
    assert matches(spaces, about("nodes", namespace=""), rule("*"), namespaceSelector=b)
    new = about("namespaces", namespace="", name="ns9", obj=labelled(team="b"))
    assert matches(spaces, new, rule("*"), namespaceSelector=b) and not matches(spaces, new, rule("*"), namespaceSelector=a)
    gone = about("namespaces", namespace="", name="ns1", operation="DELETE", old=labelled(team="b"))
    assert matches(spaces, gone, rule("*"), namespaceSelector=a)
    assert (namespace_of(gone), namespace_of(about())) == ("ns1", "ns1")


def test_a_namespace_that_does_not_exist(spaces, server):
    lost = about(namespace="lost")
    assert not matches(spaces, lost, rule("services"), namespaceSelector={"matchLabels": {"a": "b"}})
    with pytest.raises(ApiError) as e:
        matches(spaces, lost, rule("pods"), namespaceSelector={"matchLabels": {"a": "b"}})
    assert (e.value.code, e.value.message) == (404, 'namespaces "lost" not found')
    assert matches(spaces, lost, rule("pods"))


def test_an_invalid_selector_fails_matching_requests(spaces):
    bad = {"matchExpressions": [{"key": "a", "operator": "Nonsense"}]}
    assert not matches(spaces, about(), rule("services"), objectSelector=bad)
    with pytest.raises(ApiError) as e:
        matches(spaces, about(), rule("pods"), objectSelector=bad)
    assert e.value.code == 500


def equivalents(group, resource):
    parts = {"scale": SimpleNamespace(group="autoscaling", version="v1", kind="Scale")}
    return Family(
        SimpleNamespace(group=g, version=v, resource=resource, kind="Thing", subresources=parts, record=SimpleNamespace(subresources=parts))
        for g, v in (("g", "v1"), ("g", "v2"), ("old", "v1"))
    )


def test_equivalent_resources(spaces):
    a = about("things", "g", "v2")
    found = Matcher({}, [rule("things", groups=("g",))]).match(a, None, None, spaces, equivalents)
    assert found == ("g", "v1", "things", ("g", "v1", "Thing"))
    assert Matcher({"matchPolicy": "Exact"}, [rule("things", groups=("g",))]).match(a, None, None, spaces, equivalents) is None
    # An exact rule takes precedence over an equivalent one, whatever their order.
    both = [rule("things", groups=("old",)), rule("things", groups=("g",), versions=("v2",))]
    assert Matcher({}, both).match(a, None, None, spaces, equivalents)[:2] == ("g", "v2")
    assert Matcher({}, [rule("things", groups=("old",))]).match(a, None, None, spaces, equivalents)[:2] == ("old", "v1")
    assert Matcher({}, [rule("things", groups=("old",))]).may_match(a, equivalents)
    scaled = about("things", "g", "v2", subresource="scale", operation="UPDATE")
    found = Matcher({}, [rule("things/scale", groups=("g",))]).match(scaled, None, None, spaces, equivalents)
    assert found == ("g", "v1", "things", ("autoscaling", "v1", "Scale"))
    nothing = about("things", "g", "v2", subresource="status", operation="UPDATE")
    assert Matcher({}, [rule("things/*", groups=("g",))]).match(nothing, None, None, spaces, equivalents) is None


def test_resources_without_webhooks_and_policies():
    group = "admissionregistration.k8s.io"
    reviews = [("authentication.k8s.io", r) for r in ("selfsubjectreviews", "tokenreviews")]
    authorizing = ("localsubjectaccess", "selfsubjectaccess", "selfsubjectrules", "subjectaccess")
    reviews += [("authorization.k8s.io", f"{r}reviews") for r in authorizing]
    policies = [(group, f"{kind}admission{what}") for kind in ("mutating", "validating") for what in ("policies", "policybindings")]
    webhooks = [(group, f"{kind}webhookconfigurations") for kind in ("mutating", "validating")]
    for where, resource in policies:
        assert beyond_webhooks(about(resource, where)) and beyond_policies(about(resource, where))
    for where, resource in webhooks:
        assert beyond_webhooks(about(resource, where)) and not beyond_policies(about(resource, where))
    for where, resource in reviews:
        assert beyond_policies(about(resource, where)) and not beyond_webhooks(about(resource, where))
    for where, resource in (("", "validatingadmissionpolicies"), (group, "pods"), ("", "tokenreviews"), ("", "pods")):
        assert not beyond_webhooks(about(resource, where)) and not beyond_policies(about(resource, where))

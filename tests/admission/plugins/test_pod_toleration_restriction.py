"""The PodTolerationRestriction plug-in alone."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest

from kas.admission import pods as pod_objects
from kas.admission.configuration import Section
from kas.admission.plugins import pod_toleration_restriction
from tests.admission.admission_fakes import FakeServer, Request, pod, refused


def test_pod_toleration_restriction(server):
    annotations = {
        pod_toleration_restriction.WHITELIST: '[{"key":"ok","operator":"Exists"}]',
        pod_toleration_restriction.DEFAULTS: '[{"key":"ok","value":"1"}]',
    }
    server.add("", "namespaces", {"metadata": {"name": "ns1", "annotations": annotations}})
    plugin = server.plugin(pod_toleration_restriction)
    assert Request(plugin, obj=pod()).run()["spec"]["tolerations"] == [{"key": "ok", "value": "1"}]
    assert refused(Request(plugin, obj=pod(tolerations=[{"key": "bad"}]))).code == 500


def section(api_version: str, kind: str, **fields: Any) -> Section:
    return Section("x", embedded={"apiVersion": api_version, "kind": kind, **fields})


def tolerations(server: FakeServer, annotations: dict[str, str] | None = None, **config: Any) -> pod_toleration_restriction.Plugin:
    server.add("", "namespaces", {"metadata": {"name": "ns1", "annotations": annotations or {}}})
    told = section("podtolerationrestriction.admission.k8s.io/v1alpha1", "Configuration", **config) if config else None
    return server.plugin(pod_toleration_restriction, told)


A, B = {"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}


def test_default_tolerations_of_the_cluster(server):
    plugin = tolerations(server, default=[A])
    assert Request(plugin, obj=pod()).run()["spec"]["tolerations"] == [A]
    assert Request(plugin, obj=pod(tolerations=[B])).run()["spec"]["tolerations"] == [B, A]
    assert "tolerations" not in Request(plugin, operation="UPDATE", obj=pod(), old=pod()).run()["spec"]
    plugin = tolerations(server, {pod_toleration_restriction.DEFAULTS: ""}, default=[A])
    assert not Request(plugin, obj=pod()).run()["spec"].get("tolerations")


def test_tolerations_are_not_shared_between_pods(server):
    plugin = tolerations(server, default=[A])
    Request(plugin, obj=pod()).run()["spec"]["tolerations"][0]["key"] = "changed"
    assert Request(plugin, obj=pod()).run()["spec"]["tolerations"] == [A]


def test_allowed_tolerations_of_the_cluster(server):
    plugin = tolerations(server, whitelist=[A])
    Request(plugin, obj=pod(tolerations=[{"key": "a", "operator": "Equal", "value": "x"}])).run()
    e = refused(Request(plugin, obj=pod(tolerations=[B])))
    conflict = "pod tolerations (possibly merged with namespace default tolerations) conflict with its {} whitelist"
    assert (e.code, e.message) == (500, conflict.format("cluster"))
    own = {pod_toleration_restriction.WHITELIST: '[{"key":"a","operator":"Exists"}]'}
    assert refused(Request(tolerations(server, own), obj=pod(tolerations=[B]))).message == conflict.format("namespace")
    # Defaults must be allowed, too.
    refused(Request(tolerations(server, whitelist=[A], default=[B]), obj=pod()))
    Request(tolerations(server, {pod_toleration_restriction.WHITELIST: "[]"}, whitelist=[A]), obj=pod(tolerations=[B])).run()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "json: cannot unmarshal number into Go value of type v1.Toleration"),
        ('[{"key":1}]', "json: cannot unmarshal number into Go struct field Toleration.key of type string"),
        ('[{"tolerationSeconds":"1"}]', "json: cannot unmarshal string into Go struct field Toleration.tolerationSeconds of type int64"),
        ("{}", "json: cannot unmarshal object into Go value of type []v1.Toleration"),
        ("x", "invalid character 'x' looking for beginning of value"),
    ],
)  # fmt: skip
def test_invalid_annotations(server, text, message):
    for key in (pod_toleration_restriction.DEFAULTS, pod_toleration_restriction.WHITELIST):
        e = refused(Request(tolerations(server, {key: text}), obj=pod(tolerations=[A])))
        assert (e.code, e.message) == (500, message)


CHOICES = {
    "key": (None, "", "a", "b"), "operator": (None, "Equal", "Exists", "Lt", "?"), "value": (None, "1", "2"),
    "effect": (None, "NoSchedule", "NoExecute"), "tolerationSeconds": (None, 1, 2),
}  # fmt: skip
ALL = [{k: v for k, v in zip(CHOICES, values, strict=True) if v is not None} for values in itertools.product(*CHOICES.values())]


EQUAL, BARE = {"key": "a", "operator": "Equal", "value": "1"}, {"key": "a", "value": "1"}


@pytest.mark.parametrize(
    ("wide", "narrow", "covered"),
    [
        (EQUAL, EQUAL, True), (BARE, BARE, True), (BARE, EQUAL, True), (EQUAL, BARE, False),
        (BARE, {**BARE, "tolerationSeconds": 1}, False), (BARE, {**BARE, "effect": ""}, True),
        (A, BARE, True), ({"operator": "Exists"}, {"key": "a", "operator": "Lt", "value": "1"}, True),
        ({"key": "a", "operator": "Lt", "value": "1"}, {"key": "a", "operator": "Lt", "value": "1"}, True),
        ({"key": "a", "operator": "Lt", "value": "1"}, EQUAL, False),
        ({"key": "a", "operator": "Lt", "value": "1"}, {"key": "a", "operator": "Lt", "value": "1", "effect": "NoSchedule"}, False),
        ({**A, "effect": "NoExecute", "tolerationSeconds": 10}, {**A, "effect": "NoExecute"}, False),
        ({**A, "effect": "NoExecute"}, {**A, "effect": "NoExecute", "tolerationSeconds": 0}, True),
    ],
)  # fmt: skip
def test_coverage_of_tolerations(server, wide, narrow, covered):
    """As upstream's ``isSuperset``: without an operator, a toleration is covered by its equals and Exists only."""
    assert pod_objects.tolerates_all_of(wide, narrow) is covered
    listed = {pod_toleration_restriction.WHITELIST: json.dumps([wide])}
    request = Request(tolerations(server, listed), obj=pod(tolerations=[narrow]))
    if covered:
        request.run()
    else:
        assert refused(request).code == 500


def whole(one: dict[str, Any]) -> list[Any]:
    """The fields in Go, where an empty text is one that was omitted."""
    return [one.get(key) or (None if key == "tolerationSeconds" else "") for key in CHOICES]


def merged(everything: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merges as upstream's ``MergeTolerations``, step by step."""
    covers, out = pod_objects.tolerates_all_of, list[dict[str, Any]]()
    for i, one in enumerate(everything):
        later = any(whole(one) != whole(other) and covers(other, one) for other in everything[i + 1 :])
        if not later and not any(covers(t, one) for t in out):
            out.append(one)
    return out


def test_tolerations_are_merged_in_linear_time():
    choice = random.Random(1)
    for n in range(400):
        given = choice.choices(ALL, k=n % 25)
        assert pod_objects.merge_tolerations(given[: n % 7], given[n % 7 :]) == merged(given)
        asked = choice.choice(ALL)
        assert pod_objects.TolerationIndex(given).covers(asked) == any(pod_objects.tolerates_all_of(t, asked) for t in given)


def test_many_tolerations_are_compared_with_a_few(monkeypatch):
    calls = []
    real = pod_objects.tolerates_all_of
    monkeypatch.setattr(pod_objects, "tolerates_all_of", lambda a, b: calls.append(1) or real(a, b))
    given = [{"key": f"k{i}", "value": f"v{i % 7}", "effect": "NoExecute", "tolerationSeconds": i} for i in range(500)]
    assert len(pod_objects.merge_tolerations(given, [{"key": "a", "operator": "Exists"}])) == 501
    assert len(calls) <= 20 * len(given)

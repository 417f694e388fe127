"""The plug-ins that take configuration, each alone and told what to do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from admission_fakes import FakeServer, Request, pod

from kas.admission.configuration import Section
from kas.admission.plugins import event_rate_limit, pod_node_selector, pod_security, pod_toleration_restriction, resource_quota
from kas.api.errors import ApiError
from kas.auth.user import UserInfo

BOB, EVE = UserInfo("bob", ()), UserInfo("eve", ())


def refused(request: Request) -> ApiError:
    with pytest.raises(ApiError) as e:
        request.run()
    return e.value


def section(api_version: str, kind: str, **fields: Any) -> Section:
    return Section("x", embedded={"apiVersion": api_version, "kind": kind, **fields})


# --- EventRateLimit


class Clock:
    now = 1.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def events(tmp_path):
    """Makes plug-ins of workers of one server, and the clock of each."""

    def make(*limits: dict[str, Any]) -> tuple[event_rate_limit.Plugin, Clock]:
        clock = Clock()
        config = section("eventratelimit.admission.k8s.io/v1alpha1", "Configuration", limits=list(limits))
        worker = SimpleNamespace(options=SimpleNamespace(run_dir=tmp_path))
        return event_rate_limit.Plugin(worker, config, clock), clock

    return make


def event(plugin, user=BOB, namespace="ns1", name="p", source="kubelet", **more) -> Request:
    obj = {
        "metadata": {"name": "e"},
        "source": {"component": source, "host": "h"},
        "involvedObject": {"kind": "Pod", "namespace": "n", "name": name, "uid": "u", "apiVersion": "v1"},
    }
    return Request(plugin, **{"resource": "events", "kind": "Event", "namespace": namespace, "obj": obj, "user": user, **more})


def test_events_of_all(events):
    plugin, clock = events({"type": "Server", "qps": 10, "burst": 2})
    event(plugin).run()
    event(plugin, user=EVE, namespace="ns2").run()
    e = refused(event(plugin))
    assert (e.code, e.reason, e.message) == (429, "TooManyRequests", "Too many requests: limit reached on type Server for key ")
    assert e.details is None
    event(plugin, dry_run=True).run()
    clock.now += 0.1
    event(plugin, operation="UPDATE").run()
    refused(event(plugin))


def test_events_of_each(events):
    plugin, _ = events({"type": "Namespace", "qps": 1, "burst": 1}, {"type": "User", "qps": 1, "burst": 2})
    event(plugin).run()
    assert refused(event(plugin, user=EVE)).message == "Too many requests: limit reached on type Namespace for key ns1"
    event(plugin, namespace="ns2").run()
    assert refused(event(plugin)).message == (
        "Too many requests: [limit reached on type Namespace for key ns1, limit reached on type User for key bob]"
    )
    # Refused by one limit, it has taken a token of the other all the same.
    event(plugin, user=EVE, namespace="ns3").run()
    assert "type User for key eve" in refused(event(plugin, user=EVE, namespace="ns4")).message


def test_workers_count_events_together(events):
    limits = {"type": "User", "qps": 1, "burst": 2}, {"type": "Server", "qps": 1, "burst": 3}
    (one, clock), (other, _) = events(*limits), events(*limits)
    event(one).run()
    event(other).run()
    assert refused(event(one)).message == "Too many requests: limit reached on type User for key bob"
    assert refused(event(other, user=EVE)).message == "Too many requests: limit reached on type Server for key "
    clock.now += 1.0
    event(one).run()
    refused(event(other))


def test_events_about_each_object(events):
    plugin, _ = events({"type": "SourceAndObject", "qps": 1, "burst": 1})
    event(plugin).run()
    event(plugin, source="scheduler").run()
    event(plugin, name="q").run()
    assert refused(event(plugin)).message == "Too many requests: limit reached on type SourceAndObject for key kubelethPodnpuv1"


def test_only_events_of_the_core_group_count(events):
    plugin, _ = events({"type": "Server", "qps": 1, "burst": 1})
    for _ in range(3):
        event(plugin, group="events.k8s.io").run()
        event(plugin, resource="pods").run()
        event(plugin, operation="DELETE").run()


def test_the_least_recently_used_bucket_is_forgotten(events):
    plugin, clock = events({"type": "User", "qps": 1, "burst": 1, "cacheSize": 2})

    def by(name: str) -> Request:
        clock.now += 0.001
        return event(plugin, user=UserInfo(name, ()))

    by("a").run()
    by("b").run()
    refused(by("a"))
    by("c").run()  # in place of b
    refused(by("a"))
    by("b").run()


# --- PodNodeSelector


def selector(server: FakeServer, annotation: str | None = None, **config: str) -> pod_node_selector.Plugin:
    meta: dict[str, Any] = {"name": "ns1"}
    if annotation is not None:
        meta["annotations"] = {pod_node_selector.ANNOTATION: annotation}
    server.add("", "namespaces", {"metadata": meta})
    return pod_node_selector.Plugin(server, Section("x", embedded={"podNodeSelectorPluginConfig": config}) if config else None)


def test_cluster_default_node_selector(server):
    plugin = selector(server, clusterDefaultNodeSelector="env=prod")
    assert Request(plugin, obj=pod()).run()["spec"]["nodeSelector"] == {"env": "prod"}
    assert Request(plugin, obj=pod(nodeSelector={"a": "b"})).run()["spec"]["nodeSelector"] == {"env": "prod", "a": "b"}
    e = refused(Request(plugin, obj=pod(nodeSelector={"env": "test"})))
    assert e.message == f'pods "a" is forbidden: {pod_node_selector.CONFLICT}'
    # An annotation, even an empty one, goes before it.
    assert "nodeSelector" not in Request(selector(server, "", clusterDefaultNodeSelector="env=prod"), obj=pod()).run()["spec"]
    Request(selector(server, "env=test", clusterDefaultNodeSelector="env=prod"), obj=pod(nodeSelector={"env": "test"})).run()


def test_white_list_of_node_selectors(server):
    plugin = selector(server, ns1="env=prod,zone=a", other="x=y")
    Request(plugin, obj=pod()).run()
    Request(plugin, obj=pod(nodeSelector={"env": "prod"})).run()
    for bad in ({"env": "test"}, {"disk": "ssd"}):
        e = refused(Request(plugin, obj=pod(nodeSelector=bad)))
        assert e.message == f'pods "a" is forbidden: {pod_node_selector.NOT_LISTED}'


@pytest.mark.parametrize(
    ("annotation", "says"),
    [
        ("a", "invalid selector: [a]"),
        ("a==b", "invalid selector: [a  b]"),
        ("a=b c", '[a]: Invalid value: "b c": a valid label must be'),
        ("/=b", '<nil>: Invalid value: "/": '),
    ],
)
def test_annotations_that_are_no_selector(server, annotation, says):
    e = refused(Request(selector(server, annotation), obj=pod()))
    assert (e.code, e.reason) == (500, "") and e.message.startswith(says)


# --- PodTolerationRestriction


def tolerations(server: FakeServer, annotations: dict[str, str] | None = None, **config: Any) -> pod_toleration_restriction.Plugin:
    server.add("", "namespaces", {"metadata": {"name": "ns1", "annotations": annotations or {}}})
    told = section("podtolerationrestriction.admission.k8s.io/v1alpha1", "Configuration", **config) if config else None
    return pod_toleration_restriction.Plugin(server, told)


A, B = {"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}


def test_default_tolerations_of_the_cluster(server):
    plugin = tolerations(server, default=[A])
    assert Request(plugin, obj=pod()).run()["spec"]["tolerations"] == [A]
    assert Request(plugin, obj=pod(tolerations=[B])).run()["spec"]["tolerations"] == [B, A]
    assert "tolerations" not in Request(plugin, operation="UPDATE", obj=pod(), old=pod()).run()["spec"]
    plugin = tolerations(server, {pod_toleration_restriction.DEFAULTS: ""}, default=[A])
    assert not Request(plugin, obj=pod()).run()["spec"].get("tolerations")


def test_tolerations_of_one_pod_are_its_own(server):
    plugin = tolerations(server, default=[A])
    Request(plugin, obj=pod()).run()["spec"]["tolerations"][0]["key"] = "changed"
    assert Request(plugin, obj=pod()).run()["spec"]["tolerations"] == [A]


def test_whitelist_of_the_cluster(server):
    plugin = tolerations(server, whitelist=[A])
    Request(plugin, obj=pod(tolerations=[{"key": "a", "operator": "Equal", "value": "x"}])).run()
    e = refused(Request(plugin, obj=pod(tolerations=[B])))
    assert (e.code, e.message) == (500, pod_toleration_restriction.CONFLICT)
    # Defaults have to be on the list, too.
    refused(Request(tolerations(server, whitelist=[A], default=[B]), obj=pod()))
    Request(tolerations(server, {pod_toleration_restriction.WHITELIST: "[]"}, whitelist=[A]), obj=pod(tolerations=[B])).run()


# --- PodSecurity


def security(server: FakeServer, labels: dict[str, str] | None = None, version: str = "v1", **config: Any) -> pod_security.Plugin:
    named = {f"pod-security.kubernetes.io/{k.replace('_', '-')}": v for k, v in (labels or {}).items()}
    server.add("", "namespaces", {"metadata": {"name": "ns1", "labels": named}})
    return pod_security.Plugin(server, section(f"pod-security.admission.config.k8s.io/{version}", "PodSecurityConfiguration", **config))


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_pod_security_defaults(server, version):
    defaults = {"enforce": "baseline", "enforce-version": "v1.30", "warn": "restricted"}
    plugin = security(server, version=version, defaults=defaults)
    e = refused(Request(plugin, obj=pod(hostPID=True)))
    assert e.message == 'pods "a" is forbidden: violates PodSecurity "baseline:v1.30": host namespaces (hostPID=true)'
    request = Request(plugin, obj=pod())
    request.run()
    assert request.warnings[0].startswith('would violate PodSecurity "restricted:latest"')
    assert request.annotations == {"pod-security.kubernetes.io/enforce-policy": "baseline:v1.30"}
    # Each label replaces its own default only.
    plugin = security(server, {"enforce_version": "latest", "warn": "privileged"}, defaults=defaults)
    assert 'violates PodSecurity "baseline:latest"' in refused(Request(plugin, obj=pod(hostPID=True))).message
    request = Request(plugin, obj=pod())
    request.run()
    assert request.warnings == []


def test_pod_security_exemptions(server):
    plugin = security(
        server,
        {"enforce": "restricted"},
        exemptions={"usernames": ["bob"], "namespaces": ["open"], "runtimeClasses": ["vm"]},
    )
    for what, request in (
        ("user", Request(plugin, obj=pod(), user=BOB)),
        ("namespace", Request(plugin, obj=pod(), user=EVE, namespace="open")),
        ("runtimeClass", Request(plugin, obj=pod(runtimeClassName="vm"), user=EVE)),
        ("user", Request(plugin, obj={"metadata": {"name": "d"}, "spec": {}}, group="apps", resource="deployments", user=BOB)),
    ):
        request.run()
        assert request.annotations == {"pod-security.kubernetes.io/exempt": what}
    assert refused(Request(plugin, obj=pod(), user=EVE)).code == 403
    assert refused(Request(plugin, obj=pod(runtimeClassName="other"), user=EVE)).code == 403


def test_labels_of_an_exempt_namespace_are_answered_with_a_warning(server):
    plugin = security(server, exemptions={"namespaces": ["ns1"]}, defaults={"audit": "baseline"})
    server.add("", "pods", pod("p", hostPID=True))

    def labelled(operation: str, **labels: str) -> list[str]:
        new = {"metadata": {"name": "ns1", "labels": {f"pod-security.kubernetes.io/{k}": v for k, v in labels.items()}}}
        old = {"metadata": {"name": "ns1"}} if operation == "UPDATE" else None
        request = Request(plugin, operation=operation, resource="namespaces", kind="Namespace", namespace="", obj=new, old=old)
        request.run()
        return request.warnings

    policy = "enforce=baseline:latest, warn=restricted:latest"
    ignored = f'namespace "ns1" is exempt from Pod Security, and the policy ({policy}) will be ignored'
    assert labelled("CREATE", enforce="baseline", warn="restricted") == [ignored]
    assert labelled("UPDATE", enforce="baseline", warn="restricted") == [ignored]
    assert labelled("CREATE") == labelled("UPDATE", enforce="privileged") == []


def test_existing_pods_of_an_exempt_runtime_class_are_not_counted(server):
    plugin = security(server, exemptions={"runtimeClasses": ["vm"]})
    server.add("", "pods", pod("a", hostPID=True, runtimeClassName="vm"))
    new = {"metadata": {"name": "ns1", "labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}
    request = Request(
        plugin, operation="UPDATE", resource="namespaces", kind="Namespace", namespace="", obj=new, old={"metadata": {"name": "ns1"}}
    )
    request.run()
    assert request.warnings == []


# --- ResourceQuota


def limited(server: FakeServer, *rules: dict[str, Any]) -> resource_quota.Plugin:
    server.store.commit_many = _commit
    return resource_quota.Plugin(server, section("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration", limitedResources=list(rules)))


async def _commit(ops: Any) -> Any:
    return SimpleNamespace()


def quota(server: FakeServer, name: str, hard: dict[str, str], **spec: Any) -> None:
    status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
    server.add("", "resourcequotas", {"metadata": {"name": name, "namespace": "ns1"}, "spec": {"hard": hard, **spec}, "status": status})


def claim(storage_class: str = "gold") -> dict[str, Any]:
    spec = {"storageClassName": storage_class, "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": "c", "namespace": "ns1", "uid": "u"}, "spec": spec}


def test_what_is_limited_needs_a_quota(server):
    part = ".storageclass.storage.k8s.io/requests.storage"
    plugin = limited(server, {"resource": "persistentvolumeclaims", "matchContains": [part]})
    request = Request(plugin, resource="persistentvolumeclaims", kind="PersistentVolumeClaim", obj=claim())
    assert refused(request).message == f'persistentvolumeclaims "c" is forbidden: insufficient quota to consume: gold{part}'
    quota(server, "other", {f"silver{part}": "5Gi"})
    refused(request)
    Request(plugin, obj=pod()).run()
    quota(server, "right", {f"gold{part}": "5Gi"})
    request.run()
    Request(plugin, resource="persistentvolumeclaims", operation="UPDATE", obj=claim("silver"), old=claim("silver")).run()


def test_limited_resources_are_of_one_group(server):
    plugin = limited(server, {"apiGroup": "apps", "resource": "deployments", "matchContains": ["count/"]})
    assert "insufficient quota to consume: count/deployments.apps" in refused(
        Request(plugin, group="apps", resource="deployments", obj={"metadata": {"name": "d"}})
    ).message  # fmt: skip
    Request(plugin, resource="services", kind="Service", obj={"metadata": {"name": "s"}, "spec": {}}).run()


def test_scopes_need_a_quota(server):
    rule = {"scopeName": "PriorityClass", "operator": "In", "values": ["high", "higher"]}
    plugin = limited(server, {"resource": "pods", "matchScopes": [rule]})
    request = Request(plugin, obj=pod(priorityClassName="high"))
    e = refused(request)
    assert (e.code, e.reason) == (500, "")
    assert e.message == "insufficient quota to match these scopes: [{PriorityClass In [high higher]}]"
    Request(plugin, obj=pod(priorityClassName="low")).run()
    quota(server, "low", {"pods": "5"}, scopeSelector={"matchExpressions": [{**rule, "values": ["low"]}]})
    refused(request)
    quota(server, "high", {"pods": "5"}, scopeSelector={"matchExpressions": [{**rule, "values": ["high"]}]})
    request.run()


@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1"])
def test_old_versions_of_the_quota_configuration(server, version):
    told = section(f"resourcequota.admission.k8s.io/{version}", "Configuration", limitedResources=[{"resource": "pods"}])
    Request(resource_quota.Plugin(server, told), obj=pod()).run()

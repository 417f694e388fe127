"""The PodSecurity plug-in alone."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kas.admission.configuration import Section
from kas.admission.plugins import pod_security
from kas.admission.plugins._podsecurity.checks import detail, evaluate
from kas.admission.plugins._podsecurity.policy import LATEST, LevelVersion, Policy, policy_of
from kas.auth.user import UserInfo
from kas.meta.errors import ApiError
from kas.meta.offload import POOL
from tests.admission.admission_fakes import FakeServer, Request, pod, refused


def section(api_version: str, kind: str, **fields: Any) -> Section:
    return Section("x", embedded={"apiVersion": api_version, "kind": kind, **fields})


def security(server: FakeServer, labels: dict[str, str] | None = None, version: str = "v1", **config: Any) -> pod_security.Plugin:
    named = {f"pod-security.kubernetes.io/{k.replace('_', '-')}": v for k, v in (labels or {}).items()}
    server.add("", "namespaces", {"metadata": {"name": "ns1", "labels": named}})
    return server.plugin(pod_security, section(f"pod-security.admission.config.k8s.io/{version}", "PodSecurityConfiguration", **config))


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
    # Each label replaces only its own default.
    plugin = security(server, {"enforce_version": "latest", "warn": "privileged"}, defaults=defaults)
    assert 'violates PodSecurity "baseline:latest"' in refused(Request(plugin, obj=pod(hostPID=True))).message
    request = Request(plugin, obj=pod())
    request.run()
    assert request.warnings == []


BOB, EVE = UserInfo("bob", ()), UserInfo("eve", ())


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


def test_labels_of_an_exempt_namespace_cause_a_warning(server):
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


SAFE = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def found(level: str, version: int = LATEST, annotations: dict | None = None, **spec) -> str:
    spec.setdefault("containers", [{"name": "c"}])
    return detail(evaluate(LevelVersion(level, version), {"annotations": annotations or {}}, spec))


def with_context(**context):
    return [{"name": "c", "securityContext": context}]


def test_restricted_requires_explicit_fields():
    assert found("restricted") == (
        'allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false), '
        'unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]), '
        'runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true), '
        'seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")'
    )
    assert found("restricted", containers=with_context(**SAFE)) == ""
    assert found("privileged", hostNetwork=True) == ""


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"hostNetwork": True, "hostPID": True}, "host namespaces (hostNetwork=true, hostPID=true)"),
        ({"containers": with_context(privileged=True)}, 'privileged (container "c" must not set securityContext.privileged=true)'),
        ({"containers": with_context(capabilities={"add": ["SYS_ADMIN", "CHOWN"]})},
         'non-default capabilities (container "c" must not include "SYS_ADMIN" in securityContext.capabilities.add)'),
        ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, 'hostPath volumes (volume "v")'),
        ({"containers": [{"name": "c", "ports": [{"hostPort": 80}, {"hostPort": 443}]}]},
         'hostPort (container "c" uses hostPorts 443, 80)'),
        ({"containers": with_context(procMount="Unmasked")},
         'procMount (container "c" must not set securityContext.procMount to "Unmasked")'),
        ({"securityContext": {"seLinuxOptions": {"type": "spc_t", "user": "u"}}},
         'seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type "spc_t"; user may not be set)'),
        ({"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
         'seccompProfile (pod must not set securityContext.seccompProfile.type to "Unconfined")'),
        ({"securityContext": {"sysctls": [{"name": "kernel.msgmax"}]}}, "forbidden sysctls (kernel.msgmax)"),
        ({"securityContext": {"windowsOptions": {"hostProcess": True}}},
         "hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)"),
        ({"containers": [{"name": "c", "livenessProbe": {"httpGet": {"host": "10.1.1.1"}}}]},
         'probe or lifecycle host (container "c" uses probe or lifecycle host "10.1.1.1")'),
        ({"containers": with_context(appArmorProfile={"type": "Unconfined"})},
         'forbidden AppArmor profile (container "c" must not set AppArmor profile type to "Unconfined")'),
    ],
)  # fmt: skip
def test_baseline(spec, text):
    assert found("baseline", **spec) == text


def test_restricted_replaces_its_baseline_twins():
    volumes = [{"name": "v", "hostPath": {"path": "/"}}, {"name": "w", "image": {}}]
    text = found("restricted", containers=with_context(**SAFE), volumes=volumes)
    assert text == 'restricted volume types (volume "v" uses restricted volume type "hostPath")'


def test_versions():
    probe = [{"name": "c", "livenessProbe": {"tcpSocket": {"host": "h"}}}]
    assert found("baseline", 33, containers=probe) == "" != found("baseline", 34, containers=probe)
    windows = {"os": {"name": "windows"}, "securityContext": {"runAsNonRoot": True}}
    assert found("restricted", 25, **windows) == "" != found("restricted", 24, **windows)
    own = {"hostUsers": False, "containers": with_context(**{**SAFE, "runAsNonRoot": None, "runAsUser": 0})}
    assert found("restricted", **own) == "" != found("restricted", 33, **own)


def test_restricted_masks_proc_in_a_user_namespace_too():
    """Baseline allows it there from 1.35 on; restricted then has its own check, in its own place."""
    unmasked = {"hostUsers": False, "containers": with_context(**SAFE, procMount="Unmasked")}
    text = 'procMount (container "c" must not set securityContext.procMount to "Unmasked")'
    for version in (34, 35, LATEST):
        assert found("restricted", version, **unmasked) == text
        assert found("baseline", version, **unmasked) == (text if version == 34 else "")
    bad = {"containers": with_context(procMount="Unmasked"), "volumes": [{"name": "v", "hostPath": {}}]}
    reasons = [reason for reason, _ in evaluate(LevelVersion("restricted"), {}, bad)]
    assert reasons[:4] == ["allowPrivilegeEscalation != false", "unrestricted capabilities", "procMount", "restricted volume types"]


def namespace(server, **labels):
    labels = {f"pod-security.kubernetes.io/{k.replace('_', '-')}": v for k, v in labels.items()}
    server.add("", "namespaces", {"metadata": {"name": "ns1", "labels": labels}})
    return server.plugin(pod_security)


def test_enforce(server):
    plugin = namespace(server, enforce="baseline")
    with pytest.raises(ApiError) as e:
        Request(plugin, obj=pod(hostPID=True)).run()
    assert e.value.message == 'pods "a" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostPID=true)'
    template = {"metadata": {"name": "d"}, "spec": {"template": {"metadata": {}, "spec": {"hostPID": True, "containers": []}}}}
    Request(plugin, group="apps", resource="deployments", kind="Deployment", obj=template).run()


def test_warn_and_audit(server):
    plugin = namespace(server, warn="baseline", audit="baseline", audit_version="v1.30")
    r = Request(plugin, obj=pod(hostPID=True))
    r.run()
    assert r.warnings == ['would violate PodSecurity "baseline:latest": host namespaces (hostPID=true)']
    assert r.annotations["pod-security.kubernetes.io/audit-violations"].startswith('would violate PodSecurity "baseline:v1.30"')


@pytest.mark.parametrize(
    ("labels", "warn"),
    [
        ({"enforce": "baseline"}, "baseline:latest"),
        ({"enforce": "restricted", "enforce-version": "v1.30"}, "restricted:v1.30"),
        ({"enforce": "restricted", "enforce-version": "v1.30", "warn-version": "v1.29"}, "restricted:v1.29"),
        ({"enforce": "restricted", "warn": "privileged"}, "privileged:latest"),
        ({"enforce": "restricted", "warn": "what"}, "privileged:latest"),
        ({"enforce": "what"}, "restricted:latest"),
        ({"enforce-version": "v1.30"}, "privileged:latest"),
        ({"audit": "restricted"}, "privileged:latest"),
    ],
)
def test_warn_follows_enforce(labels, warn):
    policy, _ = policy_of({f"pod-security.kubernetes.io/{name}": value for name, value in labels.items()})
    assert str(policy.warn) == warn


def test_warn_follows_enforce_unless_the_default_is_stricter():
    defaults = Policy(warn=LevelVersion("restricted", 29))
    assert str(policy_of({"pod-security.kubernetes.io/enforce": "baseline"}, defaults)[0].warn) == "restricted:v1.29"


def test_workloads_get_warnings_about_enforced_levels(server):
    template = {"metadata": {"name": "d"}, "spec": {"template": {"metadata": {}, "spec": {"hostPID": True, "containers": []}}}}
    r = Request(namespace(server, enforce="baseline"), group="apps", resource="deployments", kind="Deployment", obj=template)
    r.run()
    assert r.warnings == ['would violate PodSecurity "baseline:latest": host namespaces (hostPID=true)']


def test_updates_of_irrelevant_fields_are_not_checked(server):
    plugin = namespace(server, enforce="restricted")
    Request(plugin, operation="UPDATE", obj=pod(), old=pod()).run()
    with pytest.raises(ApiError):
        Request(plugin, operation="UPDATE", obj=pod(containers=[{"name": "c", "image": "new"}]), old=pod()).run()


def test_wrong_labels(server):
    policy, wrong = policy_of({"pod-security.kubernetes.io/enforce": "foo", "pod-security.kubernetes.io/warn-version": "x"})
    assert policy.enforce.level == "restricted" and [str(e) for e in wrong] == [
        'metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "foo": must be one of privileged, baseline, restricted',
        'metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: "x": must be "latest" or "v1.x"',
    ]
    plugin = namespace(server)
    obj = {"metadata": {"name": "ns1", "labels": {"pod-security.kubernetes.io/enforce": "foo"}}}
    with pytest.raises(ApiError) as e:
        Request(plugin, resource="namespaces", kind="Namespace", namespace="", obj=obj).run()
    assert e.value.code == 422


def test_the_check_of_existing_pods_is_bounded(server, monkeypatch):
    plugin, now = namespace(server), [0.0]
    for i in range(12):
        server.add("", "pods", pod(f"p{i:02}", hostPID=True))
    monkeypatch.setattr(pod_security, "PAGE", 5)

    def warned(deadline: float = math.inf) -> list[str]:
        new = {"metadata": {"name": "ns1", "labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}
        old = {"metadata": {"name": "ns1"}}
        r = Request(plugin, operation="UPDATE", resource="namespaces", kind="Namespace", namespace="", obj=new, old=old)
        r.attributes.deadline = deadline
        r.run()
        return r.warnings

    assert warned()[1:] == ["p00 (and 11 other pods): host namespaces"]
    with monkeypatch.context() as m:
        m.setattr(pod_security, "MAX_PODS_TO_CHECK", 10)
        assert warned()[0] == "new PodSecurity enforce level only checked against the first 10 of 12 existing pods"
        assert warned()[2] == "p00 (and 9 other pods): host namespaces"

    def later() -> float:
        now[0] += 0.3
        return now[0]

    monkeypatch.setattr(pod_security, "monotonic", later)
    assert warned()[0] == "new PodSecurity enforce level only checked against the first 4 of 12 existing pods"
    # Half of what is left of the request's time.
    assert warned(now[0] + 1.6)[0] == "new PodSecurity enforce level only checked against the first 3 of 12 existing pods"
    assert warned(now[0])[0] == "new PodSecurity enforce level only checked against the first 1 of 12 existing pods"


def test_of_each_controller_one_pod_is_looked_at_before_its_others_and_exempt_ones_do_not_count(server, monkeypatch):
    plugin = security(server, exemptions={"runtimeClasses": ["vm"]})

    def owned(name: str, uid: str, **spec: Any) -> None:
        obj = pod(name, **spec)
        obj["metadata"]["ownerReferences"] = [{"uid": "else", "controller": False}, {"uid": uid, "controller": True}]
        server.add("", "pods", obj)

    for i in range(4):
        server.add("", "pods", pod(f"a{i}", runtimeClassName="vm", hostPID=True))
        owned(f"b{i}", "1", hostPID=True)
        owned(f"c{i}", "2", hostIPC=True, hostNetwork=True)
        server.add("", "pods", pod(f"d{i}", volumes=[{"name": "v", "hostPath": {}}]))

    def warned() -> list[str]:
        new = {"metadata": {"name": "ns1", "labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}
        old = {"metadata": {"name": "ns1"}}
        r = Request(plugin, operation="UPDATE", resource="namespaces", kind="Namespace", namespace="", obj=new, old=old)
        r.run()
        return r.warnings

    both = ["b0 (and 7 other pods): host namespaces", "d0 (and 3 other pods): hostPath volumes"]
    assert warned()[1:] == both
    monkeypatch.setattr(pod_security, "PAGE", 3)
    assert warned()[1:] == both
    monkeypatch.setattr(pod_security, "MAX_PODS_TO_CHECK", 4)
    first, _, *rest = warned()
    assert first == "new PodSecurity enforce level only checked against the first 4 of 12 existing pods"
    assert rest == ["b0 (and 1 other pod): host namespaces", "d0 (and 1 other pod): hostPath volumes"]
    monkeypatch.setattr(pod_security, "MAX_PODS_TO_CHECK", 8)
    assert warned()[2:] == ["b0 (and 3 other pods): host namespaces", "d0 (and 3 other pods): hostPath volumes"]


@pytest.mark.parametrize("many", [1, pod_security.MANY])
def test_pods_with_many_containers_are_checked_off_the_loop(server, many):
    plugin = security(server, {"warn": "restricted", "audit": "restricted", "enforce": "baseline"})
    before = POOL.done
    open_ = [{"name": f"c{i}", "image": "i", "ports": [{"hostPort": 1}]} for i in range(many)]
    bad = Request(plugin, obj=pod("a", containers=open_))
    assert refused(bad).message.startswith('pods "a" is forbidden: violates PodSecurity "baseline:latest": hostPort (')
    fine = Request(plugin, obj=pod("a", containers=[{"name": f"c{i}", "image": "i"} for i in range(many)]))
    fine.run()
    assert POOL.done - before == (2 if many > 1 else 0)
    assert [text.partition("(")[0] for text in fine.warnings] == [
        'would violate PodSecurity "restricted:latest": allowPrivilegeEscalation != false '
    ]
    for request in (bad, fine):
        assert set(request.annotations) == {f"pod-security.kubernetes.io/{key}" for key in ("enforce-policy", "audit-violations")}


def test_a_stricter_level_warns_of_existing_pods(server):
    plugin = namespace(server)
    for name in ("b", "a", "c"):
        server.add("", "pods", pod(name, hostPID=True))
    new = {"metadata": {"name": "ns1", "labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}
    old = {"metadata": {"name": "ns1"}}
    r = Request(plugin, operation="UPDATE", resource="namespaces", kind="Namespace", namespace="", obj=new, old=old)
    r.run()
    assert r.warnings == [
        'existing pods in namespace "ns1" violate the new PodSecurity enforce level "baseline:latest"',
        "a (and 2 other pods): host namespaces",
    ]


def counted(server: FakeServer, name: str) -> dict[tuple[str, ...], float]:
    return {labels: n for labels, n in server.initializer.metrics.metrics[f"pod_security_{name}_total"].values.items() if n}


DEPLOYMENT = {"group": "apps", "resource": "deployments", "kind": "Deployment"}
OPEN_TEMPLATE = {"metadata": {"name": "d"}, "spec": {"template": {"metadata": {}, "spec": {"hostPID": True, "containers": []}}}}


def test_evaluations_are_counted(server):
    plugin = namespace(server, enforce="baseline", enforce_version="v1.99", audit="restricted", audit_version="v1.30", warn="privileged")
    Request(plugin, obj=pod()).run()
    refused(Request(plugin, obj=pod(hostPID=True)))
    Request(plugin, obj=OPEN_TEMPLATE, **DEPLOYMENT).run()
    Request(plugin, operation="UPDATE", obj=pod(), old=pod()).run()  # nothing to evaluate
    of = ("create", "pod", "")
    assert counted(server, "evaluations") == {
        ("allow", "baseline", "future", "enforce", *of): 1, ("deny", "baseline", "future", "enforce", *of): 1,
        ("deny", "restricted", "v1.30", "audit", *of): 2, ("deny", "restricted", "v1.30", "audit", "create", "controller", ""): 1,
    }  # fmt: skip
    assert counted(server, "exemptions") == counted(server, "errors") == {}


def test_exemptions_and_errors_are_counted(server):
    plugin = security(server, {"enforce": "what"}, exemptions={"usernames": ["bob"], "runtimeClasses": ["vm"]})
    Request(plugin, obj=pod(), user=BOB).run()
    Request(plugin, obj=pod(runtimeClassName="vm"), user=EVE).run()
    refused(Request(plugin, obj=pod(), user=EVE))
    assert counted(server, "exemptions") == {("create", "pod", ""): 2}
    assert counted(server, "errors") == {("false", "create", "pod", ""): 1}


def test_a_missing_namespace_refuses_only_pods(server):
    plugin = namespace(server)
    said = 'failed to lookup namespace "gone"'
    request = Request(plugin, obj=pod(), namespace="gone")
    e = refused(request)
    assert (e.code, e.message) == (500, f"Internal error occurred: {said}")
    assert request.annotations == {"pod-security.kubernetes.io/error": f'{e.message}: namespaces "gone" not found'}
    request = Request(plugin, obj=OPEN_TEMPLATE, namespace="gone", **DEPLOYMENT)
    request.run()
    assert request.annotations == {"pod-security.kubernetes.io/error": f'{said}: namespaces "gone" not found'}
    assert counted(server, "errors") == {("true", "create", "pod", ""): 1, ("true", "create", "controller", ""): 1}


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_the_privileged_level_is_reported_with_the_latest_version(server, operation):
    """A level without checks has no versions; updates are counted, too."""
    request = Request(namespace(server, enforce="privileged", enforce_version="v1.25"), operation=operation, obj=pod(), old=pod())
    request.run()
    assert request.annotations == {"pod-security.kubernetes.io/enforce-policy": "privileged:latest"}
    assert counted(server, "evaluations") == {("allow", "privileged", "latest", "enforce", operation.lower(), "pod", ""): 1}


SECCOMP = "seccomp.security.alpha.kubernetes.io/pod"


@pytest.mark.parametrize(
    ("annotations", "more", "looks"),
    [
        ({}, {}, False),
        ({SECCOMP: "unconfined", "container.apparmor.security.beta.kubernetes.io/c": "unconfined"}, {}, False),
        ({"container.seccomp.security.alpha.kubernetes.io/c": ""}, {}, False),
        ({"container.seccomp.security.alpha.kubernetes.io/other": "unconfined"}, {}, False),
        ({"container.seccomp.security.alpha.kubernetes.io/c": "unconfined"}, {}, True),
        ({}, {"containers": [{"name": "c", "image": "other"}]}, True),
        ({}, {"initContainers": [{"name": "d", "image": "i"}]}, True),
        ({}, {"ephemeralContainers": [{"name": "e", "image": "i"}]}, True),
    ],
)
def test_updates_that_are_checked(server, annotations, more, looks):
    """As upstream: changes of images and of seccomp annotations of containers; everything else was checked at the create."""
    new, old = pod(hostPID=True), pod(hostPID=True)
    new["metadata"]["annotations"], new["spec"] = annotations, new["spec"] | more
    request = Request(namespace(server, enforce="baseline"), operation="UPDATE", obj=new, old=old)
    if looks:
        assert refused(request).code == 403
    else:
        request.run()


def least(level: str, version: int) -> dict[str, Any]:
    """Returns the minimal pod of a level and version."""
    context: dict[str, Any] = {}
    if version >= 8:
        context["allowPrivilegeEscalation"] = False
    if version >= 22:
        context["capabilities"] = {"drop": ["ALL"]}
    whole = {"runAsNonRoot": True} | ({"seccompProfile": {"type": "RuntimeDefault"}} if version >= 19 else {})
    if level != "restricted":
        context, whole = {}, {}
    containers = {kind: [{"name": kind, "securityContext": context}] for kind in ("containers", "initContainers")}
    return {**containers, "securityContext": whole}


def test_each_version_requires_its_minimal_pod_and_no_more():
    """The minimal pods of upstream's fixtures, for each level and version; that of the version before a new check fails it."""
    for version in (*range(37), LATEST):
        for level in ("privileged", "baseline", "restricted"):
            assert found(level, version, **least(level, version)) == ""
        for since, reason in ((8, "allowPrivilegeEscalation"), (19, "seccompProfile"), (22, "unrestricted capabilities")):
            text = found("restricted", version, **least("restricted", since - 1))
            assert (reason in text) is (version >= since), (version, text)
        as_root = least("restricted", version) | {"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}, "hostUsers": False}
        assert (found("restricted", version, **as_root) == "") is (version >= 35)

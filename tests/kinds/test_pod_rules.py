"""Pods and templates in detail: exact paths and messages, what stored pods may keep, statuses, resizes and warnings about volumes."""

from __future__ import annotations

import pytest

from kas.config import capabilities, features
from kas.kinds.core.pod import warnings as podwarnings
from kas.kinds.core.pod.strategy import assign
from kas.registry import pipeline
from tests.kinds.helpers import NOW, create, pod, refused, resource, update, workload

PODS, DEPLOYMENTS, TEMPLATES = "v1/pods", "apps/v1/deployments", "v1/podtemplates"
AGAIN = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]


def container(name="c", **more):
    return {"name": name, "image": "nginx:1", **more}


def stored(**spec):
    return create(PODS, pod(**spec))[0]


def left(**spec):
    """Returns a pod as an older release may have stored it: with defaults, but never validated."""
    obj, _ = pipeline.decode_input(resource(PODS), pod(**spec))
    obj["metadata"]["namespace"] = "ns1"
    return obj


def messages(call, *args):
    return [f"{where}: {message}" for where, message in refused(call, *args)]


def label(obj):
    obj["metadata"]["labels"] = {"new": "label"}


def of_file(**ref):
    return [{"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k", **ref}}}]


@pytest.mark.parametrize(
    "spec,expected",
    [
        (
            {"containers": [container(env=[{"name": "A", "valueFrom": {}}])]},
            ["spec.containers[0].env[0].valueFrom: Invalid value: \"\": must specify one of: "
             "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"],
        ),
        (
            {"containers": [container(env=of_file(path="a/../b"))]},
            ["spec.containers[0].env[0].valueFrom.fileKeyRef.path: Invalid value: \"a/../b\": must not contain '..'",
             'spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName: Not found: "v"'],
        ),
        ({"hostUsers": False, "hostPID": True, "hostIPC": True},
         ["spec.HostPID: Forbidden: when `hostUsers` is false", "spec.HostIPC: Forbidden: when `hostUsers` is false"]),
        (
            {"hostUsers": False, "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
             "containers": [container(volumeDevices=[{"name": "v", "devicePath": "/dev/x"}])]},
            ["spec.containers[0].volumeDevices: Forbidden: when `hostUsers` is false"],
        ),
        ({"hostnameOverride": "a" * 65}, ["spec.hostnameOverride: Too long: may not be more than 64 bytes"]),
        ({"hostnameOverride": "a", "hostNetwork": True},
         ["spec.hostnameOverride: Forbidden: may not be specified when hostNetwork is true"]),
        (
            {"securityContext": {"seLinuxChangePolicy": "MountOption"}},
            ['spec.securityContext.seLinuxChangePolicy: Unsupported value: "MountOption": supported values: "Recursive"'],
        ),
        (
            {"tolerations": [{"key": "a", "operator": "Lt", "value": "1"}]},
            ['spec.tolerations[0].operator: Unsupported value: "Lt": supported values: "Equal", "Exists", "Lt", "Gt"'],
        ),
        (
            {"restartPolicy": "Never", "containers": [container(resizePolicy=AGAIN)]},
            ['spec.containers[0].resizePolicy: Invalid value: "RestartContainer": '
             "must be 'NotRequired' when pod `restartPolicy` is 'Never'"],
        ),
        ({"os": {"name": "windows"}, "resources": {"requests": {"cpu": "1"}}},
         ["spec.resources: Forbidden: may not be set for a windows pod"]),
    ],
)  # fmt: skip
def test_messages(spec, expected):
    assert messages(create, PODS, pod(**spec)) == expected


LENIENT = [
    {"securityContext": {"seLinuxChangePolicy": "MountOption"}},
    {"hostNetwork": True, "securityContext": {"sysctls": [{"name": "net.core.a", "value": "1"}]}},
    {"hostUsers": False, "hostNetwork": True},
    {"hostUsers": False, "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
     "containers": [container(volumeDevices=[{"name": "v", "devicePath": "/dev/x"}])]},
    {"initContainers": [container("i", resizePolicy=AGAIN)]},
    {"containers": [container(resources={k: {"hugepages-2Mi": "3Mi", "cpu": "1"} for k in ("requests", "limits")})]},
    {"serviceAccountName": "s", "volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "../a"}}]}}]},
]  # fmt: skip


@pytest.mark.parametrize("spec", LENIENT)
def test_stored_values_may_stay(spec):
    assert messages(create, PODS, pod(**spec))
    assert update(PODS, left(**spec), label)[0]["metadata"]["labels"] == {"new": "label"}


def test_the_network_of_the_host_may_be_given_to_users_of_their_own():
    with features.DEFAULT.overridden(UserNamespacesHostNetworkSupport=True):
        assert create(PODS, pod(hostUsers=False, hostNetwork=True))
        assert messages(create, PODS, pod(hostUsers=False, hostPID=True)) == ["spec.HostPID: Forbidden: when `hostUsers` is false"]


def test_a_stored_selinux_change_policy_stays():
    with features.DEFAULT.overridden(SELinuxMount=True):
        old = stored(securityContext={"seLinuxChangePolicy": "MountOption"})
    assert old["spec"]["securityContext"]["seLinuxChangePolicy"] == "MountOption"
    assert update(PODS, old, lambda o: o["metadata"].update(labels={"a": "b"}))  # stored values stay, whatever the gate says now


def test_only_sidecars_restart_on_a_resize():
    found = messages(create, PODS, pod(initContainers=[container("i", resizePolicy=AGAIN)]))
    text = "must not be set to 'RestartContainer' for non-sidecar initContainers"
    assert found == [f'spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid value: "RestartContainer": {text}']
    assert stored(initContainers=[container("i", resizePolicy=AGAIN, restartPolicy="Always")])


def test_static_pods_claim_no_devices():
    static = pod(nodeName="n", resourceClaims=[{"name": "a", "resourceClaimName": "b"}])
    static["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    assert messages(create, PODS, static) == ["[]: Forbidden: static pods do not support resource claims"]


@pytest.mark.parametrize("profile,warned", [({}, True), ({"appArmorProfile": {"type": "Unconfined"}}, False)])
def test_a_profile_field_wins_over_its_annotation(profile, warned):
    """Only an annotation without a field causes a warning; one that differs is refused."""
    body = pod(containers=[container(securityContext=profile)])
    key = "container.apparmor.security.beta.kubernetes.io/c"
    body["metadata"]["annotations"] = {key: "unconfined"}
    got, warnings = create(PODS, body)
    assert got["spec"]["containers"][0]["securityContext"] == {"appArmorProfile": {"type": "Unconfined"}}
    text = f'metadata.annotations[{key}]: deprecated since v1.30; use the "appArmorProfile" field instead'
    assert warnings == [text] * warned


# -- fields of gates that are off --------------------------------------------------------------------------------------

BUNDLE = {"clusterTrustBundle": {"name": "a", "path": "ca.pem"}}


def test_fields_of_disabled_gates_are_dropped_from_pods_and_templates():
    spec = {
        "volumes": [{"name": "v", "projected": {"sources": [{"configMap": {"name": "c"}}, BUNDLE]}}],
        "containers": [container(lifecycle={"stopSignal": "SIGTERM"})],
    }
    template = {"metadata": {"labels": {"app": "a"}}, "spec": spec}
    for got in (
        stored(**spec),
        create(DEPLOYMENTS, workload(template=template))[0]["spec"]["template"],
        create(TEMPLATES, {"metadata": {"name": "t"}, "template": template})[0]["template"],
    ):
        assert got["spec"]["volumes"][0]["projected"]["sources"] == [{"configMap": {"name": "c"}}, {}]
        assert "lifecycle" not in got["spec"]["containers"][0]


def test_a_stored_pod_keeps_them():
    old = left(volumes=[{"name": "v", "projected": {"sources": [BUNDLE]}}], containers=[container(lifecycle={"stopSignal": "SIGTERM"})])
    old["spec"]["os"] = {"name": "linux"}
    got, _ = update(PODS, old, label)
    assert got["spec"]["volumes"] == old["spec"]["volumes"] and got["spec"]["containers"] == old["spec"]["containers"]


def test_user_annotations_for_a_signer_have_a_domain():
    source = {"signerName": "a.b/c", "keyType": "ED25519", "keyPath": "k", "userAnnotations": {"A.io/b": "", "c": "", "d e": ""}}
    with features.DEFAULT.overridden(PodCertificateRequest=True):
        found = refused(create, PODS, pod(volumes=[{"name": "v", "projected": {"sources": [{"podCertificate": source}]}}]))
    assert {where for where, _ in found} == {"spec.volumes[0].projected.sources[0].podCertificate.userAnnotations"}
    assert 'Invalid value: "c": must be a domain-prefixed key (such as "acme.io/foo")' in [message for _, message in found]
    source["userAnnotations"] = {"a.io/b": "x" * (256 << 10)}
    with features.DEFAULT.overridden(PodCertificateRequest=True):
        found = refused(create, PODS, pod(volumes=[{"name": "v", "projected": {"sources": [{"podCertificate": source}]}}]))
    assert [message for _, message in found] == ["Too long: may not be more than 262144 bytes"]


# -- updates -----------------------------------------------------------------------------------------------------------


def test_empty_and_absent_are_the_same():
    old = stored()
    got, _ = update(PODS, old, lambda obj: obj["spec"]["containers"][0].update(args=[], ports=[], env=[], resources={"limits": {}}))
    assert got["metadata"]["generation"] == 1


# -- status ------------------------------------------------------------------------------------------------------------


def status(**fields):
    return lambda obj: obj["status"].update(fields)


def test_status_fields_are_validated():
    conditions = [{"type": "Ready", "status": "True", "observedGeneration": -1}]
    assert messages(update, PODS, stored(), status(conditions=conditions, observedGeneration=-2), "status") == [
        "status.conditions[0].observedGeneration: Invalid value: -1: must be a non-negative integer",
        "status.observedGeneration: Invalid value: -2: must be a non-negative integer",
    ]
    assert messages(update, PODS, stored(nodeName="n"), status(nominatedNodeName="m"), "status") == [
        "status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node"
    ]
    claim = status(resourceClaimStatuses=[{"name": "a", "resourceClaimName": "A"}])
    wrong = refused(update, PODS, stored(), claim, "status")
    assert [where for where, _ in wrong] == [
        "status.resourceClaimStatuses[0].name", "status.resourceClaimStatuses[0].resourceClaimName",
    ]  # fmt: skip
    assert wrong[1][1].startswith('Invalid value: "A": a lowercase RFC 1123 subdomain')
    mapping = {"containerName": "z", "resourceName": "example.com/a", "requestName": "r"}
    extended = status(extendedResourceClaimStatus={"resourceClaimName": "b", "requestMappings": [mapping]})
    assert messages(update, PODS, stored(), extended, "status") == [
        'status.extendedResourceClaimStatus.requestMappings[0].containerName: Invalid value: "z": '
        "must match the name of an entry in spec.initContainers.name or spec.containers.name"
    ]


def test_a_status_without_a_generation_keeps_the_old_one():
    seen = [{"type": "Ready", "status": "True", "observedGeneration": 3}]
    old, _ = update(PODS, stored(), status(conditions=seen, observedGeneration=2), "status")
    got, _ = update(PODS, old, lambda obj: obj.update(status={"conditions": [{"type": "Ready", "status": "False"}]}), "status")
    assert got["status"]["observedGeneration"] == 2
    assert got["status"]["conditions"] == [{"type": "Ready", "status": "False", "observedGeneration": 3}]


def test_unusual_addresses_in_a_status_warn():
    _, warnings = update(PODS, stored(), status(podIP="2001:DB8::1", podIPs=[{"ip": "2001:DB8::1"}]), "status")
    assert len(warnings) == 1 and warnings[0].startswith("status.podIPs[0].ip: ")


def rule(operator, *codes, action="Restart"):
    codes = {"operator": operator, "values": list(codes)}
    return {"restartPolicy": "Never", "restartPolicyRules": [{"action": action, "exitCodes": codes}]}


@pytest.mark.parametrize(
    "code,spec,may",
    [
        (0, {}, True),
        (0, {"restartPolicy": "OnFailure"}, False),
        (1, {"restartPolicy": "OnFailure"}, True),
        (1, {"restartPolicy": "Never"}, False),
        (1, {"restartPolicy": "Never", "containers": [container(restartPolicy="OnFailure")]}, True),
        (42, {"containers": [container(**rule("In", 42))]}, True),
        (41, {"containers": [container(**rule("In", 42))]}, False),
        (41, {"containers": [container(**rule("NotIn", 42))]}, True),
        (41, {"containers": [container(**rule("In", 42, action="RestartAllContainers"))]}, True),
        (1, {"containers": [container("other")]}, False),
    ],
)
def test_restarts_of_ended_containers_follow_the_rules(code, spec, may):
    def state(**state):
        return status(containerStatuses=[{"name": "c", "image": "", "imageID": "", "ready": False, "restartCount": 0, "state": state}])

    old = left(**spec)
    state(terminated={"exitCode": code})(old)
    if may:
        update(PODS, old, state(running={}), "status")
    else:
        assert messages(update, PODS, old, state(running={}), "status") == [
            "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"
        ]


# -- binding -----------------------------------------------------------------------------------------------------------


def test_binding_updates_the_condition_in_place():
    first = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": "2020-01-02T03:04:05Z"}
    old = {**stored(), "status": {"conditions": [first, {"type": "Ready", "status": "False"}]}}
    bound = assign(old, {"target": {"name": "n"}}, NOW)["status"]["conditions"]
    assert [(c["type"], c["status"], c.get("lastTransitionTime")) for c in bound] == [
        ("PodScheduled", "True", NOW), ("Ready", "False", None)
    ]  # fmt: skip
    again = assign({**old, "status": {"conditions": [{**first, "status": "True"}]}}, {"target": {"name": "n"}}, NOW)
    assert again["status"]["conditions"][0]["lastTransitionTime"] == first["lastTransitionTime"]


# -- resize ------------------------------------------------------------------------------------------------------------


def test_resize_keeps_the_names_and_order_of_containers():
    cpu = {"requests": {"cpu": "1"}}
    old = stored(containers=[container(resources=cpu), container("d")], initContainers=[container("i", resources=cpu)])
    renamed = "Forbidden: containers may not be renamed or reordered on resize"
    found = messages(update, PODS, old, lambda obj: obj["spec"]["containers"].reverse(), "resize")
    assert found == [f"spec.containers[{i}].name: {renamed}" for i in (0, 1)]
    found = messages(update, PODS, old, lambda obj: obj["spec"]["containers"].append(container("e")), "resize")
    assert found == ["spec.containers: Forbidden: containers may not be added or removed on resize"]

    def grow(obj):
        obj["spec"]["initContainers"][0]["resources"]["requests"]["cpu"] = "2"
        obj["spec"]["resources"] = {"requests": {"cpu": "4"}}

    got, _ = update(PODS, old, grow, "resize")
    assert got["spec"]["initContainers"][0]["resources"] == {"requests": {"cpu": "2"}}
    assert got["spec"]["resources"] == {"requests": {"cpu": "4"}}

    def disk(obj):
        obj["spec"]["initContainers"][0]["resources"]["requests"]["ephemeral-storage"] = "2"

    text = "only cpu and memory resources for init or sidecar containers are mutable"
    assert messages(update, PODS, old, disk, "resize") == [f"spec.initContainers[0]: Forbidden: {text}"]


# -- warnings ----------------------------------------------------------------------------------------------------------


def items(*paths):
    return {"items": [{"key": "k", "path": path} for path in paths]}


@pytest.mark.parametrize(
    "volume,expected",
    [
        ({"configMap": {"name": "m", **items("a", "b", "ab")}}, []),
        ({"configMap": {"name": "m", **items("a", "a")}}, ['(ConfigMap "m"): overlapping paths: "a" with "a"']),
        ({"configMap": {"name": "m", **items("a/b", "a/")}}, ['(ConfigMap "m"): overlapping paths: "a" with "a/b"']),
        ({"secret": {"secretName": "s", **items("a", "a/b")}}, ['(Secret "s"): overlapping paths: "a/b" with "a"']),
        ({"downwardAPI": {"items": [{"path": "a"}, {"path": "a"}]}}, ['(DownwardAPI): overlapping paths: "a" with "a"']),
        (
            {"projected": {"sources": [{"configMap": {"name": "m", **items("p")}}, {"secret": {"name": "s", **items("p")}}]}},
            ['(Projected): overlapping paths: "p" (Secret "s") with "p" (ConfigMap "m")'],
        ),
        (
            {"projected": {"sources": [{"downwardAPI": {"items": [{"path": "p/q"}]}}, {"serviceAccountToken": {"path": "p"}}]}},
            ['(Projected): overlapping paths: "p" (ServiceAccountToken) with "p/q" (DownwardAPI)'],
        ),
        (
            {"projected": {"sources": [{"serviceAccountToken": {"path": "p"}}, {"clusterTrustBundle": {"signerName": "x", "path": "p"}}]}},
            ['(Projected): overlapping paths: "p" (ClusterTrustBundle "x") with "p" (ServiceAccountToken)'],
        ),
        ({"projected": {"sources": [{}]}}, ["(Projected) has no sources provided"]),
    ],
)  # fmt: skip
def test_overlapping_files(volume, expected):
    assert podwarnings._volume_warnings([{"name": "v", **volume}], "v") == [f'volume "v" {text}' for text in expected]


def test_a_repeated_port_name():
    containers = [container(ports=[{"name": "http", "containerPort": 80}]), container("d", ports=[{"name": "http", "containerPort": 81}])]
    first = "spec.containers[0].ports[0]"
    assert create(PODS, pod(containers=containers))[1] == [
        f'spec.containers[1].ports[0]: duplicate port name "http" with {first}, '
        f"services and probes that select ports by name will use {first}"
    ]


# -- annotations and tolerations ---------------------------------------------------------------------------------------

COST, TOLERATED = "controller.kubernetes.io/pod-deletion-cost", "scheduler.alpha.kubernetes.io/tolerations"


def annotated(**annotations):
    body = pod()
    body["metadata"]["annotations"] = annotations
    return body


@pytest.mark.parametrize("cost", ["0", "-0", "-05", "7", "2147483647", "-2147483648", "-000000000000001"])
def test_a_deletion_cost_may_have_zeros_behind_a_minus(cost):
    create(PODS, annotated(**{COST: cost}))


@pytest.mark.parametrize("cost", ["", "-", "+1", "008", "1.5", "abc", "2147483648", "-2147483649", "9" * 50])
def test_an_invalid_deletion_cost_is_refused(cost):
    body = annotated(**{COST: cost})
    assert messages(create, PODS, body) == [f'metadata.annotations[{COST}]: Invalid value: "{cost}": must be a 32bit integer']
    with features.DEFAULT.overridden(PodDeletionCost=False):
        create(PODS, body)


@pytest.mark.parametrize(
    "text,where,message",
    [
        ("x", "", f'Invalid value: "{TOLERATED}": invalid character \'x\' looking for beginning of value'),
        ("{}", "", f'Invalid value: "{TOLERATED}": json: cannot unmarshal object into Go value of type []core.Toleration'),
        ("[1]", "", f'Invalid value: "{TOLERATED}": json: cannot unmarshal number into Go value of type core.Toleration'),
        ('[{"operator": 1}]', "", f'Invalid value: "{TOLERATED}": json: cannot unmarshal number into Go struct field '
         "Toleration.Operator of type core.TolerationOperator"),
        ('[{"tolerationSeconds": 1.5}]', "", f'Invalid value: "{TOLERATED}": json: cannot unmarshal number 1.5 into Go struct field '
         "Toleration.TolerationSeconds of type int64"),
        ('[{"KEY": "a", "tolerationSeconds": 1}]', f".{TOLERATED}[0].effect",
         'Invalid value: "": effect must be \'NoExecute\' when `tolerationSeconds` is set'),
    ],
)  # fmt: skip
def test_tolerations_of_the_annotation_are_checked(text, where, message):
    assert messages(create, PODS, annotated(**{TOLERATED: text})) == [f"metadata.annotations{where}: {message}"]


def test_tolerations_of_the_annotation_may_be_right():
    for text in ("", "null", '[{"operator": "Exists", "TolerationSeconds": 3, "effect": "NoExecute", "key": null, "other": 1}]'):
        create(PODS, annotated(**{TOLERATED: text}))


def test_numeric_tolerations_need_the_gate_or_a_stored_one():
    with features.DEFAULT.overridden(TaintTolerationComparisonOperators=True):
        old = stored(tolerations=[{"key": "a", "operator": "Gt", "value": "-12"}])
        for value, message in (("", "must be non-empty"), ("01", "must be a valid decimal integer in canonical form")):
            found = messages(create, PODS, pod(tolerations=[{"key": "a", "operator": "Lt", "value": value}]))
            texts = [message] if value else [message, 'strconv.ParseInt: parsing "": invalid syntax']
            assert found == [f'spec.tolerations[0].value: Invalid value: "{value}": {text}' for text in texts]
    update(PODS, old, label)


def projected(**source):
    return pod(volumes=[{"name": "v", "projected": {"sources": [source]}}])


@pytest.mark.parametrize(
    "name,message",
    [
        ("A_B:c:foo", ""),
        ("a:b:c", ""),
        (":foo", 'ClusterTrustBundle without signer name must not have ":" in its name'),
        ("a:b:", "a lowercase RFC 1123 subdomain must consist of"),
    ],
)
def test_the_name_of_a_projected_bundle_is_validated(name, message):
    wanted = projected(clusterTrustBundle={"name": name, "path": "p"})
    with features.DEFAULT.overridden(ClusterTrustBundle=True, ClusterTrustBundleProjection=True):
        if not message:
            assert create(PODS, wanted)
            return
        [found] = messages(create, PODS, wanted)
    assert f'Invalid value: "{name}": not a valid clustertrustbundlename: {message}' in found


def test_pod_certificates_of_kubernetes_signers_last_a_day_at_most():
    source = {"signerName": "x.kubernetes.io/a", "keyType": "RSA", "maxExpirationSeconds": 86401, "keyPath": "k"}
    source["userAnnotations"] = {"a": "b"}
    at = "spec.volumes[0].projected.sources[0].podCertificate"
    with features.DEFAULT.overridden(PodCertificateRequest=True):
        found = messages(create, PODS, projected(podCertificate=source))
        ours = messages(create, PODS, projected(podCertificate={**source, "signerName": "example.com/a", "maxExpirationSeconds": 7862401}))
    known = '"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"'
    assert found[0].startswith(f"{at}.userAnnotations: Invalid value")
    assert found[1:] == [
        f'{at}.keyType: Unsupported value: "RSA": supported values: {known}',
        f"{at}.maxExpirationSeconds: Invalid value: 86401: if provided, maxExpirationSeconds must be <= 86400",
    ]
    assert ours[2:] == [f"{at}.maxExpirationSeconds: Invalid value: 7862401: if provided, maxExpirationSeconds must be <= 7862400"]


def test_a_compared_toleration_fits_64_bits():
    with features.DEFAULT.overridden(TaintTolerationComparisonOperators=True):
        found = messages(create, PODS, pod(tolerations=[{"key": "a", "operator": "Gt", "value": "9223372036854775808"}]))
        create(PODS, pod(tolerations=[{"key": "a", "operator": "Gt", "value": "-9223372036854775808"}]))
    parsing = 'strconv.ParseInt: parsing "9223372036854775808": value out of range'
    assert found == [f'spec.tolerations[0].value: Invalid value: "9223372036854775808": {parsing}']


def test_a_scheduling_group_has_a_name():
    with features.DEFAULT.overridden(GenericWorkload=True):
        assert messages(create, PODS, pod(schedulingGroup={})) == [
            "spec.schedulingGroup.podGroupName: Invalid value: null: must specify one of: `podGroupName`",
        ]
        [found] = messages(create, PODS, pod(schedulingGroup={"podGroupName": "A"}))
        assert create(PODS, pod(schedulingGroup={"podGroupName": "a"}))[0]["spec"]["schedulingGroup"] == {"podGroupName": "a"}
    assert found.startswith('spec.schedulingGroup.podGroupName: Invalid value: "A": a lowercase RFC 1123 subdomain')


def test_an_empty_value_source_is_refused_with_the_choices():
    wanted = pod(containers=[container(env=[{"name": "A", "valueFrom": {}}])])
    with features.DEFAULT.overridden(EnvFiles=False):
        [found] = messages(create, PODS, wanted)
    assert found.endswith("must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`")


def test_host_processes_need_a_privileged_cluster(monkeypatch):
    monkeypatch.setattr(capabilities.CURRENT, "allow_privileged", False)
    options = {"windowsOptions": {"hostProcess": True}}
    found = messages(create, PODS, pod(securityContext=options, hostNetwork=True, os={"name": "windows"}))
    assert found == ["spec: Forbidden: hostProcess containers are disallowed by cluster policy"]


def test_node_status_of_containers_is_validated_at_its_path():
    old = stored(resourceClaims=[{"name": "r", "resourceClaimName": "x"}])

    def change(obj):
        health = [{"resourceID": str(i), "health": "Healthy", "message": text} for i, text in enumerate(("", "a" * 1025, "ok"))]
        obj["status"] = {
            "qosClass": old["status"]["qosClass"],
            "resourceClaimStatuses": [{"name": "r", "resourceClaimName": "A"}],
            "containerStatuses": [{
                "name": "c", "ready": True, "restartCount": 0, "image": "i", "imageID": "i",
                "user": {"linux": {"uid": -1, "gid": 0}},
                "allocatedResourcesStatus": [{"name": "claim:r", "resources": health}],
                "volumeMounts": [
                    {"name": "v", "mountPath": "/", "volumeStatus": {"image": {"imageRef": ref}}} for ref in ("", "r" * 257, "r")
                ],
            }],
        }  # fmt: skip

    with features.DEFAULT.overridden(ImageVolumeWithDigest=True, ResourceHealthStatusMessage=True):
        found = [where for where, _ in refused(update, PODS, old, change, "status")]
    at = "status.containerStatuses[0]"
    assert found == [
        "status.resourceClaimStatuses[0].resourceClaimName",
        f"{at}.user.linux.uid",
        f"{at}.allocatedResourcesStatus[0].name",
        f"{at}.allocatedResourcesStatus[0].resources[0].message",
        f"{at}.allocatedResourcesStatus[0].resources[1].message",
        f"{at}.volumeMounts[0].volumeStatus.imageVolumeStatus.imageRef",
        f"{at}.volumeMounts[1].volumeStatus.imageVolumeStatus.imageRef",
    ]


def test_pod_resources_can_be_resized_only_with_a_gate():
    old = stored(resources={"requests": {"cpu": "1"}}, containers=[container(resources={"requests": {"cpu": "100m"}})])

    def change(obj):
        obj["spec"]["resources"]["requests"]["cpu"] = "2"

    with features.DEFAULT.overridden(InPlacePodLevelResourcesVerticalScaling=False):
        found = refused(update, PODS, old, change, "resize")
    gate = "InPlacePodLevelResourcesVerticalScalingEnabled"
    message = f"Forbidden: resize of pods with pod-level resources is forbidden when {gate} feature gate is disabled"
    assert [text for _, text in found] == [message]


def test_restart_rules_of_init_containers_need_gates():
    rule = {"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}
    all_of_them = {**rule, "action": "RestartAllContainers"}
    sidecar = container("s", restartPolicy="Always", restartPolicyRules=[rule])
    create(PODS, pod(initContainers=[sidecar, container("i", restartPolicy="Never", restartPolicyRules=[all_of_them])]))
    with features.DEFAULT.overridden(ContainerRestartRules=False, RestartAllContainersOnContainerExits=False):
        own = [container("i", restartPolicy="Never"), container("s", restartPolicy="Always"), container("r", restartPolicyRules=[rule])]
        left = create(PODS, pod(initContainers=own))[0]["spec"]["initContainers"]
        assert [(c.get("restartPolicy"), c.get("restartPolicyRules")) for c in left] == [(None, None), ("Always", None), (None, None)]
    with features.DEFAULT.overridden(RestartAllContainersOnContainerExits=False):
        assert messages(create, PODS, pod(initContainers=[sidecar], containers=[
            container(restartPolicy="Never", restartPolicyRules=[all_of_them]),
        ])) == [
            'spec.containers[0].restartPolicyRules[0].action: Unsupported value: "RestartAllContainers": supported values: "Restart"',
            "spec.initContainers[0].restartPolicyRules: Forbidden: "
            "restartPolicyRules are not allowed for init containers with restart policy Always",
        ]  # fmt: skip
    used = stored(initContainers=[container("i", restartPolicy="Never", restartPolicyRules=[all_of_them])])
    with features.DEFAULT.overridden(ContainerRestartRules=False, RestartAllContainersOnContainerExits=False):
        update(PODS, used, label)


def test_bound_pods_may_be_nominated_without_the_gate():
    with features.DEFAULT.overridden(ClearingNominatedNodeNameAfterBinding=False):
        update(PODS, stored(nodeName="n"), status(nominatedNodeName="m"), "status")

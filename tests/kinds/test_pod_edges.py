"""Edge cases of pod validation, by tables: what is validated, what is not, and the order of errors."""

from __future__ import annotations

import copy
import random

import pytest

from kas.config import features
from kas.kinds.core.resources import aggregate
from kas.meta import quantity
from kas.meta.errors import ApiError
from tests.kinds.helpers import create, pod, refused, update

PODS = "v1/pods"
C0, V0 = "spec.containers[0]", "spec.volumes[0]"
RULE = {"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}
ENDED, RUNS = {"terminated": {"exitCode": 1}}, {"running": {}}
CERTIFICATE = {"signerName": "example.com/a", "keyType": "RSA", "credentialBundlePath": "a", "keyPath": "a", "certificateChainPath": "../a"}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}


def container(name="c", **more):
    return {"name": name, "image": "nginx:1", **more}


def needs(**requests):
    return {"resources": {"requests": requests}}


def volume(**source):
    return [{"name": "v", **source}]


def made_claim(**meta):
    return volume(ephemeral={"volumeClaimTemplate": {"metadata": meta, "spec": CLAIM}})


def where(found):
    return [at for at, _ in found]


def at_of(call, *args):
    """Returns the refused paths; none if it is accepted."""
    try:
        call(*args)
    except ApiError as refusal:
        return [cause["field"] for cause in refusal.details["causes"]]
    return []


def left(*rows):
    """Returns the rows of (spec, refused paths) whose create is refused otherwise."""
    told = [(spec, at_of(create, PODS, pod(**spec)), expected) for spec, expected in rows]
    return [row for row in told if row[1] != row[2]]


def test_the_sum_of_container_requests_has_the_notation_of_the_first():
    rows = [("1e3", "500", "1500"), ("2Ki", "1Ki", "3Ki"), ("2000", "1Ki", "3024"), ("100m", "1", "1100m")]
    for first, second, told in rows:
        spec = {"containers": [container(**needs(cpu=first)), container("d", **needs(cpu=second))], **needs(cpu="50m")}
        [(at, message)] = refused(create, PODS, pod(**spec))
        assert at == "spec.resources.requests[cpu]"
        assert message.endswith(f"must be greater than or equal to aggregate container requests of {told}"), message


def test_requests_of_init_containers_include_earlier_sidecars():
    """Compared with the rule as it is defined: the sum of each step, and the maximum over all steps."""
    chosen = random.Random(1)
    for _ in range(300):
        inits = [
            {"restartPolicy": "Always" if chosen.random() < 0.6 else None, "resources": {"limits": {
                name: f"{chosen.choice('123456789')}{chosen.choice(('', 'k', '00m'))}" for name in "abc" if chosen.random() < 0.5
            }}} for _ in range(chosen.randrange(6))
        ]  # fmt: skip
        spec = {"containers": [{"resources": {"limits": {"a": "1"}}}], "initContainers": inits}
        wanted = {}
        for name in "abc":
            steps, before = [], 0
            for one in inits:
                own = quantity.parse(one["resources"]["limits"].get(name, "0")).milli_value()
                steps.append(before + own)
                before += own if one["restartPolicy"] else 0
            wanted[name] = max([*steps, before + (1000 if name == "a" else 0)])
        assert {k: v.milli_value() for k, v in aggregate(spec, "limits").items()} == {k: v for k, v in wanted.items() if v}


def test_rules_of_init_containers_without_a_policy_are_not_validated():
    wrong = {**RULE, "action": "No"}
    found = refused(create, PODS, pod(initContainers=[container("i", restartPolicyRules=[wrong])]))
    assert found == [("spec.initContainers[0].restartPolicy", "Required value: must specify restartPolicy when restart rules are used")]


def test_stored_rules_of_init_containers_permit_others():
    used, _ = create(PODS, pod(initContainers=[container("i", restartPolicy="Always", restartPolicyRules=[RULE])]))
    with features.DEFAULT.overridden(RestartAllContainersOnContainerExits=False):
        update(PODS, used, lambda obj: obj["metadata"].setdefault("labels", {"a": "b"}))


def test_a_stop_signal_needs_an_os_and_an_invalid_one_is_reported_once():
    signal = [container(lifecycle={"stopSignal": "SIGTERM"})]
    with features.DEFAULT.overridden(ContainerStopSignals=True):
        assert not left(
            ({"containers": signal}, [f"{C0}.lifecycle.stopSignal"]),
            ({"containers": signal, "os": {"name": ""}}, ["spec.os.name"]),
            ({"containers": signal, "os": {"name": "plan9"}}, ["spec.os"]),
            ({"containers": signal, "os": {"name": "linux"}}, []),
        )


def test_conflicting_certificate_paths_are_reported_at_their_place():
    sources = [{"podCertificate": CERTIFICATE}, {"podCertificate": {**CERTIFICATE, "keyType": "ED25519", "keyPath": "b"}}]
    with features.DEFAULT.overridden(PodCertificateRequest=True):
        found = where(refused(create, PODS, pod(volumes=volume(projected={"sources": sources}))))
    at, chain = f"{V0}.projected", "podCertificate.certificateChainPath"
    assert found == [
        f"{at}.sources[0].podCertificate.keyType", at, f"{at}.sources[0].{chain}", at, f"{at}.sources[1].{chain}", at,
    ]  # fmt: skip


def test_metadata_of_ephemeral_claims():
    meta = f"{V0}.ephemeral.volumeClaimTemplate.metadata"
    assert not left(
        ({"volumes": made_claim(finalizers=[])}, [f"{meta}.finalizers"]),
        ({"volumes": made_claim(ownerReferences=[], managedFields=[])}, [f"{meta}.ownerReferences", f"{meta}.managedFields"]),
        ({"volumes": made_claim(deletionGracePeriodSeconds=0)}, [f"{meta}.deletionGracePeriodSeconds"]),
        ({"volumes": made_claim(name="", generation=0, labels={})}, []),
    )


def sysctl(name, **shared):
    return {"securityContext": {"sysctls": [{"name": name, "value": "1"}]}, **shared}


def test_host_sysctls_are_found_in_both_notations():
    at = ["spec.securityContext.sysctls[0].name"]
    ipc, network = {"hostIPC": True}, {"hostNetwork": True}
    assert not left(
        (sysctl("kernel/sem", **ipc), at),
        (sysctl("kernel.sem", **ipc), at),
        (sysctl("kernel.semantics", **ipc), []),
        (sysctl("kernel.shm_x", **ipc), at),
        (sysctl("fs/mqueue/msg", **ipc), at),
        (sysctl("net/ipv4/conf/eth0.1/a", **network), at),
        (sysctl("net.ipv4/a", **network), at),
        (sysctl("kernel.sem", **network), []),
    )


def test_lengths_are_in_bytes():
    iscsi = {"targetPortal": "ö" * 32, "iqn": "iqn.2015-02.example.com:test", "lun": 1, "initiatorName": "iqn.2015-02.example.com:init"}
    windows = {"os": {"name": "windows"}}
    assert not left(
        ({"volumes": volume(quobyte={"registry": "r:1", "volume": "v", "tenant": "ö" * 33})}, [f"{V0}.quobyte.tenant"]),
        ({"volumes": volume(quobyte={"registry": "r:1", "volume": "v", "tenant": "ö" * 32})}, []),
        ({"volumes": volume(iscsi=iscsi)}, [f"{V0}.name"]),
        ({"volumes": volume(csi={"driver": "ö" * 32})}, [f"{V0}.csi.driver", f"{V0}.csi.driver"]),
        ({"securityContext": {"windowsOptions": {"runAsUserName": "ö" * 53}}, **windows},
         ["spec.securityContext.windowsOptions.runAsUserName"]),
        ({"securityContext": {"windowsOptions": {"runAsUserName": "ö" * 52}}, **windows}, []),
    )  # fmt: skip


def test_an_empty_profile_of_a_container_counts():
    profile = {"appArmorProfile": {"type": "RuntimeDefault"}}
    body = pod(containers=[container(securityContext={"appArmorProfile": {}})], securityContext=profile)
    body["metadata"]["annotations"] = {"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}
    assert at_of(create, PODS, body) == [f"{C0}.securityContext.appArmorProfile.type"]


def test_a_repeated_gate_is_reported_once_at_its_last_place():
    old, _ = create(PODS, pod(schedulingGates=[{"name": "a"}]))

    def change(obj):
        obj["spec"]["schedulingGates"] = [{"name": "b"}, {"name": "a"}, {"name": "b"}]

    found = where(refused(update, PODS, old, change))
    assert found.count("spec.schedulingGates[2].name") == 1
    assert "spec.schedulingGates[0].name" not in found


# -- what kubelets report ----------------------------------------------------------------------------------------------


def reported(name="c", **more):
    return {"name": name, "image": "i", "imageID": "i", "ready": True, "restartCount": 0, **more}


def status_of(spec, before, after):
    """Returns the refused paths of a change of the status."""
    old, _ = create(PODS, pod(**spec))
    old["status"].update(copy.deepcopy(before))
    return at_of(update, PODS, old, lambda obj: obj["status"].update(after), "status")


def allocated(**row):
    return {"nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "x", "containers": ["c"], "resources": {"cpu": "1"}, **row}]}


def user_of(uid):
    return {"containerStatuses": [reported(user={"linux": {"uid": uid, "gid": 0}})]}


AT = "status.nodeAllocatableResourceClaimStatuses[0]"
CLAIMS = {"resourceClaims": [{"name": "r", "resourceClaimName": "x"}]}
DIGEST = {"containerStatuses": [reported(volumeMounts=[{"name": "v", "mountPath": "/", "volumeStatus": {"image": {"imageRef": ""}}}])]}


@pytest.mark.parametrize(
    "spec,before,after,expected",
    [
        # One running container among statuses of the same name suffices.
        ({"restartPolicy": "Never"}, {"containerStatuses": [reported(state=ENDED)]},
         {"containerStatuses": [reported(state=ENDED), reported(state=RUNS)]}, ["status.containerStatuses[0].state"]),
        ({"restartPolicy": "Never"}, {"containerStatuses": [reported(state=ENDED)]},
         {"containerStatuses": [reported(state=ENDED)]}, []),
        # Users of containers are numbers if the OS is Linux or unspecified.
        ({}, {}, user_of(-1), ["status.containerStatuses[0].user.linux.uid"]),
        ({"os": {"name": "linux"}}, {}, user_of(-1), ["status.containerStatuses[0].user.linux.uid"]),
        ({"os": {"name": "windows"}}, {}, user_of(-1), ["status.containerStatuses[0].user.linux"]),
        # Node resources that claims take.
        (CLAIMS, {}, allocated(), []),
        ({}, {}, allocated(), [f"{AT}.resourceClaimName"]),
        (CLAIMS, {}, allocated(resourceClaimName=""), [f"{AT}.resourceClaimName", f"{AT}.resourceClaimName"]),
        (CLAIMS, {}, allocated(containers=[], resources={}), [f"{AT}.containers", f"{AT}.resources"]),
        (CLAIMS, {}, allocated(resources={"cpu": "-1", "example.com/a": "-1"}),
         [f"{AT}.resources[cpu]", f"{AT}.resources[example.com/a]", f"{AT}.resources[example.com/a]"]),
    ],
)  # fmt: skip
def test_a_status_is_validated(spec, before, after, expected):
    with features.DEFAULT.overridden(DRANodeAllocatableResources=True):
        assert status_of(spec, before, after) == expected


def test_image_digests_are_validated_if_present():
    at = "status.containerStatuses[0].volumeMounts[0].volumeStatus.imageVolumeStatus.imageRef"
    for on, expected in ((True, [at]), (False, [])):
        with features.DEFAULT.overridden(ImageVolumeWithDigest=on):
            assert status_of({}, {}, DIGEST) == expected


def test_the_reported_stop_signal_has_no_gate():
    old, _ = create(PODS, pod())
    with features.DEFAULT.overridden(ContainerStopSignals=False, ImageVolumeWithDigest=False):
        now = {"containerStatuses": [{**DIGEST["containerStatuses"][0], "stopSignal": "SIGTERM"}]}
        got, _ = update(PODS, old, lambda obj: obj["status"].update(copy.deepcopy(now)), "status")
    [told] = got["status"]["containerStatuses"]
    assert told["stopSignal"] == "SIGTERM"
    assert told["volumeMounts"] == [{"name": "v", "mountPath": "/"}]


def test_two_addresses_are_reported_in_order():
    old, _ = create(PODS, pod())
    found = refused(update, PODS, old, lambda obj: obj["status"].update(podIPs=[{"ip": "10.0.0.1"}, {"ip": "x"}]), "status")
    assert ("status.podIPs", "Internal error: failed to check for dual stack with error:invalid IP[1]: x") in found


def test_init_containers_can_be_resized_with_a_gate():
    old, _ = create(PODS, pod(initContainers=[container("i", **needs(cpu="1")), container("s", restartPolicy="Always", **needs(cpu="1"))]))

    def resized(i):
        return lambda obj: obj["spec"]["initContainers"][i]["resources"]["requests"].update(cpu="2")

    for on, refusals in ((True, [[], []]), (False, [["spec"], []])):
        with features.DEFAULT.overridden(InPlacePodVerticalScalingInitContainers=on):
            assert [at_of(update, PODS, old, resized(i), "resize") for i in (0, 1)] == refusals


def test_a_gated_pod_gets_node_affinity_and_no_other():
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}}  # fmt: skip
    old, _ = create(PODS, pod(schedulingGates=[{"name": "a"}]))
    update(PODS, old, lambda obj: obj["spec"].update(affinity={"nodeAffinity": required}))
    found = refused(update, PODS, old, lambda obj: obj["spec"].update(affinity={"nodeAffinity": required, "podAffinity": {}}))
    assert [where for where, _ in found] == ["spec"]

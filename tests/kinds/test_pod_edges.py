"""Pods at the edges of the rules: what is judged, what is not, and in which order it is told, by tables."""

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
    """The refused paths; none where it is let through."""
    try:
        call(*args)
    except ApiError as refusal:
        return [cause["field"] for cause in refusal.details["causes"]]
    return []


def left(*rows):
    """Those rows of (spec, refused paths) whose create is refused otherwise."""
    told = [(spec, at_of(create, PODS, pod(**spec)), expected) for spec, expected in rows]
    return [row for row in told if row[1] != row[2]]


def test_what_containers_need_together_is_told_as_the_first_writes_it():
    rows = [("1e3", "500", "1500"), ("2Ki", "1Ki", "3Ki"), ("2000", "1Ki", "3024"), ("100m", "1", "1100m")]
    for first, second, told in rows:
        spec = {"containers": [container(**needs(cpu=first)), container("d", **needs(cpu=second))], **needs(cpu="50m")}
        [(at, message)] = refused(create, PODS, pod(**spec))
        assert at == "spec.resources.requests[cpu]"
        assert message.endswith(f"must be greater than or equal to aggregate container requests of {told}"), message


def test_what_init_containers_need_is_that_of_the_sidecars_before_them_too():
    """Against the rule as it is written: of each step the sum, of all steps the most."""
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


def test_rules_of_init_containers_without_a_policy_are_not_looked_at():
    wrong = {**RULE, "action": "No"}
    found = refused(create, PODS, pod(initContainers=[container("i", restartPolicyRules=[wrong])]))
    assert found == [("spec.initContainers[0].restartPolicy", "Required value: must specify restartPolicy when restart rules are used")]


def test_stored_rules_of_init_containers_let_others_in():
    used, _ = create(PODS, pod(initContainers=[container("i", restartPolicy="Always", restartPolicyRules=[RULE])]))
    with features.DEFAULT.overridden(RestartAllContainersOnContainerExits=False):
        update(PODS, used, lambda obj: obj["metadata"].setdefault("labels", {"a": "b"}))


def test_a_stop_signal_needs_a_system_and_a_wrong_one_is_told_once():
    signal = [container(lifecycle={"stopSignal": "SIGTERM"})]
    with features.DEFAULT.overridden(ContainerStopSignals=True):
        assert not left(
            ({"containers": signal}, [f"{C0}.lifecycle.stopSignal"]),
            ({"containers": signal, "os": {"name": ""}}, ["spec.os.name"]),
            ({"containers": signal, "os": {"name": "plan9"}}, ["spec.os"]),
            ({"containers": signal, "os": {"name": "linux"}}, []),
        )


def test_paths_of_a_certificate_conflict_where_they_stand():
    sources = [{"podCertificate": CERTIFICATE}, {"podCertificate": {**CERTIFICATE, "keyType": "ED25519", "keyPath": "b"}}]
    with features.DEFAULT.overridden(PodCertificateRequest=True):
        found = where(refused(create, PODS, pod(volumes=volume(projected={"sources": sources}))))
    at, chain = f"{V0}.projected", "podCertificate.certificateChainPath"
    assert found == [
        f"{at}.sources[0].podCertificate.keyType", at, f"{at}.sources[0].{chain}", at, f"{at}.sources[1].{chain}", at,
    ]  # fmt: skip


def test_what_is_set_in_metadata_of_a_made_claim():
    meta = f"{V0}.ephemeral.volumeClaimTemplate.metadata"
    assert not left(
        ({"volumes": made_claim(finalizers=[])}, [f"{meta}.finalizers"]),
        ({"volumes": made_claim(ownerReferences=[], managedFields=[])}, [f"{meta}.ownerReferences", f"{meta}.managedFields"]),
        ({"volumes": made_claim(deletionGracePeriodSeconds=0)}, [f"{meta}.deletionGracePeriodSeconds"]),
        ({"volumes": made_claim(name="", generation=0, labels={})}, []),
    )


def sysctl(name, **shared):
    return {"securityContext": {"sysctls": [{"name": name, "value": "1"}]}, **shared}


def test_sysctls_of_the_host_are_found_in_both_notations():
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


def test_lengths_are_those_of_bytes():
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


def test_an_empty_profile_of_a_container_is_the_one_that_counts():
    profile = {"appArmorProfile": {"type": "RuntimeDefault"}}
    body = pod(containers=[container(securityContext={"appArmorProfile": {}})], securityContext=profile)
    body["metadata"]["annotations"] = {"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}
    assert at_of(create, PODS, body) == [f"{C0}.securityContext.appArmorProfile.type"]


def test_a_gate_that_is_added_twice_is_told_once_where_it_is_last():
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
    """Refused paths of a change of the status."""
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
        # One that runs among statuses of the same name is enough to have started again.
        ({"restartPolicy": "Never"}, {"containerStatuses": [reported(state=ENDED)]},
         {"containerStatuses": [reported(state=ENDED), reported(state=RUNS)]}, ["status.containerStatuses[0].state"]),
        ({"restartPolicy": "Never"}, {"containerStatuses": [reported(state=ENDED)]},
         {"containerStatuses": [reported(state=ENDED)]}, []),
        # Users of containers are numbers where the system is Linux or not said.
        ({}, {}, user_of(-1), ["status.containerStatuses[0].user.linux.uid"]),
        ({"os": {"name": "linux"}}, {}, user_of(-1), ["status.containerStatuses[0].user.linux.uid"]),
        ({"os": {"name": "windows"}}, {}, user_of(-1), ["status.containerStatuses[0].user.linux"]),
        # What claims take of the node.
        (CLAIMS, {}, allocated(), []),
        ({}, {}, allocated(), [f"{AT}.resourceClaimName"]),
        (CLAIMS, {}, allocated(resourceClaimName=""), [f"{AT}.resourceClaimName", f"{AT}.resourceClaimName"]),
        (CLAIMS, {}, allocated(containers=[], resources={}), [f"{AT}.containers", f"{AT}.resources"]),
        (CLAIMS, {}, allocated(resources={"cpu": "-1", "example.com/a": "-1"}),
         [f"{AT}.resources[cpu]", f"{AT}.resources[example.com/a]", f"{AT}.resources[example.com/a]"]),
    ],
)  # fmt: skip
def test_a_status_is_judged(spec, before, after, expected):
    with features.DEFAULT.overridden(DRANodeAllocatableResources=True):
        assert status_of(spec, before, after) == expected


def test_digests_of_images_are_judged_where_there_are_any():
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


def test_two_addresses_are_told_as_they_stand():
    old, _ = create(PODS, pod())
    found = refused(update, PODS, old, lambda obj: obj["status"].update(podIPs=[{"ip": "10.0.0.1"}, {"ip": "x"}]), "status")
    assert ("status.podIPs", "Internal error: failed to check for dual stack with error:invalid IP[1]: x") in found


def test_init_containers_are_resized_by_a_gate():
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

"""Storage, scheduling, node and coordination kinds: what is immutable after creation, and what is refused."""

from __future__ import annotations

import pytest

from kas.config import features
from kas.registry.strategy import strategy_of
from tests.kinds.helpers import create, refused, update
from tests.kinds.written import DUPLICATE, FORBIDDEN, INVALID, REQUIRED, Kind, changed, without

CLASSES = Kind("storage.k8s.io/v1/storageclasses")
DRIVERS = Kind("storage.k8s.io/v1/csidrivers")
NODES = Kind("storage.k8s.io/v1/csinodes")
CAPACITIES = Kind("storage.k8s.io/v1/csistoragecapacities")
ATTACHMENTS = Kind("storage.k8s.io/v1/volumeattachments")
ATTRIBUTES = Kind("storage.k8s.io/v1/volumeattributesclasses")
PRIORITIES = Kind("scheduling.k8s.io/v1/priorityclasses")
RUNTIMES = Kind("node.k8s.io/v1/runtimeclasses")
MIGRATIONS = Kind("storagemigration.k8s.io/v1beta1/storageversionmigrations")
LEASES = Kind("coordination.k8s.io/v1/leases")

CLASS = {"provisioner": "example.com/disk", "parameters": {"type": "fast"}}


def test_a_storage_class_is_completed():
    stored = CLASSES.create(CLASS)
    assert (stored["reclaimPolicy"], stored["volumeBindingMode"]) == ("Delete", "Immediate")


@pytest.mark.parametrize(
    "change",
    [{"provisioner": "a/b"}, {"parameters": {}}, {"reclaimPolicy": "Retain"}, {"volumeBindingMode": "WaitForFirstConsumer"}],
)
def test_fields_with_which_volumes_were_provisioned_are_immutable(change):
    old = CLASSES.create(CLASS)
    refused = {path for path, _ in CLASSES.refusals(old | change, old)}
    assert set(change) <= refused


def test_options_for_new_volumes_can_change():
    old = CLASSES.create(CLASS)
    assert CLASSES.update(old | {"allowVolumeExpansion": True, "mountOptions": ["ro"]}, old)["allowVolumeExpansion"] is True


def _topologies(*terms: dict[str, list[str]]) -> list[dict]:
    return [{"matchLabelExpressions": [{"key": k, "values": v} for k, v in term.items()]} for term in terms]


@pytest.mark.parametrize(
    ("obj", "path"),
    [
        (CLASS | {"provisioner": ""}, "provisioner"),
        (CLASS | {"reclaimPolicy": "Recycle"}, "reclaimPolicy"),
        (CLASS | {"parameters": {"": "x"}}, "parameters"),
        (CLASS | {"allowedTopologies": _topologies({"zone": []})}, "allowedTopologies[0].matchLabelExpressions[0].values"),
        (CLASS | {"allowedTopologies": _topologies({"z": ["a", "a"]})}, "allowedTopologies[0].matchLabelExpressions[0].values[1]"),
        (CLASS | {"allowedTopologies": _topologies({"z": ["a", "b"]}, {"z": ["b", "a"]})}, "allowedTopologies[1].matchLabelExpressions"),
    ],
)
def test_a_storage_class_is_refused(obj, path):
    assert path in {found for found, _ in CLASSES.refusals(obj)}


def test_an_empty_topology_term_is_a_duplicate_once_for_each_term():
    empty = CLASS | {"allowedTopologies": _topologies({}, {"z": ["a"]})}
    assert CLASSES.refusals(empty) == [("allowedTopologies[0].matchLabelExpressions", DUPLICATE)] * 2


def test_deprecated_labels_warn():
    CLASSES.create(CLASS | {"allowedTopologies": _topologies({"beta.kubernetes.io/arch": ["a"]})})
    since_14 = 'deprecated since v1.14; use "kubernetes.io/arch" instead'
    assert CLASSES.warnings == [f"allowedTopologies[0].matchLabelExpressions[0].key: {since_14}"]
    key = "beta.kubernetes.io/arch"
    topology = {"matchExpressions": [{"key": key, "operator": "Exists"}], "matchLabels": {key: "arm64", "zone": "z"}}
    CAPACITIES.create({"storageClassName": "fast", "nodeTopology": topology})
    assert CAPACITIES.warnings == [
        f"nodeTopology.matchExpressions[0].key: {key} is {since_14}",
        f"nodeTopology.matchLabels.{key}: {since_14}",
    ]
    RUNTIMES.create({"handler": "runc", "scheduling": {"nodeSelector": {key: "arm64"}}})
    assert RUNTIMES.warnings == [f"scheduling.nodeSelector: {since_14}"]


def test_a_driver_gets_defaults_and_is_partly_immutable():
    old = DRIVERS.create({"spec": {}})
    assert (old["spec"]["attachRequired"], old["spec"]["fsGroupPolicy"]) == (True, "ReadWriteOnceWithFSType")
    assert old["spec"]["volumeLifecycleModes"] == ["Persistent"]
    assert ("spec.attachedRequired", INVALID) in DRIVERS.refusals(changed(old, "spec.attachRequired", False), old)
    assert DRIVERS.update(changed(old, "spec.requiresRepublish", True), old)["metadata"]["generation"] == 1


def test_a_driver_with_tokens_gets_a_warning_about_secrets():
    wanted = {"spec": {"tokenRequests": [{"audience": "a"}]}}
    old = DRIVERS.create(wanted)
    assert [text.split(";")[0] for text in DRIVERS.warnings] == ["spec.serviceAccountTokenInSecrets is unset"]
    DRIVERS.update(changed(old, "spec.requiresRepublish", True), old)
    assert DRIVERS.warnings == []
    DRIVERS.update(changed(old, "spec.tokenRequests", [{"audience": "b"}]), old)
    assert DRIVERS.warnings
    DRIVERS.create(changed(wanted, "spec.serviceAccountTokenInSecrets", False))
    assert DRIVERS.warnings == []


def test_a_driver_of_a_node_keeps_its_identity():
    driver = {"name": "d.example.com", "nodeID": "n", "topologyKeys": ["zone"]}
    old = NODES.create({"spec": {"drivers": [driver]}})
    assert NODES.refusals(changed(old, "spec.drivers.0.nodeID", "m"), old)
    assert NODES.update(changed(old, "spec.drivers", []), old)["spec"]["drivers"] == []
    assert NODES.refusals({"spec": {"drivers": [driver, driver]}})
    assert ("spec.drivers[0].nodeID", REQUIRED) in NODES.refusals({"spec": {"drivers": [driver | {"nodeID": ""}]}})


def test_only_the_volume_count_of_a_nodes_driver_can_change():
    old = NODES.create({"spec": {"drivers": [{"name": "d.example.com", "nodeID": "n", "allocatable": {"count": 1}}]}})
    assert NODES.update(changed(old, "spec.drivers.0.allocatable.count", 2), old)["spec"]["drivers"][0]["allocatable"] == {"count": 2}
    shown = '{"Name":"d.example.com","NodeID":"m","TopologyKeys":null,"Allocatable":null}'
    assert NODES.messages(changed(old, "spec.drivers.0.nodeID", "m"), old) == [
        ("spec.drivers", f"Invalid value: {shown}: field is immutable"),
    ]
    assert NODES.refusals(changed(old, "spec.drivers.0.allocatable.count", -1), old) == [("spec.drivers[0].allocatable.count", INVALID)] * 2


def test_class_and_topology_of_a_capacity_are_immutable():
    old = CAPACITIES.create({"storageClassName": "fast", "capacity": "1Gi"})
    assert CAPACITIES.update(old | {"capacity": "2Gi"}, old)["capacity"] == "2Gi"
    assert ("storageClassName", INVALID) in CAPACITIES.refusals(old | {"storageClassName": "slow"}, old)
    assert ("capacity", INVALID) in CAPACITIES.refusals({"storageClassName": "fast", "capacity": "-1"})
    assert CAPACITIES.create({"storageClassName": "fast", "maximumVolumeSize": "-1"})["maximumVolumeSize"] == "-1"


def test_an_attachment_is_immutable_except_for_its_status():
    spec = {"attacher": "d.example.com", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}
    old = ATTACHMENTS.create({"spec": spec, "status": {"attached": True}})
    assert old["status"] == {"attached": False}
    assert ("spec", INVALID) in ATTACHMENTS.refusals(changed(old, "spec.nodeName", "m"), old)
    assert ATTACHMENTS.update(changed(old, "status.attached", True), old, "status")["status"]["attached"] is True
    assert ("spec.nodeName", INVALID) in ATTACHMENTS.refusals({"spec": spec | {"nodeName": ""}})
    assert ATTACHMENTS.messages(changed(old, "status.attachError", {"errorCode": -1}), old, "status") == [
        ("status.attachError.errorCode", "Invalid value: -1: must be between 0 and 2147483647, inclusive"),
    ]


INLINE = "spec.source.inlineVolumeSpec"


def _inline(**over) -> dict:
    volume = {"accessModes": ["ReadWriteOnce"], "csi": {"driver": "d.example.com", "volumeHandle": "h"}} | over
    return {"spec": {"attacher": "d.example.com", "nodeName": "n", "source": {"inlineVolumeSpec": volume}}}


def test_an_inline_volume_of_an_attachment_gets_no_defaults():
    asked = _inline()
    old = ATTACHMENTS.create(asked)
    assert old["spec"] == asked["spec"]
    (path, message), *more = ATTACHMENTS.messages(changed(old, "spec.nodeName", "m"), old)
    assert (path, more) == ("spec", [])
    assert '"Source":{"PersistentVolumeName":null,"InlineVolumeSpec":{"Capacity":null,"GCEPersistentDisk":null,' in message


@pytest.mark.parametrize(
    ("over", "want"),
    [
        ({"claimRef": {"name": "c"}, "capacity": {"storage": "1Gi"}}, [("claimRef", FORBIDDEN), ("capacity", FORBIDDEN)]),
        ({"csi": None, "nfs": {"server": "s", "path": "/"}}, [("csi", REQUIRED)]),
        ({"nfs": {"server": "s", "path": "/"}}, [("csi", FORBIDDEN)]),
        ({"claimRef": {}}, [("claimRef", FORBIDDEN)]),
        ({"nfs": {"path": "/"}, "rbd": {}}, [("nfs.server", REQUIRED), ("rbd", FORBIDDEN), ("csi", FORBIDDEN)]),
        ({"csi": None, "local": {"path": "/a"}}, [("csi", REQUIRED), ("nodeAffinity", REQUIRED)]),
        ({"csi": {"driver": "d.example.com"}, "accessModes": []}, [("accessModes", REQUIRED), ("csi.volumeHandle", REQUIRED)]),
        ({"persistentVolumeReclaimPolicy": "Delete"}, [("persistentVolumeReclaimPolicy", FORBIDDEN)]),
        ({"storageClassName": "fast", "volumeMode": "Block"}, [("storageClassName", FORBIDDEN), ("volumeMode", FORBIDDEN)]),
        ({"nodeAffinity": {}}, [("nodeAffinity", FORBIDDEN)]),
    ],
)
def test_an_inline_volume_of_an_attachment_is_csi_only(over, want):
    assert ATTACHMENTS.refusals(_inline(**over)) == [(f"{INLINE}.{path}", reason) for path, reason in want]


def test_an_inline_volume_needs_a_source():
    assert ATTACHMENTS.refusals(_inline(csi=None)) == [(f"{INLINE}.csi", REQUIRED), (INLINE, REQUIRED)]


def test_runtime_overhead_is_counted_in_thousandths():
    assert RUNTIMES.create({"handler": "runc", "overhead": {"podFixed": {"cpu": "100u"}}})["overhead"]["podFixed"] == {"cpu": "1m"}


def test_attributes_of_a_class_are_fixed_and_not_empty():
    old = ATTRIBUTES.create({"driverName": "d.example.com", "parameters": {"iops": "1"}})
    assert ("parameters", FORBIDDEN) in ATTRIBUTES.refusals(old | {"parameters": {"iops": "2"}}, old)
    assert ("parameters", REQUIRED) in ATTRIBUTES.refusals({"driverName": "d.example.com"})
    assert ATTRIBUTES.messages(old | {"driverName": "other"}, old) == [("driverName", "Forbidden: updates to driverName are forbidden.")]


def test_a_priority_is_immutable():
    old = PRIORITIES.create({"value": 5})
    assert old["preemptionPolicy"] == "PreemptLowerPriority"
    assert PRIORITIES.refusals(old | {"value": 6}, old) == [("value", FORBIDDEN)]
    assert PRIORITIES.refusals(old | {"preemptionPolicy": "Never"}, old) == [("preemptionPolicy", INVALID)]
    assert PRIORITIES.update(old | {"description": "x"}, old)["description"] == "x"


@pytest.mark.parametrize(
    ("obj", "path"),
    [
        ({"value": 1_000_000_001}, "value"),
        ({"metadata": {"name": "system-mine"}, "value": 1}, "metadata.name"),
        ({"metadata": {"name": "system-node-critical"}, "value": 1}, "metadata.name"),
        ({"value": 1, "preemptionPolicy": "Ask"}, "preemptionPolicy"),
    ],
)
def test_a_priority_is_refused(obj, path):
    assert path in {found for found, _ in PRIORITIES.refusals(obj)}


def test_the_handler_of_a_runtime_is_immutable():
    old = RUNTIMES.create({"handler": "runc", "overhead": {"podFixed": {"cpu": "10m"}}})
    assert ("handler", INVALID) in RUNTIMES.refusals(old | {"handler": "other"}, old)
    assert ("handler", INVALID) in RUNTIMES.refusals({"handler": "Not_a_label"})
    assert RUNTIMES.refusals({"handler": "runc", "scheduling": {"nodeSelector": {"a b": "c"}}})


def test_a_toleration_that_differs_only_in_its_time_is_a_duplicate():
    first = {"key": "a", "operator": "Exists", "effect": "NoExecute"}
    scheduling = {"tolerations": [first, first | {"tolerationSeconds": 5}]}
    shown = '{"Key":"a","Operator":"Exists","Value":"","Effect":"NoExecute","TolerationSeconds":5}'
    assert RUNTIMES.messages({"handler": "runc", "scheduling": scheduling}) == [
        ("scheduling.tolerations[1]", f"Duplicate value: {shown}"),
    ]


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"leaseDurationSeconds": 0}, ("spec.leaseDurationSeconds", INVALID)),
        ({"leaseTransitions": -1}, ("spec.leaseTransitions", INVALID)),
    ],
)
def test_a_lease_is_refused(spec, want):
    assert want in LEASES.refusals({"spec": spec})


def test_a_gang_of_pods_is_immutable():
    groups = Kind("scheduling.k8s.io/v1alpha2/podgroups")
    old = groups.create({"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}})
    assert groups.refusals(changed(old, "spec.schedulingPolicy.gang.minCount", 3), old)
    assert groups.refusals({"spec": {"schedulingPolicy": {"gang": {"minCount": 0}}}})


GROUPS, WORKLOADS = Kind("scheduling.k8s.io/v1alpha2/podgroups"), Kind("scheduling.k8s.io/v1alpha2/workloads")
GATES = {"TopologyAwareWorkloadScheduling": True, "DRAWorkloadResourceClaims": True, "WorkloadAwarePreemption": True}
CLAIM = {"name": "c", "resourceClaimName": "a"}
ONE_CLAIM = "`resourceClaimName`, `resourceClaimTemplateName`"


def _grouped(**spec) -> dict:
    return {"schedulingPolicy": {"basic": {}}, **spec}


@pytest.mark.parametrize(
    ("spec", "path", "message"),
    [
        ({"schedulingPolicy": {"basic": {}, "gang": {"minCount": -1}}}, "schedulingPolicy.gang.minCount",
         "Invalid value: -1: must be greater than or equal to 1"),
        ({"schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]}}, "schedulingConstraints.topology",
         "Too many: 2: must have at most 1 item"),
        ({"schedulingConstraints": {"topology": [{"key": ""}]}}, "schedulingConstraints.topology[0].key", "Required value"),
        ({"resourceClaims": [CLAIM | {"name": n} for n in "abcde"]}, "resourceClaims", "Too many: 5: must have at most 4 items"),
        ({"resourceClaims": [CLAIM, CLAIM]}, "resourceClaims[1]", 'Duplicate value: {"name":"c","resourceClaimName":"a"}'),
        ({"resourceClaims": [{"name": "c"}]}, "resourceClaims[0]", f'Invalid value: "": must specify one of: {ONE_CLAIM}'),
        ({"resourceClaims": [CLAIM | {"resourceClaimTemplateName": "b"}]}, "resourceClaims[0]",
         f'Invalid value: "{{{ONE_CLAIM}}}": must specify exactly one of: {ONE_CLAIM}'),
        ({"resourceClaims": [{"resourceClaimName": "a"}]}, "resourceClaims[0].name", "Required value"),
        ({"disruptionMode": "Node"}, "disruptionMode", 'Unsupported value: "Node": supported values: "Pod", "PodGroup"'),
        ({"priority": 1000000001}, "priority", "Invalid value: 1000000001: must be less than or equal to 1000000000"),
    ],
)  # fmt: skip
def test_pod_groups_and_their_templates_are_refused_alike(spec, path, message):
    with features.DEFAULT.overridden(**GATES):
        assert (f"spec.{path}", message) in GROUPS.messages({"spec": _grouped(**spec)})
        template = {"name": "t", **_grouped(**spec)}
        assert (f"spec.podGroupTemplates[0].{path}", message) in WORKLOADS.messages({"spec": {"podGroupTemplates": [template]}})


def test_a_workload_is_immutable_and_its_templates_have_names():
    good = {"spec": {"podGroupTemplates": [{"name": "t", **_grouped()}]}}
    old = WORKLOADS.create(good)
    controller = {"kind": "Job", "name": "j"}
    shown = 'Invalid value: {"kind":"Job","name":"j"}: field is immutable'
    assert WORKLOADS.messages(changed(old, "spec.controllerRef", controller), old) == [("spec.controllerRef", shown)]
    assert WORKLOADS.messages({"spec": {}}) == [("spec.podGroupTemplates", "Required value")]
    twice = [{"name": "t", **_grouped()}] * 2
    assert WORKLOADS.refusals({"spec": {"podGroupTemplates": twice}}) == [("spec.podGroupTemplates[1]", DUPLICATE)]


def test_a_workload_with_changed_templates_gets_all_their_errors():
    old = WORKLOADS.create({"spec": {"podGroupTemplates": [{"name": "t", **_grouped()}]}})
    path, many = "spec.podGroupTemplates", [{"name": f"t{i}", **_grouped()} for i in range(9)]
    assert [m for _, m in WORKLOADS.messages(changed(old, path, []), old)] == ["Invalid value: []: field is immutable", "Required value"]
    assert WORKLOADS.messages(changed(old, path, many), old)[1:] == [(path, "Too many: 9: must have at most 8 items")]
    with features.DEFAULT.overridden(**GATES):
        group, path = GROUPS.create({"spec": _grouped()}), "spec.resourceClaims"
        claims = [{"name": f"c{i}", "resourceClaimName": "a"} for i in range(5)]
        assert GROUPS.messages(changed(group, path, claims), group)[1:] == [(path, "Too many: 5: must have at most 4 items")]


@pytest.mark.parametrize(
    ("name", "stored", "other"),
    [
        ("schedulingConstraints", {"topology": [{"key": "a"}]}, {}),
        ("disruptionMode", "Pod", "PodGroup"),
        ("priorityClassName", "low", "high"),
        ("priority", 1, 2),
    ],
)
def test_fields_of_disabled_gates_may_be_removed_from_a_group(name, stored, other):
    path = f"spec.{name}"
    with features.DEFAULT.overridden(**GATES):
        old = GROUPS.create({"spec": _grouped(**{name: stored})})
        assert [m.split(": ")[-1] for _, m in GROUPS.messages(changed(old, path, other), old)] == ["field is immutable"]
        if name != "disruptionMode":  # which has a default
            assert [m.split(": ")[-1] for _, m in GROUPS.messages(without(old, path), old)] == ["field is immutable"]
    assert GROUPS.update(old, old)["spec"][name] == stored
    assert GROUPS.messages(changed(old, path, other), old) == [(path, "Forbidden")]
    assert GROUPS.update(without(old, path), old)["spec"].get(name) in (None, "Pod")


def test_the_claims_of_a_group_are_those_of_its_spec():
    with features.DEFAULT.overridden(**GATES):
        old = GROUPS.create({"spec": _grouped(resourceClaims=[CLAIM])})
        assert old["spec"]["disruptionMode"] == "Pod"
        path = "status.resourceClaimStatuses"
        made = {"status": {"resourceClaimStatuses": [{"name": "c", "resourceClaimName": "made"}]}}
        assert GROUPS.update(old | made, old, "status")["status"] == made["status"]
        for claims, want in (
            ([{"name": "d"}], (f"{path}[0].name", INVALID)),
            ([{"name": "c", "resourceClaimName": "-"}], (f"{path}[0].resourceClaimName", INVALID)),
            ([{"name": "c"}, {"name": "c"}], (f"{path}[1]", DUPLICATE)),
            ([{"name": "c"}] * 5, (path, "FieldValueTooMany")),
        ):
            assert GROUPS.refusals(old | {"status": {"resourceClaimStatuses": claims}}, old, "status") == [want]


def _migration(group: str = "apps", resource: str = "deployments") -> dict:
    return {"spec": {"resource": {"group": group, "resource": resource}}}


def _ended(*true: str, version: str = "123") -> dict:
    moment = {"lastTransitionTime": "2024-01-02T03:04:05Z", "reason": "r", "message": ""}
    return {"resourceVersion": version, "conditions": [{"type": kind, "status": "True"} | moment for kind in true]}


def test_a_migration_has_one_resource():
    assert MIGRATIONS.messages(_migration(resource="")) == [
        ("spec.resource.resource", "Required value: resource is required to be set"),
    ]
    assert MIGRATIONS.refusals(_migration("a_b", "A")) == [("spec.resource.resource", INVALID), ("spec.resource.group", INVALID)]
    old = MIGRATIONS.create(_migration(""))
    shown = '{"Resource":{"group":"apps","resource":"deployments"}}'
    assert MIGRATIONS.messages(_migration(), old) == [("spec", f"Invalid value: {shown}: field is immutable")]


def test_a_migration_ends_once():
    old = MIGRATIONS.create(_migration())
    ended = MIGRATIONS.update(old | {"status": _ended("Succeeded")}, old, "status")
    path = "status.resourceVersion"
    assert MIGRATIONS.messages(old | {"status": _ended(version="abc")}, old, "status") == [
        (path, 'Invalid value: "abc": resource version is not well formed: abc'),
    ]
    assert MIGRATIONS.messages(ended | {"status": _ended("Succeeded", version="124")}, ended, "status") == [
        (path, 'Invalid value: "124": field is immutable'),
    ]
    for status in (_ended("Running"), _ended("Succeeded", "Failed"), _ended("Succeeded", "Running")):
        assert MIGRATIONS.refusals(ended | {"status": status}, ended, "status") == [("status.conditions", INVALID)]


class Driver(dict):
    """Counts calls."""

    asked = 0

    def get(self, key, default=None):
        type(self).asked += 1
        return super().get(key, default)


def test_drivers_are_found_by_name():
    """However many there are: each is asked a constant number of questions, not one for each other driver."""
    def node(node_id: str) -> dict:
        drivers = [Driver(name=f"d{i}", nodeID=node_id) for i in range(200)]
        return {"metadata": {"name": "a", "resourceVersion": "1"}, "spec": {"drivers": drivers}}

    Driver.asked = 0
    found = strategy_of(NODES.resource).validate_update(None, node("new"), node("old"))
    assert [e.field for e in found] == ["spec.drivers"] * 200
    assert Driver.asked < 40 * 200


def test_served_versions_must_be_decodable():
    """The whole list is reported with each invalid one, but only a bounded number of times."""
    path, at = "internal.apiserver.k8s.io/v1alpha1/storageversions", "status.storageVersions[0]."
    old, _ = create(path, {"metadata": {"name": "apps.deployments"}, "spec": {}})

    def serve(decoded, served):
        server = {"apiServerID": "a", "encodingVersion": "v1", "decodableVersions": decoded, "servedVersions": served}
        return lambda obj: obj.update(status={"commonEncodingVersion": "v1", "storageVersions": [server]})

    update(path, old, serve(["v1", "v2"], ["v2"]), "status")
    [(field, message)] = refused(update, path, old, serve(["v1", "v2"], ["v2", "v3"]), "status")
    assert field == f"{at}servedVersions[1]"
    assert message == 'Invalid value: "v3": individual served version : v3 must be included in decodableVersions : [v1 v2]'
    many = refused(update, path, old, serve([f"v{i}" for i in range(1, 9000)], [f"w{i}" for i in range(9000)]), "status")
    assert 1 < len(many) < 100


def test_a_server_reports_its_versions_once():
    path, at = "internal.apiserver.k8s.io/v1alpha1/storageversions", "status.storageVersions"
    old, _ = create(path, {"metadata": {"name": "apps.deployments"}, "spec": {}})
    server = {"apiServerID": "a", "encodingVersion": "v1", "decodableVersions": ["v1"]}
    status = {"commonEncodingVersion": "v1", "storageVersions": [server, {**server, "apiServerID": "A"}, {**server, "apiServerID": "A"}]}
    found = refused(update, path, old, lambda obj: obj.update(status=status), "status")
    assert [(where, why.split(":")[0]) for where, why in found] == [
        (f"{at}[1].apiServerID", "Invalid value"),
        (f"{at}[2].apiServerID", "Duplicate value"),
        (f"{at}[2].apiServerID", "Invalid value"),
    ]


def test_a_condition_of_storage_versions_has_a_status_that_is_a_name():
    path = "internal.apiserver.k8s.io/v1alpha1/storageversions"
    old, _ = create(path, {"metadata": {"name": "apps.deployments"}, "spec": {}})
    condition = {"type": "AllEncodingVersionsEqual", "status": "?", "reason": "r", "message": "m"}
    [(where, why)] = refused(update, path, old, lambda obj: obj.update(status={"conditions": [condition]}), "status")
    assert where == "status[0].status" and why.startswith('Invalid value: "?": name part must consist of')


@pytest.mark.parametrize(
    ("version", "valid"), [(f"{2**64 - 1}.0.0-{2**64 - 1}", True), (f"{2**64}.0.0", False), (f"1.0.0-a.{2**64}", False)]
)
def test_numbers_of_a_candidate_version_have_64_bits(version, valid):
    spec = {"leaseName": "l", "binaryVersion": version, "strategy": "example.com/own"}
    made = {"metadata": {"name": "c"}, "spec": spec}
    if valid:
        create("coordination.k8s.io/v1beta1/leasecandidates", made)
    else:
        text = f'Invalid value: "{version}": must be a valid semantic version'
        assert refused(create, "coordination.k8s.io/v1beta1/leasecandidates", made) == [("spec.binaryVersion", text)]

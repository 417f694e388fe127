"""Bootstrap objects: what a first start creates, and what later starts restore or leave alone."""

import copy
import json
import re

import pytest

from kas.auth.attributes import ALLOW, Attributes
from kas.auth.authz.rbac import RbacIndex
from kas.auth.authz.rules import covers
from kas.auth.user import UserInfo
from kas.config import features
from kas.registry import bootstrap
from kas.registry.bootstrap_rbac import AUTOUPDATE, aggregate
from kas.store import TransformError

NOW = "2024-01-02T03:04:05Z"


@pytest.fixture
def entries():
    return bootstrap.initial(NOW, "10.0.0.1", ["10.0.0.0/24"], ["127.0.0.1"], 6443)


def store(entries):
    objects = {(e.group, e.resource, e.namespace, e.name): copy.deepcopy(e.obj) for e in entries}
    return objects, lambda *key: objects.get(key)


def test_every_object_is_complete_and_unique(entries):
    seen = set()
    for e in entries:
        meta = e.obj["metadata"]
        assert re.fullmatch(r"[0-9a-f-]{36}", meta["uid"]) and meta["creationTimestamp"] == NOW
        assert all(m["time"] == NOW for m in meta["managedFields"])
        seen.add((e.group, e.resource, e.namespace, e.name))
    assert len(seen) == len(entries)
    assert len({e.obj["metadata"]["uid"] for e in entries}) == len(entries)
    assert not any("@now" in str(e.obj) or "@uid" in str(e.obj) for e in entries)


def test_a_full_store_needs_nothing(entries):
    _, get = store(entries)
    again = bootstrap.initial("2025-01-01T00:00:00Z", "10.0.0.1", ["10.0.0.0/24"], ["127.0.0.1"], 6443)
    assert bootstrap.plan(again, get) == []


@pytest.mark.parametrize("revision", [5, 0])
def test_an_unreadable_object_is_left_alone(entries, revision, caplog):
    """Unless it is encrypted, and could be decrypted later."""
    objects, _ = store(entries)
    del objects["", "namespaces", "", "kube-public"]

    def get(*key):
        if key[-1] == "kube-system":
            raise TransformError("/registry/namespaces/kube-system", "it is no object", revision=revision)
        return objects.get(key)

    if not revision:
        with pytest.raises(TransformError):
            bootstrap.plan(entries, get)
        return
    assert [(c.action, c.entry.name) for c in bootstrap.plan(entries, get)] == [("create", "kube-public")]
    assert "namespaces kube-system cannot be read and is left as it is: it is no object" in caplog.text


def test_missing_rules_are_added_and_added_ones_kept(entries):
    objects, get = store(entries)
    role = objects["rbac.authorization.k8s.io", "clusterroles", "", "system:discovery"]
    wanted = list(role["rules"])
    role["rules"] = [{"verbs": ["get"], "nonResourceURLs": ["/mine"]}]
    binding = objects["rbac.authorization.k8s.io", "clusterrolebindings", "", "cluster-admin"]
    binding["subjects"] = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "me"}]
    del objects["", "namespaces", "", "kube-public"]
    changes = {(c.action, c.entry.name): c.entry.obj for c in bootstrap.plan(entries, get)}
    assert set(changes) == {("update", "system:discovery"), ("update", "cluster-admin"), ("create", "kube-public")}
    rules = changes["update", "system:discovery"]["rules"]
    assert rules[0] == {"verbs": ["get"], "nonResourceURLs": ["/mine"]}
    assert {u for r in rules[1:] for u in r["nonResourceURLs"]} == {u for r in wanted for u in r["nonResourceURLs"]}
    assert [s["name"] for s in changes["update", "cluster-admin"]["subjects"]] == ["me", "system:masters"]


def test_protected_objects_and_changed_role_refs(entries):
    objects, get = store(entries)
    role = objects["rbac.authorization.k8s.io", "clusterroles", "", "system:discovery"]
    role["rules"], role["metadata"]["annotations"][AUTOUPDATE] = [], "false"
    binding = objects["rbac.authorization.k8s.io", "clusterrolebindings", "", "system:basic-user"]
    binding["roleRef"] = {**binding["roleRef"], "name": "other"}
    changes = bootstrap.plan(entries, get)
    assert [(c.action, c.entry.name) for c in changes] == [("recreate", "system:basic-user")]


def test_missing_roles_and_bindings_start_as_copies_of_earlier_ones(entries):
    """If an administrator closed discovery to unauthenticated users, the version and health stay closed, too."""
    rbac = "rbac.authorization.k8s.io"
    objects, get = store(entries)
    source = objects[rbac, "clusterrolebindings", "", "system:discovery"]
    source["subjects"] = [{"kind": "Group", "apiGroup": rbac, "name": "system:authenticated"}]
    source["metadata"]["annotations"] = {AUTOUPDATE: "false", "mine": "yes"}
    wanted = objects.pop((rbac, "clusterrolebindings", "", "system:public-info-viewer"))
    role = objects[rbac, "clusterroles", "", "edit"]
    del role["aggregationRule"], role["metadata"]["labels"]
    role["rules"] = [{"verbs": ["get"], "apiGroups": ["mine"], "resources": ["things"]}]
    parts = objects.pop((rbac, "clusterroles", "", "system:aggregate-to-edit"))
    del objects[rbac, "clusterroles", "", "system:aggregate-to-view"]  # view is aggregated
    made = {c.entry.name: c.entry.obj for c in bootstrap.plan(entries, get) if c.action == "create"}
    assert set(made) == {"system:public-info-viewer", "system:aggregate-to-edit", "system:aggregate-to-view"}
    binding = made["system:public-info-viewer"]
    assert binding["subjects"] == source["subjects"] and binding["roleRef"] == wanted["roleRef"]
    meta = binding["metadata"]
    assert meta["annotations"] == {AUTOUPDATE: "false", "mine": "yes"} and meta["uid"] == wanted["metadata"]["uid"]
    edit = made["system:aggregate-to-edit"]  # with all that is wanted, as it is not protected
    assert edit["rules"][0] == role["rules"][0] and covers(edit["rules"], parts["rules"]) == []
    assert edit["metadata"]["labels"] == parts["metadata"]["labels"]
    source["subjects"] = "everybody"
    assert bootstrap.plan([e for e in entries if e.name == "system:public-info-viewer"], get)[0].entry.obj["subjects"] == wanted["subjects"]


def test_flow_control_objects_are_restored_only_while_managed(entries):
    objects, get = store(entries)
    group = "flowcontrol.apiserver.k8s.io"
    for name, mark in (("workload-low", "true"), ("global-default", "false"), ("catch-all", "false")):
        level = objects[group, "prioritylevelconfigurations", "", name]
        level["spec"]["limited"]["nominalConcurrencyShares"] = 1
        level["metadata"]["annotations"][bootstrap.APF_AUTOUPDATE] = mark
    changes = bootstrap.plan(entries, get)
    assert sorted(c.entry.name for c in changes) == ["catch-all", "workload-low"]
    assert all(c.entry.obj["metadata"]["annotations"][bootstrap.APF_AUTOUPDATE] == "true" for c in changes)


@pytest.mark.parametrize("generation, mark, spec, now", [
    (1, "true", "new", "true"), (1, "true", "old", ""), (2, "true", "new", "true"), (2, "true", "old", ""), (1, "false", "old", ""),
    (2, "false", "old", ""), (1, "", "new", "true"), (1, "", "same", "true"), (2, "", "old", "false"), (2, "", "same", "false"),
    (2, "True", "new", "True"), (2, "0", "old", ""), (2, "nonsense", "old", "false"),
])  # fmt: skip
def test_an_annotation_says_whether_flow_control_is_managed(entries, generation, mark, spec, now):
    """Upstream's table for suggested objects: generation and annotation before, spec and annotation after."""
    objects, get = store(entries)
    level = objects["flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", "", "workload-low"]
    ours = copy.deepcopy(level["spec"])
    if spec != "same" and (now or mark in ("false", "0")):
        level["spec"]["limited"]["nominalConcurrencyShares"] = 1
    meta = level["metadata"]
    meta["generation"], meta["annotations"] = generation, {bootstrap.APF_AUTOUPDATE: mark} if mark else {}
    changed = {c.entry.name: c.entry.obj for c in bootstrap.plan(entries, get)}
    if not now:
        assert changed == {}
        return
    found = changed["workload-low"]
    assert found["metadata"]["annotations"][bootstrap.APF_AUTOUPDATE] == now
    assert (found["spec"] == ours) == (spec != "old")


@pytest.mark.parametrize("data", [None, {}, {"since": "2024-01-02T03:04:05Z"}, {"since": "2024-13-02"}, {"since": "2024-1-1", "a": "b"}])
def test_the_start_of_token_tracking_is_a_date(entries, data):
    objects, get = store(entries)
    known = objects["", "configmaps", "kube-system", "kube-apiserver-legacy-service-account-token-tracking"]
    assert bootstrap.plan(entries, get) == []
    known["data"] = data
    (change,) = bootstrap.plan(entries, get, starting=False)
    assert (change.action, change.entry.obj["data"]) == ("update", {**(data or {}), "since": NOW[:10]})


def test_existing_priority_classes_are_left_alone(entries):
    objects, get = store(entries)
    objects["scheduling.k8s.io", "priorityclasses", "", "system-node-critical"]["description"] = "of somebody"
    assert bootstrap.plan(entries, get) == []


def test_gated_rules_come_with_their_gate():
    def rules(*features):
        return bootstrap.role_rules("system:node", features)

    assert len(rules("ClusterTrustBundle")) == len(rules()) + 1
    names = [e.name for e in bootstrap.system_objects(NOW, ["ClusterTrustBundle"])]
    assert names.count("system:cluster-trust-bundle-discovery") == 2


@pytest.mark.parametrize("gate, name", [
    ("ClusterTrustBundle", "kube-apiserver-serving-clustertrustbundle-publisher"),
    ("DRAResourcePoolStatus", "resourcepoolstatusrequest-controller"),
    ("GenericWorkload", "podgroup-protection-controller"),
    ("PodCertificateRequest", "podcertificaterequestcleaner"),
    ("StorageVersionAPI", "storage-version-garbage-collector"),
    ("StorageVersionMigrator", "storage-version-migrator-controller"),
])  # fmt: skip
def test_a_gated_controller_has_its_role_with_the_gate(gate, name):
    """``controller_policy.go``: without the role, the controller of a kube-controller-manager with the same gate would be forbidden
    everything."""

    def named(*on):
        return {e.resource: e.obj for e in bootstrap.system_objects(NOW, on) if e.name == f"system:controller:{name}"}

    assert not named()
    found = named(gate)
    assert set(found) == {"clusterroles", "clusterrolebindings"} and found["clusterroles"]["rules"]
    assert found["clusterrolebindings"]["subjects"] == [{"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}]


@pytest.mark.parametrize("gate", [
    "ClusterTrustBundle", "DRADeviceTaintRules", "DRAWorkloadResourceClaims", "GenericWorkload", "PodCertificateRequest", "WorkloadWithJob",
])  # fmt: skip
def test_a_gate_adds_rules_or_roles(gate):
    def policy(*on):
        entries = (e for e in bootstrap.system_objects(NOW, on) if e.group == "rbac.authorization.k8s.io")
        return {(e.resource, e.name, json.dumps(rule)) for e in entries for rule in e.obj.get("rules") or [e.obj.get("roleRef")]}

    assert policy() < policy(gate)


@pytest.mark.parametrize("gate, lost", [
    ("DRADeviceTaints", {
        ("clusterroles", "system:controller:device-taint-eviction-controller"),
        ("clusterrolebindings", "system:controller:device-taint-eviction-controller"),
    }),
    ("DRAExtendedResource", {("system:kube-scheduler", "resourceclaims", "create,delete")}),
    ("DRAResourceClaimGranularStatusAuthorization", {
        ("system:kube-scheduler", "resourceclaims/binding", "patch,update"),
        ("system:controller:resource-claim-controller", "resourceclaims/binding", "patch,update"),
    }),
    ("KubeletServiceAccountTokenForCredentialProviders", {("system:node", "serviceaccounts", "get")}),
    ("ComponentFlagz", {("system:monitoring", "/flagz", "get")}),
    ("ComponentStatusz", {("system:monitoring", "/statusz", "get")}),
])  # fmt: skip
def test_a_gate_that_is_off_takes_its_rules_and_roles(gate, lost):
    """``policy.go`` and ``controller_policy.go``: each of these is added where the gate is on, which is the default."""

    def policy(on):
        kept, roles = set(), set()
        for e in bootstrap.system_objects(NOW, on):
            if e.group == "rbac.authorization.k8s.io":
                roles.add((e.resource, e.name))
            for rule in (e.obj.get("rules") or ()) if e.resource == "clusterroles" else ():
                names = rule.get("nonResourceURLs") or rule["resources"]
                kept |= {(e.name, name, ",".join(rule["verbs"])) for name in names}
        return roles, kept

    default = features.enabled({})
    (roles, kept), (fewer_roles, fewer_kept) = policy(default), policy(default - {gate})
    gone = (roles - fewer_roles) or (kept - fewer_kept)
    assert gone == lost and fewer_roles <= roles and fewer_kept <= kept


def test_the_node_authorizer_goes_by_the_gates_as_well():
    default = features.enabled({})
    for on in (default, default - {"KubeletServiceAccountTokenForCredentialProviders"}):
        (own,) = (e.obj["rules"] for e in bootstrap.system_objects(NOW, on) if (e.resource, e.name) == ("clusterroles", "system:node"))
        assert bootstrap.role_rules("system:node", on) == own


def test_aggregation(entries):
    roles = [e.obj for e in entries if e.resource == "clusterroles"]
    found = dict(aggregate(roles))
    assert set(found) == {"admin", "edit", "view"}
    by_name = {r["metadata"]["name"]: r for r in roles}
    assert found["view"] == by_name["system:aggregate-to-view"]["rules"]
    while found:
        for name, rules in found.items():
            by_name[name]["rules"] = rules
        found = dict(aggregate(roles))
    index = RbacIndex()
    for e in entries:
        if e.group == "rbac.authorization.k8s.io":
            index.put(e.resource, e.obj)
    ref = {"kind": "ClusterRole", "name": "admin"}
    subjects = [{"kind": "User", "name": "jane"}]
    index.put("rolebindings", {"metadata": {"name": "b", "namespace": "ns"}, "roleRef": ref, "subjects": subjects})
    jane = UserInfo("jane", ["system:authenticated"])
    assert index.authorize(Attributes(jane, "get", "ns", "apps", "v1", "deployments", name="d"))[0] == ALLOW
    assert index.authorize(Attributes(jane, "get", "other", "apps", "v1", "deployments", name="d"))[0] != ALLOW
    # Public endpoints for everyone, secrets for no one by default.
    nobody = UserInfo("system:anonymous", ["system:unauthenticated"])
    assert index.authorize(Attributes(nobody, "get", resource_request=False, path="/version"))[0] == ALLOW
    assert index.authorize(Attributes(nobody, "get", resource_request=False, path="/api"))[0] != ALLOW
    assert index.authorize(Attributes(jane, "get", "ns2", "", "v1", "secrets", name="s"))[0] != ALLOW


def test_group_versions_are_the_callers():
    got = bootstrap.api_services(NOW, [("", "v1"), ("apps", "v1"), ("apiregistration.k8s.io", "v1")])
    assert [e.name for e in got] == ["v1.", "v1.apps"]
    own = bootstrap.api_service(NOW, "example.com", "v1").obj["spec"]
    assert (own["groupPriorityMinimum"], own["versionPriority"]) == (1000, 100)


def test_endpoints_keep_their_label(entries):
    """Without the label kube-controller-manager would mirror them into a slice of its own."""
    objects, get = store(entries)
    objects["", "endpoints", "default", "kubernetes"]["metadata"]["labels"] = {"a": "b"}
    del objects["discovery.k8s.io", "endpointslices", "default", "kubernetes"]["metadata"]["labels"]
    changed = {c.entry.resource: c.entry.obj["metadata"]["labels"] for c in bootstrap.plan(entries, get, starting=False)}
    assert changed == {
        "endpoints": {"a": "b", "endpointslice.kubernetes.io/skip-mirror": "true"},
        "endpointslices": {"kubernetes.io/service-name": "kubernetes"},
    }


def test_a_slice_of_another_family_is_replaced(entries):
    _, get = store(entries)
    moved = bootstrap.initial(NOW, "10.0.0.1", ["10.0.0.0/24"], ["2001:db8::1"], 6443)
    changes = {c.entry.resource: (c.action, c.entry.obj) for c in bootstrap.plan(moved, get)}
    action, made = changes["endpointslices"]
    assert (action, made["addressType"], made["endpoints"][0]["addresses"]) == ("recreate", "IPv6", ["2001:db8::1"])
    assert changes["endpoints"][0] == "update"


def test_endpoints_follow_the_servers_address(entries):
    _, get = store(entries)
    moved = bootstrap.initial(NOW, "10.0.0.1", ["10.0.0.0/24"], ["192.0.2.1"], 6443)
    changes = bootstrap.plan(moved, get)
    assert sorted((c.action, c.entry.resource) for c in changes) == [("update", "endpoints"), ("update", "endpointslices")]
    assert changes[0].entry.obj["subsets"][0]["addresses"] == [{"ip": "192.0.2.1"}]


def test_the_kubernetes_service_follows_the_flags_only_at_the_start(entries):
    objects, get = store(entries)
    key = ("", "services", "default", "kubernetes")
    objects[key]["metadata"]["managedFields"].append({"manager": "somebody", "operation": "Update"})
    moved = bootstrap.initial(NOW, "10.0.0.1", ["10.0.0.0/24"], ["127.0.0.1"], 7443, node_port=30443)
    assert {c.entry.resource for c in bootstrap.plan(moved, get, starting=False)} == {"endpoints", "endpointslices"}
    changed = {c.entry.resource: c.entry.obj for c in bootstrap.plan(moved, get)}["services"]
    assert changed["spec"]["ports"] == [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": 7443, "nodePort": 30443}]
    assert (changed["spec"]["type"], changed["spec"]["externalTrafficPolicy"]) == ("NodePort", "Cluster")
    own, other = changed["metadata"]["managedFields"]
    assert other["manager"] == "somebody" and "f:externalTrafficPolicy" in own["fieldsV1"]["f:spec"]
    objects[key] = changed
    back = {c.entry.resource: c.entry.obj for c in bootstrap.plan(entries, get)}["services"]
    assert back["spec"] == next(e.obj for e in entries if e.resource == "services")["spec"]


@pytest.mark.parametrize("name, told", [("my-host", True), ("a" * 63, True), ("a" * 64, False), ("host-", False), ("ho st", False)])
def test_a_host_name_that_is_no_valid_label(name, told):
    """Linux allows names of 64 bytes with any content. The Lease is written without the label then."""
    labels = bootstrap.identity_lease(NOW, NOW, name).obj["metadata"]["labels"]
    assert labels == {"apiserver.kubernetes.io/identity": "kube-apiserver"} | ({"kubernetes.io/hostname": name} if told else {})


def test_the_identity_of_a_server_is_upstreams():
    """What NewConfig of k8s.io/apiserver 0.36.4 returned on a host called vm."""
    assert bootstrap.server_name("vm") == "apiserver-wlv32tlttr4jl3gtroqexyxapa"


def test_equal_rules_are_merged_in_linear_time():
    """Without comparing each rule with all others."""
    compared = []

    class Rule(dict):
        def __eq__(self, other):
            compared.append(1)
            return dict.__eq__(self, other)

    def role(name, rules, **more):
        return {"metadata": {"name": name, "labels": {"a": "b"}}, "rules": rules, **more}

    rules = [Rule(verbs=["get"], resources=[f"r{i}"]) for i in range(500)]
    same = [{"resources": ["r1"], "verbs": ["get"]}, {"resources": ["s"], "verbs": ["get"]}]
    whole = role("whole", list(rules), aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}] * 2})
    assert aggregate([role("one", rules), role("two", same), whole]) == [("whole", [*rules, same[1]])]
    assert len(compared) <= 4 * len(rules)

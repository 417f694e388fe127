"""The other kinds of the core group through the write pipeline."""

from __future__ import annotations

import base64

import pytest

from kas.kinds.core.service.strategy import carry_over_allocated, normalize_cluster_ips
from tests.kinds.helpers import create, refused, update
from tests.kinds.written import Kind


def named(**more):
    return {"metadata": {"name": "x"}, **more}


def fields(found):
    return [where for where, _ in found]


def test_config_map_keys_are_in_one_map_only_and_immutable_ones_cannot_change():
    found = refused(create, "v1/configmaps", named(data={"a b": "1", "c": "2"}, binaryData={"c": "AA=="}))
    assert fields(found) == ["data[a b]", "data[c]"]
    stored, _ = create("v1/configmaps", named(data={"a": "1"}, immutable=True))
    assert fields(refused(update, "v1/configmaps", stored, lambda o: o["data"].update(b="2"))) == ["data"]
    got, _ = update("v1/configmaps", stored, lambda o: o["metadata"].update(labels={"a": "b"}))
    assert got["metadata"]["labels"] == {"a": "b"}


def test_a_config_map_that_is_too_large():
    """The error is about the whole object, which an empty path expresses."""
    assert create("v1/configmaps", named(data={"a": "x" * (1 << 20)}))
    too_large = [("[]", "Too long: may not be more than 1048576 bytes")]
    assert refused(create, "v1/configmaps", named(data={"a": "x" * (1 << 20)}, binaryData={"b": "AA=="})) == too_large


@pytest.mark.parametrize("kind", ["v1/configmaps", "v1/secrets", "v1/serviceaccounts"])
@pytest.mark.parametrize("wrong", [{"finalizers": ["orphan", "foregroundDeletion"]}, {"generateName": "a/b"}])
def test_an_update_is_validated_against_all_metadata_rules(kind, wrong):
    stored, _ = create(kind, named())
    found = refused(update, kind, stored, lambda o: o["metadata"].update(wrong))
    assert set(fields(found)) == {f"metadata.{name}" for name in wrong}


@pytest.mark.parametrize("kind,spec", [("v1/configmaps", {}), ("v1/nodes", {}), ("storage.k8s.io/v1/csidrivers", {"spec": {}})])
def test_a_kind_without_generations_keeps_that_of_the_request(kind, spec):
    sent = {"metadata": {"name": "x", "generation": 5}, **spec}
    stored, _ = create(kind, sent)
    assert stored["metadata"]["generation"] == 5
    assert update(kind, stored, lambda o: o["metadata"].update(generation=9))[0]["metadata"]["generation"] == 5
    sent["metadata"]["generation"] = -1
    assert fields(refused(create, kind, sent)) == ["metadata.generation"]


def test_a_kind_of_the_core_group_is_written_by_its_short_name():
    config_maps = Kind("v1/configmaps")
    assert config_maps.create({"data": {"a": "b"}})["data"] == {"a": "b"}
    assert config_maps.refusals({"data": {"?": "b"}}) == [("data[?]", "FieldValueInvalid")]


def test_secret_takes_string_data_and_keeps_its_type():
    stored, _ = create("v1/secrets", named(stringData={"a": "1"}))
    assert stored["data"] == {"a": base64.b64encode(b"1").decode()}
    assert stored["type"] == "Opaque" and "stringData" not in stored
    assert fields(refused(update, "v1/secrets", stored, lambda o: o.update(type="kubernetes.io/tls")))[0] == "type"


@pytest.mark.parametrize(
    "kind,data,field",
    [("kubernetes.io/tls", {}, "data[tls.crt]"), ("kubernetes.io/basic-auth", {}, "data[username]"),
     ("kubernetes.io/ssh-auth", {"ssh-privatekey": ""}, "data[ssh-privatekey]"),
     ("kubernetes.io/dockerconfigjson", {".dockerconfigjson": base64.b64encode(b"{").decode()}, "data[.dockerconfigjson]"),
     ("kubernetes.io/service-account-token", {}, "metadata.annotations[kubernetes.io/service-account.name]")],
)  # fmt: skip
def test_secret_types(kind, data, field):
    assert field in fields(refused(create, "v1/secrets", named(type=kind, data=data)))


def test_namespace_gets_label_finalizer_and_phase():
    stored, _ = create("v1/namespaces", named())
    assert stored["metadata"]["labels"] == {"kubernetes.io/metadata.name": "x"}
    assert stored["spec"]["finalizers"] == ["kubernetes"] and stored["status"] == {"phase": "Active"}

    def change(obj):
        obj["metadata"]["labels"] = {}
        obj["spec"]["finalizers"] = []

    got, _ = update("v1/namespaces", stored, change)
    assert got["spec"]["finalizers"] == ["kubernetes"]
    assert got["metadata"]["labels"]["kubernetes.io/metadata.name"] == "x"
    got, _ = update("v1/namespaces", stored, lambda o: o["spec"].update(finalizers=[]), "finalize")
    assert not got["spec"].get("finalizers")


def test_a_claim_is_immutable_except_for_its_size():
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    stored, _ = create("v1/persistentvolumeclaims", named(spec=spec))
    assert stored["spec"]["volumeMode"] == "Filesystem"
    stored["status"] = {"phase": "Bound", "capacity": {"storage": "1Gi"}}

    def resize(to):
        return lambda o: o["spec"]["resources"]["requests"].update(storage=to)

    got, _ = update("v1/persistentvolumeclaims", stored, resize("2Gi"))
    assert got["spec"]["resources"]["requests"]["storage"] == "2Gi"
    found = refused(update, "v1/persistentvolumeclaims", stored, resize("1Mi"))
    assert found == [("spec.resources.requests.storage", "Forbidden: field can not be less than status.capacity")]
    found = refused(update, "v1/persistentvolumeclaims", stored, lambda o: o["spec"].update(accessModes=["ReadOnlyMany"]))
    assert found[0][0] == "spec" and "spec is immutable after creation" in found[0][1]


def test_a_volume_needs_one_source_and_keeps_it():
    spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/a"}}
    stored, _ = create("v1/persistentvolumes", named(spec=spec))
    assert stored["status"]["phase"] == "Pending" and stored["status"]["lastPhaseTransitionTime"]
    both = {**spec, "nfs": {"server": "s", "path": "/p"}}
    assert fields(refused(create, "v1/persistentvolumes", named(spec=both))) == ["spec.nfs"]
    found = refused(update, "v1/persistentvolumes", stored, lambda o: o["spec"]["hostPath"].update(path="/b"))
    assert fields(found) == ["spec.persistentvolumesource"]


def test_service_defaults_and_type_changes():
    body = named(spec={"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]})
    stored, _ = create("v1/services", body)
    assert stored["spec"]["externalTrafficPolicy"] == "Cluster" and stored["spec"]["ports"][0]["targetPort"] == 80

    def to_cluster_ip(obj):
        obj["spec"]["type"] = "ClusterIP"

    got, _ = update("v1/services", stored, to_cluster_ip)
    assert "nodePort" not in got["spec"]["ports"][0] and "externalTrafficPolicy" not in got["spec"]


@pytest.mark.parametrize(
    "spec,field",
    [
        ({"ports": []}, "spec.ports"),
        ({"ports": [{"port": 80}, {"port": 80}]}, "spec.ports[0].name"),
        ({"ports": [{"port": 80}], "type": "LoadBalancer", "clusterIP": "None", "clusterIPs": ["None"]}, "spec.clusterIPs[0]"),
        ({"type": "ExternalName"}, "spec.externalName"),
        ({"ports": [{"port": 80}], "externalIPs": ["127.0.0.1"]}, "spec.externalIPs[0]"),
        ({"ports": [{"port": 80, "nodePort": 1}]}, "spec.ports[0].nodePort"),
        ({"ports": [{"port": 80}], "loadBalancerClass": "a/b"}, "spec.loadBalancerClass"),
        ({"ports": [{"port": 80}], "sessionAffinity": "Maybe"}, "spec.sessionAffinity"),
        ({"ports": [{"port": 80}], "trafficDistribution": "x"}, "spec.trafficDistribution"),
    ],
)
def test_service_refused(spec, field):
    assert field in fields(refused(create, "v1/services", named(spec=spec)))


def test_allocated_values_are_carried_over():
    port = {"name": "a", "port": 80}
    old = {"spec": {"type": "NodePort", "clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.5"], "ports": [{**port, "nodePort": 30001}]}}
    new = {"spec": {"type": "NodePort", "ports": [port]}}
    carry_over_allocated(new, old)
    assert new["spec"]["clusterIPs"] == ["10.0.0.5"] and new["spec"]["ports"][0]["nodePort"] == 30001
    other = {"spec": {"type": "NodePort", "clusterIP": "10.0.0.6", "ports": [{"port": 80}, {**port, "name": "a"}, {**port, "name": "a"}]}}
    carry_over_allocated(other, old)
    assert [p.get("nodePort") for p in other["spec"]["ports"]] == [None, 30001, 30001]
    normalize_cluster_ips(other, old)
    assert other["spec"]["clusterIPs"] == ["10.0.0.6"]
    fresh = {"spec": {"clusterIP": "10.0.0.9"}}
    normalize_cluster_ips(fresh, None)
    assert fresh["spec"]["clusterIPs"] == ["10.0.0.9"]


@pytest.mark.parametrize(
    ("was", "now", "kept"),
    [
        (("10.0.0.1", ["10.0.0.1", "fd::1"]), ("10.0.0.1", None), ("10.0.0.1", ["10.0.0.1", "fd::1"])),
        (("10.0.0.1", ["10.0.0.1"]), ("10.0.0.1", ["10.0.0.2"]), ("10.0.0.1", ["10.0.0.2"])),
        (("10.0.0.1", ["10.0.0.1"]), (None, ["10.0.0.1"]), (None, None)),
        (("10.0.0.1", ["10.0.0.1"]), (None, ["10.0.0.2"]), (None, ["10.0.0.2"])),
        (("None", ["None"]), ("10.0.0.1", ["None"]), ("10.0.0.1", ["10.0.0.1"])),
        (("10.0.0.1", ["10.0.0.1", "fd::1"]), ("10.0.0.2", None), ("10.0.0.2", None)),
    ],
)
def test_the_list_of_addresses_follows_the_single_one(was, now, kept):
    def service(pair):
        return {"spec": {key: value for key, value in zip(("clusterIP", "clusterIPs"), pair, strict=True) if value is not None}}

    obj = service(now)
    normalize_cluster_ips(obj, service(was))
    assert obj == service(kept)


def test_limit_range_fills_container_defaults():
    item = {"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}}
    stored, _ = create("v1/limitranges", named(spec={"limits": [item]}))
    assert stored["spec"]["limits"][0]["default"] == {"cpu": "2"}
    assert stored["spec"]["limits"][0]["defaultRequest"] == {"cpu": "2", "memory": "1Mi"}
    bad = {"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "2"}}
    assert "spec.limits[0].min[cpu]" in fields(refused(create, "v1/limitranges", named(spec={"limits": [bad]})))


def test_quota_scopes_fit_and_stay():
    stored, _ = create("v1/resourcequotas", named(spec={"hard": {"pods": "1"}, "scopes": ["BestEffort"]}))
    assert fields(refused(update, "v1/resourcequotas", stored, lambda o: o["spec"].update(scopes=[]))) == ["spec.scopes"]
    found = refused(create, "v1/resourcequotas", named(spec={"hard": {"cpu": "1"}, "scopes": ["BestEffort"]}))
    assert found[0][1].endswith("unsupported scope applied to resource")


def test_node_keeps_its_status_on_create_and_its_cidr_after():
    body = named(spec={"podCIDR": "10.0.0.0/24"}, status={"capacity": {"cpu": "1"}})
    stored, _ = create("v1/nodes", body)
    assert stored["status"]["allocatable"] == {"cpu": "1"} and stored["spec"]["podCIDRs"] == ["10.0.0.0/24"]

    def move(obj):
        obj["spec"].update(podCIDR="10.0.1.0/24", podCIDRs=["10.0.1.0/24"])

    assert "spec.podCIDRs" in fields(refused(update, "v1/nodes", stored, move))


def test_an_event_is_in_the_namespace_of_its_object():
    found = refused(create, "v1/events", named(involvedObject={"namespace": "other"}))
    assert found == [("involvedObject.namespace", 'Invalid value: "other": does not match event.namespace')]


def test_service_account_references_are_names():
    stored, _ = create("v1/serviceaccounts", named(secrets=[{"name": "s", "namespace": "n"}]))
    assert stored["secrets"] == [{"name": "s"}]


def test_endpoints_need_addresses():
    found = refused(create, "v1/endpoints", named(subsets=[{"ports": [{"port": 1}]}]))
    assert found[0][0] == "subsets[0]"


def test_a_controllers_selector_and_labels_default_to_the_templates_labels():
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
    stored, _ = create("v1/replicationcontrollers", named(spec={"template": template}))
    assert stored["spec"]["selector"] == {"a": "b"} and stored["metadata"]["labels"] == {"a": "b"}

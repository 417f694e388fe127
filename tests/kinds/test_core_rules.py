"""Detailed rules of the core kinds: warnings, the order and texts of errors, and fields that are dropped."""

from __future__ import annotations

import base64
import datetime
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kas.config import features
from kas.kinds.core.event import strict_update
from kas.meta.checks import non_special_ip
from kas.registry.strategy import strategy_of
from tests import pki
from tests.kinds.helpers import create, refused, resource, update

PORTS = [{"port": 80, "protocol": "TCP", "targetPort": 80}]
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
EXTERNAL_IPS = "spec.externalIPs is deprecated and may no longer be implemented in some clusters"


def service(**spec):
    return {"metadata": {"name": "s"}, "spec": {"ports": PORTS, **spec}}


def volume(**spec):
    return {"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, **spec}}


def claim(**spec):
    return {"metadata": {"name": "c"}, "spec": {**CLAIM, **spec}}


def node(annotations=None, **spec):
    return {"metadata": {"name": "n", "annotations": annotations or {}}, "spec": spec}


def secret(kind, data):
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    return {"metadata": {"name": "s"}, "type": f"kubernetes.io/{kind}", "data": encoded}


# --- services


def test_headless_services_get_warnings_of_ignored_fields():
    body = service(clusterIP="None", clusterIPs=["None"], externalIPs=["1.2.3.4"], loadBalancerIP="1.2.3.4", sessionAffinity="ClientIP")
    _, warnings = create("v1/services", body)
    ignored = ("spec.loadBalancerIP", "spec.externalIPs", "spec.SessionAffinity")
    assert warnings == [f"{name} is ignored for headless services" for name in ignored]


def test_external_ips_are_deprecated_where_they_are_used():
    assert create("v1/services", service(externalIPs=["1.2.3.4"]))[1] == [EXTERNAL_IPS]
    warnings = create("v1/services", service(externalIPs=["2001:db8::0"]))[1]
    assert len(warnings) == 2 and "spec.externalIPs[0]" in warnings[0] and warnings[1] == EXTERNAL_IPS
    assert EXTERNAL_IPS not in create("v1/services", service(type="ExternalName", externalName="a.b", externalIPs=["1.2.3.4"]))[1]


def test_node_ports_go_with_the_type():
    ports = [{"name": "a", "port": 80, "protocol": "TCP", "targetPort": 80, "nodePort": 30080}]
    body = service(type="LoadBalancer", ports=ports, allocateLoadBalancerNodePorts=False, clusterIP="10.0.0.5", clusterIPs=["10.0.0.5"])
    stored, _ = create("v1/services", body)

    def narrow(obj):
        obj["spec"]["type"] = "ClusterIP"

    assert "nodePort" not in update("v1/services", stored, narrow)[0]["spec"]["ports"][0]


def test_a_stored_services_metadata_are_validated_as_in_an_update():
    """Reported twice by the rules of all kinds, and once by the kind."""
    stored, _ = create("v1/services", service(clusterIP="10.0.0.5", clusterIPs=["10.0.0.5"]))
    errs = refused(update, "v1/services", stored, lambda obj: obj["metadata"].update(labels={"a b": "c"}))
    assert [field for field, _ in errs] == ["metadata.labels"] * 3


def test_link_local_multicast_follows_the_scope():
    assert non_special_ip("ff02::1", "p") and non_special_ip("ff12::1", "p") and non_special_ip("224.0.0.9", "p")
    assert not non_special_ip("ff05::1", "p") and not non_special_ip("224.0.1.9", "p")


# --- nodes


@pytest.mark.parametrize(
    "text,found",
    [("x", [("metadata.annotations", "invalid character 'x' looking for beginning of value")]),
     ('{"a":1}', [("metadata.annotations", "cannot unmarshal object into Go value of type []core.Taint")]),
     ('[{"key":"k","effect":"X"}]', [("metadata.annotations.scheduler.alpha.kubernetes.io/taints[0].effect", 'Unsupported value: "X"')])],
)
def test_taints_of_the_annotation_are_checked(text, found):
    got = refused(create, "v1/nodes", node({"scheduler.alpha.kubernetes.io/taints": text}))
    assert [where for where, _ in got] == [where for where, _ in found]
    assert all(part in message for (_, message), (_, part) in zip(got, found, strict=True))
    stored, _ = create("v1/nodes", node())
    key = {"scheduler.alpha.kubernetes.io/taints": text}
    # An update validates the node itself and again against the old one.
    assert refused(update, "v1/nodes", stored, lambda o: o["metadata"].update(annotations=key)) == got * 2


def test_pods_to_avoid_are_named_by_their_controller():
    key = "scheduler.alpha.kubernetes.io/preferAvoidPods"
    at = f"metadata.annotations.{key}[0].PodSignature"
    assert refused(create, "v1/nodes", node({key: '{"preferAvoidPods":[{"podSignature":{}}]}'})) == [(at, "Required value")]
    owner = '{"preferAvoidPods":[{"podSignature":{"podController":{"controller":%s}}}]}'
    found = refused(create, "v1/nodes", node({key: owner % "false"}))
    assert found == [(f"{at}.PodController.Controller", "Invalid value: false: must point to a controller")]
    create("v1/nodes", node({key: owner % "true"}))


def test_invalid_pod_cidrs_fail_the_family_check():
    found = dict(refused(create, "v1/nodes", node(podCIDRs=["10.0.0.0/24", "x"])))
    assert found["spec.podCIDRs[1]"].startswith('Invalid value: "x": must be a valid CIDR value')
    texts = [message for where, message in refused(create, "v1/nodes", node(podCIDRs=["10.0.0.0/24", "x"])) if where == "spec.podCIDRs"]
    assert texts[0].endswith("invalid CIDR[1]: <nil> (invalid CIDR address: x)")


def test_the_removed_node_configuration_is_dropped():
    source = {"configMap": {"namespace": "a", "name": "b", "kubeletConfigKey": "c"}}
    status = {"config": {"assigned": source}}
    stored, warnings = create("v1/nodes", {**node(configSource=source), "status": status})
    assert "configSource" not in stored["spec"] and "config" not in stored["status"] and warnings == []
    assert "config" not in update("v1/nodes", stored, lambda o: o.update(status=status), "status")[0]["status"]
    stored["status"]["config"] = status["config"]
    bare = {"status": {"config": {}}}
    assert update("v1/nodes", stored, lambda o: o.update(bare), "status")[0]["status"]["config"] == {}


def test_a_status_has_its_own_warnings():
    stored, warnings = create("v1/nodes", node(externalID="x"))
    assert len(warnings) == 1
    assert update("v1/nodes", stored, lambda o: o["status"].update(phase="Running"), "status")[1] == []

    body = service(type="LoadBalancer", clusterIP="10.0.0.5", clusterIPs=["10.0.0.5"], externalIPs=["1.2.3.4"])
    stored, _ = create("v1/services", body)
    points = {"ingress": [{"hostname": "a.b"}, {"ip": "2001:db8::0"}]}
    warnings = update("v1/services", stored, lambda o: o.update(status={"loadBalancer": points}), "status")[1]
    assert len(warnings) == 1 and warnings[0].startswith("status.loadBalancer.ingress[1]: IPv6 address")

    stored, _ = create("v1/pods", {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}})
    addresses = {"podIPs": [{"ip": "10.0.0.9"}, {"ip": "2001:DB8::1"}], "hostIPs": [{"ip": "10.0.0.1"}], "hostIP": "10.0.0.1"}
    warnings = update("v1/pods", stored, lambda o: o["status"].update(addresses), "status")[1]
    assert len(warnings) == 1 and warnings[0].startswith("status.podIPs[1].ip: IPv6 address")


# --- volumes and claims


def test_iscsi_errors_come_in_the_order_of_the_fields():
    source = {"targetPortal": "x" * 70, "iqn": "bad", "initiatorName": "iqnx", "lun": 300, "secretRef": {}}
    found = refused(create, "v1/persistentvolumes", volume(iscsi=source))
    names = ["targetportal", "iqn", "lun", "secretRef.name", "initiatorname"]
    assert [where for where, _ in found] == [f"spec.iscsi.{name}" for name in names]


@pytest.mark.parametrize("source", [{"flocker": {"datasetName": "a"}}, {"quobyte": {"registry": "a:1", "volume": "v"}}])
def test_volumes_of_removed_plugins_do_not_warn(source):
    assert create("v1/persistentvolumes", volume(**source))[1] == []


def test_quobyte_registries_are_host_and_port_pairs():
    found = refused(create, "v1/persistentvolumes", volume(quobyte={"registry": "a", "volume": "v"}))
    assert found == [("spec.quobyte.registry", 'Invalid value: "a": must be a host:port pair or multiple pairs separated by commas')]


def test_claims_drop_disallowed_sources():
    other = {"apiGroup": "a.b", "kind": "K", "name": "x"}
    spec = create("v1/persistentvolumeclaims", claim(dataSource=other))[0]["spec"]
    assert "dataSource" not in spec and "dataSourceRef" not in spec
    spec = create("v1/persistentvolumeclaims", claim(dataSourceRef={**other, "namespace": "n"}))[0]["spec"]
    assert "dataSource" not in spec and "dataSourceRef" not in spec
    found = refused(create, "v1/persistentvolumeclaims", claim(dataSource=other, dataSourceRef={**other, "name": "y"}))
    assert found == [("spec", "Invalid value: {}: must match dataSourceRef")]


def test_sources_of_an_older_claim_are_compared_in_both_fields():
    stored, _ = create("v1/persistentvolumeclaims", claim(dataSource={"kind": "PersistentVolumeClaim", "name": "x"}))
    ref = stored["spec"].pop("dataSourceRef")
    got, _ = update("v1/persistentvolumeclaims", stored, lambda o: o["metadata"].update(labels={"a": "b"}))
    assert got["spec"]["dataSourceRef"] == ref


def test_reads_of_services_and_claims_are_decorated_as_upstream():
    """Upstream's Decorator had no counterpart here."""
    named = {"spec": {"type": "ExternalName", "externalName": "a.b", "internalTrafficPolicy": "Cluster"}}
    own = service(internalTrafficPolicy="Local")
    source = {"kind": "PersistentVolumeClaim", "name": "x"}
    old = claim(dataSource=source)
    for path, obj in (("v1/services", named), ("v1/services", own), ("v1/persistentvolumeclaims", old)):
        strategy_of(resource(path)).as_read(obj)
    assert named["spec"] == {"type": "ExternalName", "externalName": "a.b"} and own["spec"]["internalTrafficPolicy"] == "Local"
    assert old["spec"]["dataSourceRef"] == source and old["status"] == {"phase": "Pending"}
    made, _ = create("v1/services", service(type="ExternalName", externalName="a.b", internalTrafficPolicy="Local"))
    assert "internalTrafficPolicy" not in made["spec"]


@pytest.mark.parametrize(
    ("spec", "shown"),
    [
        ({"clusterIP": "10.0.0.1"}, (["10.0.0.1"], ["IPv4"], "SingleStack")),
        ({"clusterIP": "fd00::1", "clusterIPs": ["fd00::1", "10.0.0.1"]}, (["fd00::1", "10.0.0.1"], ["IPv6", "IPv4"], "RequireDualStack")),
        ({"clusterIP": "None", "selector": {"a": "b"}}, (["None"], ["IPv4"], "SingleStack")),
        ({"clusterIP": "None"}, (["None"], ["IPv4", "IPv6"], "RequireDualStack")),
        ({"clusterIP": "::1", "ipFamilies": ["IPv6"], "ipFamilyPolicy": "PreferDualStack"}, (["::1"], ["IPv6"], "PreferDualStack")),
        ({"type": "ExternalName", "clusterIP": "10.0.0.1"}, (None, None, None)),
        ({}, (None, None, None)),
    ],
)
def test_a_service_without_lists_of_addresses_is_upgraded(spec: dict, shown: tuple) -> None:
    """``Test_UpgradeService``: such a service in etcd could not be written any more."""
    old = {"metadata": {"name": "a"}, "spec": spec}
    strategy_of(resource("v1/services")).as_read(old)
    assert tuple(spec.get(key) for key in ("clusterIPs", "ipFamilies", "ipFamilyPolicy")) == shown


def test_an_empty_class_annotation_is_unset():
    stored, _ = create("v1/persistentvolumeclaims", claim())
    key = {"volume.beta.kubernetes.io/storage-class": ""}
    got, _ = update("v1/persistentvolumeclaims", stored, lambda o: o["metadata"].update(annotations=key))
    assert got["metadata"]["annotations"] == key and "storageClassName" not in got["spec"]


# --- namespaces


def test_a_generated_namespace_is_refused_for_its_name_only():
    found = refused(create, "v1/namespaces", {"metadata": {"generateName": "100%"}})
    assert [where for where, _ in found] == ["metadata.generateName", "metadata.name"]


# --- replication controllers


def test_a_selector_that_does_not_convert_is_kept():
    labels, kept = {"a": "b"}, "non-convertible.kubernetes.io"
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
    body = {"metadata": {"name": "x", "annotations": {f"{kept}/spec.selector": "no"}}, "spec": {"selector": labels, "template": template}}
    stored, _ = create("v1/replicationcontrollers", body)

    def move(obj):
        obj["spec"]["selector"]["c"] = obj["spec"]["template"]["metadata"]["labels"]["c"] = "d"

    update("v1/replicationcontrollers", stored, lambda o: o["spec"].update(replicas=3))
    found = refused(update, "v1/replicationcontrollers", stored, move)
    assert found == [("spec.selector", 'Invalid value: {"a":"b","c":"d"}: cannot update non-convertible selector')]
    stored["metadata"]["annotations"] = {f"{kept}/other": "v"}
    assert refused(update, "v1/replicationcontrollers", stored, move) == [("other", 'Not found: "v": unknown non-convertible field')]


def test_warnings_of_a_controller_are_about_its_name_and_old_template():
    labels, node = {"a": "b"}, {"beta.kubernetes.io/os": "linux"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
    calm, warnings = create("v1/replicationcontrollers", {"metadata": {"name": "x"}, "spec": {"template": template}})
    assert warnings == []
    named = {"metadata": {"name": "x.y"}, "spec": {"template": {**template, "spec": {**template["spec"], "nodeSelector": node}}}}
    warned, warnings = create("v1/replicationcontrollers", named)
    assert [w.partition(":")[0] for w in warnings] == ["metadata.name", "spec.template.spec.nodeSelector[beta.kubernetes.io/os]"]
    assert update("v1/replicationcontrollers", calm, lambda o: o["spec"]["template"]["spec"].update(nodeSelector=node))[1] == []
    assert update("v1/replicationcontrollers", warned, lambda o: o["spec"]["template"]["spec"].pop("nodeSelector"))[1] == warnings[1:]
    assert update("v1/replicationcontrollers", warned, lambda o: o["metadata"].update(labels={"c": "d"}))[1] == []


# --- quotas and endpoints


def test_quotas_warn_of_requests_over_limits():
    def warnings(**hard):
        return create("v1/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}})[1]

    requests, limits = {"requests.cpu": "2", "requests.ephemeral-storage": "3Gi"}, {"limits.ephemeral-storage": "2Gi", "limits.cpu": "1"}
    assert warnings(**requests, **limits, cpu="9") == [
        "ResourceQuota requests.cpu (2) should be less than limits.cpu (1)",
        "ResourceQuota requests.ephemeral-storage (3Gi) should be less than limits.ephemeral-storage (2Gi)",
    ]
    assert warnings(memory="3Gi", **{"limits.memory": "2Gi"}) == ["ResourceQuota memory (3Gi) should be less than limits.memory (2Gi)"]
    assert warnings(cpu="1", **limits) == []


def test_endpoints_of_the_controller_cause_no_warning():
    body = {"metadata": {"name": "e"}, "subsets": [{"addresses": [{"ip": "2001:db8::0"}]}]}
    assert len(create("v1/endpoints", body)[1]) == 1
    body["metadata"]["labels"] = {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}
    assert create("v1/endpoints", body)[1] == []


# --- service accounts


def test_setting_the_deprecated_annotation_warns_once():
    def mark(value):
        return lambda o: o["metadata"].update(annotations={"kubernetes.io/enforce-mountable-secrets": value})

    stored, warnings = create("v1/serviceaccounts", {"metadata": {"name": "a"}})
    assert warnings == []
    marked, warnings = update("v1/serviceaccounts", stored, mark("true"))
    assert len(warnings) == 1 and "deprecated in v1.32+" in warnings[0]
    assert update("v1/serviceaccounts", marked, mark("false"))[1] == []


# --- secrets


@pytest.mark.parametrize(
    "data,text",
    [(b"", "unexpected end of JSON input"), (b"[]", "json: cannot unmarshal array into Go value of type map[string]interface {}"),
     (b"1", "json: cannot unmarshal number into Go value of type map[string]interface {}"),
     (b'{"a":', "unexpected end of JSON input"), (b"{}x", "invalid character 'x' after top-level value")],
)
def test_docker_configs_are_json(data, text):
    found = refused(create, "v1/secrets", secret("dockercfg", {".dockercfg": data}))
    assert found == [("data[.dockercfg]", f'Invalid value: "<secret contents redacted>": {text}')]


def test_key_pairs_are_validated():
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "x")])
    start = datetime.datetime(2024, 1, 1)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, start, start + datetime.timedelta(days=1))
    crt = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def private(of, form=serialization.PrivateFormat.TraditionalOpenSSL):
        return of.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())

    def warnings(first, second):
        return create("v1/secrets", secret("tls", {"tls.crt": first, "tls.key": second}))[1]

    ours, theirs = private(key), private(ec.generate_private_key(ec.SECP256R1()), serialization.PrivateFormat.PKCS8)
    assert warnings(crt, ours) == warnings(b"junk\n" + crt, crt + ours) == []
    assert warnings(crt, theirs) == ["tls: private key does not match public key"]
    assert warnings(crt, crt) == ["tls: found a certificate rather than a key in the PEM for the private key"]
    assert warnings(crt, b"") == ["tls: failed to find any PEM data in key input"]
    assert warnings(b"", b"") == ["tls: failed to find any PEM data in certificate input"]
    switched = "but did find a private key; PEM inputs may have been switched"
    assert warnings(ours, crt) == [f"tls: failed to find certificate PEM data in certificate input, {switched}"]
    types = "after skipping PEM blocks of the following types: [EC PRIVATE KEY PRIVATE KEY]"
    assert warnings(ours + theirs, ours) == [f'tls: failed to find "CERTIFICATE" PEM block in certificate input {types}']
    odd = ssl.DER_cert_to_PEM_cert(pki.unreadable()["version"]).encode()
    assert warnings(odd, ours) == ["x509: malformed certificate: 3 is not a valid X509 version"]
    curve, unknown = bytes.fromhex("2a8648ce3d030107"), bytes.fromhex("2a8648ce3d03017f")
    der = key.private_bytes(serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    block = base64.encodebytes(der.replace(curve, unknown))
    strange = b"-----BEGIN PRIVATE KEY-----\n" + block + b"-----END PRIVATE KEY-----\n"
    assert warnings(crt, strange) == ["tls: failed to parse private key"]
    strange = ssl.DER_cert_to_PEM_cert(x509.load_pem_x509_certificate(crt).public_bytes(serialization.Encoding.DER).replace(curve, unknown))
    assert warnings(strange.encode(), ours)[0].startswith("x509: malformed certificate")


@pytest.mark.parametrize(
    ("features", "found"),
    [
        (["A", "B/cD", "B2"], []),
        (["B", "A", "A"], ['[1]: Invalid value: "A": list must be sorted alphabetically', '[2]: Duplicate value: "A"']),
        (["a"], ['[0]: Invalid value: "a": invalid feature name "a": must start with an UpperCamelCase segment, with subsequent segments '
                 "separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"]),
        (["A" * 254], [f'[0]: Invalid value: "{"A" * 254}": invalid feature name "{"A" * 254}": must be no more than 253 characters']),
    ],
)  # fmt: skip
def test_declared_features_of_nodes_are_sorted(features, found):
    body = {**node(), "status": {"declaredFeatures": features}}
    at = "status.declaredFeatures"
    if not found:
        stored, _ = create("v1/nodes", body)
        assert stored["status"]["declaredFeatures"] == features
        return
    assert [f"{where.removeprefix(at)}: {message}" for where, message in refused(create, "v1/nodes", body)] == found
    stored, _ = create("v1/nodes", node())
    assert len(refused(update, "v1/nodes", stored, lambda o: o["status"].update(declaredFeatures=features), "status")) == len(found)


def test_the_swap_capacity_of_a_node_is_positive():
    status = {"nodeInfo": {**dict.fromkeys(("machineID", "systemUUID", "bootID"), "a"), "swap": {"capacity": 0}}}
    found = refused(create, "v1/nodes", {**node(), "status": status})
    assert found == [("metadata.nodeSwapStatus.capacity", "Invalid value: 0: must be greater than zero")]
    status["nodeInfo"]["swap"] = {"capacity": 1}
    create("v1/nodes", {**node(), "status": status})


def test_a_volumes_location_can_change_only_with_a_gate():
    def terms(zone):
        return {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]}}

    spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/a"}, "nodeAffinity": terms("a")}
    old, _ = create("v1/persistentvolumes", {"metadata": {"name": "v"}, "spec": spec})

    def move(obj):
        obj["spec"]["nodeAffinity"] = terms("b")

    assert {where for where, _ in refused(update, "v1/persistentvolumes", old, move)} == {"nodeAffinity"}
    with features.DEFAULT.overridden(MutablePVNodeAffinity=True):
        assert update("v1/persistentvolumes", old, move)[0]["spec"]["nodeAffinity"] == terms("b")


def test_a_claim_may_name_a_foreign_source_only_with_its_gate():
    elsewhere = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s", "namespace": "other"}
    assert "dataSourceRef" not in create("v1/persistentvolumeclaims", claim(dataSourceRef=elsewhere))[0]["spec"]
    with features.DEFAULT.overridden(CrossNamespaceVolumeDataSource=True):
        old = create("v1/persistentvolumeclaims", claim(dataSourceRef=elsewhere))[0]
    assert old["spec"]["dataSourceRef"] == elsewhere
    kept = update("v1/persistentvolumeclaims", old, lambda o: o["metadata"].update(labels={"a": "b"}))[0]
    assert kept["spec"]["dataSourceRef"] == elsewhere  # stored values stay, whatever the gate says now


def test_an_attributes_class_can_be_reset_until_it_was_applied():
    old = create("v1/persistentvolumeclaims", claim(volumeAttributesClassName="gold"))[0]
    old["spec"]["volumeName"] = "v"
    old["status"] = {"phase": "Bound"}

    def without(obj):
        del obj["spec"]["volumeAttributesClassName"]

    def empty(obj):
        obj["spec"]["volumeAttributesClassName"] = ""

    assert "volumeAttributesClassName" not in update("v1/persistentvolumeclaims", old, without)[0]["spec"]
    update("v1/persistentvolumeclaims", old, empty)
    old["status"]["currentVolumeAttributesClassName"] = "gold"
    for change, what in ((without, "nil"), (empty, "empty string")):
        assert refused(update, "v1/persistentvolumeclaims", old, change) == [
            ("spec.volumeAttributesClassName",
             f"Forbidden: update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"),
        ]  # fmt: skip
    del old["spec"]["volumeAttributesClassName"]
    update("v1/persistentvolumeclaims", old, lambda obj: obj["metadata"].update(labels={"a": "b"}))


def test_states_of_a_resize_are_known():
    old = create("v1/persistentvolumeclaims", claim())[0]

    def change(obj):
        obj["status"] = {"allocatedResourceStatuses": {"storage": "Soon", "cpu": "NodeResizePending"}}

    found = refused(update, "v1/persistentvolumeclaims", old, change, "status")
    assert {where for where, _ in found} == {"status.allocatedResourceStatuses"}


def test_source_ranges_of_an_unchanged_annotation_are_not_validated_again():
    key = "service.beta.kubernetes.io/load-balancer-source-ranges"
    old = create("v1/services", service(type="LoadBalancer", clusterIP="10.0.0.1", clusterIPs=["10.0.0.1"]))[0]
    old["metadata"]["annotations"] = {key: "10.0.0.0/8,none"}
    update("v1/services", old, lambda obj: obj["metadata"].update(labels={"a": "b"}))
    found = refused(update, "v1/services", old, lambda obj: obj["metadata"].update(annotations={key: "no,10.0.0.0/8"}))
    assert [where for where, _ in found] == [f"metadata.annotations[{key}]"]


def test_unchanged_subsets_are_not_validated_again():
    old = create("v1/endpoints", {"metadata": {"name": "e"}, "subsets": [{"addresses": [{"ip": "10.0.0.1"}]}]})[0]
    old["subsets"][0]["addresses"][0]["ip"] = "127.0.0.1"
    update("v1/endpoints", old, lambda obj: obj["metadata"].update(labels={"a": "b"}))
    found = refused(update, "v1/endpoints", old, lambda obj: obj["subsets"].append({"addresses": [{"ip": "10.0.0.2"}]}))
    assert [where for where, _ in found] == ["subsets[0].addresses[0].ip"]


def test_a_repeated_pod_cidr_fails_only_the_family_check():
    found = refused(create, "v1/nodes", node(podCIDRs=["10.0.0.0/24", "10.0.0.0/24"], podCIDR="10.0.0.0/24"))
    assert [where for where, _ in found] == ["spec.podCIDRs"]


@pytest.mark.parametrize("iqn", ["iqn.2001-04.com.example:storage\n", "iqn.\u0662001-04.com.example:a", "eui.0123456789abcdef\n"])
def test_iscsi_names_are_ascii_only(iqn):
    source = {"targetPortal": "10.0.0.1", "iqn": iqn, "lun": 0}
    found = refused(create, "v1/pods", {"metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "c", "image": "i"}], "volumes": [{"name": "v", "iscsi": source}],
    }})  # fmt: skip
    assert [where for where, _ in found] == ["spec.volumes[0].iscsi.iqn"]


def test_the_reason_of_an_event_is_validated_twice():
    old = {
        "metadata": {"name": "e", "namespace": "ns1"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "ns1"}, "action": "a",
        "eventTime": "2024-01-02T03:04:05.000000Z", "reportingComponent": "c", "reportingInstance": "i", "reason": "r", "type": "Normal",
    }  # fmt: skip
    errs = strict_update({**old, "reason": "other"}, old)
    assert [err.field for err in errs if not err.field.startswith("metadata")] == ["reason", "reason"]


def test_a_stored_pod_cidr_is_validated_with_each_update():
    old, _ = create("v1/nodes", node())
    old["spec"]["podCIDRs"] = ["10.0.0.0/x"]
    found = refused(update, "v1/nodes", old, lambda obj: obj["metadata"].update(labels={"a": "b"}))
    assert [at for at, _ in found] == ["spec.podCIDRs[0]"]


def test_iscsi_initiator_names_are_measured_in_bytes():
    source = {"targetPortal": "ö" * 32, "iqn": "iqn.2015-02.example.com:test", "lun": 1, "initiatorName": "iqn.2015-02.example.com:init"}
    found = refused(create, "v1/persistentvolumes", volume(iscsi=source))
    assert [at for at, _ in found] == ["spec.iscsi.targetportal"]


def test_the_generated_name_of_a_controller_is_validated():
    labels = {"a": "b"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    body = {"metadata": {"generateName": "AB-"}, "spec": {"selector": labels, "template": template}}
    found = refused(create, "v1/replicationcontrollers", body)
    assert [at for at, _ in found] == ["metadata.name"]

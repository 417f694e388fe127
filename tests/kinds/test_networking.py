"""NetworkPolicy, Ingress, IngressClass, IPAddress and ServiceCIDR: defaults, what is refused, what an update may keep."""

from __future__ import annotations

import json

import pytest

from kas.config import features
from kas.kinds.networking.ipaddress import ServiceCIDRStrategy
from kas.meta.errors import ApiError
from kas.registry.strategy import strategy_of
from tests.kinds.written import DUPLICATE, FORBIDDEN, INVALID, NOW, REQUIRED, UNSUPPORTED, Kind, changed

POLICIES = Kind("networking.k8s.io/v1/networkpolicies")
INGRESSES = Kind("networking.k8s.io/v1/ingresses")
CLASSES = Kind("networking.k8s.io/v1/ingressclasses")
ADDRESSES = Kind("networking.k8s.io/v1/ipaddresses")
CIDRS = Kind("networking.k8s.io/v1/servicecidrs")


def _block(cidr: str, *excepted: str) -> dict:
    return {"spec": {"ingress": [{"from": [{"ipBlock": {"cidr": cidr, "except": list(excepted)}}]}]}}


def test_policy_types_follow_from_the_rules():
    assert POLICIES.create({"spec": {}})["spec"]["policyTypes"] == ["Ingress"]
    assert POLICIES.create({"spec": {"egress": [{}]}})["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert POLICIES.create({"spec": {"egress": [{}], "policyTypes": ["Egress"]}})["spec"]["policyTypes"] == ["Egress"]


def test_a_policy_port_is_tcp_by_default():
    stored = POLICIES.create({"spec": {"ingress": [{"ports": [{"port": 80}]}]}})
    assert stored["spec"]["ingress"][0]["ports"] == [{"port": 80, "protocol": "TCP"}]


PEER, PORT = "spec.ingress[0].from[0]", "spec.ingress[0].ports[0]"


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        (_block("10.0.0.0/8", "10.1.0.0/16", "11.0.0.0/16"), (f"{PEER}.ipBlock.except[1]", INVALID)),
        (_block("10.0.0.0/8", "10.0.0.0/8"), (f"{PEER}.ipBlock.except[0]", INVALID)),
        (_block("10.0.0.0/8", "fd00::/64"), (f"{PEER}.ipBlock.except[0]", INVALID)),
        (_block("10.0.0"), (f"{PEER}.ipBlock.cidr", INVALID)),
        (_block(""), (f"{PEER}.ipBlock.cidr", REQUIRED)),
        ({"spec": {"ingress": [{"from": [{}]}]}}, (PEER, REQUIRED)),
        (changed(_block("10.0.0.0/8"), "spec.ingress.0.from.0.podSelector", {}), (PEER, FORBIDDEN)),
        ({"spec": {"ingress": [{"ports": [{"port": 90, "endPort": 80}]}]}}, (f"{PORT}.endPort", INVALID)),
        ({"spec": {"ingress": [{"ports": [{"port": "web", "endPort": 80}]}]}}, (f"{PORT}.endPort", INVALID)),
        ({"spec": {"ingress": [{"ports": [{"port": 0}]}]}}, (f"{PORT}.port", INVALID)),
        ({"spec": {"ingress": [{"ports": [{"protocol": "ICMP"}]}]}}, (f"{PORT}.protocol", UNSUPPORTED)),
        ({"spec": {"policyTypes": ["Sideways"]}}, ("spec.policyTypes[0]", UNSUPPORTED)),
    ],
)
def test_a_policy_is_refused(obj, want):
    assert want in POLICIES.refusals(obj)


def test_generation_counts_changes_of_the_policy():
    old = POLICIES.create({"spec": {}})
    assert old["metadata"]["generation"] == 1
    assert POLICIES.update(old, old)["metadata"]["generation"] == 1
    assert POLICIES.update(changed(old, "spec.policyTypes", ["Egress"]), old)["metadata"]["generation"] == 2


def _ingress(**path) -> dict:
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    return {"spec": {"rules": [{"host": "a.example", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend} | path]}}]}}


PATH = "spec.rules[0].http.paths[0]"


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        ({"spec": {}}, ("spec", INVALID)),
        (_ingress(pathType=None), (f"{PATH}.pathType", REQUIRED)),
        (_ingress(path="web"), (f"{PATH}.path", INVALID)),
        (_ingress(path="/a//b"), (f"{PATH}.path", INVALID)),
        (_ingress(path="/a%2Fb"), (f"{PATH}.path", INVALID)),
        (_ingress(backend={"service": {"name": "web", "port": {"number": 80, "name": "http"}}}), (f"{PATH}.backend", INVALID)),
        (_ingress(backend={}), (f"{PATH}.backend", REQUIRED)),
        (changed(_ingress(), "spec.rules.0.host", "1.2.3.4"), ("spec.rules[0].host", INVALID)),
        (changed(_ingress(), "spec.rules.0.host", "*.a.*"), ("spec.rules[0].host", INVALID)),
        (changed(_ingress(), "spec.ingressClassName", "A_b"), ("spec.ingressClassName", INVALID)),
        (changed(_ingress(), "spec.tls", [{"hosts": ["a_b"]}]), ("spec.tls[0].hosts[0]", INVALID)),
    ],
)
def test_an_ingress_is_refused(obj, want):
    assert want[0] in {path for path, _ in INGRESSES.refusals(obj)}


def test_a_class_annotation_agrees_with_the_field():
    annotated = {"metadata": {"name": "a", "annotations": {"kubernetes.io/ingress.class": "nginx"}}}
    assert INGRESSES.create(_ingress() | annotated)
    assert INGRESSES.create(changed(_ingress(), "spec.ingressClassName", "nginx") | annotated)
    assert INGRESSES.refusals(changed(_ingress(), "spec.ingressClassName", "other") | annotated)


def test_a_relaxed_service_name_needs_a_gate_or_an_existing_one():
    relaxed = _ingress(backend={"service": {"name": "1a", "port": {"number": 80}}})
    by_default = {"spec": {"defaultBackend": {"service": {"name": "1a", "port": {"number": 80}}}}}
    stored, plain = INGRESSES.create(relaxed), INGRESSES.create(_ingress())
    with features.DEFAULT.overridden(RelaxedServiceNameValidation=False):
        assert INGRESSES.refusals(relaxed) == [(f"{PATH}.backend.service.name", INVALID)]
        assert INGRESSES.refusals(by_default, plain) == [("spec.defaultBackend.service.name", INVALID)]
        assert INGRESSES.update(changed(stored, "spec.rules.0.host", "b.example"), stored)
        assert INGRESSES.update(relaxed, stored | by_default)


def test_an_ingress_status_write_keeps_the_spec():
    old = INGRESSES.create(_ingress())
    new = changed(changed(old, "spec.rules.0.host", "b.example"), "status.loadBalancer.ingress", [{"ip": "1.2.3.4"}])
    got = INGRESSES.update(new, old, "status")
    assert got["spec"]["rules"][0]["host"] == "a.example"
    assert got["status"]["loadBalancer"]["ingress"] == [{"ip": "1.2.3.4"}]
    bad = changed(old, "status.loadBalancer.ingress", [{"ip": "nowhere"}])
    assert ("status.loadBalancer.ingress[0].ip", INVALID) in INGRESSES.refusals(bad, old, "status")


def test_the_controller_of_a_class_is_immutable():
    old = CLASSES.create({"spec": {"controller": "example.com/a"}})
    assert CLASSES.refusals(changed(old, "spec.controller", "example.com/b"), old) == [("spec.controller", INVALID)]


@pytest.mark.parametrize(
    ("reference", "want"),
    [
        ({"kind": "Cm", "name": "x", "scope": "Namespace"}, "spec.parameters.namespace"),
        ({"kind": "Cm", "name": "x", "scope": "Cluster", "namespace": "n"}, "spec.parameters.namespace"),
        ({"kind": "Cm", "name": "x", "scope": "Galaxy"}, "spec.parameters.scope"),
        ({"name": "x", "scope": "Cluster"}, "spec.parameters.kind"),
    ],
)
def test_class_parameters_are_refused(reference, want):
    assert want in {path for path, _ in CLASSES.refusals({"spec": {"controller": "a.b/c", "parameters": reference}})}


def test_an_address_is_named_canonically():
    parent = {"spec": {"parentRef": {"resource": "services", "name": "a", "namespace": "b"}}}
    assert ADDRESSES.create(parent | {"metadata": {"name": "fd00::1"}})
    for name in ("fd00:0::1", "1.2.3", "FD00::1", "010.0.0.1"):
        assert ("metadata.name", INVALID) in ADDRESSES.refusals(parent | {"metadata": {"name": name}})
    assert ("spec.parentRef", REQUIRED) in ADDRESSES.refusals({"metadata": {"name": "10.0.0.1"}, "spec": {}})


def test_service_ranges_are_one_per_family_and_only_grow():
    old = CIDRS.create({"spec": {"cidrs": ["10.0.0.0/16"]}})
    assert CIDRS.update(changed(old, "spec.cidrs", ["10.0.0.0/16", "fd00::/112"]), old)["spec"]["cidrs"][1] == "fd00::/112"
    assert CIDRS.refusals(changed(old, "spec.cidrs", ["10.1.0.0/16"]), old)
    assert CIDRS.refusals({"spec": {"cidrs": ["10.0.0.0/16", "10.1.0.0/16"]}})
    assert CIDRS.refusals({"spec": {"cidrs": ["10.0.0.1/16"]}})
    assert CIDRS.refusals({"spec": {}})


def test_the_status_of_an_ip_address_block_is_written_through_its_subresource():
    spec = {"cidrs": ["10.0.0.0/16"]}
    ready = {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": NOW, "reason": "r", "message": "m"}]}
    old = CIDRS.create({"spec": spec, "status": ready})
    assert old["status"] == {}
    assert CIDRS.update(old | {"status": ready}, old)["status"] == {}
    assert CIDRS.update(old | {"status": ready}, old, "status")["status"] == ready
    with features.DEFAULT.overridden(ServiceCIDRStatusFieldWiping=False):
        assert ServiceCIDRStrategy(CIDRS.resource).reset == ()
    assert strategy_of(CIDRS.resource).reset == ("status",)


def test_duplicate_ports_of_a_slice_are_named():
    slices = Kind("discovery.k8s.io/v1/endpointslices")
    good = {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"name": "a", "port": 1}]}
    assert slices.create(good)["ports"] == [{"name": "a", "port": 1, "protocol": "TCP"}]
    assert ("ports[1].name", DUPLICATE) in slices.refusals(changed(good, "ports", [{"name": "a"}, {"name": "a"}]))
    assert ("endpoints[0].addresses", REQUIRED) in slices.refusals(changed(good, "endpoints", [{"addresses": []}]))
    old = slices.create(good)
    assert ("addressType", INVALID) in slices.refusals(changed(old, "addressType", "IPv6"), old)


def test_a_condition_needs_a_time_and_a_reason():
    budgets = Kind("policy/v1/poddisruptionbudgets")
    old = budgets.create({"spec": {"selector": {}}})
    new = old | {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    must = "Required value: must be set"
    assert budgets.messages(new, old, "status") == [
        ("status.conditions[0].lastTransitionTime", must), ("status.conditions[0].reason", must)
    ]  # fmt: skip


def test_end_port_must_not_be_below_port():
    with pytest.raises(ApiError) as caught:
        POLICIES.create({"spec": {"ingress": [{"ports": [{"port": 90, "endPort": 80}]}]}})
    assert f"{PORT}.endPort: Invalid value: 90: must be greater than or equal to `port`" in str(caught.value)


def test_a_stored_peer_without_a_block_tolerates_no_empty_exception():
    old = POLICIES.create({"spec": {"ingress": [{"from": [{"podSelector": {}}, {"ipBlock": {"cidr": "10.0.0.0/8"}}]}]}})
    new = changed(old, "spec.ingress.0.from.1.ipBlock.except", [""])
    assert POLICIES.refusals(new, old) == [("spec.ingress[0].from[1].ipBlock.except[0]", INVALID)]


def test_exceptions_of_a_stored_mapped_block_are_within_it():
    old = POLICIES.create(_block("10.0.0.0/8"))
    for excepted, inside in (("::ffff:10.1.0.0/112", True), ("::ffff:11.1.0.0/112", False)):
        old = old | _block("::ffff:10.0.0.0/104", excepted)
        new = changed(old, "metadata.labels", {"x": "y"})
        if inside:
            assert POLICIES.update(new, old)["metadata"]["labels"] == {"x": "y"}
        else:
            assert POLICIES.refusals(new, old) == [(f"{PEER}.ipBlock.except[0]", INVALID)]


def _slice(kind: str, address: str, **more) -> dict:
    return {"addressType": kind, "endpoints": [{"addresses": [address], **more}], "ports": []}


def test_deprecated_slices_warn_except_for_their_controllers():
    slices = Kind("discovery.k8s.io/v1/endpointslices")
    slices.create(_slice("FQDN", "a.example.com"))
    assert slices.warnings == ["spec.addressType: FQDN endpoints are deprecated"]
    mapped = _slice("IPv6", "2001:db8:0::1")
    slices.create(mapped)
    assert [w.partition(":")[0] for w in slices.warnings] == ["endpoints[0].addresses[0]"]
    name = "endpointslice-controller.k8s.io"
    slices.create(mapped | {"metadata": {"name": "a", "labels": {"endpointslice.kubernetes.io/managed-by": name}}})
    assert slices.warnings == []


def test_errors_of_a_slices_ports_come_before_those_of_its_endpoints():
    slices = Kind("discovery.k8s.io/v1/endpointslices")
    got = slices.refusals(_slice("IPv4", "10.0.0") | {"ports": [{"name": "UP"}]})
    assert got == [("ports[0].name", INVALID), ("endpoints[0].addresses[0]", INVALID)]


def test_errors_of_a_backend_resource():
    with pytest.raises(ApiError) as caught:
        INGRESSES.create({"spec": {"defaultBackend": {"resource": {"kind": "", "name": ""}}}})
    at = "spec.defaultBackend.resource"
    assert f"{at}.kind: Required value: kind is required, {at}.name: Required value: name is required" in str(caught.value)


def test_a_generate_name_of_an_address_is_used_unchanged():
    ref = {"parentRef": {"resource": "services", "namespace": "n", "name": "s"}}
    stored = ADDRESSES.create({"metadata": {"generateName": "10.0.0.1"}, "spec": ref})
    assert stored["metadata"]["name"] == "10.0.0.1"
    at = ("metadata.generateName", INVALID), ("metadata.name", INVALID)
    assert ADDRESSES.refusals({"metadata": {"generateName": "10.0.0."}, "spec": ref}) == list(at)


@pytest.mark.parametrize(
    ("cidrs", "whole", "why"),
    [
        (["10.0.0.0/24", "10.0.1.0/24", "fd00::/64"], True, "may only hold up to 2 values"),
        (["10.0.0.0/24", "10.0.1.0/24"], False, "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"),
    ],
)
def test_of_too_many_blocks_of_services_the_spec_is_shown_and_of_two_of_a_family_the_list(cidrs, whole, why):
    shown = json.dumps({"CIDRs": cidrs} if whole else cidrs, separators=(",", ":"))
    assert CIDRS.messages({"spec": {"cidrs": cidrs}}) == [("spec.cidrs", f"Invalid value: {shown}: {why}")]

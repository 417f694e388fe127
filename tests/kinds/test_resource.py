"""Dynamic resource allocation: requests, allocations, and what drivers publish."""

from __future__ import annotations

import pytest

from kas.config import features
from kas.kinds.resource.devices import share_id
from tests.kinds.helpers import NOW, create, refused, update
from tests.kinds.written import INVALID, REQUIRED, Kind, changed

CLAIMS = Kind("resource.k8s.io/v1/resourceclaims")
TEMPLATES = Kind("resource.k8s.io/v1/resourceclaimtemplates")
SLICES = Kind("resource.k8s.io/v1/resourceslices")
CLASSES = Kind("resource.k8s.io/v1/deviceclasses")

REQUESTS = "spec.devices.requests"


def _claim(**over) -> dict:
    return {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"} | over}]}}}


def test_an_immutable_claim_is_shown_with_a_diff():
    shown = (
        '{"Devices":{"Requests":[{"Name":"b","Exactly":{"DeviceClassName":"gpu.example.com","Selectors":null,'
        '"AllocationMode":"ExactCount","Count":1,"AdminAccess":null,"Tolerations":null,"Capacity":null},"FirstAvailable":null}],'
        '"Constraints":null,"Config":null}}'
    )
    old = CLAIMS.create(_claim())
    assert CLAIMS.messages(changed(old, f"{REQUESTS}.0.name", "b"), old) == [("spec", f"Invalid value: {shown}: field is immutable")]
    template = TEMPLATES.create({"spec": _claim() | {"metadata": {"labels": {"a": "b"}}}})
    (_, message), *_ = TEMPLATES.messages(changed(template, "spec.spec.devices.requests.0.name", "b"), template)
    assert message == f'Invalid value: {{"labels":{{"a":"b"}},"Spec":{shown}}}: field is immutable'


def test_one_device_is_requested_by_default():
    exactly = CLAIMS.create(_claim())["spec"]["devices"]["requests"][0]["exactly"]
    assert (exactly["allocationMode"], exactly["count"]) == ("ExactCount", 1)
    assert "count" not in CLAIMS.create(_claim(allocationMode="All"))["spec"]["devices"]["requests"][0]["exactly"]


@pytest.mark.parametrize(
    ("obj", "path"),
    [
        (_claim(deviceClassName=""), f"{REQUESTS}[0].exactly.deviceClassName"),
        (_claim(allocationMode="Some"), f"{REQUESTS}[0].exactly.allocationMode"),
        (_claim(allocationMode="All", count=2), f"{REQUESTS}[0].exactly.count"),
        (_claim(allocationMode="ExactCount", count=-1), f"{REQUESTS}[0].exactly.count"),
        (_claim(selectors=[{}]), f"{REQUESTS}[0].exactly.selectors[0].cel"),
        (changed(_claim(), "spec.devices.requests.0.name", "A_b"), f"{REQUESTS}[0].name"),
        ({"spec": {"devices": {"requests": [{"name": "gpu"}]}}}, f"{REQUESTS}[0]"),
        (changed(_claim(), "spec.devices.requests", [_claim()["spec"]["devices"]["requests"][0]] * 2), f"{REQUESTS}[1]"),
        (changed(_claim(), "spec.devices.constraints", [{"requests": ["cpu"]}]), "spec.devices.constraints[0].requests[0]"),
    ],
)
def test_a_claim_is_refused(obj, path):
    assert path in {found.removesuffix(".name") if path.endswith("]") else found for found, _ in CLAIMS.refusals(obj)}


def test_the_spec_of_a_claim_is_immutable():
    old = CLAIMS.create(_claim())
    assert ("spec", INVALID) in CLAIMS.refusals(changed(old, "spec.devices.requests.0.exactly.count", 2), old)
    old = TEMPLATES.create({"spec": _claim()})
    assert ("spec", INVALID) in TEMPLATES.refusals(changed(old, "spec.metadata.labels", {"a": "b"}), old)


DEVICE = {"request": "gpu", "driver": "gpu.example.com", "pool": "p", "device": "d1"}
CONSUMER = {"resource": "pods", "name": "pod", "uid": "u"}


def _allocated(**result) -> dict:
    return changed(CLAIMS.create(_claim()), "status", {"allocation": {"devices": {"results": [DEVICE | result]}}})


def test_an_allocation_names_requests_of_the_claim():
    old = CLAIMS.create(_claim())
    assert CLAIMS.update(changed(old, "status", _allocated()["status"]), old, "status")["status"]["allocation"]
    refused = CLAIMS.refusals(changed(old, "status", _allocated(request="tpu")["status"]), old, "status")
    assert ("status.allocation.devices.results[0].request", INVALID) in refused


def test_only_an_allocated_claim_is_reserved_and_a_reserved_one_stays_allocated():
    old = CLAIMS.create(_claim())
    assert CLAIMS.refusals(changed(old, "status", {"reservedFor": [CONSUMER]}), old, "status")
    reserved = changed(_allocated(), "status.reservedFor", [CONSUMER])
    assert CLAIMS.refusals(changed(reserved, "status", {"reservedFor": [CONSUMER]}), reserved, "status")
    assert CLAIMS.update(changed(reserved, "status", {}), reserved, "status").get("status", {}) == {}


def test_device_data_are_removed_with_the_allocation():
    old = _allocated()
    data = {"driver": "gpu.example.com", "pool": "p", "device": "d1", "data": {"a": 1}}
    with_data = CLAIMS.update(changed(old, "status.devices", [data]), old, "status")
    assert with_data["status"]["devices"][0]["data"] == {"a": 1}
    assert "devices" not in CLAIMS.update(changed(with_data, "status", {"devices": [data]}), with_data, "status").get("status", {})


def test_a_class_is_checked_by_its_name_not_by_the_prefix_it_was_generated_from():
    spec = {"selectors": [{"cel": {"expression": "true"}}]}
    refusals = refused(create, "resource.k8s.io/v1/deviceclasses", {"metadata": {"generateName": "AB-"}, "spec": spec})
    assert [where for where, _ in refusals] == ["metadata.name"]
    stored, _ = create("resource.k8s.io/v1/deviceclasses", {"metadata": {"name": "a", "generateName": "AB-"}, "spec": spec})
    assert update("resource.k8s.io/v1/deviceclasses", stored, lambda obj: obj["metadata"].update(labels={"a": "b"}))


def _slice(**over) -> dict:
    spec = {"driver": "gpu.example.com", "nodeName": "n1", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}
    return {"spec": spec | {"devices": [{"name": "d1", "attributes": {"model": {"string": "x"}}}]} | over}


def test_a_disabled_field_that_an_update_of_a_slice_sets_is_dropped_and_still_counts_as_a_change():
    old = SLICES.create(_slice(devices=[{"name": "d"}]))
    mapped = {"name": "d", "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "1"}}}
    got = SLICES.update(changed(old, "spec.devices", [mapped]), old)
    assert got["spec"]["devices"] == [{"name": "d"}] and got["metadata"]["generation"] == 2
    assert SLICES.create(_slice(devices=[mapped]))["spec"]["devices"] == [{"name": "d"}]


def test_a_slice_belongs_to_one_driver_pool_and_node():
    old = SLICES.create(_slice())
    assert SLICES.update(changed(old, "spec.devices", []), old)["spec"]["nodeName"] == "n1"
    for path, value in (("spec.driver", "b.example.com"), ("spec.nodeName", "n2"), ("spec.pool.name", "q")):
        assert any(found == path for found, _ in SLICES.refusals(changed(old, path, value), old))


@pytest.mark.parametrize(
    ("obj", "path"),
    [
        (_slice(driver=""), "spec.driver"),
        (_slice(allNodes=True), "spec"),
        (_slice(nodeName=None), "spec"),
        (_slice(pool={"name": "p", "generation": 1, "resourceSliceCount": 0}), "spec.pool.resourceSliceCount"),
        (_slice(devices=[{"name": "d1"}, {"name": "d1"}]), "spec.devices[1]"),
        (_slice(devices=[{"name": "d1", "attributes": {"model": {}}}]), "spec.devices[0].attributes[model]"),
        (_slice(devices=[{"name": "d1", "attributes": {"m": {"string": "x", "int": 1}}}]), "spec.devices[0].attributes[m]"),
        (_slice(devices=[{"name": "d1", "attributes": {"m": {"version": "one"}}}]), "spec.devices[0].attributes[m].version"),
    ],
)
def test_a_slice_is_refused(obj, path):
    assert any(found.startswith(path) for found, _ in SLICES.refusals(obj))


def test_a_driver_name_in_capitals_warns():
    stored = SLICES.create(_slice(driver="GPU.example.com"))
    text = 'spec.driver: driver names should be lowercase; "GPU.example.com" contains uppercase characters'
    assert SLICES.warnings == [text]
    SLICES.update(changed(stored, "spec.devices", []), stored)
    assert SLICES.warnings == [text]


def _shared(**policy) -> dict:
    device = {"name": "d1", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "10Gi", "requestPolicy": policy}}}
    return _slice(devices=[device])


POLICY = "spec.devices[0].capacity[memory].requestPolicy"


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        (
            {"default": "2Gi", "validRange": {"min": "20Gi", "max": "1Gi"}},
            [
                ("validRange.min", 'Invalid value: "20Gi": min is larger than capacity value: 10Gi'),
                ("validRange.min", 'Invalid value: "2Gi": default is less than min: 20Gi'),
                ("validRange.max", 'Invalid value: "20Gi": min is larger than max: 1Gi'),
                ("validRange.max", 'Invalid value: "2Gi": default is more than max: 1Gi'),
            ],
        ),
        (
            {"default": "1Gi", "validRange": {"min": "1Gi", "step": "10Gi"}},
            [("validRange.step", 'Invalid value: "10Gi": one step 11Gi is larger than capacity value: 10Gi')],
        ),
        ({"default": "1Ki", "validValues": ["1Ki", "1024"]}, [("validValues[1]", 'Duplicate value: "1024"')]),
    ],
)
def test_a_request_policy_is_refused(policy, want):
    assert SLICES.messages(_shared(**policy)) == [(f"{POLICY}.{path}", text) for path, text in want]


def test_steps_of_a_range_are_whole_units():
    span = {"min": "200m", "max": "1", "step": "100m"}
    assert SLICES.create(_shared(default="250m", validRange=span))


def test_a_class_selects_by_expressions_of_bounded_length():
    assert CLASSES.create({"spec": {"selectors": [{"cel": {"expression": "true"}}]}})["metadata"]["generation"] == 1
    assert ("spec.selectors[0].cel", REQUIRED) in CLASSES.refusals({"spec": {"selectors": [{}]}})
    long = {"cel": {"expression": "true || " * 2000 + "true"}}
    assert CLASSES.refusals({"spec": {"selectors": [long]}})[0][0] == "spec.selectors[0].cel.expression"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("3c9a1a0e-7a4b-4f0e-9a54-3a6f2d1f0b11", None),
        ("3C9A1A0E-7A4B-4F0E-9A54-3A6F2D1F0B11", "uid must be in RFC 4122 normalized form"),
        ("3c9a1a0e7a4b4f0e9a543a6f2d1f0b11", "uid must be in RFC 4122 normalized form"),
        ("{3c9a1a0e-7a4b-4f0e-9a54-3a6f2d1f0b11}", "uid must be in RFC 4122 normalized form"),
        ("urn:uuid:3c9a1a0e-7a4b-4f0e-9a54-3a6f2d1f0b11", "uid must be in RFC 4122 normalized form"),
        ("urn:oid::3c9a1a0e-7a4b-4f0e-9a54-3a6f2d1f0b11", 'error validating uid: invalid urn prefix: "urn:oid::"'),
        ("(3c9a1a0e-7a4b-4f0e-9a54-3a6f2d1f0b11)", "error validating uid: invalid bracketed UUID format"),
        ("3c9a1a0e-7a4b-4f0e-9a54-3a6f2d1f0bxx", "error validating uid: invalid UUID format"),
        ("short", "error validating uid: invalid UUID length: 5"),
    ],
)
def test_share_ids_are_uuids_in_their_normal_form(text, problem):
    found = share_id(text, "shareID")
    assert [(e.field, e.value) for e in found] == ([("shareID", text)] if problem else [])
    assert not problem or found[0].detail.startswith(problem)


@pytest.mark.parametrize(("name", "wrong"), [("a/b", 0), ("/b", 1), ("a/", 1), ("a b", 1), ("a/b/c", 0), ("//", 0)])
def test_names_of_attributes_are_validated_as_upstream(name, wrong):
    obj = _slice(devices=[{"name": "d1", "attributes": {name: {"bool": True}}}])
    assert len(SLICES.refusals(obj) if wrong else SLICES.create(obj) and []) == wrong


@pytest.mark.parametrize(
    ("device", "path"),
    [
        ({"attributes": {"a b": {"bool": True}}}, "attributes"),
        ({"attributes": {"a": {}}}, "attributes[a]"),
        ({"capacity": {"/c": {"value": "1"}}}, "capacity"),
        ({"consumesCounters": [{"counterSet": "s", "counters": {"A": {"value": "1"}}}]}, "consumesCounters[0].counters"),
    ],
)
def test_an_invalid_key_is_reported_at_the_map_and_an_invalid_value_at_its_entry(device, path):
    found = SLICES.refusals(_slice(devices=[{"name": "d1"} | device]))
    assert [at for at, _ in found] == [f"spec.devices[0].{path}"]


@pytest.mark.parametrize(
    ("attributes", "found"),
    [
        ({"a": {"strings": ["x", "y" * 65]}}, [("attributes[a].strings[1]", "Too long: may not be more than 64 bytes")]),
        (
            {"a": {"versions": ["1.2.3", "one"]}},
            [("attributes[a].versions[1]", 'Invalid value: "one": must be a string compatible with semver.org spec 2.0.0')],
        ),
        ({"a": {"bools": []}}, [("attributes[a].bools", "Invalid value: []: must not be empty if specified")]),
        ({"a": {"ints": list(range(47))}, "b": {"int": 1}}, []),
        (
            {"a": {"ints": list(range(48))}, "b": {"int": 1}},
            [("", "Invalid value: 49: the total number of attribute values must not exceed 48")],
        ),
    ],
)
def test_lists_of_attributes_are_validated_if_present(attributes, found):
    obj = _slice(devices=[{"name": "d1", "attributes": attributes}])
    with features.DEFAULT.overridden(DRAListTypeAttributes=True):
        got = SLICES.messages(obj) if found else SLICES.create(obj) and []
    assert got == [(f"spec.devices[0].{at}".rstrip("."), why) for at, why in found]


def test_a_status_of_an_unallocated_device_is_refused_by_name():
    old = _allocated()
    data = {"driver": "gpu.example.com", "pool": "p", "device": "d2"}
    shown = '{"Driver":"gpu.example.com","Pool":"p","Device":"d2","ShareID":""}'
    assert CLAIMS.messages(changed(old, "status.devices", [data, data]), old, "status") == [
        ("status.devices[0]", f"Invalid value: {shown}: must be an allocated device in the claim"),
        ("status.devices[1]", f"Invalid value: {shown}: must be an allocated device in the claim"),
        ("status.devices[1]", f"Duplicate value: {shown}"),
    ]


def test_selectors_of_a_class_are_compiled_when_they_change():
    old = {"spec": {"selectors": [{"cel": {"expression": "no such thing"}}, {"cel": {"expression": "true"}}]}}
    assert CLASSES.update(changed(old, "spec.extendedResourceName", "example.com/gpu"), old)
    reordered = {"spec": {"selectors": old["spec"]["selectors"][::-1]}}
    assert CLASSES.refusals(reordered, old) == [("spec.selectors[1].cel.expression", INVALID)]


QUESTIONS = Kind("resource.k8s.io/v1alpha3/resourcepoolstatusrequests")
STATE = {"driver": "a.b", "poolName": "p", "generation": 1}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({}, ("spec.driver", "Required value")),
        ({"driver": "a_B"}, ("spec.driver", "an RFC 1123 subdomain must consist of alphanumeric characters")),
        ({"driver": "a.b", "poolName": "n//p"}, ("spec.poolName", 'Invalid value: "n//p": segment 1: must not be empty')),
        ({"driver": "a.b", "limit": 1001}, ("spec.limit", "Invalid value: 1001: must be less than or equal to 1000")),
        ({"driver": "a.b", "limit": 0}, ("spec.limit", "Invalid value: 0: must be greater than or equal to 1")),
    ],
)
def test_an_invalid_pool_status_request_is_refused(spec, want):
    ((path, message),) = QUESTIONS.messages({"spec": spec})
    assert path == want[0] and want[1] in message


@pytest.mark.parametrize(
    ("status", "want"),
    [
        ({}, ("status.poolCount", REQUIRED)),
        ({"poolCount": -1}, ("status.poolCount", INVALID)),
        ({"poolCount": 1, "pools": [STATE | {"generation": 0}]}, ("status.pools[0].generation", REQUIRED)),
        ({"poolCount": 1, "pools": [STATE | {"poolName": ""}]}, ("status.pools[0].poolName", REQUIRED)),
        ({"poolCount": 1, "pools": [STATE | {"resourceSliceCount": 0}]}, ("status.pools[0].resourceSliceCount", INVALID)),
        ({"poolCount": 1, "pools": [STATE | {"allocatedDevices": -1}]}, ("status.pools[0].allocatedDevices", INVALID)),
        ({"poolCount": 1, "pools": [STATE | {"nodeName": ""}]}, ("status.pools[0].nodeName", INVALID)),
        ({"poolCount": 1, "pools": [STATE | {"validationError": "é" * 129}]}, ("status.pools[0].validationError", "FieldValueTooLong")),
        ({"poolCount": 1, "pools": [STATE] * 1001}, ("status.pools", "FieldValueTooMany")),
    ],
)
def test_an_invalid_pool_status_is_refused(status, want):
    old = QUESTIONS.create({"spec": {"driver": "A.b"}})
    assert old["spec"]["limit"] == 100
    assert QUESTIONS.refusals(old | {"status": status}, old, "status") == [want]


def test_a_pool_status_request_is_answered_once():
    old = QUESTIONS.create({"spec": {"driver": "a.b"}})
    assert "status" not in QUESTIONS.update(old, old, "status")
    answered = QUESTIONS.update(old | {"status": {"poolCount": 0}}, old, "status")
    assert QUESTIONS.refusals(changed(answered, "status.poolCount", 1), answered, "status") == [("status", INVALID)]
    shown = '{"driver":"a.b","limit":7}'
    assert QUESTIONS.messages(changed(old, "spec.limit", 7), old) == [("spec", f"Invalid value: {shown}: field is immutable")]


def test_a_taint_with_a_changed_effect_gets_the_current_time():
    rule = {"metadata": {"name": "r"}, "spec": {"taint": {"key": "example.com/a", "effect": "None", "timeAdded": "2020-01-01T00:00:00Z"}}}
    old, _ = create("resource.k8s.io/v1beta2/devicetaintrules", rule)

    def updated(**taint) -> dict:
        new, _ = update("resource.k8s.io/v1beta2/devicetaintrules", old, lambda o: o["spec"]["taint"].update(taint))
        return new

    assert updated(effect="NoExecute")["spec"]["taint"]["timeAdded"] == NOW
    assert updated(effect="NoExecute", timeAdded="2021-01-01T00:00:00Z")["spec"]["taint"]["timeAdded"] == "2021-01-01T00:00:00Z"
    assert updated(value="x")["spec"]["taint"]["timeAdded"] == "2020-01-01T00:00:00Z"
    assert updated(value="x")["metadata"]["generation"] == 2 and updated()["metadata"]["generation"] == 1

"""Field labels: conversion of selectors and the fields of custom resources."""

import pytest

from kas.meta.selectors import parse_field_selector
from kas.types.fieldlabels import FieldLabelError, convert_field_label, convert_field_selector, custom_selectable_fields, selectable_fields
from kas.types.scheme import BUILTIN


def test_an_old_name_is_evaluated_as_the_new_one():
    pods = BUILTIN.resource("", "v1", "pods")
    assert convert_field_label(pods, "spec.host", "n") == ("spec.nodeName", "n")
    assert str(convert_field_selector(pods, parse_field_selector("spec.host!=n"))) == "spec.nodeName!=n"


@pytest.mark.parametrize(
    ("group", "resource", "message"),
    [
        ("", "configmaps", '"x" is not a known field selector: only "metadata.name", "metadata.namespace"'),
        ("", "pods", "field label not supported: x"),
        ("batch", "jobs", 'field label "x" not supported for Job'),
        ("resource.k8s.io", "resourceslices", "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: x"),
    ],
)
def test_each_refusal_has_its_own_message(group, resource, message):
    with pytest.raises(FieldLabelError) as e:
        convert_field_label(BUILTIN.resource(group, "v1", resource), "x", "")
    assert str(e.value) == message


def test_pod_fields():
    pod = {
        "metadata": {"name": "p", "namespace": "ns"},
        "spec": {"nodeName": "n", "hostNetwork": True},
        "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]},
    }
    got = selectable_fields(BUILTIN.resource("", "v1", "pods"), pod)
    assert got["spec.nodeName"] == "n" and got["spec.hostNetwork"] == "true" and got["status.podIP"] == "10.0.0.1"
    assert got["spec.schedulerName"] == "" and got["metadata.namespace"] == "ns"


def test_an_event_is_the_same_in_both_groups():
    about = {"kind": "Pod", "name": "p", "namespace": "ns"}
    core = {"metadata": {"name": "e"}, "involvedObject": about, "source": {"component": "kubelet"}, "type": "Normal"}
    new = {"metadata": {"name": "e"}, "regarding": about, "deprecatedSource": {"component": "kubelet"}, "type": "Normal"}
    first = selectable_fields(BUILTIN.resource("", "v1", "events"), core)
    assert first == selectable_fields(BUILTIN.resource("events.k8s.io", "v1", "events"), new)
    assert first["source"] == "kubelet" and first["involvedObject.name"] == "p"


# status.podIPs is accepted and has no value upstream either.
WITHOUT_VALUE = {("", "pods", "status.podIPs")}


@pytest.mark.parametrize("resource", [r for r in BUILTIN.resources if r.field_selectors], ids=lambda r: f"{r.api_version}/{r.resource}")
def test_accepted_labels_have_a_value(resource):
    got = selectable_fields(resource, {"metadata": {}})
    for entry in resource.field_selectors:
        name = entry.rpartition("=>")[2]
        if name == "metadata.namespace" and not resource.namespaced:
            continue
        assert name in got or (resource.group, resource.resource, name) in WITHOUT_VALUE


def test_custom_resources():
    obj = {"metadata": {"name": "w"}, "spec": {"color": "red", "size": 3, "on": False}}
    got = custom_selectable_fields(obj, False, ["spec.color", "spec.size", "spec.on", "spec.color.deep"])
    assert got == {"metadata.name": "w", "spec.color": "red", "spec.size": "3", "spec.on": "false", "spec.color.deep": ""}

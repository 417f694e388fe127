"""BUILTIN: the kinds and resources that exist, and what their descriptors contain."""

from __future__ import annotations

import pytest

from kas.types.scheme import BUILTIN


def test_resources_carry_every_attribute_of_their_record():
    pods = BUILTIN.resource("", "v1", "pods")
    assert (pods.kind, pods.list_kind, pods.namespaced, pods.api_version) == ("Pod", "PodList", True, "v1")
    assert pods.etcd_prefix == "/registry/pods"
    assert pods.storage_gvk == ("", "v1", "Pod")
    assert "spec.nodeName" in pods.field_selectors
    assert pods.list_type is BUILTIN.kind("", "v1", "PodList").type
    assert pods.subresources["status"].type is pods.type
    assert pods.subresources["eviction"].api_version == "policy/v1"
    assert pods.subresources["log"].query_options.kind_name == "PodLogOptions"
    assert BUILTIN.resource("", "v1", "nothing") is None


def test_every_resource_and_subresource_has_a_type():
    for resource in BUILTIN.resources:
        assert BUILTIN.kind(resource.group, resource.version, resource.kind).type is resource.type
        assert resource.list_kind is None or resource.list_type is not None, resource
        for sub in resource.subresources.values():
            assert sub.type is not None, (resource, sub)


@pytest.mark.parametrize("group_version", [("", "v1"), ("apps", "v1"), ("rbac.authorization.k8s.io", "v1"), ("resource.k8s.io", "v1beta1")])
@pytest.mark.parametrize("kind", ["DeleteOptions", "WatchEvent", "ListOptions", "CreateOptions", "PatchOptions"])
def test_meta_kinds_are_known_in_every_group_version(group_version, kind):
    assert BUILTIN.kind(*group_version, kind) is not None


@pytest.mark.parametrize(
    ("group", "version", "kind"),
    [
        ("", "v1", "Status"),
        ("meta.k8s.io", "v1", "Table"),
        ("meta.k8s.io", "v1", "PartialObjectMetadataList"),
        ("autoscaling", "v1", "Scale"),
        ("policy", "v1", "Eviction"),
        ("authentication.k8s.io", "v1", "TokenRequest"),
        ("admission.k8s.io", "v1", "AdmissionReview"),
        ("apiextensions.k8s.io", "v1", "ConversionReview"),
        ("extensions", "v1beta1", "Deployment"),
    ],
)
def test_kinds_without_a_resource_are_known(group, version, kind):
    assert BUILTIN.kind(group, version, kind).kind == kind


def test_every_type_compiles():
    for type in BUILTIN.types.values():
        assert {f.name for f in type.json_fields} == set(type.by_name)


def test_descriptors_tell_patch_and_list_semantics():
    containers = BUILTIN.type("core.v1.PodSpec").by_name["containers"]
    assert (containers.card, containers.list_type, containers.list_map_keys) == ("list", "map", ("name",))
    assert (containers.patch_strategy, containers.patch_merge_key) == ("merge", "name")
    assert containers.message.name == "io.k8s.api.core.v1.Container"
    replicas = BUILTIN.type("apps.v1.DeploymentSpec").by_name["replicas"]
    assert (replicas.ptr, replicas.default, replicas.type) == (True, 1, "int32")


def test_groups_carry_versions_and_priorities():
    autoscaling = BUILTIN.groups["autoscaling"]
    assert autoscaling.versions == ("v2", "v1")
    assert autoscaling.version_priority == {"v2": 30, "v1": 15}

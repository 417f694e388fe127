"""Discovery documents."""

from __future__ import annotations

import asyncio
import threading

import orjson
import pytest
import yaml

from kas.aggregator.peers import PeerMetrics
from kas.apiextensions import definition
from kas.endpoints import discovery, respond
from kas.endpoints import documents as documents_module
from kas.endpoints.discovery import Version, api_resource
from kas.endpoints.documents import Documents
from kas.observe.metrics import Registry as Metrics
from kas.request.http import Response
from kas.types.scheme import BUILTIN
from tests.filters.requests import request

PODS = (
    api_resource(
        "pods", "Pod", namespaced=True, verbs=["get"], singular="pod", short_names=["po"], categories=["all"], storage_version_hash="h"
    ),
    api_resource("pods/eviction", "Eviction", namespaced=True, verbs=["create"], group_version=("policy", "v1")),
)
CORE = Version("", "v1", PODS, 18000, 1)
APPS = Version("apps", "v1", (), 17800, 15)
CUSTOM = [Version("example.com", v) for v in ("v1beta1", "v2alpha1", "v1", "foo", "v10", "v2")]


def test_kube_like_versions_come_before_others_stable_first():
    assert [v.version for v in discovery.by_group(CUSTOM)["example.com"]] == ["v10", "v2", "v1", "v1beta1", "v2alpha1", "foo"]


def test_groups_follow_their_priority_then_their_name():
    versions = [Version("b.io", "v1"), *CUSTOM, Version("a.io", "v1"), APPS, CORE, Version("c.io", "v1", group_priority=5)]
    assert list(discovery.by_group(versions)) == ["", "apps", "a.io", "b.io", "example.com", "c.io"]


def test_the_core_group_has_a_document_of_its_own():
    assert discovery.api_versions([CORE, APPS], "10.0.0.1:6443") == {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "10.0.0.1:6443"}],
    }
    assert [g["name"] for g in discovery.group_list([CORE, APPS])["groups"]] == ["apps"]
    assert discovery.group(discovery.by_group([CORE]), "") is None


def test_a_group_prefers_its_first_version():
    found = discovery.group(discovery.by_group(CUSTOM), "example.com")
    assert found["preferredVersion"] == {"groupVersion": "example.com/v10", "version": "v10"}
    assert discovery.group(discovery.by_group(CUSTOM), "example.org") is None


def test_a_resource_list_shows_subresources_and_foreign_kinds():
    found = discovery.resource_list(CORE)
    assert list(found) == ["kind", "groupVersion", "resources"]
    assert found["resources"][1] == {
        "name": "pods/eviction", "singularName": "", "namespaced": True, "group": "policy", "version": "v1", "kind": "Eviction",
        "verbs": ["create"],
    }  # fmt: skip
    assert discovery.resource_list(APPS)["apiVersion"] == "v1"


def test_aggregated_discovery_nests_subresources_and_leaves_out_empty_parts():
    assert discovery.aggregated([CORE, APPS], core=True) == {
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
        "items": [{"metadata": {}, "versions": [{"version": "v1", "resources": [{
            "resource": "pods", "responseKind": {"group": "", "version": "", "kind": "Pod"}, "scope": "Namespaced",
            "singularResource": "pod", "verbs": ["get"], "shortNames": ["po"], "categories": ["all"],
            "subresources": [{"subresource": "eviction", "responseKind": {"group": "policy", "version": "v1", "kind": "Eviction"},
                              "verbs": ["create"]}],
        }], "freshness": "Current"}]}],
    }  # fmt: skip
    stale = Version("metrics.k8s.io", "v1beta1", freshness="Stale")
    assert discovery.aggregated([CORE, stale], core=False)["items"] == [
        {"metadata": {"name": "metrics.k8s.io"}, "versions": [{"version": "v1beta1", "freshness": "Stale"}]}
    ]


def test_paths_for_the_index():
    assert discovery.paths([CORE, APPS]) == ["/api", "/api/v1", "/apis", "/apis/", "/apis/apps", "/apis/apps/v1"]


@pytest.mark.parametrize("body", [b"", b"{}"])
def test_entity_tags_are_quoted_digests(body):
    assert len(discovery.etag(body)) == 130 and discovery.etag(body)[0] == discovery.etag(body)[-1] == '"'


CRD = {
    "metadata": {"name": "widgets.example.com", "uid": "u", "generation": 1},
    "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}, "scale": {}}},
            {"name": "v1beta1", "served": True, "storage": False},
            {"name": "v1alpha1", "served": False, "storage": False},
        ],
    },
    "status": {
        "acceptedNames": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList", "shortNames": ["wd"]},
        "conditions": [{"type": "Established", "status": "True"}, {"type": "NamesAccepted", "status": "True"}],
    },
}  # fmt: skip


class Stored:
    def __init__(self, obj):
        self.json = orjson.dumps(obj)


def custom_versions(crd):
    return discovery.custom_versions([definition.read(Stored(crd), 2, 1)])


def test_custom_resources_appear_once_established():
    first, second = custom_versions(CRD)
    assert (first.group_version, second.group_version) == ("example.com/v1", "example.com/v1beta1")
    assert [r["name"] for r in first.resources] == ["widgets", "widgets/status", "widgets/scale"]
    assert first.resources[0]["shortNames"] == ["wd"] and first.resources[0]["storageVersionHash"]
    assert first.resources[0]["storageVersionHash"] == second.resources[0]["storageVersionHash"]
    assert first.resources[2]["group"] == "autoscaling" and first.resources[2]["kind"] == "Scale"
    assert [r["name"] for r in second.resources] == ["widgets"]
    assert custom_versions(CRD | {"status": {"conditions": []}}) == []


def test_a_terminating_definition_takes_no_new_objects():
    status = CRD["status"] | {"conditions": [*CRD["status"]["conditions"], {"type": "Terminating", "status": "True"}]}
    assert custom_versions(CRD | {"status": status})[0].resources[0]["verbs"] == ["delete", "deletecollection", "get", "list", "watch"]


def test_built_in_groups_in_upstream_order():
    versions = discovery.builtin_versions([r for r in BUILTIN.resources if r.served_by_default], BUILTIN.groups)
    groups = [g["name"] for g in discovery.group_list(versions)["groups"]]
    assert groups[:6] == ["apiregistration.k8s.io", "apps", "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "autoscaling"]
    assert groups[-1] == "flowcontrol.apiserver.k8s.io"
    assert discovery.group(discovery.by_group(versions), "autoscaling")["preferredVersion"]["version"] == "v2"
    everything = discovery.builtin_versions(BUILTIN.resources, BUILTIN.groups)
    found = discovery.group(discovery.by_group(everything), "resource.k8s.io")["versions"]
    assert [v["version"] for v in found] == ["v1", "v1beta2", "v1beta1", "v1alpha3"]


def test_subresources_follow_their_resource():
    versions = discovery.builtin_versions([r for r in BUILTIN.resources if r.served_by_default], BUILTIN.groups)
    core = next(v for v in versions if v.group_version == "v1")
    names = [r["name"] for r in core.resources]
    assert names == sorted(names) and "pods/eviction" in names
    eviction = core.resources[names.index("pods/eviction")]
    assert (eviction["group"], eviction["version"], eviction["kind"]) == ("policy", "v1", "Eviction")


def test_a_built_in_version_hides_a_definition():
    class Alone:
        def discovered(self, local, with_peers=True):
            return local

    built_in = discovery.Version("example.com", "v1", (), 2000, 9)
    hidden = discovery.custom_versions([definition.read(Stored(CRD), 2, 1)], answered=False)
    documents = Documents(lambda: [built_in, *hidden], None, "", None, Alone(), ())
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    (group,) = orjson.loads(documents.apis(request(path="/apis", accept=accept)).body)["items"]
    assert [(v["version"], len(v.get("resources", ()))) for v in group["versions"]] == [("v1beta1", 1), ("v1", 0)]


class Alone:
    """No other server answers anything."""

    def listed(self, local):
        return local

    def discovered(self, local, with_peers=True):
        return local


@pytest.mark.parametrize("path, accept", [
    ("/apis", "application/json"), ("/apis", "application/vnd.kubernetes.protobuf"), ("/apis/example.com", "application/json"),
    ("/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
])  # fmt: skip
def test_documents_of_many_versions_are_built_once_off_the_loop(monkeypatch, path, accept):
    """9,000 versions of a definition held the loop for 130 to 170 ms, and plain documents for some milliseconds at each request."""
    made: list[bool] = []

    def noted(name):
        make = getattr(documents_module, name)

        def noting(*args):
            made.append(threading.current_thread() is threading.main_thread())
            return make(*args)

        monkeypatch.setattr(documents_module, name, noting)

    for name in ("encode_json", "encode_protobuf", "write_json"):
        noted(name)
    bodies = []
    for count in (documents_module.MANY, documents_module.MANY + 1):
        versions = [Version("example.com", f"v{i}") for i in range(count)]
        documents = Documents(lambda versions=versions: versions, None, "", None, Alone(), ())

        async def asked(documents=documents):
            async def one():
                ask = documents.apis if path == "/apis" else documents.group_or_version
                found = ask(request(path=path, accept=accept))
                return found.body if isinstance(found, Response) else (await found).body

            return set(await asyncio.gather(*(one() for _ in range(5))))

        with asyncio.Runner() as runner:
            (body,) = runner.run(asked())
        bodies.append(body)
        if count > documents_module.MANY:
            assert made == [False]
        made.clear()
    assert len(bodies[1]) > len(bodies[0])


def test_other_formats_are_built_once_off_the_loop(monkeypatch):
    """Writing the core group's resources as YAML takes 25 ms, which each request did; another client's GET waited for fifty of them."""

    made: list[bool] = []

    def to_yaml(value):
        made.append(threading.current_thread() is threading.main_thread())
        return yaml.safe_dump(value).encode()

    monkeypatch.setattr(respond, "to_yaml", to_yaml)
    shown = discovery.builtin_versions([r for r in BUILTIN.resources if r.served_by_default], BUILTIN.groups)
    documents = Documents(lambda: shown, None, "", None, Alone(), ())

    async def several(path, accept):
        ask = documents.apis if path == "/apis" else documents.group_or_version

        async def one():
            found = ask(request(path=path, accept=accept))
            return found.body if isinstance(found, Response) else (await found).body

        return set(await asyncio.gather(*(one() for _ in range(5))))

    everything = "application/yaml;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    with asyncio.Runner() as runner:
        for path, accept in (("/api/v1", "application/yaml"), ("/apis", everything)):
            (first,) = runner.run(several(path, accept))
            (again,) = runner.run(several(path, accept))
            assert first == again and made == [False]
            shown = shown[:-1]
            documents.refresh()
            (later,) = runner.run(several(path, accept))
            assert made == [False, False] and (later == first) == (path == "/api/v1")
            made.clear()


def test_requests_for_peer_discovery_are_counted():
    metrics = Metrics()
    documents = Documents(list, None, "", None, Alone(), ())
    aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    documents.apis(request(path="/apis", accept=aggregated))  # no other servers are asked
    documents.refresh_discovery()
    documents.counts = PeerMetrics(metrics).discovery
    for accept in (*[aggregated] * 3, *[f"{aggregated};profile=nopeer"] * 2, "application/json"):
        documents.apis(request(path="/apis", accept=accept))
    told = ("nopeer_requests", "peer_aggregated_cache_hits", "peer_aggregated_cache_misses")
    assert [metrics.metrics[f"aggregator_discovery_{what}_total"].values.get(()) for what in told] == [2, 2, 1]

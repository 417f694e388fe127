"""Benchmarks of the pure functions of the API layer. Run with ``pytest bench/test_api.py --benchmark-enable``."""

import orjson
import pytest

from kas.meta import names
from kas.meta.objectmeta import validate_object_meta
from kas.meta.selectors import parse_field_selector, parse_label_selector
from kas.patch import jsonpatch, mergepatch, strategicmerge
from kas.request import negotiation
from kas.request.requestinfo import Query, parse
from kas.types.fieldlabels import selectable_fields
from kas.types.scheme import BUILTIN

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web-7d4b9c6f5-x2x7q",
        "namespace": "default",
        "labels": {"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "web-1", "pod-template-hash": "7d4b9c6f5", "tier": "x"},
        "annotations": {"example.com/checksum": "0123456789abcdef", "kubectl.kubernetes.io/restartedAt": "2024-01-02T03:04:05Z"},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b9c6f5", "uid": "1", "controller": True}],
    },
    "spec": {
        "nodeName": "n1",
        "containers": [{"name": f"c{i}", "image": "nginx:1", "env": [{"name": f"E{j}", "value": "x"} for j in range(9)]} for i in range(3)],
    },
    "status": {"phase": "Running", "podIP": "10.0.0.1"},
}


def test_request_info(benchmark):
    assert benchmark(parse, "GET", "/api/v1/namespaces/default/configmaps/x", b"").name == "x"


def test_request_info_of_a_watch(benchmark):
    query = b"watch=1&resourceVersion=1234&allowWatchBookmarks=true&timeoutSeconds=301"
    assert benchmark(parse, "GET", "/apis/apps/v1/deployments", query).verb == "watch"


def test_query(benchmark):
    assert benchmark(lambda: Query(b"fieldManager=kubectl&dryRun=All").get("dryRun")) == "All"


@pytest.mark.parametrize("accept", ["application/json", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"])
def test_negotiate(benchmark, accept):
    assert benchmark(negotiation.negotiate, accept).media_type == "application/json"


def test_parse_label_selector(benchmark):
    assert len(benchmark(parse_label_selector, "app.kubernetes.io/name=web,tier in (front,back)").requirements) == 2


def test_parse_field_selector(benchmark):
    assert len(benchmark(parse_field_selector, "spec.nodeName=n1,status.phase!=Failed").requirements) == 2


def test_match_labels(benchmark):
    assert benchmark(parse_label_selector("tier in (x,back),!x").matches, POD["metadata"]["labels"])


def test_selectable_fields(benchmark):
    assert benchmark(selectable_fields, BUILTIN.resource("", "v1", "pods"), POD)["spec.nodeName"] == "n1"


def test_validate_object_meta(benchmark):
    assert benchmark(validate_object_meta, POD["metadata"], True, names.dns_subdomain) == []


def test_json_patch(benchmark):
    text = orjson.dumps([{"op": "replace", "path": "/spec/containers/1/image", "value": "nginx:2"}])
    assert benchmark(lambda: jsonpatch.apply(POD, jsonpatch.decode(text)))["spec"]["containers"][1]["image"] == "nginx:2"


def test_merge_patch(benchmark):
    assert benchmark(mergepatch.apply, POD, b'{"metadata":{"labels":{"tier":"back"}}}')["metadata"]["labels"]["tier"] == "back"


def test_strategic_merge_patch(benchmark):
    patch = {"spec": {"containers": [{"name": "c1", "image": "nginx:2", "env": [{"name": "E3", "value": "y"}]}]}}
    got = benchmark(strategicmerge.apply, POD, patch, BUILTIN.kind("", "v1", "Pod").type)
    assert len(got["spec"]["containers"][0]["env"]) == 9 and got["spec"]["containers"][0]["name"] == "c0"

"""Go's internal structs as errors print them: recorded texts, and every list and map of these types, empty and absent."""

from __future__ import annotations

import json

import orjson
import pytest

from kas.meta import field
from kas.types import gostruct
from kas.types.gostruct import MAX_DIFF_LINES, diff, render, render_list, served, sorted_map, spec_diff
from kas.types.scheme import BUILTIN

# As kube-apiserver 1.36.2 printed them.
RECORDED = [
    ("core.ServicePort", {"protocol": "TCP", "port": 80},
     '{"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,"NodePort":0}'),
    ("apps.DeploymentStrategy", {"type": "0", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": "25%"}},
     '{"Type":"0","RollingUpdate":{"MaxUnavailable":1,"MaxSurge":"25%"}}'),
    ("policy.PodDisruptionBudgetSpec", {"minAvailable": 1, "maxUnavailable": 1},
     '{"MinAvailable":1,"Selector":null,"MaxUnavailable":1,"UnhealthyPodEvictionPolicy":null}'),
    ("batch.PodFailurePolicy", {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1, 65536]}}]},
     '{"Rules":[{"Action":"FailJob","OnExitCodes":{"ContainerName":null,"Operator":"In","Values":[1,65536]},"OnPodConditions":null}]}'),
    ("rbac.RoleRef", {"apiGroup": "rbac.authorization.k8s.iox", "kind": "ClusterRole", "name": "TCP"},
     '{"APIGroup":"rbac.authorization.k8s.iox","Kind":"ClusterRole","Name":"TCP"}'),
    ("storage.VolumeAttachmentSpec", {"attacher": "gce", "source": {}, "nodeName": "localhost"},
     '{"Attacher":"gce","Source":{"PersistentVolumeName":null,"InlineVolumeSpec":null},"NodeName":"localhost"}'),
    ("meta.LabelSelector", {"matchLabels": {}}, "{}"),
]  # fmt: skip


@pytest.mark.parametrize("name,value,text", RECORDED, ids=[name for name, _, _ in RECORDED])
def test_structs_print_as_recorded(name, value, text) -> None:
    assert field.go_value(render(name, value)) == text


def test_members_of_lists_keep_all_their_keys() -> None:
    terms = [{"matchExpressions": [{"key": "k", "operator": "In", "values": ["b", "a"]}]}]
    assert field.go_value(render("core.NodeSelector", {"nodeSelectorTerms": terms})) == (
        '{"NodeSelectorTerms":[{"MatchExpressions":[{"Key":"k","Operator":"In","Values":["b","a"]}],"MatchFields":null}]}'
    )
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "blockOwnerDeletion": True}]
    assert render("core.PodTemplateSpec", {"metadata": {"ownerReferences": owners}})["ownerReferences"] == owners


def test_tagged_types_print_as_they_are_served() -> None:
    selector = {"matchExpressions": [{"values": [], "operator": "Exists", "key": "a"}], "matchLabels": {"b": "1", "a": "2"}}
    assert field.go_value(render("meta.LabelSelector", selector)) == (
        '{"matchLabels":{"a":"2","b":"1"},"matchExpressions":[{"key":"a","operator":"Exists"}]}'
    )
    assert field.go_value(served("scheduling.v1alpha2.PodGroupTemplate", {"name": "n"})).startswith('{"name":"n"')
    assert served("scheduling.v1alpha2.WorkloadSpec", [], "podGroupTemplates") == []


def test_maps_print_in_the_order_of_their_keys() -> None:
    assert field.go_value(sorted_map({"b": "1", "a": "2"})) == '{"a":"2","b":"1"}'
    assert sorted_map(None) is None
    assert render_list("core.PodIP", None) is None
    assert render_list("core.PodIP", []) == []


def test_host_namespaces_are_in_the_security_context() -> None:
    shown = render("core.PodSpec", {"hostNetwork": True, "hostUsers": False})
    assert list(shown["SecurityContext"])[:5] == ["HostNetwork", "HostPID", "HostIPC", "ShareProcessNamespace", "HostUsers"]
    assert shown["SecurityContext"]["HostNetwork"] is True and shown["SecurityContext"]["HostUsers"] is False
    assert "HostNetwork" not in shown and "ServiceAccount" not in shown


def test_diffs_show_three_lines_around_a_change() -> None:
    before, after = {"accessModes": ["ReadWriteOnce"]}, {"accessModes": []}
    assert spec_diff("core.PersistentVolumeClaimSpec", before, after) == (
        '@@ -1,7 +1,5 @@\n {\n- "AccessModes": [\n-  "ReadWriteOnce"\n- ],\n+ "AccessModes": [],\n  "Selector": null,\n  "Resources": {\n'
        '   "Limits": null,\n'
    )


INTERNAL = [n for n in BUILTIN.types if n.startswith("io.k8s.api.") and n.split(".")[4] == "v1" and BUILTIN.types[n].custom_json is None]


@pytest.mark.parametrize("name", INTERNAL, ids=[n.removeprefix("io.k8s.api.") for n in INTERNAL])
def test_every_list_and_map_shows_whether_it_is_present(name) -> None:
    type_ = BUILTIN.types[name]
    short = name.removeprefix("io.k8s.api.")
    absent = render(short, {})
    empty = render(short, {f.name: [] if f.card == "list" else {} for f in type_.json_fields if f.card != "single"})
    assert absent.keys() == empty.keys()
    differing = [(absent[go], value) for go, value in empty.items() if value != absent[go]]
    assert all(was is None and now in ([], {}) for was, now in differing)
    assert len(differing) == sum(f.card != "single" for f in type_.json_fields)
    orjson.dumps(empty)


def test_a_long_difference_is_one_change():
    old = [{"name": f"n{i}", "value": i} for i in range(2000)]
    new = [*old[:1000], {"name": "x", "value": -1}, *old[1001:]]
    lines = diff(old, new).split("\n")
    assert lines[0].startswith("@@ -4") and lines[0].endswith("@@")
    changed = [line for line in lines[1:] if line and line[0] in "+-"]
    assert changed == ['-  "name": "n1000",', '-  "value": 1000', '+  "name": "x",', '+  "value": -1']
    assert diff(old, old) == ""
    assert len(diff(old, [{"other": i} for i in range(2000)]).split("\n")) <= MAX_DIFF_LINES + 10


def test_lines_are_made_one_by_one(monkeypatch):
    """The whole text, which is 50 MB for a pod with thousands of volumes, kept the interpreter's lock for 50 ms at a time."""
    value = {"a": [{}, [], {"b\n": "<&>\n", "c": [None, 1.5, True, ["\u2028"]]}], "d": "", "e": {"f": {"g": []}}}
    text = json.dumps(value, indent=1, ensure_ascii=False).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    monkeypatch.setattr(json.JSONEncoder, "encode", None)
    assert gostruct._lines(value) == text.split("\n")
    assert gostruct._lines("<") == ['"\\u003c"']

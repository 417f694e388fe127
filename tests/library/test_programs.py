"""The programs of docs/library.md, unchanged."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote

import pytest

from kas.endpoints.sharding import field_hash
from tests.library.calling import Caller

DOCS = Path(__file__).parents[2] / "docs"
FLAGS: dict[str, Any] = {"secure_port": "auto", "unsafe_no_fsync": True}
PLATFORM, HELPDESK = "/apis/platform.example.com/v1", "/apis/helpdesk.example.com/v1"


def program(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    server = program("teams").build(str(tmp_path_factory.mktemp("platform") / "data"), {"ada-token": "ada"}, workers=2, **FLAGS)
    with server:
        yield server


def test_the_platform_serves_its_kinds_and_no_workloads(platform):
    call = Caller(platform)
    resources = {r["name"] for r in call("GET", PLATFORM)[1]["resources"]}
    assert resources == {"teams", "environments", "databases", "databases/status"}
    core = {r["name"].partition("/")[0] for r in call("GET", "/api/v1")[1]["resources"]}
    assert core == {"configmaps", "events", "namespaces", "resourcequotas", "secrets", "serviceaccounts"}
    groups = {g["name"] for g in call("GET", "/apis")[1]["groups"]}
    assert "rbac.authorization.k8s.io" in groups and not groups & {"apps", "batch", "storage.k8s.io", "networking.k8s.io"}
    assert call("GET", "/api/v1/pods")[0] == 404 and call("GET", "/api/v1/namespaces/default/services/kubernetes")[0] == 404
    assert call("GET", "/readyz/poststarthook/platform-definitions")[0] == 200


def test_the_platform_enforces_its_rules(platform):
    call = Caller(platform)
    environment = {"apiVersion": "platform.example.com/v1", "kind": "Environment", "metadata": {"name": "e"}, "spec": {"team": "blue"}}
    path = f"{PLATFORM}/namespaces/default/environments"
    code, e = call("POST", path, environment)
    assert (code, e["message"]) == (403, 'environments.platform.example.com "e" is forbidden: there is no team blue')
    team = {"apiVersion": "platform.example.com/v1", "kind": "Team", "metadata": {"name": "blue"}, "spec": {"members": ["ada"]}}
    assert call("POST", f"{PLATFORM}/teams", team)[0] == 201
    code, made = call("POST", path, environment)
    assert code == 201 and made["spec"] == {"stage": "dev", "team": "blue"}
    database = {"apiVersion": "platform.example.com/v1", "kind": "Database", "metadata": {"name": "d"}, "spec": {"sizeGiB": 20}}
    databases = f"{PLATFORM}/namespaces/default/databases"
    assert call("POST", databases, database)[0] == 201
    code, e = call("PATCH", f"{databases}/d", {"spec": {"sizeGiB": 5}}, "application/merge-patch+json")
    assert code == 422 and "a database cannot shrink" in e["message"]


def test_the_platform_has_its_users(platform):
    ada = Caller(platform, "ada-token")
    assert ada("GET", f"{PLATFORM}/teams")[0] == 200
    code, e = ada("POST", f"{PLATFORM}/teams", {})
    assert code == 403 and 'User "ada" cannot create resource "teams"' in e["message"]
    assert Caller(platform, "nobodys")("GET", f"{PLATFORM}/teams")[0] == 401


@pytest.fixture(scope="module")
def helpdesk(tmp_path_factory):
    gates = {"feature_gates": {"": ["ShardedListAndWatch=true"]}}
    with program("tickets").build(str(tmp_path_factory.mktemp("helpdesk") / "data"), workers=2, **FLAGS, **gates) as server:
        yield server


def ticket(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "helpdesk.example.com/v1", "kind": "Ticket", "metadata": {"name": name, "labels": {"of": name}},
        "spec": {"title": "it is broken", **spec},
    }  # fmt: skip


def test_rows_are_objects(helpdesk):
    call, path = Caller(helpdesk), f"{HELPDESK}/namespaces/default/tickets"
    code, made = call("POST", path, ticket("a"))
    assert code == 201 and made["spec"]["priority"] == 3 and made["metadata"]["uid"] and made["metadata"]["resourceVersion"]
    assert call("POST", path, ticket("a"))[1]["reason"] == "AlreadyExists"
    assert call("POST", path, ticket("b", priority=9))[0] == 422
    code, changed = call("PATCH", f"{path}/a", {"spec": {"priority": 1}}, "application/merge-patch+json")
    assert code == 200 and changed["metadata"]["generation"] == 2
    stale = {**changed, "metadata": {**changed["metadata"], "resourceVersion": made["metadata"]["resourceVersion"]}}
    assert call("PUT", f"{path}/a", stale)[1]["reason"] == "Conflict"
    close = {"status": {"state": "closed"}, "spec": {"priority": 5}}
    code, closed = call("PATCH", f"{path}/a/status", close, "application/merge-patch+json")
    assert code == 200 and (closed["status"], closed["spec"]["priority"]) == ({"state": "closed"}, 1)
    # Workers see the same rows.
    for _ in range(8):
        assert Caller(helpdesk)("GET", f"{path}/a")[1] == closed
    assert call("DELETE", f"{path}/a")[1]["status"] == "Success"
    assert call("GET", f"{path}/a")[0] == 404


def test_rows_are_listed_selected_and_printed(helpdesk):
    call, path = Caller(helpdesk), f"{HELPDESK}/namespaces/listed/tickets"
    assert call("POST", "/api/v1/namespaces", {"metadata": {"name": "listed"}})[0] == 201
    for name in ("b", "a", "c"):
        assert call("POST", path, ticket(name))[0] == 201

    def names(query: str) -> list[str]:
        return [o["metadata"]["name"] for o in call("GET", path + query)[1]["items"]]

    assert names("") == ["a", "b", "c"]
    assert names("?labelSelector=of%20in%20(a,c)") == ["a", "c"] and names("?fieldSelector=metadata.name%3Db") == ["b"]
    table = call("GET", path, accept="application/json;as=Table;v=v1;g=meta.k8s.io")[1]
    assert [c["name"] for c in table["columnDefinitions"]] == ["Name", "Title", "State"]
    assert [row["cells"][:2] for row in table["rows"]] == [[name, "it is broken"] for name in "abc"]
    partial = call("GET", path, accept="application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")[1]
    assert [o["kind"] for o in partial["items"]] == ["PartialObjectMetadata"] * 3
    assert call("GET", path, accept="application/vnd.kubernetes.protobuf")[0] == 406
    assert call("GET", path, accept="application/yaml")[0] == 200
    assert len(call("DELETE", f"{path}?labelSelector=of%20in%20(a,c)")[1]["items"]) == 2
    assert names("") == ["b"]


def test_rows_are_listed_in_pages(helpdesk):
    call, path = Caller(helpdesk), f"{HELPDESK}/namespaces/paged/tickets"
    assert call("POST", "/api/v1/namespaces", {"metadata": {"name": "paged"}})[0] == 201
    for name in ("b", "a-b", "a", "c", "d"):
        assert call("POST", path, ticket(name))[0] == 201
    pages, token = [], ""
    while True:
        found = call("GET", f"{path}?limit=2&continue={token}")[1]
        token = found["metadata"].get("continue") or ""
        pages.append(([o["metadata"]["name"] for o in found["items"]], found["metadata"].get("remainingItemCount")))
        if len(pages) == 1:
            # A page shows the current state after the end of the last one: no object comes twice.
            assert call("DELETE", f"{path}/a-b")[0] == 200 and call("POST", path, ticket("a-a"))[0] == 201
        if not token:
            break
    assert pages == [(["a", "a-b"], 3), (["b", "c"], 1), (["d"], None)]
    selected = call("GET", f"{path}?limit=1&labelSelector=of%20in%20(a,b)")[1]["metadata"]
    assert selected["continue"] and "remainingItemCount" not in selected
    assert [o["metadata"]["name"] for o in call("DELETE", f"{path}?limit=2")[1]["items"]] == ["a", "a-a"]
    assert call("GET", f"{path}?limit=1&continue=nonsense")[0] == 400


def test_a_dry_run_changes_no_row(helpdesk):
    call, path = Caller(helpdesk), f"{HELPDESK}/namespaces/default/tickets"
    code, made = call("POST", f"{path}?dryRun=All", ticket("tried"))
    assert code == 201 and made["spec"]["priority"] == 3 and call("GET", f"{path}/tried")[0] == 404
    assert call("POST", f"{path}?dryRun=All", ticket("tried", priority=9))[0] == 422
    assert call("POST", path, ticket("tried"))[0] == 201
    merge = "application/merge-patch+json"
    assert call("PATCH", f"{path}/tried?dryRun=All", {"spec": {"priority": 1}}, merge)[1]["spec"]["priority"] == 1
    assert call("DELETE", f"{path}/tried?dryRun=All")[0] == 200
    assert call("GET", f"{path}/tried")[1]["spec"]["priority"] == 3


def test_rows_are_applied(helpdesk):
    call, path = Caller(helpdesk), f"{HELPDESK}/namespaces/default/tickets/applied"
    apply = "application/apply-patch+yaml"
    assert call("PATCH", f"{path}?fieldManager=one", ticket("applied", priority=2), apply)[0] == 201
    code, e = call("PATCH", f"{path}?fieldManager=two", ticket("applied", priority=4), apply)
    assert (code, e["reason"], e["details"]["causes"][0]["field"]) == (409, "Conflict", ".spec.priority")
    assert call("PATCH", f"{path}?fieldManager=two&force=true", ticket("applied", priority=4), apply)[1]["spec"]["priority"] == 4
    assert call("PUT", path + "?dryRun=All", ticket("applied", priority=1))[1]["spec"]["priority"] == 1
    assert call("GET", path)[1]["spec"]["priority"] == 4


def test_rows_are_kept_by_finalizers(helpdesk):
    call, path = Caller(helpdesk), f"{HELPDESK}/namespaces/default/tickets"
    held = ticket("held")
    held["metadata"]["finalizers"] = ["example.com/later"]
    assert call("POST", path, held)[0] == 201
    code, marked = call("DELETE", f"{path}/held")
    assert code == 200 and marked["metadata"]["deletionTimestamp"]
    assert call("PATCH", f"{path}/held", {"metadata": {"finalizers": None}}, "application/merge-patch+json")[0] == 200
    assert call("GET", f"{path}/held")[0] == 404


def test_rows_are_watched(helpdesk):
    call, path = Caller(helpdesk), f"{HELPDESK}/namespaces/watched/tickets"
    assert call("POST", "/api/v1/namespaces", {"metadata": {"name": "watched"}})[0] == 201
    version = call("GET", path)[1]["metadata"]["resourceVersion"]
    with Caller(helpdesk).watch(f"{path}?watch=true&resourceVersion={version}&labelSelector=of%3Da") as events:
        for name in ("a", "b"):
            assert call("POST", path, ticket(name))[0] == 201
        assert call("PATCH", f"{path}/a", {"spec": {"priority": 1}}, "application/merge-patch+json")[0] == 200
        assert call("PATCH", f"{path}/b", {"metadata": {"labels": {"of": "a"}}}, "application/merge-patch+json")[0] == 200
        assert call("PATCH", f"{path}/a", {"metadata": {"labels": {"of": "b"}}}, "application/merge-patch+json")[0] == 200
        found = [(e["type"], e["object"]["metadata"]["name"]) for e in (next(events) for _ in range(4))]
    assert found == [("ADDED", "a"), ("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")]
    with Caller(helpdesk).watch(f"{path}?watch=true&timeoutSeconds=1") as events:
        assert sorted(e["object"]["metadata"]["name"] for e in events) == ["a", "b"]


def test_a_resumed_watch_reports_rows_no_longer_selected(helpdesk):
    call, path, merge = Caller(helpdesk), f"{HELPDESK}/namespaces/resumed/tickets", "application/merge-patch+json"
    assert call("POST", "/api/v1/namespaces", {"metadata": {"name": "resumed"}})[0] == 201
    for name in ("a", "b", "c"):
        assert call("POST", path, ticket(name))[0] == 201
    query = "watch=true&labelSelector=of%20in%20(a,b)"
    version = call("GET", path)[1]["metadata"]["resourceVersion"]
    with Caller(helpdesk).watch(f"{path}?{query}&resourceVersion={version}") as events:
        assert call("PATCH", f"{path}/a", {"metadata": {"labels": {"of": "x"}}}, merge)[0] == 200
        assert call("PATCH", f"{path}/b", {"spec": {"priority": 1}}, merge)[0] == 200
        assert call("DELETE", f"{path}/b")[0] == 200
        found = [(e["type"], e["object"]["metadata"]["name"]) for e in (next(events) for _ in range(3))]
    assert found == [("DELETED", "a"), ("MODIFIED", "b"), ("DELETED", "b")]
    # Names do not change: nothing is reported of others.
    version = call("GET", path)[1]["metadata"]["resourceVersion"]
    with Caller(helpdesk).watch(f"{path}?watch=true&fieldSelector=metadata.name%3Da&resourceVersion={version}") as events:
        for name in ("c", "a"):
            assert call("PATCH", f"{path}/{name}", {"spec": {"priority": 2}}, merge)[0] == 200
        assert next(events)["object"]["metadata"]["name"] == "a"


def test_rows_are_in_shards(helpdesk):
    call, path = Caller(helpdesk), f"{HELPDESK}/namespaces/sharded/tickets"
    assert call("POST", "/api/v1/namespaces", {"metadata": {"name": "sharded"}})[0] == 201
    made = {name: call("POST", path, ticket(name))[1]["metadata"] for name in "abcdef"}
    in_low = [name for name, meta in made.items() if not field_hash(meta["uid"]) >> 63]
    low = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"
    asked = "shardSelector=" + quote(low)
    found = call("GET", f"{path}?{asked}")[1]
    assert [o["metadata"]["name"] for o in found["items"]] == in_low and found["metadata"]["shardInfo"] == {"selector": low}
    assert "remainingItemCount" not in call("GET", f"{path}?limit=1&{asked}")[1]["metadata"]
    version = call("GET", path)[1]["metadata"]["resourceVersion"]
    with Caller(helpdesk).watch(f"{path}?watch=true&resourceVersion={version}&{asked}") as events:
        assert [o["metadata"]["name"] for o in call("DELETE", f"{path}?{asked}")[1]["items"]] == in_low
        assert [(e["type"], e["object"]["metadata"]["name"]) for e in (next(events) for _ in in_low)] == [("DELETED", n) for n in in_low]
    assert [o["metadata"]["name"] for o in call("GET", path)[1]["items"]] == [name for name in made if name not in in_low]


def test_initial_events_of_a_virtual_watch_have_an_end(helpdesk):
    call, path = Caller(helpdesk), f"{HELPDESK}/namespaces/initial/tickets"
    assert call("POST", "/api/v1/namespaces", {"metadata": {"name": "initial"}})[0] == 201
    for name in ("a", "b"):
        assert call("POST", path, ticket(name))[0] == 201
    version = call("GET", path)[1]["metadata"]["resourceVersion"]
    query = "watch=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    with Caller(helpdesk).watch(f"{path}?{query}&sendInitialEvents=true&labelSelector=of%21%3Db") as events:
        first, end = next(events), next(events)
        assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "a")
        assert (end["type"], end["object"]["metadata"]["annotations"]) == ("BOOKMARK", {"k8s.io/initial-events-end": "true"})
        assert end["object"]["metadata"]["resourceVersion"] == version
        assert call("DELETE", f"{path}/b")[0] == call("DELETE", f"{path}/a")[0] == 200
        assert next(events)["object"]["metadata"]["name"] == "a"  # the client never had the other one
    with Caller(helpdesk).watch(f"{path}?{query}&sendInitialEvents=false") as events:
        assert call("POST", path, ticket("new"))[0] == 201
        assert next(events)["object"]["metadata"]["name"] == "new"


def test_a_virtual_group_is_discovered(helpdesk):
    call = Caller(helpdesk)
    (tickets, status) = call("GET", HELPDESK)[1]["resources"]
    assert (tickets["name"], tickets["shortNames"], status["name"]) == ("tickets", ["tk"], "tickets/status")
    assert set(tickets["verbs"]) == {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
    assert "com.example.helpdesk.v1.Ticket" in call("GET", "/openapi/v3/apis/helpdesk.example.com/v1")[1]["components"]["schemas"]
    services = "/apis/apiregistration.k8s.io/v1/apiservices"
    assert call("GET", f"{services}/v1.helpdesk.example.com")[0] == 200
    assert call("GET", f"{HELPDESK}/tickets")[0] == 200 and call("POST", f"{HELPDESK}/tickets", ticket("x"))[0] == 404
    assert call("GET", "/api/v1/namespaces/default/services/kubernetes")[0] == 200  # and everything else is served as usual


@pytest.mark.parametrize("name", ["teams", "tickets"])
def test_the_programs_run_from_the_command_line(name, tmp_path):
    """As their docstrings say, except for the port."""
    command = [sys.executable, str(DOCS / f"{name}.py"), str(tmp_path / "data"), "secure_port=auto", "unsafe_no_fsync=true", "workers=1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    killer = threading.Timer(120, process.kill)
    killer.start()
    try:
        assert process.stdout is not None
        assert any(line.startswith("kas ready on https://127.0.0.1:") for line in process.stdout)
        process.terminate()
        assert process.wait(60) == 0
    finally:
        killer.cancel()
        process.kill()
        process.wait()
